package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
)

// newHome is a loop as far as a pool is concerned.
func newHome(t *testing.T) *Home {
	t.Helper()
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return &Home{Epoll: fd}
}

// has says whether the connection is in the epoll set.
func (h *Home) has(c *Conn, fd int) bool {
	err := unix.EpollCtl(h.Epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Fd: int32(fd)})
	return err == nil
}

// take takes what there is, as a loop does.
func (h *Home) take(t *testing.T, p *Pool, idempotent bool) (c *Conn, isNew bool) {
	t.Helper()
	c, isNew = p.Take(h, idempotent)
	if isNew {
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.FD())}
		if err := unix.EpollCtl(h.Epoll, unix.EPOLL_CTL_ADD, c.FD(), &ev); err != nil {
			t.Fatal(err)
		}
	}
	return c, isNew
}

// warmAt leaves n idle connections at h, oldest first.
func (h *Home) warmAt(t *testing.T, p *Pool, n int) (conns []*Conn) {
	t.Helper()
	warm(t, p, n)
	for range n {
		c, _ := h.take(t, p, true)
		if c == nil {
			t.Fatal("nothing is idle")
		}
		if answer, err := c.quickly(t, "GET", "/", ""); answer != "/" || err != nil {
			t.Fatalf("%q, %v", answer, err)
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		p.Put(c)
	}
	return conns
}

// quickly is converse by descriptor, for a small answer.
func (c *Conn) quickly(t *testing.T, method, path, body string) (string, error) {
	t.Helper()
	var res http1.Response
	over := c.AskNow(request(method, path, ""), []byte(body), &res, []byte(method))
	return c.heard(t, over)
}

func (c *Conn) heard(t *testing.T, over bool) (string, error) {
	t.Helper()
	for !over {
		c.arrives(t)
		over = c.GoOn()
	}
	if err := c.Outcome(); err != nil {
		return "", err
	}
	data, done, err := c.Piece()
	if err == nil && !done {
		err = errors.New("no small answer")
	}
	return string(data), err
}

// arrives waits until there is something to read.
func (c *Conn) arrives(t *testing.T) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(c.FD()), Events: unix.POLLIN}}, 20000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("nothing to read: %v", err)
		}
		return
	}
}

func TestWhereNothingIsIdleNothingIsTaken(t *testing.T) {
	for name, x := range map[string]struct {
		opt     Options
		prepare func(t *testing.T, p *Pool)
		err     error // of Get afterwards
	}{
		"empty":   {},
		"limited": {opt: Options{MaxConns: 1}},
		"full":    {opt: Options{MaxConns: 1}, prepare: func(t *testing.T, p *Pool) { t.Cleanup(holding(t, p)) }, err: ErrFull},
		"retired": {prepare: func(t *testing.T, p *Pool) { warm(t, p, 1); p.Retire() }},
		"closed":  {prepare: func(t *testing.T, p *Pool) { warm(t, p, 1); p.Close() }, err: ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOrigin(t, "tcp", web(echo)).pool(x.opt)
			if x.prepare != nil {
				x.prepare(t, p)
			}
			h, was := newHome(t), p.Stats()
			for range 3 {
				if c, isNew := p.Take(h, true); c != nil || isNew {
					t.Fatalf("%v, %v", c, isNew)
				}
			}
			if s := p.Stats(); s != was {
				t.Errorf("%+v, was %+v", s, was)
			}
			c, err := p.Get(context.Background(), true)
			if !errors.Is(err, x.err) {
				t.Fatalf("get: %v, want %v", err, x.err)
			}
			if err == nil {
				p.Discard(c)
			}
		})
	}
}

// holding holds a connection until the end.
func holding(t *testing.T, p *Pool) (end func()) {
	t.Helper()
	c := get(t, p, true)
	return func() { p.Discard(c) }
}

func TestAConnectionGoesFromLoopToLoopAndBack(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		o := newOrigin(t, network, web(echo))
		p := o.pool(Options{})
		warm(t, p, 1)
		one, two := newHome(t), newHome(t)
		var first *Conn
		for i, x := range []struct {
			h     *Home // nil: Get
			isNew bool
		}{{one, true}, {one, false}, {two, true}, {two, false}, {nil, false}, {two, true}, {one, true}, {nil, false}} {
			var c *Conn
			var answer string
			var err error
			if x.h == nil {
				c = get(t, p, true)
				if c.Bare() || one.has(c, c.fd) || two.has(c, c.fd) {
					t.Errorf("%d: it has not landed", i)
				}
				answer, err = converse(c, "POST", "/", "hello")
			} else {
				var isNew bool
				if c, isNew = x.h.take(t, p, true); c == nil || isNew != x.isNew || !c.Bare() {
					t.Fatalf("%d: %+v, new %v", i, c, isNew)
				}
				if one.has(c, c.FD()) != (x.h == one) || two.has(c, c.FD()) != (x.h == two) {
					t.Errorf("%d: it is in a wrong set", i)
				}
				answer, err = c.quickly(t, "GET", "/hello", "")
			}
			if answer != "/hello" || err != nil || !c.Reused {
				t.Errorf("%d: %q, %v, reused %v", i, answer, err, c.Reused)
			}
			if first = cmpOr(first, c); c != first {
				t.Errorf("%d: it is another one", i)
			}
			if s, want := p.Stats(), (Stats{Open: 1, Dialled: 1, Reused: int64(i + 1)}); s != want {
				t.Errorf("%d: %+v, want %+v", i, s, want)
			}
			p.Put(c)
			if s := p.Stats(); s.Open != 1 || s.Idle != 1 {
				t.Errorf("%d: %+v", i, s)
			}
		}
		if n := o.open(); n != 1 {
			t.Errorf("the app has %d connections", n)
		}
	})
}

func cmpOr(a, b *Conn) *Conn {
	if a == nil {
		return b
	}
	return a
}

func TestALoopTakesItsOwnConnectionsFirst(t *testing.T) {
	p := newOrigin(t, "unix", web(echo)).pool(Options{})
	one, two := newHome(t), newHome(t)
	mine := one.warmAt(t, p, 2)
	other := dialled(t, p)
	p.Put(other) // the newest, and Go's
	for _, want := range []*Conn{mine[1], mine[0], other} {
		if c, isNew := one.take(t, p, true); c != want || isNew != (want == other) {
			t.Errorf("%p, new %v; want %p", c, isNew, want)
		}
	}
	if c, _ := two.take(t, p, true); c != nil {
		t.Error("what another has in use was taken")
	}
	for _, c := range append(mine, other) {
		p.Discard(c)
	}
}

// dialled is a connection that was not idle, and has served.
func dialled(t *testing.T, p *Pool) *Conn {
	t.Helper()
	p.mu.Lock()
	p.dialing++
	p.mu.Unlock()
	c, err := p.dial(t.Context())
	if err == nil {
		_, err = converse(c, "GET", "/", "")
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAnOldBareConnectionCarriesOnlyWhatMayRunTwice(t *testing.T) {
	for _, x := range []struct {
		network    string
		idempotent bool
		age        time.Duration
		taken      bool
	}{
		{"tcp", false, 500 * time.Millisecond, true},
		{"tcp", false, time.Second, false},
		{"tcp", true, 30 * time.Second, true},
		{"unix", false, 30 * time.Second, true},
	} {
		o := newOrigin(t, x.network, web(echo))
		p := o.pool(Options{})
		h := newHome(t)
		h.warmAt(t, p, 2)
		age(p, x.age)
		c, isNew := h.take(t, p, x.idempotent)
		if (c != nil) != x.taken || isNew {
			t.Errorf("%+v: %v, new %v", x, c, isNew)
		}
		left := 2 // it is Get that makes room
		if c != nil {
			p.Discard(c)
			left = 1
		}
		if s := p.Stats(); s.Open != left || s.Idle != left {
			t.Errorf("%+v: %+v", x, s)
		}
		eventually(t, "the app sees it", func() bool { return o.open() == left })
	}
}

func TestIdleBareConnectionsEndWithThePool(t *testing.T) {
	for name, end := range map[string]func(*Pool){
		"retired": (*Pool).Retire,
		"closed":  (*Pool).Close,
		"expired": func(p *Pool) { age(p, 2*time.Minute); p.sweepSoon() },
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, network string) {
				o := newOrigin(t, network, web(echo))
				p := o.pool(Options{})
				conns := newHome(t).warmAt(t, p, 3)
				end(p)
				eventually(t, "the app sees it", func() bool { return o.open() == 0 })
				eventually(t, "the pool is empty", func() bool { return p.Stats().Open == 0 })
				conns[0].Stirs() // an event that was on its way
				if s := p.Stats(); s.Open != 0 || s.Idle != 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

func TestTheSweepKeepsBareConnectionsThatLive(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{})
	h := newHome(t)
	conns := h.warmAt(t, p, 3)
	age(p, 30*time.Second)
	p.sweepSoon()
	eventually(t, "the sweep has run", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.looking == 0 && p.armed
	})
	for i := range conns {
		if c, isNew := h.take(t, p, true); c != conns[len(conns)-1-i] || isNew {
			t.Errorf("%d: %v, new %v", i, c, isNew)
		}
	}
	for _, c := range conns {
		p.Discard(c)
	}
}

func TestARetiredPoolClosesWhatALoopGivesBack(t *testing.T) {
	o := newOrigin(t, "tcp", web(echo))
	p := o.pool(Options{})
	h := newHome(t)
	warm(t, p, 1)
	c, _ := h.take(t, p, true)
	p.Retire()
	if answer, err := c.quickly(t, "GET", "/held", ""); answer != "/held" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	p.Put(c)
	if s := p.Stats(); s.Open != 0 || s.Idle != 0 {
		t.Errorf("%+v", s)
	}
	eventually(t, "the app sees it", func() bool { return o.open() == 0 })
}

// mute is an app that does not answer what is asked under /wait.
func mute(w io.Writer, q *http.Request, body []byte) bool {
	return q.URL.Path == "/wait" || echo(w, q, body)
}

func TestCloseEndsWhatALoopWaitsFor(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		o := newOrigin(t, network, web(mute))
		p := o.pool(Options{})
		h := newHome(t)
		h.warmAt(t, p, 1)
		c, _ := h.take(t, p, true)
		var res http1.Response
		if c.AskNow(request("GET", "/wait", ""), nil, &res, []byte("GET")) {
			t.Fatal(c.Outcome())
		}
		p.Close()
		if _, err := c.heard(t, false); !Reset(err) {
			t.Errorf("got %v", err)
		}
		p.Put(c)
		if s := p.Stats(); s.Open != 0 {
			t.Errorf("%+v", s)
		}
		eventually(t, "the app sees it", func() bool { return o.open() == 0 })
	})
}

// passing is a socket of Go's that does something when it is about to be closed: then
// Lift has made a descriptor of it already.
type passing struct {
	*net.TCPConn
	closing atomic.Bool
	atLast  func()
}

func (c *passing) Close() error {
	if !c.closing.Swap(true) {
		c.atLast()
	}
	return c.TCPConn.Close()
}

func TestCloseEndsAConnectionThatALoopIsTaking(t *testing.T) {
	var p *Pool
	p = newOrigin(t, "tcp", web(echo)).pool(Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &passing{TCPConn: nc.(*net.TCPConn), atLast: func() { p.Close() }}, nil
	}})
	warm(t, p, 1)
	c, _ := newHome(t).take(t, p, true)
	if c == nil {
		return
	}
	if answer, err := c.quickly(t, "GET", "/late", ""); err == nil {
		t.Errorf("the pool is closed, and the app answers %q", answer)
	}
	p.Put(c)
}

func TestCloseEndsAConnectionThatIsLanding(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{})
	h := newHome(t)
	h.warmAt(t, p, 1)
	c, _ := h.take(t, p, true)
	err := c.Land(func(fd int) (net.Conn, error) {
		nc, err := rawio.Land(fd)
		p.Close()
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			t.Errorf("the number that Close goes by may be another's: %v", err)
		}
		return nc, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if answer, err := converse(c, "GET", "/late", ""); err == nil {
		t.Errorf("the pool is closed, and the app answers %q", answer)
	}
	p.Put(c)
}

func TestAnIdleConnectionThatStirsIsLookedAt(t *testing.T) {
	for name, x := range map[string]struct {
		happens func(t *testing.T, o *origin, p *Pool)
		lives   bool
	}{
		"nothing":           {lives: true},
		"the app has ended": {happens: func(t *testing.T, o *origin, p *Pool) { o.hangUp(); allLook(t, p, closed) }},
		"it speaks unasked": {happens: func(t *testing.T, o *origin, p *Pool) { o.speak(t); allLook(t, p, talking) }},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(t *testing.T, network string) {
				o := newOrigin(t, network, web(echo))
				p := o.pool(Options{MaxConns: 3})
				h := newHome(t)
				conns := h.warmAt(t, p, 3)
				if x.happens != nil {
					x.happens(t, o, p)
				}
				conns[1].Stirs()
				conns[1].Stirs()
				if x.lives {
					for i := range conns {
						if c, isNew := h.take(t, p, true); c != conns[2-i] || isNew {
							t.Errorf("%d: %v, new %v", i, c, isNew)
						}
					}
					if s := p.Stats(); s.Open != 3 || s.Stale != 0 {
						t.Errorf("%+v", s)
					}
					for _, c := range conns {
						p.Discard(c)
					}
					return
				}
				if s := p.Stats(); s.Open != 2 || s.Idle != 2 || s.Stale != 1 {
					t.Errorf("%+v", s)
				}
				if _, err := unix.FcntlInt(uintptr(conns[1].FD()), unix.F_GETFD, 0); err != unix.EBADF {
					t.Errorf("%v, want it closed", err)
				}
			})
		})
	}
}

// speak says something on all connections.
func (o *origin) speak(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.conns {
		if _, err := io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\n\r\n"); err != nil {
			t.Error(err)
		}
	}
}

func TestAConnectionInUseThatStirsIsLeftToItsHolder(t *testing.T) {
	o := newOrigin(t, "unix", web(echo))
	p := o.pool(Options{})
	h := newHome(t)
	h.warmAt(t, p, 1)
	c, _ := h.take(t, p, true)
	o.hangUp()
	eventually(t, "the end is here", func() bool { return c.look(noFD) == closed })
	c.Stirs()
	if s := p.Stats(); s.Open != 1 || s.Idle != 0 {
		t.Errorf("%+v", s)
	}
	var res http1.Response
	if !c.AskNow(request("GET", "/", ""), nil, &res, []byte("GET")) || !Stale(c.Outcome()) {
		t.Error("what has ended was asked")
	}
	p.Discard(c)
}

func TestWhatTheAppDoesNotTakeAtOnceIsSentAfterTheLanding(t *testing.T) {
	o := newOrigin(t, "unix", web(func(w io.Writer, q *http.Request, body []byte) bool {
		_, err := io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		return err == nil && (q.URL.Path != "/big" || len(body) == 8<<20)
	}))
	p := o.pool(Options{})
	warm(t, p, 1)
	c, _ := newHome(t).take(t, p, true)
	var res http1.Response
	whole := request("POST", "/big", string(make([]byte, 8<<20)))
	if !c.AskNow(whole[:100], whole[100:], &res, []byte("POST")) || !c.Unsent() {
		t.Fatal("all of it was taken at once")
	}
	if err := c.Land(rawio.Land); err != nil {
		t.Fatal(err)
	}
	if err := c.Outcome(); err != nil || res.Status != 200 || c.Wrote() != int64(len(whole)) {
		t.Errorf("%v, %d, wrote %d", err, res.Status, c.Wrote())
	}
	p.Discard(c)
}

func TestWhatIsForgoneIsWaitedForByGoesPoller(t *testing.T) {
	next := make(chan struct{})
	o := newOrigin(t, "tcp", web(func(w io.Writer, q *http.Request, body []byte) bool {
		if q.URL.Path != "/halves" {
			return echo(w, q, body)
		}
		_, _ = io.WriteString(w, "HTTP/1.1 200 OK\r\nContent-")
		<-next
		_, err := io.WriteString(w, "Length: 5\r\n\r\nhello")
		return err == nil
	}))
	p := o.pool(Options{})
	warm(t, p, 1)
	c, _ := newHome(t).take(t, p, true)
	var res http1.Response
	if c.AskNow(request("GET", "/halves", ""), nil, &res, []byte("GET")) {
		t.Fatal(c.Outcome())
	}
	c.arrives(t)
	if c.GoOn() {
		t.Fatal("half a head is enough")
	}
	c.Forgo()
	if err := c.Land(rawio.Land); err != nil {
		t.Fatal(err)
	}
	close(next)
	deadline := time.Now().Add(20 * time.Second)
	if err := c.ReadHead(&res, []byte("GET"), deadline); err != nil {
		t.Fatal(err)
	}
	if answer, err := readAll(c, deadline); answer != "hello" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	p.Put(c)
	if s := p.Stats(); s.Idle != 1 {
		t.Errorf("%+v", s)
	}
}

// fewDescriptors tells the child process of the next test what it is.
const fewDescriptors = "USHER_TEST_FEW_DESCRIPTORS"

func TestALandingWithoutDescriptorsCanBeTriedAgain(t *testing.T) {
	if os.Getenv(fewDescriptors) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestALandingWithoutDescriptorsCanBeTriedAgain$", "-test.v")
		cmd.Env = append(os.Environ(), fewDescriptors+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	o := newOrigin(t, "unix", web(echo))
	p := o.pool(Options{})
	h := newHome(t)
	conns := h.warmAt(t, p, 2)
	c, _ := h.take(t, p, true)
	fd, taken := c.FD(), allDescriptors(t)
	if err := c.Land(rawio.Land); !errors.Is(err, unix.EMFILE) || !c.Bare() || c.FD() != fd {
		t.Fatalf("%v, bare %v, %d was %d", err, c.Bare(), c.FD(), fd)
	}
	if answer, err := c.quickly(t, "GET", "/bare", ""); answer != "/bare" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	// Get cannot land the other one: it gives its descriptor up for a new one, which
	// takes the app one as well.
	unix.Close(taken[0])
	dialled, err := p.Get(context.Background(), true)
	if err != nil || dialled.Reused || slices.Contains(conns, dialled) {
		t.Fatalf("%v, %v", dialled, err)
	}
	if s := p.Stats(); s.Open != 2 || s.Idle != 0 || s.Dialled != 3 {
		t.Errorf("%+v", s)
	}
	for _, fd := range taken[1:] {
		unix.Close(fd)
	}
	c.reuse()
	if err := c.Land(rawio.Land); err != nil || c.Bare() {
		t.Fatalf("%v, bare %v", err, c.Bare())
	}
	if answer, err := converse(c, "GET", "/landed", ""); answer != "/landed" || err != nil {
		t.Errorf("%q, %v", answer, err)
	}
	p.Put(c)
	p.Discard(dialled)
	if s := p.Stats(); s.Open != 1 || s.Idle != 1 {
		t.Errorf("%+v", s)
	}
}

// allDescriptors uses up what there is.
func allDescriptors(t *testing.T) (taken []int) {
	t.Helper()
	_, _ = filepath.Glob("/proc/self/fd/*") // whatever opens something for the first time
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 64, Max: 64}); err != nil {
		t.Fatal(err)
	}
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return taken
		}
		taken = append(taken, fd)
	}
}

// A loop that has nothing to take asks Get next: together they make room once.
func TestTheOldestMakesRoomOnce(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{})
	warm(t, p, 4)
	age(p, 2*maxReuse)
	if c, _ := newHome(t).take(t, p, false); c != nil {
		t.Fatal("one that is too old was taken")
	}
	c := get(t, p, false)
	defer p.Discard(c)
	if s := p.Stats(); s.Open != 4 {
		t.Errorf("%d are open, want 4: one has made room for one", s.Open)
	}
}

// What may not run twice goes over a connection that was used just now, wherever that is.
func TestAFreshConnectionElsewhereIsBetterThanAnOldOneHere(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{})
	h, other := newHome(t), newHome(t)
	conns := h.warmAt(t, p, 2)
	there, _ := h.take(t, p, true)
	if answer, err := there.quickly(t, "GET", "/", ""); answer != "/" || err != nil {
		t.Fatalf("%q, %v", answer, err)
	}
	if err := there.moveTo(other); err != nil {
		t.Fatal(err)
	}
	if err := unix.EpollCtl(other.Epoll, unix.EPOLL_CTL_ADD, there.FD(), &unix.EpollEvent{}); err != nil {
		t.Fatal(err)
	}
	p.Put(there)
	age(p, 2*maxReuse)
	p.mu.Lock()
	there.idleSince = time.Now()
	p.mu.Unlock()
	if got, isNew := p.Take(h, false); got != there || !isNew {
		t.Errorf("the fresh connection is left: %+v of %d", p.Stats(), len(conns))
	}
}
