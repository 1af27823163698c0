package main

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// sleep answers after ?d= (1s), unless the client leaves.
func (a *app) sleep(w http.ResponseWriter, r *http.Request) {
	d := duration(r, "d", time.Second)
	if wait(r, d) {
		fmt.Fprintf(w, "slept %s in %s\n", d, version)
	}
}

// wait returns false if the client left.
func wait(r *http.Request, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.Context().Done():
		return false
	}
}

// events sends server-sent events ?every= (1s), until the client leaves, the
// app stops, or ?n= are sent.
func (a *app) events(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	every, most := duration(r, "every", time.Second), number(r, "n", 1<<30, 1<<30)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	flush := http.NewResponseController(w)
	for i := 1; i <= most; i++ {
		fmt.Fprintf(w, "id: %d\ndata: event %d from %s\n\n", i, i, version)
		if flush.Flush() != nil {
			return
		}
		select {
		case <-ticker.C:
		case <-r.Context().Done():
			return
		case <-a.streams.Done():
			return
		}
	}
}

// slowBody sends ?n= (10) lines, one ?every= (100ms).
func (a *app) slowBody(w http.ResponseWriter, r *http.Request) {
	lines, every := number(r, "n", 10, 1<<20), duration(r, "every", 100*time.Millisecond)
	flush := http.NewResponseController(w)
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(w, "line %d of %d from %s\n", i, lines, version)
		if flush.Flush() != nil || i < lines && !wait(r, every) {
			return
		}
	}
}

// big sends ?n= (1 MiB) bytes, the letters a to z over and over.
func (a *app) big(w http.ResponseWriter, r *http.Request) {
	left := number(r, "n", 1<<20, 1<<34)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(left))
	// A whole number of alphabets, so that blocks join without a seam.
	block := make([]byte, 26*1024)
	for i := range block {
		block[i] = byte('a' + i%26)
	}
	for left > 0 {
		n, err := w.Write(block[:min(left, len(block))])
		if err != nil {
			return
		}
		left -= n
	}
}
