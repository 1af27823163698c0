package engine

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// silent is an app that sends so much of an answer to its request, then what next
// says, and no more. left gets the end of the connection.
func silent(t *testing.T, begins string, next <-chan string) (o *origin, left <-chan error) {
	t.Helper()
	ended := make(chan error, 1)
	return newTCPOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("%s", begins)
		if next != nil {
			for more := range next {
				s.say("%s", more)
			}
		}
		_, err := s.r.ReadByte()
		ended <- err
	}), ended
}

const (
	asks     = "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"
	goOn     = "HTTP/1.1 100 Continue\r\n\r\n"
	oneChunk = "5\r\nhello\r\n"
)

// until reads what the edge sends up to those bytes, and returns all of it.
func (c *client) until(end string) string {
	c.t.Helper()
	var got strings.Builder
	for !strings.HasSuffix(got.String(), end) {
		b, err := c.r.ReadByte()
		if err != nil {
			c.t.Fatalf("%q and then %v; want %q", got.String(), err, end)
		}
		got.WriteByte(b)
	}
	return got.String()
}

// T08: a client that closes while its app is silent, before the answer or in the
// middle of it, looks like one that half-closes. It is asked, and the app is told.
func TestAClientThatClosesWhileItsAppIsSilentIsNoticed(t *testing.T) {
	cases := map[string]struct{ asks, begins, sees string }{
		"before the head":       {asks, "", ""},
		"in chunks":             {asks, chunkedHead + oneChunk, oneChunk},
		"before the first":      {asks, chunkedHead, "\r\n\r\n"},
		"of an app that closes": {asks, "HTTP/1.0 200 OK\r\n\r\nhello", oneChunk},
		"of events":             {asks, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nhello", oneChunk},
		"with more requests":    {asks + asks, chunkedHead + oneChunk, oneChunk},
	}
	var checks []func() // all of them wait for the same second
	for name, x := range cases {
		for _, unix := range []bool{false, true} {
			o, left := silent(t, x.begins, nil)
			r := newRig(t, rigOptions{unix: unix})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send(x.asks)
			eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
			c.until(x.sees)
			c.Close()
			checks = append(checks, func() {
				select {
				case <-left:
				case <-time.After(patience):
					t.Errorf("%s, unix %v: the app was not told", name, unix)
					return
				}
				if n := r.last(1).Result; n.Ending != edge.Gone || n.Cause != edge.CauseClientGone {
					t.Errorf("%s, unix %v: %+v", name, unix, n)
				}
				r.counted("gone", func(s edge.Stats) bool { return s.Gone == 1 && s.InFlight == 0 })
			})
		}
	}
	for _, check := range checks {
		check()
	}
}

// asked waits until the one client was asked, as far as it can be, while its app is
// waited for in that phase.
func (r *rig) asked(p phase) *conn {
	r.t.Helper()
	var asked *conn
	eventually(r.t, "a client that is asked", func() bool {
		for _, c := range r.srv.all() {
			if w := c.clock.word.Load(); w&askedBit != 0 && phase(w&phaseMask) == p {
				asked = c
			}
		}
		return asked != nil
	})
	return asked
}

// Whoever cannot be asked, and stays, is still noticed when it breaks off.
func TestAClientThatHalfClosesAndThenResetsIsNoticed(t *testing.T) {
	for name, x := range map[string]struct{ begins, sees string }{
		"with a length": {"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello", "hello"},
		"in chunks":     {chunkedHead + oneChunk, "hello\r\n0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o, left := silent(t, x.begins, nil)
			r := newRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send(asks)
			c.until("hello")
			c.fin()
			c.until(strings.TrimPrefix(x.sees, "hello"))
			r.asked(phaseStall)
			c.rst()
			select {
			case <-left:
			case <-time.After(patience):
				t.Fatal("the app was not told")
			}
			if n := r.last(1).Result; n.Ending != edge.Gone || n.Cause != edge.CauseClientGone {
				t.Errorf("%+v", n)
			}
		})
	}
}

// Whoever half-closes and waits gets all of its answer. What it is asked with is no
// part of that: an interim answer before the head, and between two chunks a zero in
// front of the size of the next.
func TestAClientThatHalfClosesWhileItsAppIsSilentGetsItsAnswer(t *testing.T) {
	const trailers = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n"
	const old = "GET / HTTP/1.0\r\nHost: app.test\r\n\r\n"
	cases := map[string]struct {
		asks, begins string
		sees         string   // before it half-closes
		asked        string   // what it gets then
		goesOn, gets []string // the app, and what of that reaches the client
	}{
		"before the head": {asks, "", "", goOn, []string{chunkedHead + "0\r\n\r\n"}, []string{"\r\n\r\n0\r\n\r\n"}},
		"in chunks": {
			asks, chunkedHead + oneChunk, oneChunk, "0",
			[]string{"7\r\n, world\r\n", "0\r\n\r\n"},
			[]string{"7\r\n, world\r\n", "0\r\n\r\n"},
		},
		"before the last":     {asks, chunkedHead + oneChunk, oneChunk, "0", []string{"0\r\n\r\n"}, []string{"0\r\n\r\n"}},
		"before the trailer":  {asks, trailers + oneChunk, oneChunk, "0", []string{"0\r\nX-T: v\r\n\r\n"}, []string{"0\r\nX-T: v\r\n\r\n"}},
		"with a length":       {asks, "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello", "hello", "", []string{", world"}, []string{", world"}},
		"HTTP/1.0":            {old, chunkedHead + oneChunk, "hello", "", []string{"7\r\n, world\r\n0\r\n\r\n"}, []string{", world"}},
		"HTTP/1.0, no head":   {old, "", "", "", []string{chunkedHead + oneChunk + "0\r\n\r\n"}, []string{"hello"}},
		"with an expectation": {"POST / HTTP/1.1\r\nHost: app.test\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi", "", "", "", []string{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"}, []string{"ok"}},
	}
	var checks []func() // all of them wait for the same second
	for name, x := range cases {
		for _, unix := range []bool{false, true} {
			next := make(chan string)
			defer close(next)
			o, _ := silent(t, x.begins, next)
			r := newRig(t, rigOptions{unix: unix})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send(x.asks)
			c.until(x.sees)
			c.fin()
			checks = append(checks, func() {
				t.Logf("%s, unix %v", name, unix)
				if x.begins == "" {
					r.asked(phaseLong)
				} else {
					r.asked(phaseStall)
				}
				if got := c.until(x.asked); got != x.asked {
					t.Fatalf("asked with %q, want %q", got, x.asked)
				}
				for i, more := range x.goesOn {
					next <- more
					if got := c.until(x.gets[i]); x.begins != "" && got != x.gets[i] {
						t.Fatalf("%q, want %q", got, x.gets[i])
					}
				}
				c.wantEOF()
				if n := r.last(1).Result; n.Ending != edge.Served || n.Status != 200 {
					t.Errorf("%+v", n)
				}
			})
		}
	}
	for _, check := range checks {
		check()
	}
}

// Whoever half-closes is asked at any moment: also when the app goes on just then.
func TestAClientThatIsAskedAsItsAppGoesOnGetsItsAnswerWhole(t *testing.T) {
	const clients = 64
	o := newOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		var n int
		_, _ = fmt.Sscanf(r.URL.Path, "/%d", &n)
		pause := watchAfter + sweepEvery/2 + time.Duration(n)*2*sweepEvery/clients
		if n%2 == 0 {
			<-time.After(pause)
		}
		s.say("%s", chunkedHead+oneChunk)
		<-time.After(pause)
		s.say("7\r\n, world\r\n0\r\n\r\n")
		_, _ = s.r.ReadByte()
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	var wg sync.WaitGroup
	for i := range clients {
		c := r.dial()
		wg.Go(func() {
			if _, err := fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: app.test\r\n\r\n", i); err != nil {
				t.Error(err)
				return
			}
			if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
				t.Error(err)
			}
			a, err := c.tryRead("GET")
			if err == nil && a.StatusCode == http.StatusContinue {
				a, err = c.tryRead("GET")
			}
			if err != nil || a.err != nil || a.StatusCode != 200 || a.body != "hello, world" {
				t.Errorf("client %d: %d %q, %v, %v", i, a.StatusCode, a.body, err, a.err)
			}
			if rest, err := io.ReadAll(c.r); len(rest) > 0 || err != nil {
				t.Errorf("client %d: and then %q, %v", i, rest, err)
			}
		})
	}
	wg.Wait()
	r.counted("all served", func(s edge.Stats) bool { return s.Served == clients })
}

// The one who asks and the one who answers never write at once.
func TestNothingIsWrittenWhileAClientIsAsked(t *testing.T) {
	next := make(chan string)
	defer close(next)
	o, _ := silent(t, chunkedHead+oneChunk, next)
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send(asks)
	c.until(oneChunk)
	var asked *conn
	eventually(t, "a wait that is long", func() bool {
		asked = r.srv.all()[0]
		return asked.clock.now() == phaseStall
	})
	asked.poking.Lock()
	if !asked.clock.mark(askedBit, phaseStall) {
		t.Error("the wait is over")
	}
	next <- "7\r\n, world\r\n0\r\n\r\n"
	eventually(t, "the end of the wait", func() bool { return asked.clock.now() == phaseNone })
	asked.send([]byte{'0'})
	asked.poking.Unlock()
	const want = "07\r\n, world\r\n0\r\n\r\n"
	if got := c.until("0\r\n\r\n"); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A client that was asked before the answer, when its request was parked, is not asked
// so again: some take no more than a few interim answers.
func TestAClientIsAskedOnceBeforeItsAnswer(t *testing.T) {
	next := make(chan string)
	defer close(next)
	o, _ := silent(t, "", next)
	r := newRig(t, rigOptions{})
	r.app.Place(edge.Placement{State: edge.Paused})
	c := r.dial()
	c.send(asks)
	c.fin()
	c.until(goOn)
	r.app.Place(o.placement(1))
	r.asked(phaseLong)
	next <- "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	c.want(200, "ok")
	c.wantEOF()
}

// A client of HTTP/1.0 that has ended what it sends, as nc -N does, comes while those
// who were parked are let go to an app that serves.
func TestAHalfClosedHTTP10ClientDoesNotGoBehindThoseWhoParked(t *testing.T) {
	over := make(chan struct{})
	o := newOrigin(t, each(func(s *stage, q *http.Request) {
		if q.URL.Path == "/slow" {
			<-over
		}
		s.ok(q.URL.Path)
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(edge.Placement{State: edge.Waking})
	var cs []*client
	for range 60 {
		c := r.dial()
		c.get("/slow")
		cs = append(cs, c)
	}
	eventually(t, "parked", func() bool { return r.app.Stats().Parked == 60 })
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("GET /late HTTP/1.0\r\nHost: app.test\r\n\r\n")
	c.fin()
	a, err := c.tryRead("GET")
	if err != nil || a.StatusCode != 200 {
		t.Errorf("an app that serves: %v %v", a.Response, err)
	}
	close(over)
	for _, c := range cs {
		c.want(200, "/slow")
	}
	if s := r.app.Stats(); s.Gone > 0 {
		t.Errorf("%d count as gone", s.Gone)
	}
}
