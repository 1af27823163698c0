package engine

import (
	"io"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// Where no pipe is to be had a loop copies what it would have moved, and at once.
func TestWithoutPipesALargeAnswerIsNotHeldUp(t *testing.T) {
	next := make(chan struct{})
	first, second := strings.Repeat("x", 8<<10), strings.Repeat("y", 40<<10)
	o := newTCPOrigin(t, held(next, map[string][]string{
		"/large": {"HTTP/1.1 200 OK\r\nContent-Length: 49152\r\n\r\n" + first, second},
	}))
	r := loopRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	k := r.settle(c)
	r.srv.stock.pipes.Refused(syscall.EINVAL) // as a kernel that moves nothing
	for range 3 {
		c.get("/large")
		c.until(first)
		eventually(t, "a loop waits for the rest", func() bool { return k.atLoop(phaseQuick) })
		began := time.Now()
		next <- struct{}{}
		c.until(second)
		d := time.Since(began)
		if d > 500*time.Millisecond {
			t.Errorf("the rest took %v", d)
		}
	}
}

// Whoever has more than a loop serves in one turn gets one turn at a time.
func TestWhoHasMoreThanOneTurnWaitsForItOnce(t *testing.T) {
	var r *rig
	var most atomic.Int64
	o := newOrigin(t, always("x"))
	r = oneLoop(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}}, onLog: func(string) {
		n := map[*conn]int64{}
		for _, c := range r.srv.loops[0].again { // this is the loop's goroutine
			if n[c]++; n[c] > most.Load() {
				most.Store(n[c])
			}
		}
	}})
	r.app.Place(o.placement(1))
	c := r.dial()
	eventually(t, "the loop has it", func() bool { return r.byLoop(1) })
	go func() { _, _ = io.Copy(io.Discard, c.Conn) }()
	batch := strings.Repeat("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", 2000)
	for end := time.Now().Add(time.Second); time.Now().Before(end); {
		if _, err := io.WriteString(c, batch); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
	if most.Load() > 1 {
		t.Errorf("%d turns of one connection wait at once", most.Load())
	}
}

// A head that came in time is no late one because requests follow it.
func TestAHeadThatCameInTimeIsNotLateAfterwards(t *testing.T) {
	var g gates
	o := newOrigin(t, always("x"))
	r := oneLoop(t, rigOptions{server: Options{HeadTimeout: 300 * time.Millisecond}, app: edge.AppConfig{Hosts: []string{"app.test"}}, onLog: g.log})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("GET /hold HTTP/1.1\r\nHost: ")
	k := r.only()
	eventually(t, "a loop waits for the head", func() bool { return k.atLoop(phaseHead) })
	x := g.hold("/hold")
	c.send("other.test\r\n\r\n" + strings.Repeat("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", 39))
	x.wait(t)
	<-time.After(600 * time.Millisecond) // the loop is busy
	close(x.free)
	for i := range 40 {
		if a := c.read("GET"); a.StatusCode != 404 {
			t.Fatalf("answer %d: %d", i+1, a.StatusCode)
		}
	}
}
