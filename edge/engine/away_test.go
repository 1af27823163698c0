package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// soon makes idle connections give up their goroutines at once.
const soon = time.Millisecond

// away waits until every one of n connections is without a goroutine.
func (r *rig) away(n int) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d connections without a goroutine", n), func() bool {
		all := r.srv.all()
		for _, c := range all {
			if c.clock.now() != phaseAway && !(c.clock.now() == phaseIdle && c.clock.left(r.srv.now()) > 2*soon+2*sweepEvery) {
				return false
			}
		}
		return len(all) == n && !strings.Contains(stacks(), "(*conn).serve(")
	})
}

// left is how long the phase may still last.
func (c *clock) left(now moment) time.Duration {
	return time.Duration(moment(c.word.Load()>>deadlineAt)-now) * time.Millisecond
}

func stacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func TestAnIdleConnectionHasNoGoroutineAndServesOn(t *testing.T) {
	for _, unix := range []bool{false, true} {
		o := newOrigin(t, always("x"))
		r := newRig(t, rigOptions{server: Options{grace: soon}, unix: unix})
		r.app.Place(o.placement(1))
		fresh, c := r.dial(), r.dial()
		for range 3 {
			c.get("/")
			c.want(200, "x")
			r.away(2)
		}
		fresh.get("/") // it had not had a request before
		fresh.want(200, "x")
		r.away(2)
		c.send("GET / HT")
		eventually(t, "half a head", func() bool {
			return slices.ContainsFunc(r.srv.all(), func(c *conn) bool { return c.clock.now() == phaseHead })
		})
		c.send("TP/1.1\r\nHost: app.test\r\n\r\n")
		c.want(200, "x")
	}
}

func TestAnIdleConnectionWithoutAGoroutineEnds(t *testing.T) {
	gone := func(r *rig) {
		t.Helper()
		eventually(t, "the connection is gone", func() bool { return r.srv.Connections() == 0 })
	}
	t.Run("with its client", func(t *testing.T) {
		r := newRig(t, rigOptions{server: Options{grace: soon}})
		for _, leave := range []func(*client){func(c *client) { c.Close() }, (*client).rst, (*client).fin} {
			c := r.dial()
			r.away(1)
			leave(c)
			gone(r)
		}
	})
	t.Run("when it is idle for too long", func(t *testing.T) {
		r := newRig(t, rigOptions{server: Options{grace: soon, IdleTimeout: 2 * time.Second}})
		c := r.dial()
		r.away(1)
		c.wantEOF()
		gone(r)
	})
	t.Run("at once when the server shuts down", func(t *testing.T) {
		r := newRig(t, rigOptions{server: Options{grace: soon}})
		c := r.dial()
		r.away(1)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := r.srv.Shutdown(ctx); err != nil {
			t.Fatal(err)
		}
		c.wantEOF()
	})
	t.Run("and gives its place to another", func(t *testing.T) {
		o := newOrigin(t, always("x"))
		r := newRig(t, rigOptions{server: Options{grace: soon, MaxConnections: 1}})
		r.app.Place(o.placement(1))
		first := r.dial()
		r.away(1)
		second := r.dial()
		second.get("/")
		first.Close()
		second.want(200, "x")
	})
}

// A request and the end of the client's data can come as one piece of news. The
// request is answered, and the connection does not wait for more: at once if it
// was the first one, otherwise when it has been idle for a moment.
func TestAFinThatComesWithARequestIsSeen(t *testing.T) {
	o := newOrigin(t, always("x"))
	for earlier, grace := range []time.Duration{time.Hour, soon, soon} {
		r := newRig(t, rigOptions{server: Options{grace: grace}})
		r.app.Place(o.placement(1))
		c := r.dial()
		for range earlier {
			c.get("/")
			c.want(200, "x")
		}
		c.get("/")
		c.fin()
		c.want(200, "x")
		c.wantEOF()
	}
}

func TestAConnectionThatWasAwayParksAndIsMissed(t *testing.T) {
	r := newRig(t, rigOptions{server: Options{grace: soon}})
	r.app.Place(edge.Placement{State: edge.Asleep})
	c := r.dial()
	r.away(1)
	c.get("/")
	eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
	c.Close()
	eventually(t, "left", func() bool { return r.app.Stats().Parked == 0 })
	if n := r.last(1).Result; n.Cause != edge.CauseClientGone {
		t.Errorf("%+v", n)
	}
}

// Requests come at about the moment when connections give up their goroutines.
func TestGivingUpAGoroutineLosesNoRequest(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{server: Options{grace: soon}})
	r.app.Place(o.placement(1))
	var all sync.WaitGroup
	for range 16 {
		c := r.dial()
		all.Go(func() {
			for i := range 30 {
				<-time.After(rand.N(4 * sweepEvery))
				request := "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"
				if i%3 == 0 {
					request = "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 20000\r\n\r\n" + strings.Repeat("y", 20000)
				}
				if _, err := c.Write([]byte(request)); err != nil {
					t.Error(err)
					return
				}
				if a, err := c.tryRead("GET"); err != nil || a.StatusCode != 200 || a.body != "x" {
					t.Errorf("request %d: %v %v", i, a.Response, err)
					return
				}
			}
		})
	}
	all.Wait()
}
