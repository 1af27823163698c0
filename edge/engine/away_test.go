package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
			if c.clock.now() != phaseAway {
				return false
			}
		}
		return len(all) == n && !strings.Contains(stacks(), "(*conn).serve(")
	})
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
		eventually(t, "half a head", func() bool { return strings.Contains(stacks(), "(*conn).serve(") })
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
		r := newRig(t, rigOptions{server: Options{grace: soon, IdleTimeout: 400 * time.Millisecond}})
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

// An idle keep-alive connection costs at most 1 KiB of usher's memory, all that
// it has of the heap, stacks and package net included.
func TestAnIdleConnectionCostsLittle(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector uses memory of its own")
	}
	measure := idleCost(t, 1000)
	least := measure()
	for range 2 { // what else runs in this process may use memory meanwhile
		least = min(least, measure())
	}
	if least > 1024 {
		t.Errorf("%.0f bytes", least)
	}
}

func BenchmarkIdleConnection(b *testing.B) {
	measure := idleCost(b, 4000)
	var most float64
	for b.Loop() {
		most = max(most, measure())
	}
	b.ReportMetric(most, "B/conn")
}

// idleCost measures what each of n connections costs while they are idle. The
// clients are bare descriptors, which cost none.
func idleCost(t testing.TB, n int) func() float64 {
	t.Helper()
	o := newOrigin(t, always("x"))
	r := &rig{t: t, edge: edge.New(edge.Options{})}
	if err := r.edge.SetApps([]edge.AppConfig{{Name: "app", Hosts: []string{"*"}}}); err != nil {
		t.Fatal(err)
	}
	r.app = r.edge.App("app")
	r.app.Place(o.placement(1))
	r.serve(Options{Edge: r.edge, grace: soon}, false)
	conns := make([]descriptor, n)
	return func() float64 {
		before := inUse()
		for i := range conns {
			conns[i] = connect(t, r.addr)
			conns[i].trip(t)
		}
		r.away(n)
		after := inUse()
		for _, c := range conns {
			unix.Close(int(c))
		}
		r.away(0)
		return (float64(after) - float64(before)) / float64(n)
	}
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC() // empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// descriptor is a client.
type descriptor int

func connect(b testing.TB, address string) descriptor {
	b.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		b.Fatal(err)
	}
	to := unix.SockaddrInet4{Port: a.Port}
	copy(to.Addr[:], a.IP.To4())
	if err := unix.Connect(fd, &to); err != nil {
		b.Fatal(err)
	}
	return descriptor(fd)
}

func (c descriptor) trip(b testing.TB) {
	b.Helper()
	var buf [4096]byte
	if _, err := unix.Write(int(c), []byte("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")); err != nil {
		b.Fatal(err)
	}
	if n, err := unix.Read(int(c), buf[:]); err != nil || n == 0 {
		b.Fatalf("%d bytes, %v", n, err)
	}
}
