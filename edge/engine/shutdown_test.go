package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usher-edge/usher/edge"
)

// D04: idle clients do not hold a shutdown up.
func TestShutdownClosesIdleConnectionsAtOnce(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	var clients []*client
	for i := range 50 {
		c := r.dial()
		if i%2 == 0 {
			c.get("/")
			c.want(200, "x")
		}
		clients = append(clients, c)
	}
	eventually(t, "connected", func() bool { return r.srv.Connections() == 50 })
	began := time.Now()
	if err := r.srv.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(began); d > patience { // the idle timeout is a minute
		t.Errorf("took %v", d)
	}
	for _, c := range clients {
		c.wantEOF()
	}
	if _, err := net.Dial("tcp", r.addr); err == nil {
		t.Error("still accepting")
	}
	if err := r.srv.Shutdown(t.Context()); err != nil {
		t.Errorf("a second shutdown: %v", err)
	}
}

func TestShutdownLetsWhatIsUnderWayFinishAndRefusesTheParked(t *testing.T) {
	release := make(chan struct{})
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		<-release
		s.ok("done")
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
	r.app.Place(edge.Placement{State: edge.Waking})
	p := r.dial()
	p.get("/")
	eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
	down := make(chan error, 1)
	go func() { down <- r.srv.Shutdown(context.Background()) }()
	if a := p.status(503); a.Header.Get("Retry-After") == "" || !a.Close {
		t.Errorf("parked: %v", a.Header)
	}
	select {
	case err := <-down:
		t.Fatalf("shut down with a request under way: %v", err)
	default:
	}
	close(release)
	if a := c.want(200, "done"); !a.Close {
		t.Error("no Connection: close")
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
}

// D03, S02: streams are ended politely, at the beginning.
func TestShutdownEndsStreamsPolitely(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.app.Place(wsOrigin(t).placement(1))
	ws := r.websocket()
	if err := echoed(ws, "hello"); err != nil {
		t.Fatal(err)
	}
	o := newOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n")
		_, _ = io.Copy(io.Discard, s.r)
	})
	r.app.Place(o.placement(2))
	c := r.dial()
	c.get("/")
	eventually(t, "both stream", func() bool { return r.app.Stats().Streams == 2 })
	down := make(chan error, 1)
	go func() { down <- r.srv.Shutdown(context.Background()) }()
	if a := c.read("GET"); !strings.HasSuffix(a.body, "data: x\n\n"+retryHint) || a.err != nil {
		t.Errorf("%q, %v", a.body, a.err)
	}
	if _, _, err := ws.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusServiceRestart {
		t.Errorf("%v", err)
	}
	select {
	case err := <-down:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("not down")
	}
}

func TestShutdownResetsWhatIsNotDoneInTime(t *testing.T) {
	o := newOrigin(t, func(s *stage) {
		s.read()
		s.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		_, _ = io.Copy(io.Discard, s.r)
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if err := r.srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v", err)
	}
	c.wantReset()
	if n := r.last(1).Result; n.Cause != edge.CauseDrainCut || n.Ending != edge.Failed {
		t.Errorf("%+v", n)
	}
}

// What is cut is closed by another than the goroutine that has armed it, and its
// number may be another's before that one forgets it.
func TestAConnectionThatWasCutIsNotWatchedAnyMore(t *testing.T) {
	w, err := newWatcher()
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	armed := func() *conn {
		nc, err := net.ListenUDP("udp", nil) // any socket does
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		c := &conn{nc: nc}
		if c.raw, err = nc.SyscallConn(); err != nil {
			t.Fatal(err)
		}
		if err := w.arm(c, c.raw, watchFin); err != nil {
			t.Fatal(err)
		}
		return c
	}
	cut := armed()
	cut.nc.Close()
	next := armed() // has that number, most likely
	w.forget(cut)
	if n := len(w.armed); n != 1 || w.armed[next.watched].conn != next {
		t.Errorf("%d are watched, want the other one", n)
	}
	next.nc.Close()
	if w.forget(next); len(w.armed) != 0 {
		t.Error("what was closed before it was forgotten is watched")
	}
}

// D01, D07: what is left at the end of a drain is cut, and counted as such.
func TestTheEndOfADrainCutsWhatIsLeft(t *testing.T) {
	o := newTCPOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		if r.URL.Path == "/body" {
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello")
		}
		_, _ = io.Copy(io.Discard, s.r)
	})
	next := newOrigin(t, always("new"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	a, b := r.dial(), r.dial()
	a.get("/body")
	b.get("/silent")
	eventually(t, "forwarded", func() bool { return o.heads.Load() == 2 })
	r.app.Place(next.placement(2))
	other := r.dial()
	other.get("/")
	other.want(200, "new")
	r.app.Cut(1)
	a.wantReset()
	if a := b.status(502); !a.Close || a.Header.Get("Retry-After") != "" {
		t.Errorf("%v", a.Header)
	}
	r.drained(1)
	other.get("/")
	other.want(200, "new")
	r.counted("two cuts", func(s edge.Stats) bool { return s.DrainCut == 2 && s.Failed == 2 })
}

// D07: one long stream per generation does not keep any of them alive.
func TestManySwitchesLeaveNoStreamBehind(t *testing.T) {
	events := func() *origin {
		return newOrigin(t, func(s *stage) {
			if _, ok := s.read(); !ok {
				return
			}
			s.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
			_, _ = io.Copy(io.Discard, s.r)
		})
	}
	r := newRig(t, rigOptions{})
	for g := uint64(1); g <= 20; g++ {
		r.app.Place(events().placement(g))
		c := r.dial()
		c.get("/")
		open := min(int(g), 2)
		eventually(t, "streams", func() bool { return r.app.Stats().Streams == open })
		if g > 1 {
			r.app.CloseStreams(g-1, 0)
			select {
			case <-r.app.Drained(g - 1):
			case <-time.After(patience):
				t.Fatalf("generation %d does not drain", g-1)
			}
		}
	}
	r.counted("one stream", func(s edge.Stats) bool { return s.Streams == 1 && s.InFlight == 1 })
}

func TestAskAnswersFromMemory(t *testing.T) {
	r := newRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test", "*.wild.test"}}})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ServeAsk(ctx, ln, r.edge.Ask) }()
	transport := &http.Transport{}
	k := http.Client{Transport: transport}
	for query, want := range map[string]int{
		"?domain=app.test": 200, "?domain=APP.test.": 200, "?domain=x.wild.test": 404, "?domain=other.test": 404, "": 400,
	} {
		res, err := k.Get("http://" + ln.Addr().String() + "/" + query)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != want {
			t.Errorf("%s: %d, want %d", query, res.StatusCode, want)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	transport.CloseIdleConnections()
	if r.wake.Load() != 0 {
		t.Error("asking woke something")
	}
}
