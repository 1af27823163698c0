package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// got is what a client has got of an answer.
type got struct {
	status int
	body   int
	whole  bool
	reset  bool
	header func(string) string
}

// takeIn reads interim answers, and then whatever there is of a final one.
func (c *client) takeIn(method string) (g got) {
	c.t.Helper()
	for {
		a, err := c.tryRead(method)
		if isTimeout(err) {
			c.t.Fatal("no answer and no end")
		}
		if err != nil {
			return got{reset: !errors.Is(err, io.EOF)}
		}
		if a.StatusCode >= 200 {
			g = got{status: a.StatusCode, body: len(a.body), whole: a.err == nil, header: a.Header.Get}
			_, err := io.ReadAll(c.r)
			g.reset = err != nil
			return g
		}
	}
}

// D01: what the end of a drain meets before its answer has begun gets one that says
// so. Only what has begun is reset. The books say what the client got.
func TestWhoIsCutBeforeItsAnswerBeginsIsToldSo(t *testing.T) {
	const post = "POST / HTTP/1.1\r\nHost: app.test\r\n"
	const fast = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	cases := map[string]struct {
		asks   string
		sends  int    // bytes of body that follow
		begins string // what the app says
		sees   string // what the client reads of it before the cut
		told   bool
		status int // of the answer that was begun
		body   int
	}{
		"an app that is silent":           {asks: asks, told: true},
		"after an answer before":          {asks: asks + asks, sees: fast, told: true},
		"with more behind it":             {asks: asks + asks + asks, sees: fast, told: true},
		"after an interim answer":         {asks: asks, begins: "HTTP/1.1 103 Early Hints\r\n\r\n", sees: "\r\n\r\n", told: true},
		"half a head":                     {asks: asks, begins: "HTTP/1.1 200 OK\r\nX-Y:", told: true},
		"HTTP/1.0":                        {asks: "GET / HTTP/1.0\r\nHost: app.test\r\n\r\n", told: true},
		"HEAD":                            {asks: "HEAD / HTTP/1.1\r\nHost: app.test\r\n\r\n", told: true},
		"a body that is here":             {asks: post + "Content-Length: 5\r\n\r\nhello", told: true},
		"a body that does not come":       {asks: post + "Content-Length: 5\r\n\r\nhell", told: true},
		"a chunked body":                  {asks: post + "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", told: true},
		"a body that the app cannot take": {asks: post + "Content-Length: 20000000\r\n\r\n", sends: 20000000, told: true},
		"an expectation":                  {asks: post + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", sees: goOn, told: true},
		"an upgrade":                      {asks: upgrade, told: true},
		"a head":                          {asks: asks, begins: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", sees: "\r\n\r\n", status: 200},
		"a body":                          {asks: asks, begins: "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello", sees: "hello", status: 200, body: 5},
		"chunks":                          {asks: asks, begins: chunkedHead + oneChunk, sees: oneChunk, status: 200, body: 5},
		"events":                          {asks: asks, begins: "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nhello", sees: oneChunk, status: 200, body: 5},
		"a tunnel":                        {asks: upgrade, begins: switching + "hello", sees: "hello", status: 101, body: 5},
	}
	for name, x := range cases {
		for _, unix := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unix %v", name, unix), func(t *testing.T) {
				t.Parallel()
				o := newTCPOrigin(t, func(s *stage) {
					if _, ok := s.read(); !ok {
						return
					}
					if x.sees == fast {
						s.say(fast)
						if _, ok := s.read(); !ok {
							return
						}
					}
					s.say("%s", x.begins)
					<-s.o.stopping
				})
				r := newRig(t, rigOptions{unix: unix})
				r.app.Place(o.placement(1))
				c := r.dial()
				before := 0
				if x.sees == fast {
					before = 1
				}
				sent := make(chan error, 1)
				go func() {
					_, err := io.WriteString(c, x.asks)
					if err == nil {
						_, err = io.CopyN(c, zeros{}, int64(x.sends))
					}
					sent <- err
				}()
				if before > 0 {
					c.want(200, "ok")
				} else {
					c.until(x.sees)
				}
				eventually(t, "forwarded", func() bool { return int(o.heads.Load()) == 1+before })
				r.app.Place(edge.Placement{State: edge.Holding})
				r.app.Cut(1)
				r.drained(1)
				if err := <-sent; err != nil && x.told {
					t.Errorf("the rest of the body: %v", err)
				}
				n := r.last(1 + before).Result
				if n.Ending != edge.Failed || n.Cause != edge.CauseDrainCut {
					t.Errorf("%+v", n)
				}
				method, _, _ := strings.Cut(x.asks, " ")
				if !x.told {
					if n.Status != x.status || n.BytesOut != int64(x.body) {
						t.Errorf("%+v, want %d and %d bytes", n, x.status, x.body)
					}
					if rest, err := io.ReadAll(c.r); len(rest) > 0 || err == nil && !unix {
						t.Errorf("%q, %v; want a reset", rest, err)
					}
					return
				}
				g := c.takeIn(method)
				if g.status != 502 || !g.whole || g.reset || g.header("Retry-After") != "" ||
					g.header("Connection") != "close" && g.header("Connection") != "" || !strings.Contains(g.header("Proxy-Status"), "connection_terminated") {
					t.Fatalf("%+v", g)
				}
				if n.Status != g.status || n.BytesOut != int64(g.body) {
					t.Errorf("%+v, but the client got %+v", n, g)
				}
			})
		}
	}
}

// What is under way when Shutdown's time is up is told so too, if nothing of its
// answer is out.
func TestShutdownTellsWhoHasNoAnswerYetWhenItsTimeIsUp(t *testing.T) {
	o := newOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		if r.URL.Path == "/body" {
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		}
		<-s.o.stopping
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	a, b, half := r.dial(), r.dial(), r.dial()
	a.get("/")
	b.get("/body")
	b.until("hello")
	half.send("GET / HT")
	eventually(t, "forwarded", func() bool { return o.heads.Load() == 2 })
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := r.srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	if d := time.Since(began); d > patience {
		t.Errorf("it took %v", d)
	}
	if g := a.takeIn("GET"); g.status != 502 || !g.whole || g.reset || g.header("Retry-After") != "" {
		t.Errorf("%+v", g)
	}
	b.wantReset()
	if rest, err := io.ReadAll(half.r); len(rest) > 0 || isTimeout(err) {
		t.Errorf("half a head: %q, %v", rest, err)
	}
	for _, e := range r.logged() {
		n, want := e.Result, edge.Result{Ending: edge.Failed, Cause: edge.CauseDrainCut, Status: 502, BytesOut: pageSize(edge.CauseDrainCut)}
		if string(e.Target) == "/body" {
			want = edge.Result{Ending: edge.Failed, Cause: edge.CauseDrainCut, Status: 200, BytesOut: 5}
		}
		if n != want {
			t.Errorf("%s: %+v, want %+v", e.Target, n, want)
		}
	}
	if n := len(r.logged()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// pageSize is how long usher's own page for a cause is.
func pageSize(c edge.Cause) int64 { return int64(len(c.Verdict().Text) + 1) }

// A client that takes nothing of the answer that says so holds no drain up.
func TestWhoIsCutAndTakesNothingHoldsNothingUp(t *testing.T) {
	o := newTCPOrigin(t, func(s *stage) {
		s.read()
		s.say("HTTP/1.1 103 Early Hints\r\nX-Y: %s\r\n\r\n", strings.Repeat("y", 8000))
		for {
			if _, err := io.WriteString(s, "HTTP/1.1 103 Early Hints\r\nX-Y: "+strings.Repeat("y", 8000)+"\r\n\r\n"); err != nil {
				return
			}
		}
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(4096)
	c.get("/")
	eventually(t, "a client that takes no more", func() bool {
		all := r.srv.all()
		return len(all) == 1 && all[0].clock.now() == phaseTake
	})
	r.app.Place(edge.Placement{State: edge.Holding})
	r.app.Cut(1)
	r.drained(1)
	if n := r.last(1).Result; n.Ending != edge.Failed || n.Cause != edge.CauseDrainCut || n.Status != 0 || n.BytesOut != 0 {
		t.Errorf("%+v: no answer was begun", n)
	}
}

// The books say what a client was sent that left or was too slow: nothing, if it got
// nothing, and else what there was.
func TestTheBooksSayWhatAClientThatLeftWasSent(t *testing.T) {
	o := newTCPOrigin(t, func(s *stage) {
		r, ok := s.read()
		switch {
		case !ok:
		case r.URL.Path == "/silent":
			<-s.o.stopping
		case r.URL.Path == "/chunks":
			s.say(chunkedHead)
			for {
				if _, err := fmt.Fprintf(s, "%x\r\n%s\r\n", 1000, strings.Repeat("x", 1000)); err != nil {
					return
				}
			}
		default:
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
			_, _ = io.CopyN(s, zeros{}, 100000000)
		}
	})
	for _, path := range []string{"/silent", "/big", "/chunks"} {
		for _, slow := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, slow %v", path, slow), func(t *testing.T) {
				t.Parallel()
				if slow && path == "/silent" {
					t.Skip("nobody is slow who has nothing to take")
				}
				opt := Options{}
				if slow {
					opt.WriteTimeout = 200 * time.Millisecond
				}
				r := newRig(t, rigOptions{server: opt})
				r.app.Place(o.placement(1))
				c := r.dial()
				_ = c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
				heads := o.heads.Load()
				c.get(path)
				if !slow {
					eventually(t, "forwarded", func() bool { return o.heads.Load() > heads })
					if path != "/silent" {
						eventually(t, "full", func() bool {
							all := r.srv.all()
							return len(all) == 1 && (all[0].clock.now() == phaseTake || all[0].clock.now() == phaseWrite)
						})
						if _, err := c.r.Peek(1); err != nil { // the write may just have begun
							t.Fatal(err)
						}
					} else {
						eventually(t, "waited for", func() bool { return r.srv.all()[0].clock.now() == phaseLong })
					}
					c.rst()
				}
				n := r.last(1).Result
				if n.Ending != edge.Gone {
					t.Errorf("%+v", n)
				}
				if path == "/silent" {
					if n.Status != 0 || n.BytesOut != 0 {
						t.Errorf("%+v: it was sent nothing", n)
					}
					return
				}
				if n.Status != 200 || n.BytesOut == 0 {
					t.Errorf("%+v: it was sent something", n)
				}
				if !slow {
					return
				}
				b, _ := io.ReadAll(c.r) // what the kernel has of it
				head := strings.Index(string(b), "\r\n\r\n") + 4
				got := int64(len(b) - head)
				if path == "/chunks" {
					got = int64(strings.Count(string(b[head:]), "x"))
				}
				if n.BytesOut < got {
					t.Errorf("%d bytes are said to be sent, and %d came", n.BytesOut, got)
				}
			})
		}
	}
}
