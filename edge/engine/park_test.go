package engine

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

func TestParkedRequestsAreAnsweredWhenTheAppServes(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.ok(r.URL.Path + string(b))
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(edge.Placement{State: edge.Asleep})
	const n = 60
	var clients []*client
	for i := range n {
		c := r.dial()
		c.send(fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: app.test\r\nContent-Length: 6\r\n\r\nbody", i))
		clients = append(clients, c)
		eventually(t, "parked", func() bool { return r.app.Stats().Parked == i+1 })
	}
	if w := r.wake.Load(); w != n {
		t.Errorf("%d wakes asked for, want one per request", w)
	}
	if o.conns.Load() != 0 {
		t.Error("something was forwarded to an app that sleeps")
	}
	r.app.Place(edge.Placement{State: edge.Waking})
	r.app.Place(o.placement(1))
	for _, c := range clients {
		c.send("15") // the body of a parked request is not read, and not lost
	}
	for i, c := range clients {
		c.want(200, fmt.Sprintf("/%dbody15", i))
	}
	if e := r.last(n); e.Parked == 0 {
		t.Error("the time in the lot is not logged")
	}
}

// W26, W01: clients that leave a parked request are never forwarded, however
// they leave and whatever bytes lie before the end.
func TestClientsThatLeaveWhileParkedAreNotForwarded(t *testing.T) {
	var executed atomic.Int32
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		executed.Add(1)
		_, _ = io.Copy(io.Discard, r.Body)
		s.ok("x")
	}))
	for _, unix := range []bool{false, true} {
		executed.Store(0)
		r := newRig(t, rigOptions{unix: unix, app: edge.AppConfig{ParkLimit: 50, ParkPerClient: 50}})
		r.app.Place(edge.Placement{State: edge.Asleep})
		var clients []*client
		for i := range 50 {
			c := r.dial()
			c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nhi")
			if i%3 == 0 {
				c.send("GET /pipelined HTTP/1.1\r\nHost: app.test\r\n\r\n") // the end lies behind it
			}
			clients = append(clients, c)
		}
		eventually(t, "parked", func() bool { return r.app.Stats().Parked == 50 })
		full := r.dial()
		full.get("/")
		full.status(503)
		for i, c := range clients[:45] {
			switch {
			case i%3 == 1 && !unix:
				c.rst()
			default:
				c.Close()
			}
		}
		eventually(t, "places given back", func() bool { s := r.app.Stats(); return s.Parked == 5 && s.Gone == 45 })
		r.app.Place(o.placement(1))
		for _, c := range clients[45:] {
			c.want(200, "x")
		}
		stay := int32(5)
		for i := 45; i < 50; i++ {
			if i%3 == 0 {
				stay++ // its pipelined request
			}
		}
		eventually(t, "those who stayed", func() bool { return executed.Load() >= stay })
		if n := executed.Load(); n != stay {
			t.Errorf("unix %v: the app executed %d, want %d", unix, n, stay)
		}
	}
}

// skipInterim reads over 1xx, and says how many there were.
func (c *client) skipInterim(method string) (a answer, interim int) {
	c.t.Helper()
	for a = c.read(method); a.StatusCode < 200; a = c.read(method) {
		interim++
	}
	return a, interim
}

// A client that ends what it sends and waits is answered, in whichever way its app is
// waited for; it keeps its place, and is told at most once that it is waited for.
func TestAClientThatHalfClosesWhileParkedGetsItsAnswer(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		s.ok(q.Method + string(b))
	}))
	const get, post = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n", "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nhi"
	for _, state := range []edge.State{edge.Paused, edge.Asleep, edge.Waking, edge.Holding} {
		for _, unix := range []bool{false, true} {
			for _, early := range []bool{false, true} {
				t.Run(fmt.Sprintf("%v/unix %v/with the head %v", state, unix, early), func(t *testing.T) {
					r := newRig(t, rigOptions{unix: unix})
					r.app.Place(edge.Placement{State: state})
					c := r.dial()
					c.send(post + get)
					if !early {
						eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
					}
					c.fin()
					first := c.read("POST")
					if first.StatusCode != 100 {
						t.Fatalf("%+v", first.Response)
					}
					eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
					r.app.Place(o.placement(1))
					for _, want := range []string{"POSThi", "GET"} {
						a, interim := c.skipInterim("GET")
						if a.StatusCode != 200 || a.body != want || interim > 0 {
							t.Fatalf("%d %q after %d interim answers", a.StatusCode, a.body, interim)
						}
					}
					c.wantEOF()
					if s := r.app.Stats(); s.Gone != 0 {
						t.Errorf("%+v", s)
					}
				})
			}
		}
	}
}

// Who cannot be asked whether it has left counts as having left.
func TestAHalfCloseWhileParkedIsLeavingWhereNobodyCanAsk(t *testing.T) {
	for name, head := range map[string]string{
		"HTTP/1.0": "GET / HTTP/1.0\r\nHost: app.test\r\n\r\n",
		"waits":    "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.app.Place(edge.Placement{State: edge.Paused})
			c := r.dial()
			c.send(head)
			c.fin()
			c.wantReset()
			if n := r.last(1).Result; n.Ending != edge.Gone || n.Cause != edge.CauseClientGone {
				t.Errorf("%+v", n)
			}
		})
	}
}

// W28, W13: connections that come to nothing wake nothing.
func TestConnectionsWithoutARequestWakeNothing(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}}})
	r.app.Place(edge.Placement{State: edge.Asleep})
	for i := range 300 {
		c := r.dial()
		switch i % 3 {
		case 0:
		case 1:
			c.send("GET / HTT")
		case 2:
			c.send("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n")
			c.status(404)
		}
		c.Close()
	}
	eventually(t, "all gone", func() bool { return r.srv.Connections() == 0 })
	if r.wake.Load() != 0 {
		t.Errorf("%d wakes", r.wake.Load())
	}
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	c.want(200, "x")
}

// W03: when the start fails, all who wait are told at once.
func TestAFailedStartIsToldToAllWhoWait(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.app.Place(edge.Placement{State: edge.Waking})
	var clients []*client
	for range 20 {
		c := r.dial()
		c.get("/")
		clients = append(clients, c)
	}
	eventually(t, "parked", func() bool { return r.app.Stats().Parked == 20 })
	r.app.Place(edge.Placement{State: edge.Down, Boot: 3 * time.Second, Reason: "exit status 1"})
	r.app.Place(edge.Placement{State: edge.Asleep}) // the next one may try again
	for _, c := range clients {
		if a := c.status(503); a.Header.Get("Retry-After") != "3" {
			t.Errorf("%v", a.Header)
		}
	}
	if n := r.last(20); n.Reason != "exit status 1" || n.Result.Cause != edge.CauseWakeFailed {
		t.Errorf("%+v", n)
	}
}

// O10, O09: connections that clients keep carry the new generation at once, and
// no request fails in any of the switches.
func TestKeptConnectionsFollowEverySwitchWithoutAFailure(t *testing.T) {
	const swaps, clients = 20, 8
	r := newRig(t, rigOptions{})
	generation := func(g uint64) *origin {
		return newOrigin(t, each(func(s *stage, q *http.Request) {
			_, _ = io.Copy(io.Discard, q.Body)
			s.ok(strconv.FormatUint(g, 10))
		}))
	}
	var reported atomic.Uint64
	o := generation(1)
	r.app.Place(o.placement(1))
	reported.Store(1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		c := r.dial()
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				least := reported.Load()
				if (i+n)%2 == 0 {
					c.get("/")
				} else {
					c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nhi")
				}
				a, err := c.tryRead("GET")
				if err != nil || a.StatusCode != 200 {
					t.Errorf("%+v, %v", a, err)
					return
				}
				got, _ := strconv.ParseUint(a.body, 10, 64)
				if got < least || a.Header.Get("Usher-Generation") != a.body {
					t.Errorf("generation %s after %d was reported (stamp %s)", a.body, least, a.Header.Get("Usher-Generation"))
					return
				}
			}
		})
	}
	for g := uint64(2); g < 2+swaps; g++ {
		next := generation(g)
		served := r.app.Stats().Served
		eventually(t, "some load", func() bool { return r.app.Stats().Served > served+50 })
		r.app.Place(next.placement(g))
		reported.Store(g)
		select {
		case <-r.app.Drained(g - 1):
		case <-time.After(patience):
			t.Fatalf("generation %d does not drain", g-1)
		}
		o.stop() // it closes the moment it may
		o = next
	}
	close(stop)
	wg.Wait()
	if s := r.app.Stats(); s.Failed+s.Refused+s.Gone != 0 {
		t.Errorf("%+v", s)
	}
}

func TestAHeldAppLosesNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	slow := make(chan struct{})
	first := newOrigin(t, each(func(s *stage, q *http.Request) {
		<-slow
		s.ok("old")
	}))
	r.app.Place(first.placement(1))
	c := r.dial()
	c.get("/")
	eventually(t, "forwarded", func() bool { return first.heads.Load() == 1 })
	r.app.Place(edge.Placement{State: edge.Holding})
	d := r.dial()
	d.get("/")
	eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
	close(slow)
	c.want(200, "old") // H02
	<-r.app.Drained(1)
	first.stop()
	second := newOrigin(t, always("new"))
	r.app.Place(second.placement(2))
	d.want(200, "new")
	c.get("/")
	c.want(200, "new")
}
