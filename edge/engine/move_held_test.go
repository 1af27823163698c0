package engine

import (
	"io"
	"net/http"
	"runtime"
	"sync/atomic"
	"testing"
)

// writing is how many connections wait for their clients to take bytes.
func (s *Server) writing() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if oneOf(c.clock.now(), []phase{phaseWrite, phaseTake}) {
			n++
		}
	}
	return n
}

// A pipe is two descriptors, and pages that nobody counts: clients that take nothing
// hold none, be they more than there are wide buffers for what they do not take.
func TestClientsThatTakeNothingHoldNoPipe(t *testing.T) {
	const size, many = 24 << 20, 100
	body := noise(size)
	for name, app := range map[string]func(testing.TB, func(*stage)) *origin{"socket": newOrigin, "port": newTCPOrigin} {
		t.Run(name, func(t *testing.T) {
			var ended atomic.Int64
			o := app(t, each(func(s *stage, _ *http.Request) {
				s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
				_, _ = s.Write(body)
				ended.Add(1)
			}))
			r := newRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			before := openPipes(t)
			for range many {
				c := r.dial()
				c.get("/")
				if _, err := io.CopyN(io.Discard, c.r, 1000); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "all clients are waited for", func() bool { return r.srv.writing() == many })
			if n := ended.Load(); n > 0 {
				t.Fatalf("%d clients have all", n)
			}
			eventually(t, "no pipe of a client's own", func() bool {
				runtime.GC() // under the race detector many are given up
				return (openPipes(t)-before)/2 < many/5
			})
		})
	}
}
