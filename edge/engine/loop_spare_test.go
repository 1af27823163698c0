package engine

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// inChild runs the test in a process of its own, whose descriptors it may use up. It
// reports false there.
func inChild(t *testing.T) bool {
	t.Helper()
	if os.Getenv(fewDescriptors) != "" {
		return false
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), fewDescriptors+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return true
}

func TestAtTheDescriptorLimitLoopsGoOn(t *testing.T) {
	if inChild(t) {
		return
	}
	o := newOrigin(t, held(nil, nil))
	r := loopRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	var clients []*client
	for range 5 {
		c := r.dial()
		c.get("/")
		c.want(200, "x")
		clients = append(clients, c)
	}
	loops := func() bool { return r.allAtLoops(5) }
	eventually(t, "loops have them", loops)
	leave := limitDescriptors(t, len(descriptors())+10)
	var taken []int
	fd, err := syscall.Dup(0)
	for ; err == nil; fd, err = syscall.Dup(0) {
		taken = append(taken, fd)
	}
	for range 3 {
		for _, c := range clients {
			c.get("/")
			c.want(200, "x")
			eventually(t, "it is still there", loops)
		}
	}
	// A body that comes later needs a goroutine, and that descriptors for a moment: the
	// loop has put some by.
	for _, c := range clients {
		c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n01234")
		eventually(t, "it is handed over", func() bool { return !loops() })
		c.send("56789")
		c.want(200, "x0123456789")
	}
	leave()
	for _, fd := range taken {
		syscall.Close(fd)
	}
	for _, c := range clients {
		c.get("/")
		c.want(200, "x")
	}
	if s := r.srv.Stats(); s.Open != 5 {
		t.Errorf("%+v", s)
	}
}

// To hand a connection over takes a descriptor, so without any it shows what a loop does
// by itself.
func TestWithoutAnyDescriptorALoopServesWhatIsQuick(t *testing.T) {
	if inChild(t) {
		return
	}
	page := strings.Repeat("y", quickMost)
	o := newOrigin(t, each(func(s *stage, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		switch q.URL.Path {
		case "/none":
			s.say("HTTP/1.1 204 No Content\r\n\r\n")
		case "/head":
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
		case "/chunk":
			s.say(chunkedHead + oneChunk + "0\r\n\r\n")
		case "/page":
			s.ok(page)
		default:
			s.ok("x" + string(b))
		}
	}))
	r := loopRig(t, rigOptions{unix: true, cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/page")
	c.want(200, page)
	k := r.settle(c)
	undo := limitDescriptors(t, 3)
	for range 3 {
		c.get("/page")
		c.want(200, page)
		for _, x := range []struct{ asks, body string }{
			{"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n", "x"},
			{"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello", "xhello"},
			{"PUT /chunk HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1\r\n\r\nx", "hello"},
			{"DELETE /none HTTP/1.1\r\nHost: app.test\r\n\r\n", ""},
		} {
			c.send(x.asks)
			if a := c.read("GET"); a.body != x.body || a.StatusCode/100 != 2 {
				t.Errorf("%s: %d %q", x.asks, a.StatusCode, a.body)
			}
		}
		c.send("HEAD /head HTTP/1.1\r\nHost: app.test\r\n\r\n")
		if a := c.read("HEAD"); a.ContentLength != 100 {
			t.Errorf("%+v", a.Response)
		}
		const many = 3*mostInTurn + 1
		c.send(strings.Repeat("PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1\r\n\r\ny", many))
		for range many {
			c.want(200, "xy")
		}
	}
	eventually(t, "it is still there", func() bool { return k.atLoop(phaseIdle) })
	undo()
	r.settle(c)
}

// Without any descriptor a connection that needs a goroutine cannot live. Its request
// is counted if there is one, and only then, and told why if nothing of its answer is
// out.
func TestWhatCannotBeHandedOverEndsAndIsCounted(t *testing.T) {
	if inChild(t) {
		return
	}
	for name, x := range map[string]struct {
		asks    string
		counted int
		told    bool
	}{
		"no request":          {asks: "GET / HTTP/1.1\r\nHost : app.test\r\n\r\n"},
		"a body to come":      {asks: "POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\n01234", counted: 1, told: true},
		"about usher":         {asks: "OPTIONS * HTTP/1.1\r\nHost: app.test\r\n\r\n", counted: 1, told: true},
		"an answer in pieces": {asks: toGet("/pause"), counted: 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, held(nil, map[string][]string{"/pause": {ok10 + "01234", "56789"}}))
			r := loopRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}}})
			r.app.Place(o.placement(1))
			c := r.dial()
			r.settle(c)
			n := len(r.logged())
			undo := limitDescriptors(t, 3)
			c.send(x.asks)
			eventually(t, "it ends", func() bool { return r.srv.Connections() == 0 })
			undo()
			if x.told {
				c.status(503)
				c.wantEOF()
			} else {
				c.wantReset()
			}
			if s := r.app.Stats(); s.InFlight != 0 || len(r.logged()) != n+x.counted {
				t.Errorf("%+v, %d requests, want %d", s, len(r.logged())-n, x.counted)
			}
		})
	}
}

// keeping is a cache that counts the answers which are on their way into it.
type keeping struct {
	*shelf
	fills atomic.Int32
}

type keepingVisit struct {
	edge.Visit
	k *keeping
}

type keepingFill struct {
	edge.Fill
	k *keeping
}

func (k *keeping) NewVisit() edge.Visit { return keepingVisit{k.shelf.NewVisit(), k} }

func (v keepingVisit) Begin(s edge.Space, a *edge.CacheAnswer, sent, now time.Time) edge.Fill {
	f := v.Visit.Begin(s, a, sent, now)
	if f == nil {
		return nil
	}
	v.k.fills.Add(1)
	return keepingFill{f, v.k}
}

func (f keepingFill) Commit() bool { f.k.fills.Add(-1); return f.Fill.Commit() }
func (f keepingFill) Abort()       { f.k.fills.Add(-1); f.Fill.Abort() }

// What a cache has reserved for an answer is given back, whatever becomes of it.
func TestAnAnswerThatCannotBeHandedOverIsNotKept(t *testing.T) {
	if inChild(t) {
		return
	}
	o := newOrigin(t, held(nil, map[string][]string{"/pause": {ok10 + "01234", "56789"}}))
	cache := &keeping{shelf: newShelf()}
	r := loopRig(t, rigOptions{cache: cache, app: edge.AppConfig{CacheEnabled: true}})
	r.app.Place(o.placement(1))
	c := r.dial()
	r.settle(c)
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 1\r\n\r\ny")
	c.want(200, "xy")
	undo := limitDescriptors(t, 3)
	c.get("/pause")
	eventually(t, "it ends", func() bool { return r.srv.Connections() == 0 })
	undo()
	if n := cache.fills.Load(); n != 0 {
		t.Errorf("%d answers are still on their way into the cache", n)
	}
}

// wrapped is a connection that says where its socket is, and is more than that.
type wrapped struct{ *net.TCPConn }

type wrapping struct{ net.Listener }

func (l wrapping) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return wrapped{nc.(*net.TCPConn)}, nil
}

// What a loop cannot have keeps its goroutine, and that waits.
func TestAConnectionThatIsMoreThanASocketWaitsInItsGoroutine(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := loopRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.srv.Serve(wrapping{ln}) }()
	t.Cleanup(func() {
		_ = r.srv.Shutdown(t.Context())
		<-served
	})
	r.addr = ln.Addr().String()
	c := r.dial()
	c.get("/")
	c.want(200, "x")
	k := r.only()
	eventually(t, "idle", func() bool { return k.clock.now() == phaseIdle })
	was := k.clock.word.Load()
	<-time.After(50 * time.Millisecond)
	if now := k.clock.word.Load(); now != was || !k.handedOver() {
		t.Errorf("its clock goes on from %x to %x", was, now)
	}
	c.get("/")
	c.want(200, "x")
}

// Whoever tells a loop to look may be late: a goroutine has the connection by then.
func TestALoopThatIsToldOfAConnectionItHasHandedOverLeavesItAlone(t *testing.T) {
	next := make(chan struct{})
	close(next)
	o := newOrigin(t, held(next, map[string][]string{"/pause": {ok10 + "01234", "56789"}}))
	r := loopRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	k := r.settle(c)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Microsecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				k.reach(func(net.Conn) {})
			}
		}
	})
	for i := range 200 {
		body := fmt.Sprint(1000 + i)
		c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 4\r\n\r\n" + body[:2])
		c.send(body[2:])
		c.want(200, "x"+body)
	}
	close(done)
	wg.Wait()
	r.settle(c)
}
