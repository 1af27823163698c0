package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// patience is for what happens by itself, on a machine that has other things to
// do as well.
const patience = 15 * time.Second

// fasthttpClock keeps the Date of fasthttp's answers: one goroutine per process,
// which nothing ends.
const fasthttpClock = "github.com/valyala/fasthttp.updateServerDate.func1"

// TestMain checks that the tests left no goroutine and no descriptor behind.
func TestMain(m *testing.M) {
	runtime.GOMAXPROCS(max(3, runtime.GOMAXPROCS(0))) // one more than loops, as usher has it
	before := len(descriptors())
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(goleak.IgnoreAnyFunction(fasthttpClock)); err != nil {
			fmt.Println(err)
			code = 1
		}
		if after := settled(before + 2); len(after) > before+2 { // the runtime's own poller
			fmt.Printf("%d descriptors before the tests, now %v\n", before, after)
			code = 1
		}
	}
	os.Exit(code)
}

// settled are the descriptors, once pipes that nobody uses any more are closed: that
// is the collector's affair.
func settled(most int) (all []string) {
	for range 1000 {
		runtime.GC()
		if all = descriptors(); len(all) <= most {
			break
		}
		<-time.After(10 * time.Millisecond)
	}
	return all
}

func descriptors() (all []string) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		to, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil {
			all = append(all, to)
		}
	}
	return all
}

// eventually waits until ok, or fails.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(patience)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
		<-time.After(2 * time.Millisecond)
	}
}

// origin is an app whose every byte is scripted.
type origin struct {
	t       testing.TB
	ln      net.Listener
	conns   atomic.Int32 // accepted
	open    atomic.Int32
	heads   atomic.Int32 // request heads read by serve functions through read
	mu      sync.Mutex
	live    map[net.Conn]struct{}
	stopped bool
	wg      sync.WaitGroup

	stopping chan struct{} // closed by stop
}

// stage is one connection of the origin.
type stage struct {
	net.Conn
	r  *bufio.Reader
	o  *origin
	no int // which connection this is, from 1
}

// newOrigin runs serve for every connection; when it returns, the connection is
// closed.
func newOrigin(t testing.TB, serve func(s *stage)) *origin {
	t.Helper()
	return originOn(t, "unix", filepath.Join(t.TempDir(), "app"), serve)
}

func newTCPOrigin(t testing.TB, serve func(s *stage)) *origin {
	t.Helper()
	return originOn(t, "tcp", "127.0.0.1:0", serve)
}

func originOn(t testing.TB, network, address string, serve func(s *stage)) *origin {
	t.Helper()
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	o := &origin{t: t, ln: ln, live: map[net.Conn]struct{}{}, stopping: make(chan struct{})}
	o.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if rawio.Exhausted(err) { // by a test that leaves no descriptor; accept(2) says so without a connection as well
				<-time.After(10 * time.Millisecond)
				continue
			}
			if err != nil {
				return
			}
			n := o.conns.Add(1)
			o.mu.Lock()
			o.live[c] = struct{}{}
			stopped := o.stopped
			o.mu.Unlock()
			if stopped {
				c.Close()
				continue
			}
			o.open.Add(1)
			o.wg.Go(func() {
				defer o.open.Add(-1)
				defer c.Close()
				serve(&stage{Conn: c, r: bufio.NewReader(c), o: o, no: int(n)})
				o.mu.Lock()
				delete(o.live, c)
				o.mu.Unlock()
			})
		}
	})
	t.Cleanup(o.stop)
	return o
}

// stop closes the listener and every connection.
func (o *origin) stop() {
	o.ln.Close()
	o.mu.Lock()
	if !o.stopped {
		close(o.stopping)
	}
	o.stopped = true
	for c := range o.live {
		c.Close()
	}
	o.mu.Unlock()
	o.wg.Wait()
}

// hangUp closes every connection.
func (o *origin) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.live {
		c.Close()
	}
}

// placement is what makes the origin the app's target.
func (o *origin) placement(generation uint64) edge.Placement {
	a := o.ln.Addr()
	return edge.Placement{
		Revision: generation, Generation: generation, CacheGen: generation, State: edge.Serving,
		Network: a.Network(), Address: a.String(),
	}
}

// read reads one request; its body must be read by the caller.
func (s *stage) read() (*http.Request, bool) {
	r, err := http.ReadRequest(s.r)
	if err != nil {
		return nil, false
	}
	s.o.heads.Add(1)
	return r, true
}

// say writes, with \n for CRLF where a line begins with no CR.
func (s *stage) say(format string, args ...any) {
	_, _ = io.WriteString(s, fmt.Sprintf(format, args...))
}

// ok answers 200 with a body.
func (s *stage) ok(body string) {
	s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// reset closes with RST.
func (s *stage) reset() {
	if c, ok := s.Conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	s.Conn.Close()
}

// each answers requests one by one until the connection ends.
func each(answer func(s *stage, r *http.Request)) func(*stage) {
	return func(s *stage) {
		for {
			r, ok := s.read()
			if !ok {
				return
			}
			answer(s, r)
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
	}
}

// always answers every request with body.
func always(body string) func(*stage) {
	return each(func(s *stage, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.ok(body)
	})
}

// rig is a whole edge with one app, "app", for all hosts.
type rig struct {
	t    testing.TB
	edge *edge.Edge
	app  *edge.App
	srv  *Server
	addr string
	wake atomic.Int32

	mu      sync.Mutex
	entries []edge.Entry
	warned  []string

	onLog func(target string)
}

type rigOptions struct {
	app    edge.AppConfig
	server Options
	cache  edge.Cache
	unix   bool
	pool   func(upstream.Options) *upstream.Pool
	onLog  func(target string) // called for each entry, on the goroutine that ended the request
}

func newRig(t testing.TB, o rigOptions) *rig {
	t.Helper()
	r := &rig{t: t, onLog: o.onLog}
	if o.pool == nil {
		o.pool = spoiling()
	}
	reserve, err := rawio.NewReserve(8) // as usher has it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reserve.Close)
	r.edge = edge.New(edge.Options{Waker: wakes{r}, Cache: o.cache, Log: r.log, NewPool: func(u upstream.Options) *upstream.Pool {
		u.Reserve = reserve
		return o.pool(u)
	}})
	o.app.Name = "app"
	if o.app.Hosts == nil {
		o.app.Hosts = []string{"*"}
	}
	if err := r.edge.SetApps([]edge.AppConfig{o.app}); err != nil {
		t.Fatal(err)
	}
	r.app = r.edge.App("app")
	o.server.Edge, o.server.Reserve, o.server.poison, o.server.Warn = r.edge, reserve, true, r.warn
	t.Cleanup(r.audit) // after the server's end
	r.serve(o.server, o.unix)
	return r
}

// spoiling makes pools that overwrite the read buffers which are given back, so
// that late use shows.
func spoiling() func(upstream.Options) *upstream.Pool {
	stock := upstream.NewBuffers(0)
	stock.Spoil()
	return func(o upstream.Options) *upstream.Pool {
		o.Buffers = stock
		return upstream.NewPool(o)
	}
}

// serve starts the server and ends it with the test, before anything that was
// registered earlier.
// eventLoops is how many event loops a server has, two unless USHER_TEST_LOOPS says
// otherwise: all that is tested here must hold with none as well.
func eventLoops() int {
	if n, err := strconv.Atoi(os.Getenv("USHER_TEST_LOOPS")); err == nil {
		return n
	}
	return 2
}

func (r *rig) serve(o Options, unix bool) {
	r.t.Helper()
	if o.Loops == 0 {
		o.Loops = eventLoops()
	}
	srv, err := New(o)
	if err != nil {
		r.t.Fatal(err)
	}
	r.srv = srv
	network, address := "tcp", "127.0.0.1:0"
	if unix {
		network, address = "unix", filepath.Join(r.t.TempDir(), "edge")
	}
	lc := net.ListenConfig{Control: rawio.Unpaced} // as usher listens
	ln, err := lc.Listen(context.Background(), network, address)
	if err != nil {
		r.t.Fatal(err)
	}
	r.addr = ln.Addr().String()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	r.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = srv.Shutdown(ctx) // resets what is left then
		if err := <-served; !errors.Is(err, ErrClosed) {
			r.t.Errorf("serve: %v", err)
		}
		r.edge.Close()
	})
}

// audit is invariant I12: every request that began has ended, one way.
func (r *rig) audit() {
	u := r.edge.Unrouted()
	got := u.Accepted
	for _, a := range r.edge.Apps() {
		s := a.Stats()
		got += s.Accepted
		if s.Open() != 0 || u.Open() != 0 || s.InFlight != 0 || s.Parked != 0 || s.Streams != 0 {
			r.t.Errorf("left over: %+v %+v", s, u)
		}
	}
	if got != r.edge.Accepted() {
		r.t.Errorf("%d requests began, %d were counted in", r.edge.Accepted(), got)
	}
	if n := uint64(len(r.logged())); n != r.edge.Accepted() {
		r.t.Errorf("%d requests, %d log entries", r.edge.Accepted(), n)
	}
}

type wakes struct{ r *rig }

func (w wakes) Wake(string) { w.r.wake.Add(1) }

func (r *rig) log(n *edge.Entry) {
	if r.onLog != nil {
		r.onLog(string(n.Target))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := *n
	e.Method, e.Host, e.Target = bytes.Clone(n.Method), bytes.Clone(n.Host), bytes.Clone(n.Target)
	e.ID, e.Client = bytes.Clone(n.ID), bytes.Clone(n.Client)
	r.entries = append(r.entries, e)
}

func (r *rig) warn(msg string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.warned = append(r.warned, msg)
}

func (r *rig) logged() []edge.Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]edge.Entry(nil), r.entries...)
}

// counted waits until the counters are as they should be: a client has its answer
// a moment before its request is counted.
func (r *rig) counted(what string, ok func(s edge.Stats) bool) {
	r.t.Helper()
	eventually(r.t, what, func() bool { return ok(r.app.Stats()) })
}

// drained waits until nobody is inside a generation any more.
func (r *rig) drained(generation uint64) {
	r.t.Helper()
	select {
	case <-r.app.Drained(generation):
	case <-time.After(patience):
		r.t.Fatal("not drained")
	}
}

// last waits for n log entries and returns the last.
func (r *rig) last(n int) edge.Entry {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d log entries", n), func() bool { return len(r.logged()) >= n })
	return r.logged()[n-1]
}

// client is one raw connection to the edge.
type client struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func (r *rig) dial() *client {
	r.t.Helper()
	network := "tcp"
	if strings.HasPrefix(r.addr, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, r.addr)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	return &client{Conn: c, t: r.t, r: bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

// get sends a GET.
func (c *client) get(target string) {
	c.t.Helper()
	c.send("GET " + target + " HTTP/1.1\r\nHost: app.test\r\n\r\n")
}

type answer struct {
	*http.Response
	body string
	err  error // of reading the body
}

// read reads one final or interim answer to a request of that method.
func (c *client) read(method string) answer {
	c.t.Helper()
	a, err := c.tryRead(method)
	if err != nil {
		c.t.Fatalf("read answer: %v", err)
	}
	return a
}

func (c *client) tryRead(method string) (answer, error) {
	res, err := http.ReadResponse(c.r, &http.Request{Method: method})
	if err != nil {
		return answer{}, err
	}
	a := answer{Response: res}
	if res.StatusCode == 101 || res.StatusCode < 200 {
		return a, nil
	}
	b, err := io.ReadAll(res.Body)
	a.body, a.err = string(b), err
	return a, nil
}

// want reads an answer with this status and body, whole.
func (c *client) want(status int, body string) answer {
	c.t.Helper()
	a := c.read("GET")
	if a.StatusCode != status || a.body != body || a.err != nil {
		c.t.Fatalf("%d %q (%v), want %d %q", a.StatusCode, a.body, a.err, status, body)
	}
	return a
}

// status reads an answer with this status and any body.
func (c *client) status(status int) answer {
	c.t.Helper()
	a := c.read("GET")
	if a.StatusCode != status {
		c.t.Fatalf("%d %q, want %d", a.StatusCode, a.body, status)
	}
	return a
}

// wantEOF expects the edge to close without another byte.
func (c *client) wantEOF() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); len(b) > 0 || err != nil {
		c.t.Fatalf("%q, %v; want a plain close", b, err)
	}
}

// wantReset expects the connection to break.
func (c *client) wantReset() {
	c.t.Helper()
	if b, err := io.ReadAll(c.r); err == nil || isTimeout(err) {
		c.t.Fatalf("%q, %v; want a reset", b, err)
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

// rst closes the client with a reset.
func (c *client) rst() {
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	c.Close()
}

// fin closes the client's sending side.
func (c *client) fin() {
	c.t.Helper()
	if err := c.Conn.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		c.t.Fatal(err)
	}
}

// httpOrigin is an app on net/http.
func httpOrigin(t testing.TB, h http.Handler) *origin {
	t.Helper()
	ln, err := net.Listen("unix", filepath.Join(t.TempDir(), "app"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = srv.Close()
		<-ended
	})
	return &origin{t: t, ln: ln}
}
