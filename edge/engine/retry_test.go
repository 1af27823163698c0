package engine

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/upstream"
)

// R01: the app closes idle connections just as they are used again.
func TestIdleConnectionsThatTheAppClosesCostNoRequest(t *testing.T) {
	for name, make := range map[string]func(testing.TB, func(*stage)) *origin{"tcp": newTCPOrigin, "unix": newOrigin} {
		t.Run(name, func(t *testing.T) {
			var executed atomic.Int32
			// A busy machine may let that long pass between a look at a connection and
			// the write on it, and on TCP such a write is lost; half of it is left to
			// the pool's caution.
			const idle = 20 * time.Millisecond
			o := make(t, func(s *stage) {
				for i := 0; ; i++ {
					if i > 0 { // what is new is not idle
						_ = s.SetReadDeadline(time.Now().Add(idle))
					}
					r, ok := s.read()
					if !ok {
						return
					}
					_ = s.SetReadDeadline(time.Time{})
					_, _ = io.Copy(io.Discard, r.Body)
					executed.Add(1)
					s.ok("x")
				}
			})
			r := newRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			c := r.dial()
			const n = 100
			for i := range n {
				// The pool learns from the first requests how long the app keeps a
				// connection. On a unix socket a request can be written just before the
				// app closes, so only what may run twice is safe there.
				if i < n/10 || i%2 == 0 || name == "unix" {
					c.get("/")
				} else {
					c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nhi")
				}
				c.want(200, "x")
				<-time.After(idle + time.Duration(i%11-5)*400*time.Microsecond)
			}
			if got := executed.Load(); got != n {
				t.Errorf("%d executed, want %d", got, n)
			}
		})
	}
}

// R02: what the app may have executed is not sent again.
func TestWhatTheAppMayHaveExecutedIsNotSentAgain(t *testing.T) {
	for _, request := range []string{
		"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 2\r\n\r\nhi",
		"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n",
		"PUT / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: app.test\r\n\r\n",
	} {
		var executed atomic.Int32
		o := newTCPOrigin(t, func(s *stage) {
			r, ok := s.read()
			if !ok {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			executed.Add(1)
		})
		r := newRig(t, rigOptions{})
		r.app.Place(o.placement(1))
		c := r.dial()
		c.send(request)
		a := c.status(502)
		if got := a.Header.Get("Proxy-Status"); got != "usher; error=connection_terminated" {
			t.Errorf("Proxy-Status %q", got)
		}
		if n := executed.Load(); n != 1 {
			t.Errorf("%.4s was executed %d times", request, n)
		}
		if n := r.last(1); n.Retries != 0 || n.Result.Cause != edge.CauseDiedBeforeResponse {
			t.Errorf("%+v", n)
		}
	}
}

func TestAnIdempotentRequestOnAStaleConnectionIsSentAgain(t *testing.T) {
	o := newTCPOrigin(t, func(s *stage) {
		for i := 0; ; i++ {
			if _, ok := s.read(); !ok {
				return
			}
			if s.no == 1 && i == 1 {
				return // it got the second request and dies
			}
			s.ok("x")
		}
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/1")
	c.want(200, "x")
	c.get("/2")
	c.want(200, "x")
	if n := r.last(2); n.Retries != 1 {
		t.Errorf("%d retries", n.Retries)
	}
}

// R03, R07: the first try is refused; the second one, at the app's new address,
// has the whole body.
func TestARefusedTryIsDecidedAgainWithItsBodyWhole(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		h := sha256.New()
		n, _ := io.Copy(h, r.Body)
		s.ok(fmt.Sprintf("%d %x", n, h.Sum(nil)))
	}))
	dead := edge.Placement{Generation: 1, State: edge.Serving, Network: "unix", Address: "/nowhere/at/all"}
	const size = 1 << 20
	h := sha256.New()
	_, _ = io.CopyN(h, zeros{}, size)
	want := fmt.Sprintf("%d %x", size, h.Sum(nil))
	r := newRig(t, rigOptions{})
	// refusedOnce leaves a request parked whose first try was refused. The control
	// plane has refusedPause for its news; this test may be too slow for that.
	refusedOnce := func(head string) (c *client) {
		eventually(t, "a request that is parked after its first try", func() bool {
			before := r.app.Stats()
			r.app.Place(dead)
			c = r.dial()
			c.send(head)
			eventually(t, "first try", func() bool { return r.app.Stats().Retries == before.Retries+1 })
			r.app.Place(edge.Placement{State: edge.Asleep}) // the app was dead: it is woken
			eventually(t, "parked or failed", func() bool {
				s := r.app.Stats()
				return s.Parked == 1 || s.Failed > before.Failed
			})
			return r.app.Stats().Parked == 1
		})
		return c
	}
	for i, framing := range []string{"length", "chunked"} {
		head := fmt.Sprintf("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n", size)
		if framing == "chunked" {
			head = fmt.Sprintf("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", size)
		}
		c := refusedOnce(head)
		go r.app.Place(o.placement(uint64(i + 2)))
		_, _ = io.CopyN(c, zeros{}, size)
		if framing == "chunked" {
			c.send("\r\n0\r\n\r\n")
		}
		c.want(200, want)
	}
	if r.wake.Load() < 2 {
		t.Errorf("%d wakes", r.wake.Load())
	}
}

func TestTheSecondFailureIsTold(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.app.Place(edge.Placement{Generation: 1, State: edge.Serving, Network: "unix", Address: "/nowhere/at/all"})
	c := r.dial()
	c.get("/")
	a := c.status(502)
	if !strings.Contains(a.Header.Get("Proxy-Status"), "connection_refused") {
		t.Errorf("%v", a.Header)
	}
	if n := r.last(1); n.Retries != 1 || n.Result.Cause != edge.CauseConnectRefused || n.Result.Ending != edge.Failed {
		t.Errorf("%+v", n)
	}
}

// A connection that was found dead is no try: the body that has been gathered
// for it goes whole to the next one, and nothing is counted as sent again.
func TestABodyMeetsAStaleConnectionAndGoesWholeToTheNext(t *testing.T) {
	for _, size := range []int{100, 50_000, 200_000} { // with the head, gathered, and with a pump
		o := newOrigin(t, each(func(s *stage, r *http.Request) {
			h := sha256.New()
			n, _ := io.Copy(h, r.Body)
			s.ok(fmt.Sprintf("%d %x", n, h.Sum(nil)))
		}))
		body := strings.Repeat("0123456789", size/10)
		want := fmt.Sprintf("%d %x", size, sha256.Sum256([]byte(body)))
		r := newRig(t, rigOptions{})
		r.app.Place(o.placement(1))
		c := r.dial()
		for i := range 3 {
			c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n%s", size, body))
			c.want(200, want)
			if e := r.last(i + 1); e.Retries != 0 || e.Result.BytesIn != int64(size) {
				t.Errorf("%d bytes: %d retries, %d bytes in", size, e.Retries, e.Result.BytesIn)
			}
			if n := o.conns.Load(); n != int32(i+1) {
				t.Errorf("%d bytes: %d connections to the app", size, n)
			}
			o.hangUp()
			eventually(t, "the app has closed", func() bool { return o.open.Load() == 0 })
		}
	}
}

// An app that does not accept in time, and one whose name leads nowhere, have not
// refused.
func TestWhyThereIsNoConnectionIsTold(t *testing.T) {
	for name, c := range map[string]struct {
		address, status string
		cause           edge.Cause
	}{
		"does not accept": {deaf(t), "connection_timeout", edge.CauseConnectTimeout},
		"no name":         {"nowhere..test:80", "dns_error", edge.CauseNoSuchName},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigOptions{pool: func(o upstream.Options) *upstream.Pool {
				o.DialTimeout = 100 * time.Millisecond
				return upstream.NewPool(o)
			}})
			r.app.Place(edge.Placement{Generation: 1, State: edge.Serving, Network: "tcp", Address: c.address})
			k := r.dial()
			k.get("/")
			if a := k.status(c.cause.Verdict().Status); a.Header.Get("Proxy-Status") != "usher; error="+c.status {
				t.Errorf("%v", a.Header)
			}
			if n := r.last(1); n.Retries != 1 || n.Result.Cause != c.cause || n.Result.Ending != edge.Failed {
				t.Errorf("%+v", n)
			}
		})
	}
}

// deaf is an address where nobody accepts, and the queue is full.
func deaf(t *testing.T) string {
	t.Helper()
	open := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { syscall.Close(fd) })
		return fd
	}
	fd := open()
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		if err := syscall.Connect(open(), at); err != nil && err != syscall.EINPROGRESS {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("127.0.0.1:%d", at.(*syscall.SockaddrInet4).Port)
}

// An app that answers and ends at once, so that its FIN comes with the answer, and is
// gone for a moment: that the pooled connection has ended is no try, so one is left for
// when the dial is refused and a new generation comes.
func TestAnAppThatAnswersAndDiesLosesNoRequest(t *testing.T) {
	for i, begin := range []func(testing.TB, func(*stage)) *origin{newOrigin, newTCPOrigin, newOrigin, newTCPOrigin, newOrigin, newTCPOrigin} {
		var first *origin
		first = begin(t, each(func(s *stage, r *http.Request) {
			if r.URL.Path == "/last" {
				first.ln.Close()
				s.ok("last")
				s.Close()
				return
			}
			s.ok(r.URL.Path)
		}))
		second := newOrigin(t, always("second"))
		r := newRig(t, rigOptions{})
		r.app.Place(first.placement(1))
		c := r.dial()
		for range 3 {
			c.get("/x")
			c.want(200, "/x")
		}
		c.get("/last")
		c.want(200, "last")
		r.last(4)
		eventually(t, "the FIN has come", func() bool { return first.open.Load() == 0 })
		c.get("/y")
		<-time.After(20 * time.Millisecond) // it may have been refused by now
		r.app.Place(edge.Placement{Revision: 2, Generation: 2, State: edge.Waking})
		r.app.Place(second.placement(2))
		if a, err := c.tryRead("GET"); err != nil || a.StatusCode != 200 || a.body != "second" {
			t.Errorf("round %d: %d %q %v", i, a.StatusCode, a.body, err)
		}
		c.Close()
	}
}
