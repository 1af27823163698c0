package admin

import (
	"net/http"
	"time"
)

// How long what a client still sends is read after its answer, and how long it may
// send nothing meanwhile.
const (
	lingerMost  = 30 * time.Second
	lingerQuiet = 2 * time.Second
)

// lingering reads on after an answer that came before the end of the request's body: an
// upload that does not fit, say. Closing the connection under a client that is still
// sending loses it the answer: its write fails before it reads.
func lingering(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body == http.NoBody {
			next.ServeHTTP(w, r)
			return
		}
		body, rc := r.Body, http.NewResponseController(w)
		_ = rc.EnableFullDuplex() // what is left is read here, and not before the answer
		next.ServeHTTP(w, r)
		_ = rc.Flush()
		buf := make([]byte, 32<<10)
		end := time.Now().Add(lingerMost)
		for now := time.Now(); now.Before(end); now = time.Now() {
			_ = rc.SetReadDeadline(now.Add(lingerQuiet))
			if _, err := body.Read(buf); err != nil {
				break // io.EOF, mostly at once
			}
		}
		_ = rc.SetReadDeadline(time.Time{})
	})
}
