package upstream

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/usher-edge/usher/edge/http1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// eventually polls until ok, or fails the test after twenty seconds.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		}
	}
}

// origin is an app on a real socket: handle runs once per connection.
type origin struct {
	t       testing.TB
	network string
	address string
	handle  func(net.Conn)

	mu    sync.Mutex // guards what follows
	ln    net.Listener
	conns map[net.Conn]bool
	wg    sync.WaitGroup
}

func newOrigin(t testing.TB, network string, handle func(net.Conn)) *origin {
	o := &origin{t: t, network: network, handle: handle, conns: map[net.Conn]bool{}}
	o.address = "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "up") // short, as socket paths must be
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		o.address = filepath.Join(dir, "s")
	}
	o.start()
	t.Cleanup(o.stop)
	return o
}

func (o *origin) start() {
	ln, err := net.Listen(o.network, o.address)
	if err != nil {
		o.t.Fatal(err)
	}
	o.ln, o.address = ln, ln.Addr().String()
	o.wg.Add(1)
	go o.accept(ln)
}

func (o *origin) accept(ln net.Listener) {
	defer o.wg.Done()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		o.mu.Lock()
		o.conns[c] = true
		o.wg.Add(1)
		o.mu.Unlock()
		go func() {
			defer o.wg.Done()
			o.handle(c)
			c.Close()
			o.mu.Lock()
			delete(o.conns, c)
			o.mu.Unlock()
		}()
	}
}

func (o *origin) open() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.conns)
}

// hangUp closes all connections, as a restart does.
func (o *origin) hangUp() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.conns {
		c.Close()
	}
}

func (o *origin) stop() {
	o.ln.Close()
	o.hangUp()
	o.wg.Wait()
}

// pool makes a pool for the origin, whose buffers are spoilt when given back.
func (o *origin) pool(opt Options) *Pool {
	opt.Network, opt.Address = o.network, o.address
	opt.Buffers = NewBuffers(0)
	opt.Buffers.spoil = true
	p := NewPool(opt)
	o.t.Cleanup(p.Close)
	return p
}

// web answers requests: the body is the request's path, then its body.
func web(answer func(w io.Writer, q *http.Request, body []byte) (alive bool)) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			q, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			body, err := io.ReadAll(q.Body)
			if err != nil || !answer(c, q, body) {
				return
			}
		}
	}
}

func echo(w io.Writer, q *http.Request, body []byte) bool {
	text := q.URL.Path + string(body)
	_, err := fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
	return err == nil
}

// say answers every request with fixed bytes, and closes if told to.
func say(raw string, alive bool) func(net.Conn) {
	return web(func(w io.Writer, _ *http.Request, _ []byte) bool {
		_, err := io.WriteString(w, raw)
		return err == nil && alive
	})
}

func request(method, path, body string) []byte {
	head := method + " " + path + " HTTP/1.1\r\nHost: a.test\r\n"
	if body != "" {
		head += fmt.Sprintf("Content-Length: %d\r\n", len(body))
	}
	return []byte(head + "\r\n" + body)
}

// get takes a connection that is not stale, or fails the test.
func get(t testing.TB, p *Pool, idempotent bool) *Conn {
	t.Helper()
	for {
		c, err := p.Get(context.Background(), idempotent)
		if err != nil {
			t.Fatal(err)
		}
		if !c.Reused || !Stale(c.begin(noFD)) {
			return c
		}
		p.Discard(c)
	}
}

// converse runs one exchange on c up to the end of the body.
func converse(c *Conn, method, path, body string) (string, error) {
	var res http1.Response
	if err := c.Ask(request(method, path, body), nil, &res, []byte(method)); err != nil {
		return "", err
	}
	deadline := time.Now().Add(5 * time.Second)
	for res.Status < 200 {
		if err := c.ReadHead(&res, []byte(method), deadline); err != nil {
			return "", err
		}
	}
	return readAll(c, deadline)
}

func readAll(c *Conn, deadline time.Time) (string, error) {
	var all []byte
	for {
		data, done, err := c.ReadBody(deadline)
		all = append(all, data...)
		if done || err != nil {
			return string(all), err
		}
	}
}

// try makes one try of a request, and says what is known if it failed.
func try(p *Pool, method, path, body string) (string, Evidence) {
	q := Evidence{Idempotent: method == "GET", Body: body != ""}
	var c *Conn
	if c, q.Err = p.Get(context.Background(), q.Idempotent); q.Err != nil {
		return "", q
	}
	q.Reused = c.Reused
	var answer string
	if answer, q.Err = converse(c, method, path, body); q.Err != nil {
		q.Responded = c.Responded()
		p.Discard(c)
		if Stale(q.Err) {
			return try(p, method, path, body)
		}
		return "", q
	}
	p.Put(c)
	return answer, q
}

// send makes a request as an engine does, with a second try if it may.
func send(p *Pool, method, path, body string) (string, error) {
	answer, q := try(p, method, path, body)
	if MayRetry(q) {
		answer, q = try(p, method, path, body)
	}
	return answer, q.Err
}

func onBoth(t *testing.T, f func(t *testing.T, network string)) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) { f(t, network) })
	}
}

// warm leaves n idle connections in the pool.
func warm(t testing.TB, p *Pool, n int) {
	t.Helper()
	conns := make([]*Conn, n)
	for i := range conns {
		conns[i] = get(t, p, true)
		if _, err := converse(conns[i], "GET", "/", ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range conns {
		p.Put(c)
	}
	if got := p.Stats().Idle; got != n {
		t.Fatalf("%d idle connections, want %d", got, n)
	}
}

// allLook waits until every idle connection looks like that.
func allLook(t testing.TB, p *Pool, want sight) {
	t.Helper()
	eventually(t, "idle connections look so", func() bool {
		p.mu.Lock()
		var idle []*Conn
		for _, r := range p.idle {
			idle = append(idle, r.conns...)
		}
		p.mu.Unlock()
		for _, c := range idle {
			if c.look(noFD) != want {
				return false
			}
		}
		return true
	})
}

// age makes the idle connections older.
func age(p *Pool, by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.idle {
		for _, c := range r.conns {
			c.idleSince = c.idleSince.Add(-by)
		}
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd")
	}
	return len(d)
}
