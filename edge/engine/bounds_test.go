package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// dialAs connects from an address of the loopback network: another client.
func (r *rig) dialAs(ip string) *client {
	r.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(ip)}}
	c, err := d.Dial("tcp", r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	return &client{Conn: c, t: r.t, r: bufio.NewReader(c)}
}

func TestOneClientCannotHaveAllConnections(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{server: Options{MaxPerClient: 3}})
	r.app.Place(o.placement(1))
	var mine []*client
	for range 3 {
		c := r.dialAs("127.0.0.2")
		c.get("/")
		c.want(200, "x")
		mine = append(mine, c)
	}
	for range 5 {
		a := r.dialAs("127.0.0.2").status(429)
		if a.Header.Get("Retry-After") == "" || a.Header.Get("Proxy-Status") != "usher; error=http_request_denied" || !a.Close {
			t.Errorf("%v", a.Header)
		}
	}
	other := r.dialAs("127.0.0.3")
	other.get("/")
	other.want(200, "x")
	mine[0].get("/")
	mine[0].want(200, "x") // what it has lives
	if s := r.srv.Stats(); s.Open != 4 || s.Accepted != 4 || s.Refused != 5 {
		t.Errorf("%+v", s)
	}
	mine[1].Close()
	eventually(t, "a place is given back", func() bool { return r.srv.Stats().Open == 3 })
	again := r.dialAs("127.0.0.2")
	again.get("/")
	again.want(200, "x")
	for _, c := range append(mine, other, again) {
		c.Close()
	}
	eventually(t, "nobody is remembered", func() bool { return r.srv.clients.Inside() == 0 })
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.warned) != 1 || !strings.Contains(r.warned[0], "client 127.0.0.2 has 3 connections") {
		t.Errorf("warned %q, want once", r.warned)
	}
}

func TestTrustedPeersAndUnixPeersAreNotOneClient(t *testing.T) {
	for name, o := range map[string]rigOptions{
		"trusted":  {server: Options{MaxPerClient: 1, TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}},
		"unix":     {server: Options{MaxPerClient: 1}, unix: true},
		"listener": {server: Options{MaxPerClient: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			app := newOrigin(t, always("x"))
			r := newRig(t, o)
			r.app.Place(app.placement(1))
			if name == "listener" {
				r.addr = r.serveAlso(Listener{Trusted: true})
			}
			for range 3 {
				c := r.dial()
				c.get("/")
				c.want(200, "x")
			}
		})
	}
}

// Behind a trusted proxy, the client that it names has the share.
func TestTheForwardedClientHasTheShareOfALot(t *testing.T) {
	r := newRig(t, rigOptions{
		app:    edge.AppConfig{ParkLimit: 4},
		server: Options{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}},
	})
	r.app.Place(edge.Placement{State: edge.Waking, Boot: 3 * time.Second})
	ask := func(client string) *client {
		c := r.dial()
		c.send("GET / HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-For: 203.0.113.9, " + client + "\r\n\r\n")
		return c
	}
	for range 2 {
		ask("198.51.100.7")
	}
	eventually(t, "two are parked", func() bool { return r.app.Stats().Parked == 2 })
	a := ask("198.51.100.7").status(429)
	if a.Header.Get("Retry-After") != "3" || a.Header.Get("Proxy-Status") != "usher; error=http_request_denied" {
		t.Errorf("%v", a.Header)
	}
	for range 2 {
		ask("2001:db8::1")
	}
	eventually(t, "four are parked", func() bool { return r.app.Stats().Parked == 4 })
	if a := ask("192.0.2.1").status(503); a.Header.Get("Retry-After") != "3" {
		t.Errorf("%v", a.Header)
	}
	r.app.Place(edge.Placement{State: edge.Down})
	eventually(t, "all are told", func() bool { return r.app.Stats().Open() == 0 })
}

// serveAlso serves a second listener on the same server.
func (r *rig) serveAlso(l Listener) (addr string) {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.srv.ServeListener(ln, l) }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = r.srv.Shutdown(ctx)
		if err := <-served; !errors.Is(err, ErrClosed) {
			r.t.Errorf("serve: %v", err)
		}
	})
	return ln.Addr().String()
}

func TestEveryListenerHasItsOwnLimits(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{server: Options{MaxConnections: 3}})
	r.app.Place(o.placement(1))
	strict := r.serveAlso(Listener{MaxConnections: 1, HeadTimeout: time.Second, MaxPerClient: 1})
	wide := r.addr
	a := r.dial()
	a.get("/")
	a.want(200, "x")
	r.addr = strict
	b := r.dialAs("127.0.0.2")
	b.get("/")
	b.want(200, "x")
	c := r.dialAs("127.0.0.3") // waits for the place of b
	c.send("GET / HT")
	eventually(t, "that listener is full", func() bool { return r.srv.Stats().AtCapacity > 0 })
	b.Close()
	c.status(408) // the head timeout of this listener
	c.Close()
	eventually(t, "only a is left", func() bool { return r.srv.Stats().Open == 1 })
	r.addr = wide
	late := r.dial()
	late.send("GET / HT")
	d := r.dial()
	d.get("/")
	d.want(200, "x")
	late.send("TP/1.1\r\nHost: app.test\r\n\r\n")
	late.want(200, "x")
}

// With fewer places than listeners, no listener sits on one that another needs.
func TestAListenerWithoutClientsHoldsNoPlace(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{server: Options{MaxConnections: 1}})
	r.app.Place(o.placement(1))
	first := r.addr
	second := r.serveAlso(Listener{})
	for range 3 {
		for _, addr := range []string{first, second} {
			r.addr = addr
			c := r.dial()
			c.get("/")
			c.want(200, "x")
			c.Close()
			eventually(t, "closed", func() bool { return r.srv.Stats().Open == 0 })
		}
	}
}

// slowly reads n bytes at about that many a second.
func (c *client) slowly(n int64, perSecond int64) (read int64, err error) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for read < n && err == nil {
		<-tick.C
		var k int64
		k, err = io.CopyN(io.Discard, c.r, min(perSecond/50, n-read))
		read += k
	}
	return read, err
}

// A write may wait for long; what counts is that the client takes enough of it.
func TestASlowReaderThatKeepsUpIsServed(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	o := newTCPOrigin(t, each(func(s *stage, _ *http.Request) {
		s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		_, _ = io.CopyN(s, zeros{}, size)
	}))
	r := newRig(t, rigOptions{server: Options{WriteTimeout: 3 * time.Second, MinWriteRate: 1000}})
	r.app.Place(o.placement(1))
	c := r.dial()
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	c.get("/")
	// The kernel wakes a writer only when much of its buffer is free again, which
	// takes far longer than WriteTimeout at this pace.
	if _, err := c.slowly(360<<10, 40<<10); err != nil {
		t.Fatalf("cut off: %v", err)
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(c.r, size-360<<10)); err != nil || n < 7<<20 {
		t.Fatalf("the rest: %d bytes, %v", n, err)
	}
	c.Close()
	if n := r.last(1).Result; n.Ending != edge.Served || n.BytesOut != size {
		t.Errorf("%+v", n)
	}
}

// Of a unix socket the kernel does not tell how much the peer has taken, so no
// write there is longer than a slow peer can take in the time it has.
func TestALargePageOfTheCacheReachesASlowPeerOnAUnixSocket(t *testing.T) {
	t.Parallel()
	const size = 3 << 20
	o := newOrigin(t, each(func(s *stage, _ *http.Request) {
		s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\nCache-Control: max-age=60\r\n\r\n", size)
		_, _ = io.CopyN(s, zeros{}, size)
	}))
	r := newRig(t, rigOptions{
		unix: true, cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}, server: Options{WriteTimeout: 2 * time.Second},
	})
	r.app.Place(o.placement(1))
	first := r.dial()
	first.get("/")
	if n, err := io.CopyN(io.Discard, first.r, size); err != nil {
		t.Fatal(n, err)
	}
	r.last(1)
	c := r.dial()
	c.get("/")
	if n, err := c.slowly(size, 600<<10); err != nil {
		t.Fatalf("cut off after %d bytes: %v", n, err)
	}
	c.Close()
	if n := r.last(2).Result; n.Ending != edge.Cached || n.Cause != edge.CauseNone {
		t.Errorf("%+v", n)
	}
}

func TestAReaderThatTricklesIsCutOff(t *testing.T) {
	t.Parallel()
	o := newTCPOrigin(t, func(s *stage) {
		s.read()
		s.say("HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
		_, _ = io.CopyN(s, zeros{}, 100000000)
	})
	r := newRig(t, rigOptions{server: Options{WriteTimeout: 500 * time.Millisecond, MinWriteRate: 10 << 20}})
	r.app.Place(o.placement(1))
	c := r.dial()
	_ = c.Conn.(*net.TCPConn).SetReadBuffer(16 << 10)
	c.get("/")
	if n, err := c.slowly(100000000, 50<<10); err == nil {
		t.Fatalf("served %d bytes", n)
	}
	if n := r.last(1).Result; n.Cause != edge.CauseSlowClient || n.Ending != edge.Gone {
		t.Errorf("%+v", n)
	}
}

// An upload waits for an app that does not read, however long; nobody blames the
// client for it.
func TestAClientIsNotBlamedForAnAppThatIsSlowToTakeTheBody(t *testing.T) {
	t.Parallel()
	const size = 4 << 20
	held := make(chan struct{})
	o := newTCPOrigin(t, each(func(s *stage, q *http.Request) {
		<-held
		_, _ = io.Copy(io.Discard, q.Body)
		s.ok("x")
	}))
	// No client comes up to this rate if the app's time counts as its own.
	r := newRig(t, rigOptions{server: Options{BodyTimeout: 6 * time.Second, MinBodyRate: 64 << 20}})
	r.app.Place(o.placement(1))
	c := r.dial()
	go func() {
		_, _ = io.Copy(c.Conn, io.MultiReader(
			strings.NewReader(fmt.Sprintf("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n", size)),
			io.LimitReader(zeros{}, size)))
	}()
	eventually(t, "the upload has begun", func() bool { return o.conns.Load() == 1 })
	<-time.After(7 * time.Second)
	close(held)
	c.want(200, "x")
}

// fewDescriptors tells the child process of the next test what it is.
const fewDescriptors = "USHER_TEST_FEW_DESCRIPTORS"

// K01: with the limit of the kernel, not one that a test pretends.
func TestAtTheDescriptorLimitAcceptingPausesAndConnectionsLive(t *testing.T) {
	if os.Getenv(fewDescriptors) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAtTheDescriptorLimitAcceptingPausesAndConnectionsLive$", "-test.v")
		cmd.Env = append(os.Environ(), fewDescriptors+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	var lives []*client
	for range 5 {
		c := r.dial()
		c.get("/")
		c.want(200, "x") // has its connection, and the pool one to the app
		lives = append(lives, c)
	}
	// The clients are in this process as well: they get their descriptors first.
	const more = 40
	var queued []int
	for range more {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		queued = append(queued, fd)
	}
	leave := limitDescriptors(t, len(descriptors())+10)
	to := address(t, r.addr)
	for _, fd := range queued {
		if err := syscall.Connect(fd, to); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "accepting pauses", func() bool { return r.srv.Stats().OutOfDescriptors > 3 })
	for _, c := range lives {
		eventually(t, "nobody has the connection to the app", func() bool {
			return !slices.ContainsFunc(r.srv.all(), func(c *conn) bool { return !oneOf(c.clock.now(), []phase{phaseIdle, phaseAway}) })
		})
		c.get("/")
		c.want(200, "x")
	}
	if n := r.srv.Stats().OutOfDescriptors; n > 100 {
		t.Errorf("tried %d times: it spins", n)
	}
	for _, fd := range queued[:more/2] {
		syscall.Close(fd)
	}
	eventually(t, "the rest is accepted", func() bool { return r.srv.Stats().Accepted >= 5+more })
	leave()
	for _, fd := range queued[more/2:] {
		syscall.Close(fd)
	}
	c := r.dial()
	c.get("/")
	c.want(200, "x")
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.warned) != 2 || !strings.Contains(r.warned[0], "pauses") || !strings.Contains(r.warned[1], "goes on") {
		t.Errorf("warned %q", r.warned)
	}
}

// Usher's own want of descriptors is not told as the app's refusal.
func TestWithoutADescriptorTheAppIsNotBlamed(t *testing.T) {
	if os.Getenv(fewDescriptors) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWithoutADescriptorTheAppIsNotBlamed$", "-test.v")
		cmd.Env = append(os.Environ(), fewDescriptors+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{})
	p := o.placement(1)
	p.Boot = 9 * time.Second
	r.app.Place(p)
	c := r.dial()
	eventually(t, "connected", func() bool { return r.srv.Connections() == 1 })
	leave := limitDescriptors(t, len(descriptors())+10)
	var taken []int
	fd, err := syscall.Dup(0)
	for ; err == nil; fd, err = syscall.Dup(0) {
		taken = append(taken, fd)
	}
	for range 3 {
		c.get("/")
		a := c.status(503)
		if a.Header.Get("Proxy-Status") != "usher; error=proxy_internal_error" || a.Header.Get("Retry-After") != "9" {
			t.Errorf("%v", a.Header)
		}
	}
	leave()
	for _, fd := range taken {
		syscall.Close(fd)
	}
	c.get("/")
	c.want(200, "x")
	if n := r.last(3); n.Result.Ending != edge.Refused || n.Result.Cause != edge.CauseNoDescriptors || n.Retries != 0 {
		t.Errorf("%+v", n)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := strings.Count(strings.Join(r.warned, "\n"), "no descriptor is left"); n != 1 {
		t.Errorf("warned %q", r.warned)
	}
}

func limitDescriptors(t *testing.T, n int) (undo func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	set := func(l syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
			t.Error(err)
		}
	}
	set(syscall.Rlimit{Cur: uint64(n), Max: was.Max})
	return func() { set(was) }
}

func address(t *testing.T, hostPort string) *syscall.SockaddrInet4 {
	t.Helper()
	a, err := netip.ParseAddrPort(hostPort)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
}
