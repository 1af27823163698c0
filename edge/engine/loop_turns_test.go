package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// gates hold up, once each, whoever ends a request for the paths that were named: the
// log is told on the goroutine that ended it, which may be a loop's.
type gates struct {
	mu  sync.Mutex
	all map[string]*gateOf
}

type gateOf struct{ held, free chan struct{} }

func (g *gates) hold(target string) *gateOf {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all == nil {
		g.all = map[string]*gateOf{}
	}
	x := &gateOf{held: make(chan struct{}), free: make(chan struct{})}
	g.all[target] = x
	return x
}

func (g *gates) log(target string) {
	g.mu.Lock()
	x := g.all[target]
	delete(g.all, target)
	g.mu.Unlock()
	if x != nil {
		close(x.held)
		<-x.free
	}
}

// wait waits until somebody is held up.
func (x *gateOf) wait(t testing.TB) {
	t.Helper()
	select {
	case <-x.held:
	case <-time.After(patience):
		t.Fatal("nobody comes")
	}
}

// oneLoop makes a rig whose server has one loop.
func oneLoop(t *testing.T, o rigOptions) *rig {
	t.Helper()
	o.server.Loops = 1
	return newRig(t, o)
}

// byLoop says whether the loop has all connections of the server, and there are n.
func (r *rig) byLoop(n int) bool {
	all := r.srv.all()
	for _, c := range all {
		c.poking.Lock()
		l := c.loop
		c.poking.Unlock()
		if l == nil {
			return false
		}
	}
	return len(all) == n
}

// More connections than the loop has seats for come while it is busy, and are cut
// before it has taken them up.
func TestALoopTakesUpConnectionsThatHaveBeenCut(t *testing.T) {
	o := newOrigin(t, always("x"))
	var g gates
	r := oneLoop(t, rigOptions{onLog: g.log})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	c.want(200, "x")
	eventually(t, "the loop has it", func() bool { return r.byLoop(1) })
	x := g.hold("/hold")
	c.get("/hold") // over the connection that is idle now: by the loop
	x.wait(t)
	const many = 200
	for range many {
		r.dial()
	}
	eventually(t, "they wait for the loop", func() bool { return r.byLoop(1 + many) })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	down := make(chan struct{})
	go func() {
		defer close(down)
		_ = r.srv.Shutdown(ctx)
	}()
	eventually(t, "they are cut", func() bool {
		for _, c := range r.srv.all() {
			if !c.severed() {
				return false
			}
		}
		return true
	})
	close(x.free)
	select {
	case <-down:
	case <-time.After(patience):
		t.Fatal("not shut down")
	}
}

// A client has had its turn, goes on in the next one to what needs a goroutine, comes
// back to the loop before the end of that turn, and asks.
func TestALoopServesWhoHasComeBackOnce(t *testing.T) {
	asked, let := make(chan string, 8), make(chan struct{})
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		path := r.URL.Path
		if path == "/page" || path == "/page16" {
			s.ok("page")
			return
		}
		asked <- path
		<-let
		s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(path), path)
	}))
	var g gates
	r := oneLoop(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}, onLog: g.log})
	r.app.Place(o.placement(1))
	some := make([]*client, 3)
	for i := range some { // leaves as many idle connections to the app
		some[i] = r.dial()
		some[i].get(fmt.Sprintf("/warm%d", i))
		<-asked
	}
	for range some {
		let <- struct{}{}
	}
	for i, c := range some {
		c.want(200, fmt.Sprintf("/warm%d", i))
	}
	a, c := some[0], some[1]
	for _, path := range []string{"/page", "/page16"} {
		c.get(path)
		c.want(200, "page")
	}
	eventually(t, "the loop has them", func() bool { return r.byLoop(3) })
	a.get("/app")
	<-asked

	page16, app := g.hold("/page16"), g.hold("/app")
	get := func(path string) string { return "GET " + path + " HTTP/1.1\r\nHost: app.test\r\n\r\n" }
	c.send(strings.Repeat(get("/page"), 2*mostInTurn-1) + get("/page16") + get("/page"))
	page16.wait(t) // c's second turn is about to end
	c.send("OPTIONS * HTTP/1.1\r\nHost: app.test\r\n\r\n")
	let <- struct{}{} // and behind it, in the next turn, the answer to a
	<-time.After(50 * time.Millisecond)
	close(page16.free)
	for range 2*mostInTurn + 1 {
		c.want(200, "page")
	}
	c.want(200, "")
	app.wait(t)
	eventually(t, "c has come back", func() bool { return r.byLoop(3) })
	c.send(get("/slow") + get("/next"))
	close(app.free)
	a.want(200, "/app")
	for _, path := range []string{"/slow", "/next"} {
		select {
		case got := <-asked:
			if got != path {
				t.Errorf("%s is asked for, want %s", got, path)
			}
		case <-time.After(patience):
			t.Fatalf("%s is never asked for", path)
		}
		select {
		case got := <-asked:
			t.Errorf("%s is asked for as well, before %s is answered", got, path)
			let <- struct{}{}
		case <-time.After(200 * time.Millisecond):
		}
		let <- struct{}{}
		c.want(200, path)
	}
}

// Nothing is sent to a client that has been cut off for good, by who comes to it before
// he is told.
func TestALoopSendsNothingToWhoIsCutOff(t *testing.T) {
	asked, let := make(chan struct{}), make(chan struct{})
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		if r.URL.Path == "/app" {
			asked <- struct{}{}
			<-let
		}
		s.ok("x")
	}))
	var g gates
	r := oneLoop(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}, onLog: g.log})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/page")
	c.want(200, "x")
	victim := r.srv.all()[0]
	a, b := r.dial(), r.dial()
	for _, c := range []*client{a, b} {
		c.get("/page")
		c.want(200, "x")
	}
	eventually(t, "the loop has them", func() bool { return r.byLoop(3) })
	a.get("/app")
	<-asked
	first, app := g.hold("/page"), g.hold("/app")
	b.get("/page")
	first.wait(t)
	let <- struct{}{} // comes first in the next turn
	<-time.After(50 * time.Millisecond)
	c.get("/page") // and then this
	<-time.After(50 * time.Millisecond)
	close(first.free)
	app.wait(t)
	victim.sever()
	eventually(t, "the loop has been told", func() bool {
		r.srv.loops[0].mu.Lock()
		defer r.srv.loops[0].mu.Unlock()
		return len(r.srv.loops[0].inbox) > 0
	})
	close(app.free)
	if b, _ := io.ReadAll(c.r); len(b) > 0 {
		t.Errorf("%q", b)
	}
}
