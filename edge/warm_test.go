package edge

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge/upstream"
)

// webApp is a server, the connections that are open to it, and the questions it was
// asked.
type webApp struct {
	address string
	open    atomic.Int32
	asked   atomic.Int32
}

func newWebApp(t *testing.T) *webApp {
	t.Helper()
	w := &webApp{}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = ln.Addr().String()
	server := &http.Server{
		Handler: http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			if q.URL.Path == "/health" {
				w.asked.Add(1)
			}
		}),
		ConnState: func(_ net.Conn, s http.ConnState) {
			switch s {
			case http.StateNew:
				w.open.Add(1)
			case http.StateClosed:
				w.open.Add(-1)
			}
		},
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(ln) }()
	t.Cleanup(func() { _ = server.Close(); <-served })
	return w
}

func (w *webApp) as(generation uint64) Placement {
	return Placement{Revision: generation, Generation: generation, State: Serving, Network: "tcp", Address: w.address}
}

func (w *webApp) wantOpen(t *testing.T, n int32) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d connections are open", n), func() bool { return w.open.Load() == n })
}

// eventually polls until ok, or fails the test after twenty seconds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		}
	}
}

var question = []byte("GET /health HTTP/1.1\r\nHost: app.test\r\n\r\n")

// incumbent places generation 1 and leaves so many connections idle at it.
func incumbent(t *testing.T, a *App, idle int) *webApp {
	t.Helper()
	w := newWebApp(t)
	a.Place(w.as(1))
	if err := pool(a).Warm(t.Context(), question, idle); err != nil {
		t.Fatal(err)
	}
	return w
}

func pool(a *App) *upstream.Pool { return a.slot.Load().target.pool }

func TestASuccessorIsGivenAsManyConnectionsAsTheIncumbentHas(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	first := incumbent(t, a, 3)
	busy, err := pool(a).Get(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	next := newWebApp(t)
	a.Warm(t.Context(), next.as(2), question)
	pool(a).Discard(busy)
	if a.Placed().Generation != 1 || next.asked.Load() != 3 {
		t.Fatalf("generation %d serves, the successor was asked %d times", a.Placed().Generation, next.asked.Load())
	}
	a.Place(next.as(2))
	if s := pool(a).Stats(); s.Idle != 3 || s.Dialled != 3 {
		t.Errorf("%+v", s)
	}
	first.wantOpen(t, 0)
	r := open(e)
	if d := e.Decide(r); d.Kind != Proxy || d.Target.Generation() != 2 || d.Target.pool != pool(a) {
		t.Errorf("%+v", d)
	}
	end(e, r, Served)
	a.Place(Placement{State: Asleep})
	next.wantOpen(t, 0)
	if n := a.crowds.inside(); n != 0 || !isClosed(a.Drained(2)) {
		t.Errorf("%d inside", n)
	}
}

func TestConnectionsToASuccessorThatNeverServesAreClosed(t *testing.T) {
	_, a := one(t, Options{}, AppConfig{})
	incumbent(t, a, 2)
	given, called := newWebApp(t), newWebApp(t)
	ctx, over := context.WithCancel(t.Context())
	a.Warm(ctx, given.as(2), question)
	given.wantOpen(t, 2)
	a.Warm(ctx, called.as(3), question) // the one before was given up for it
	given.wantOpen(t, 0)
	called.wantOpen(t, 2)
	over()
	called.wantOpen(t, 0)
	a.Warm(ctx, given.as(4), question)
	given.wantOpen(t, 0)
	eventually(t, "nothing is kept ready", func() bool { return a.next.Load() == nil })
}

func TestATargetIsMadeReadyOnlyForWhatIsPlaced(t *testing.T) {
	_, a := one(t, Options{}, AppConfig{})
	incumbent(t, a, 2)
	ready, placed := newWebApp(t), newWebApp(t)
	ctx, over := context.WithCancel(t.Context())
	defer over()
	a.Warm(ctx, ready.as(2), question)
	a.Place(placed.as(3))
	if s := pool(a).Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
	ready.wantOpen(t, 2)
	a.Place(ready.as(2))
	if s := pool(a).Stats(); s.Idle != 2 {
		t.Errorf("%+v", s)
	}
	// From now on it is the slot's.
	over()
	if s := pool(a).Stats(); s.Idle != 2 {
		t.Errorf("%+v", s)
	}
}

func TestNothingIsWarmedBesideAnAppThatDoesNotServe(t *testing.T) {
	_, a := one(t, Options{}, AppConfig{})
	a.Place(Placement{State: Waking})
	next := newWebApp(t)
	a.Warm(t.Context(), next.as(1), question)
	if next.asked.Load() != 0 || a.next.Load() != nil {
		t.Error("it was asked")
	}
}
