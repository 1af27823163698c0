package engine

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

func TestAHeadThatTakesTooLongIs408(t *testing.T) {
	r := newRig(t, rigOptions{server: Options{HeadTimeout: 100 * time.Millisecond, IdleTimeout: time.Minute}})
	c := r.dial()
	c.send("GET / HTTP/1.1\r\nHos")
	began := time.Now()
	c.status(408)
	c.wantEOF()
	if d := time.Since(began); d < 100*time.Millisecond || d > patience {
		t.Errorf("after %v", d)
	}
	if n := r.last(1).Result; n.Cause != edge.CauseHeadTimeout {
		t.Errorf("%+v", n)
	}
}

func TestAnIdleConnectionIsClosedWithoutAWord(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{server: Options{IdleTimeout: time.Second}})
	r.app.Place(o.placement(1))
	fresh := r.dial()
	c := r.dial()
	c.get("/")
	c.want(200, "x")
	c.wantEOF()
	fresh.wantEOF()
}

func TestAnIdleConnectionHoldsNoBuffer(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	c.want(200, "x")
	eventually(t, "idle", func() bool {
		all := r.srv.all()
		return len(all) == 1 && all[0].clock.now() == phaseIdle
	})
	// The clock's word orders this read after the goroutine's last write.
	if m := r.srv.all()[0].mem; m != nil {
		t.Errorf("it holds %d bytes", len(m.in))
	}
}

func TestAnAppThatIsTooSlowIs504(t *testing.T) {
	release := make(chan struct{})
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-release
		s.ok("late")
	}))
	r := newRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: 200 * time.Millisecond}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	a := c.status(504)
	if a.Header.Get("Proxy-Status") != "usher; error=http_response_timeout" {
		t.Errorf("%v", a.Header)
	}
	close(release)
	if n := r.last(1); n.Result.Cause != edge.CauseFirstByteTimeout || n.Retries != 0 {
		t.Errorf("%+v", n)
	}
}

func TestTheAppsTimeDoesNotRunWhileItGetsTheBody(t *testing.T) {
	t.Parallel()
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.ok(string(b))
	}))
	r := newRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: 3 * time.Second}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n")
	for range 10 { // longer than the app's time; the app itself has all of that for its answer
		<-time.After(350 * time.Millisecond)
		c.send("x")
	}
	c.want(200, "xxxxxxxxxx")
	silent := newOrigin(t, func(s *stage) { _, _ = io.Copy(io.Discard, s.r) })
	r.app.Place(silent.placement(2))
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n01234")
	<-time.After(100 * time.Millisecond)
	c.send("56789")
	c.status(504)
}

// An app that takes nothing of a body does not hold its request for ever, whether
// the body does not fit into its socket at once or comes later.
func TestAnAppThatDoesNotTakeTheBodyIs504(t *testing.T) {
	for name, first := range map[string]int{"at once": 1 << 20, "later": 10} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			o := newOrigin(t, func(*stage) { <-done })
			defer close(done)
			r := newRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: 300 * time.Millisecond}})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 100000000\r\n\r\n")
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = io.CopyN(c, zeros{}, int64(first))
				_, _ = io.CopyN(c, zeros{}, 100000000-int64(first)) // breaks off when the edge closes
			}()
			if a := c.status(504); !a.Close {
				t.Error("the connection is said to live on")
			}
			c.Close()
			<-sent
			if n := r.last(1); n.Result.Cause != edge.CauseFirstByteTimeout || n.Retries != 0 {
				t.Errorf("%+v", n)
			}
		})
	}
}

func TestBodiesBeyondTheLimitAre413(t *testing.T) {
	got := make(chan int64, 10)
	o := newTCPOrigin(t, each(func(s *stage, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err == nil {
			s.ok("x")
		}
		got <- n
	}))
	r := newRig(t, rigOptions{app: edge.AppConfig{MaxBody: 100000}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 100001\r\n\r\n")
	c.status(413)
	if o.heads.Load() != 0 {
		t.Error("a body that is known to be too large was forwarded")
	}
	piece := fmt.Sprintf("%x\r\n%s\r\n", 10000, strings.Repeat("x", 10000))
	c = r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range 10 {
		c.send(piece)
	}
	c.send("0\r\n\r\n")
	c.want(200, "x")
	<-got
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n")
	for range 11 {
		c.send(piece)
	}
	c.status(413)
	if n := <-got; n > 100000 {
		t.Errorf("the app got %d bytes", n)
	}
	if n := r.last(3).Result; n.Cause != edge.CauseBodyTooLarge || n.Ending != edge.Refused {
		t.Errorf("%+v", n)
	}
}

// A body that is too large as it comes in with the head: nothing is sent, so the
// app must not be waited for.
func TestAChunkedBodyThatIsTooLargeAtOnceIs413(t *testing.T) {
	o := newOrigin(t, always("never"))
	r := newRig(t, rigOptions{app: edge.AppConfig{MaxBody: 10}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n0\r\n\r\n")
	c.status(413)
	if n := r.last(1).Result; n.Cause != edge.CauseBodyTooLarge || n.Ending != edge.Refused || o.heads.Load() != 0 {
		t.Errorf("%+v, and the app got %d requests", n, o.heads.Load())
	}
}

func TestABodyThatStopsIs408(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			s.ok("x")
		}
	}))
	r := newRig(t, rigOptions{server: Options{BodyTimeout: 100 * time.Millisecond}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\nhello")
	c.status(408)
	if n := r.last(1).Result; n.Cause != edge.CauseBodyTimeout || n.BytesIn != 5 {
		t.Errorf("%+v", n)
	}
}

func TestABodyThatTricklesIsTooSlow(t *testing.T) {
	const second = moment(1000)
	r := rate{limit: 100, window: 2 * time.Second}
	if !r.enough(1, second) {
		t.Error("judged within the window")
	}
	if r.enough(50, second) {
		t.Error("51 bytes in 2 s are enough for 100 a second")
	}
	if !r.enough(200, 2*second) {
		t.Error("200 bytes in 2 s are too slow for 100 a second")
	}
	if r.bytes != 0 || r.waited != 0 {
		t.Error("the window did not begin again")
	}
	for range 100 {
		if !r.enough(1, 0) {
			t.Fatal("judged by time in which the client was not waited for")
		}
	}
	r = rate{limit: -1, window: time.Second}
	if !r.enough(1, 3600*second) {
		t.Error("judged though there is no rate")
	}
}

func TestAClientThatTakesNothingIsCutOff(t *testing.T) {
	o := newTCPOrigin(t, func(s *stage) {
		s.read()
		s.say("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
		_, _ = io.CopyN(s, zeros{}, 100000000)
	})
	r := newRig(t, rigOptions{server: Options{WriteTimeout: 200 * time.Millisecond}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	if n := r.last(1).Result; n.Cause != edge.CauseSlowClient || n.Ending != edge.Gone {
		t.Errorf("%+v", n)
	}
	eventually(t, "the app is let off", func() bool { return o.open.Load() == 0 })
}

func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{server: Options{MaxConnections: 2}})
	r.app.Place(o.placement(1))
	a, b := r.dial(), r.dial()
	for _, c := range []*client{a, b} {
		c.get("/")
		c.want(200, "x")
	}
	third := r.dial()
	third.get("/")
	_ = third.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := third.r.Peek(1); !isTimeout(err) {
		t.Fatalf("served beyond the limit: %v", err)
	}
	third.r.Reset(third.Conn)
	_ = third.SetReadDeadline(time.Now().Add(patience))
	a.Close()
	third.want(200, "x")
}

// lame is a listener that has run out of descriptors for a while.
type lame struct {
	net.Listener
	fails atomic.Int32
}

func (l *lame) Accept() (net.Conn, error) {
	if l.fails.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// K01: out of descriptors, the acceptor waits, says so once, and goes on.
func TestRunningOutOfDescriptorsPausesAcceptingAndIsSaidOnce(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	before := r.dial()
	before.get("/")
	before.want(200, "x")
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lame{Listener: ln}
	l.fails.Store(5)
	served := make(chan error, 1)
	go func() { served <- r.srv.Serve(l) }()
	r.addr = ln.Addr().String()
	c := r.dial()
	before.get("/") // existing connections live
	before.want(200, "x")
	c.get("/")
	c.want(200, "x")
	r.mu.Lock() // it is said before the connection is served
	defer r.mu.Unlock()
	if len(r.warned) != 2 || !strings.Contains(r.warned[0], "pauses") || !strings.Contains(r.warned[1], "goes on") {
		t.Errorf("warned %q", r.warned)
	}
}

func TestAListenerThatFailsForGoodIsReported(t *testing.T) {
	r := newRig(t, rigOptions{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if err := r.srv.Serve(ln); err == nil || !strings.Contains(err.Error(), "accept on 127.0.0.1") {
		t.Errorf("%v", err)
	}
}
