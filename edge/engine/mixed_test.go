package engine

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// M02, K04, I12: whatever goes wrong in whatever phase, every request ends one
// way, nothing stays counted in, and the limit of the app is free afterwards.
// The rig's audit compares the books at the end.
func TestOddEndingsInEveryPhaseLeaveTheBooksStraight(t *testing.T) {
	o := newTCPOrigin(t, func(s *stage) {
		for {
			r, ok := s.read()
			if !ok {
				return
			}
			switch r.URL.Path {
			case "/die":
				s.reset()
				return
			case "/cut":
				s.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
				return
			case "/bad":
				s.say("nonsense\r\n\r\n")
				return
			case "/early":
				s.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
				return
			case "/up":
				s.say("%s", switching)
				_, _ = io.Copy(s, s.r)
				return
			case "/big":
				s.say("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
				_, _ = io.CopyN(s, zeros{}, 1000000)
			default:
				_, _ = io.Copy(io.Discard, r.Body)
				s.ok("fine")
			}
		}
	})
	r := newRig(t, rigOptions{app: edge.AppConfig{MaxInFlight: 8, MaxBody: 1000}})
	r.app.Place(o.placement(1))
	requests := []string{
		"GET /fine HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"GET /die HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"GET /cut HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"GET /bad HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"GET /big HTTP/1.1\r\nHost: app.test\r\n\r\n",
		"GET /up HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nbytes",
		"POST /early HTTP/1.1\r\nHost: app.test\r\nContent-Length: 900\r\n\r\nsome",
		"POST /fine HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\nbody",
		"POST /fine HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2000\r\n\r\n",
		"POST /fine HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n",
		"GARBAGE\r\n\r\n",
		"GET /fine HTTP/1.1\r\nHost: app.test\r\n",
	}
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 150 {
				c := r.dial()
				_ = c.SetDeadline(time.Now().Add(100 * time.Millisecond)) // some get no answer
				_, _ = io.WriteString(c, requests[(i+worker)%len(requests)])
				switch (i / len(requests)) % 3 {
				case 0:
					_, _ = io.CopyN(io.Discard, c.r, 20)
					c.rst()
				case 1:
					_ = c.Conn.(*net.TCPConn).CloseWrite() // it may be over already
					_, _ = io.Copy(io.Discard, c.r)
				default:
					c.rst()
				}
				c.Close()
			}
		})
	}
	wg.Wait()
	eventually(t, "all connections ended", func() bool { return r.srv.Connections() == 0 })
	if s := r.app.Stats(); s.Open() != 0 || s.InFlight != 0 || s.Streams != 0 { // a connection ends after its requests
		t.Fatalf("%+v", s)
	}
	var clients []*client
	for i := range 8 { // every place under the limit is free
		c := r.dial()
		c.send(fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nx", i))
		clients = append(clients, c)
	}
	eventually(t, "eight inside", func() bool { return r.app.Activity().InFlight == 8 })
	over := r.dial()
	over.get("/")
	over.status(http.StatusServiceUnavailable)
	for _, c := range clients {
		c.send("x")
		c.want(200, "fine")
	}
	eventually(t, "nobody inside", func() bool { return r.app.Activity().InFlight == 0 })
	if !r.app.TrySleep(1, edge.Placement{State: edge.Asleep}) {
		t.Error("the app cannot sleep")
	}
}
