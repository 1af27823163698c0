package upstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestConnectionsAreReusedNewestFirst(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		p := newOrigin(t, network, web(echo)).pool(Options{})
		warm(t, p, 3)
		newest := p.row(nil).newest()
		c := get(t, p, false)
		if c != newest || !c.Reused {
			t.Error("not the newest idle connection")
		}
		if answer, err := converse(c, "GET", "/again", ""); answer != "/again" || err != nil {
			t.Errorf("%q, %v", answer, err)
		}
		p.Put(c)
		if s := p.Stats(); s != (Stats{Open: 3, Idle: 3, Dialled: 3, Reused: 1}) {
			t.Errorf("%+v", s)
		}
	})
}

func TestARestartOfTheAppFailsNoRequest(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		var executed atomic.Int64
		o := newOrigin(t, network, web(func(w io.Writer, q *http.Request, body []byte) bool {
			executed.Add(1)
			return echo(w, q, body)
		}))
		p := o.pool(Options{})
		for i := range 200 {
			if i%10 == 5 {
				o.stop()
				allLook(t, p, closed)
				o.start()
			}
			body := fmt.Sprint("n", i)
			if answer, err := send(p, "POST", "/", body); answer != "/"+body || err != nil {
				t.Fatalf("POST %d: %q, %v", i, answer, err)
			}
		}
		if n := executed.Load(); n != 200 {
			t.Errorf("%d executed, want 200", n)
		}
		if s := p.Stats(); s.Stale != 20 || s.Reused < 100 {
			t.Errorf("%+v", s)
		}
	})
}

// An app closes idle connections just as they are about to be reused.
func TestTheIdleTimeoutOfAnAppIsSurvived(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds: it races with an idle timeout")
	}
	const timeout, jitter, rounds = 30 * time.Millisecond, 3 * time.Millisecond, 80
	var executed sync.Map
	count := web(func(w io.Writer, q *http.Request, body []byte) bool {
		n, _ := executed.LoadOrStore(q.Method+q.URL.Path, new(atomic.Int64))
		n.(*atomic.Int64).Add(1)
		return echo(w, q, body)
	})
	o := newOrigin(t, "tcp", func(c net.Conn) { count(&impatient{Conn: c, timeout: timeout}) })
	p := o.pool(Options{})
	failed, late := map[string]int{}, 0
	for i := range rounds {
		pause, begun := timeout-jitter+rand.N(2*jitter), time.Now()
		<-time.After(pause)
		if time.Since(begun) > timeout+2*jitter {
			late++ // a busy machine: the app may be late as well, and live longer than it says
		}
		method, body := "GET", ""
		if i%2 == 1 {
			method, body = "POST", "x"
		}
		path := fmt.Sprint("/", i)
		if answer, err := send(p, method, path, body); answer != path+body || err != nil {
			failed[method]++
		}
	}
	executed.Range(func(k, v any) bool {
		if n := v.(*atomic.Int64).Load(); n > 1 && k.(string)[0] == 'P' {
			t.Errorf("%s ran %d times", k, n)
		}
		return true
	})
	// Before anything is known about the app one POST can meet its FIN halfway, and
	// so can one after each time that the app was seen to live longer.
	if failed["GET"] > 0 || failed["POST"] > 1+late {
		t.Errorf("failed: %v, with %d late pauses", failed, late)
	}
}

// impatient closes some time after an answer if no other request has begun. One that
// has begun may take as long as it likes.
type impatient struct {
	net.Conn
	timeout time.Duration
}

func (c *impatient) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	_ = c.SetReadDeadline(time.Time{})
	return n, err
}

func (c *impatient) Write(b []byte) (int, error) {
	_ = c.SetReadDeadline(time.Now().Add(c.timeout))
	return c.Conn.Write(b)
}

func TestOldTCPConnectionsCarryOnlyWhatMayRunTwice(t *testing.T) {
	for _, c := range []struct {
		network    string
		idempotent bool
		age        time.Duration
		reused     bool
	}{
		{"tcp", false, 500 * time.Millisecond, true},
		{"tcp", false, time.Second, false},
		{"tcp", true, 30 * time.Second, true},
		{"unix", false, 30 * time.Second, true},
	} {
		t.Run(fmt.Sprint(c.network, c.idempotent, c.age), func(t *testing.T) {
			p := newOrigin(t, c.network, web(echo)).pool(Options{})
			warm(t, p, 2)
			age(p, c.age)
			conn := get(t, p, c.idempotent)
			if conn.Reused != c.reused {
				t.Errorf("reused %t, want %t", conn.Reused, c.reused)
			}
			if s := p.Stats(); s.Open != 2 {
				t.Errorf("%d connections; the oldest one makes room for a new one", s.Open)
			}
			p.Discard(conn)
		})
	}
}

func TestThePoolLearnsHowLongTheAppKeepsConnections(t *testing.T) {
	o := newOrigin(t, "tcp", web(echo))
	p := o.pool(Options{})
	// A connection is a little older by the time it is looked at.
	wantLearnt := func(what string, want time.Duration) {
		t.Helper()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.reuse < want || p.reuse > want*3/2 {
			t.Errorf("%s: %v, want %v or a little more", what, p.reuse, want)
		}
	}
	warm(t, p, 1)
	o.hangUp()
	allLook(t, p, closed)
	age(p, 600*time.Millisecond)
	p.Discard(get(t, p, false)) // finds a FIN after 600 ms
	wantLearnt("found closed", 300*time.Millisecond)
	warm(t, p, 1)
	age(p, 500*time.Millisecond)
	c := get(t, p, false)
	if c.Reused {
		t.Error("a POST took a connection that is likely to be closed")
	}
	p.Discard(c)
	warm(t, p, 1)
	age(p, 1200*time.Millisecond)
	p.Discard(get(t, p, true)) // finds it alive
	wantLearnt("found alive", 600*time.Millisecond)
	warm(t, p, 1)
	p.mu.Lock()
	p.reuse, p.reuseAt = 100*time.Millisecond, time.Now().Add(-2*time.Minute)
	p.mu.Unlock()
	age(p, 150*time.Millisecond)
	p.Discard(get(t, p, false)) // alive, and no death for a minute
	wantLearnt("after a quiet minute", 200*time.Millisecond)
}

func TestOnlyADeathOnReuseIsADeath(t *testing.T) {
	o := newOrigin(t, "tcp", web(echo))
	p := o.pool(Options{})
	warm(t, p, 2)
	p.Discard(get(t, p, true)) // the client left
	if p.reuse != maxReuse {
		t.Errorf("a client that left lowered the bound to %v", p.reuse)
	}
	age(p, 600*time.Millisecond)
	c := get(t, p, true)
	o.hangUp()
	if _, err := converse(c, "GET", "/", ""); err == nil {
		t.Fatal("answered")
	}
	p.Discard(c)
	if p.reuse < 300*time.Millisecond || p.reuse > 450*time.Millisecond {
		t.Errorf("died after 600 ms: %v", p.reuse)
	}
}

// While the sweep looks at connections they do not count, so one more may be
// dialled; what is over the limit then goes.
func TestTheSweepMakesNobodyWaitAtTheLimit(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{MaxConns: 2})
	warm(t, p, 2)
	age(p, 10*time.Second)
	p.mu.Lock()
	p.disarm()
	p.mu.Unlock()
	taken := p.takeOld()
	c := get(t, p, true)
	surplus := p.putBack(taken, len(taken))
	if len(surplus) != 1 || surplus[0] != taken[0] || c.Reused {
		t.Errorf("%d surplus of %d", len(surplus), len(taken))
	}
	p.closeAll(surplus)
	p.Discard(c)
	if s := p.Stats(); s.Open != 1 || s.Idle != 1 {
		t.Errorf("%+v", s)
	}
}

func TestTheAppsOwnHintIsBelieved(t *testing.T) {
	for hint, want := range map[string]time.Duration{
		"timeout=1": 500 * time.Millisecond, "timeout=5": time.Second, "timeout=0": time.Second,
	} {
		p := newOrigin(t, "tcp", say("HTTP/1.1 204 N\r\nKeep-Alive: "+hint+"\r\n\r\n", true)).pool(Options{})
		warm(t, p, 1)
		if p.reuse != want {
			t.Errorf("%s: %v, want %v", hint, p.reuse, want)
		}
	}
}

func TestSurplusBytesAreNeverReadAsAResponse(t *testing.T) {
	const good, evil = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
	onBoth(t, func(t *testing.T, network string) {
		t.Run("in one piece", func(t *testing.T) {
			p := newOrigin(t, network, say(good+evil, true)).pool(Options{})
			for range 20 {
				if answer, err := send(p, "GET", "/", ""); answer != "" || !errors.Is(err, errSurplus) {
					t.Fatalf("%q, %v", answer, err)
				}
				if s := p.Stats(); s.Open != 0 {
					t.Fatalf("kept: %+v", s)
				}
			}
		})
		t.Run("later", func(t *testing.T) {
			late := make(chan struct{})
			var first atomic.Bool
			p := newOrigin(t, network, func(c net.Conn) {
				say(good, false)(c)
				<-late
				if first.CompareAndSwap(false, true) {
					_, _ = io.WriteString(c, evil)
				}
				_, _ = io.Copy(io.Discard, c)
			}).pool(Options{})
			warm(t, p, 1)
			close(late)
			allLook(t, p, talking)
			if answer, err := send(p, "GET", "/", ""); answer != "ok" || err != nil {
				t.Fatalf("%q, %v", answer, err)
			}
			if s := p.Stats(); s.Stale != 1 || s.Dialled != 2 {
				t.Errorf("%+v", s)
			}
		})
	})
}

// An unfinished download leaves bytes on its connection; nobody may read them
// as the next answer.
func TestAbortedDownloadsLeakNothingIntoOthers(t *testing.T) {
	const size = 1 << 20
	o := newOrigin(t, "tcp", web(func(w io.Writer, q *http.Request, body []byte) bool {
		if q.URL.Path != "/big" {
			return echo(w, q, body)
		}
		fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		_, err := io.WriteString(w, strings.Repeat("z", size))
		return err == nil
	}))
	p := o.pool(Options{})
	for i := range 200 {
		c := get(t, p, true)
		if _, err := c.Write(request("GET", "/big", "")); err != nil {
			t.Fatal(err)
		}
		c.Sent = true
		abortDownload(t, c, rand.N(size/2))
		p.Put(c)
		path := fmt.Sprint("/id", i)
		if answer, err := send(p, "GET", path, ""); answer != path || err != nil {
			t.Fatalf("%q, %v", answer, err)
		}
	}
	if s := p.Stats(); s.Open > 1 {
		t.Errorf("%+v", s)
	}
}

func TestOnlyCompleteExchangesGoBackToThePool(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n"
	for name, c := range map[string]struct {
		answer string
		spoil  func(*Conn)
		kept   bool
	}{
		"complete":               {answer: head + "\r\nhello", kept: true},
		"request not sent whole": {answer: head + "\r\nhello", spoil: func(c *Conn) { c.Sent = false }},
		"interrupted":            {answer: head + "\r\nhello", spoil: func(c *Conn) { c.Interrupt() }},
		"closing":                {answer: head + "Connection: close\r\n\r\nhello"},
		"HTTP/1.0":               {answer: "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello"},
		"until close":            {answer: "HTTP/1.0 200 OK\r\n\r\nhello"},
		"204 that may go on":     {answer: "HTTP/1.1 204 N\r\nContent-Length: 5\r\n\r\n"},
		"one byte too many":      {answer: head + "\r\nhello!"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOrigin(t, "unix", say(c.answer, !strings.Contains(name, "until"))).pool(Options{})
			conn := get(t, p, true)
			if _, err := converse(conn, "GET", "/", ""); err != nil && !errors.Is(err, errSurplus) {
				t.Fatal(err)
			}
			if c.spoil != nil {
				c.spoil(conn)
			}
			p.Put(conn)
			if s := p.Stats(); (s.Idle == 1) != c.kept || s.Open != s.Idle {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestRetireClosesIdleAtOnceAndLetsHoldersFinish(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		o := newOrigin(t, network, web(echo))
		p := o.pool(Options{})
		warm(t, p, 5)
		held := get(t, p, true)
		p.Retire()
		p.Retire()
		eventually(t, "the app sees 4 of 5 connections close", func() bool { return o.open() == 1 })
		if answer, err := converse(held, "POST", "/", "held"); answer != "/held" || err != nil {
			t.Errorf("held: %q, %v", answer, err)
		}
		late := get(t, p, true)
		if late.Reused {
			t.Error("a pooled connection was handed out after Retire")
		}
		if answer, err := converse(late, "GET", "/late", ""); answer != "/late" || err != nil {
			t.Errorf("late: %q, %v", answer, err)
		}
		p.Put(held)
		p.Put(late)
		if s := p.Stats(); s.Open != 0 || s.Idle != 0 {
			t.Errorf("%+v", s)
		}
		eventually(t, "the app sees all connections close", func() bool { return o.open() == 0 })
	})
}

func TestCloseEndsConnectionsInUse(t *testing.T) {
	o := newOrigin(t, "tcp", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	p := o.pool(Options{})
	c := get(t, p, true)
	done := make(chan error, 1)
	go func() {
		_, err := converse(c, "GET", "/", "")
		done <- err
	}()
	eventually(t, "the request is sent", func() bool { return c.Wrote() > 0 })
	p.Close()
	if err := <-done; err == nil || Timeout(err) {
		t.Errorf("got %v", err)
	}
	p.Put(c)
	if s := p.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
	_, err := p.Get(context.Background(), true)
	if !errors.Is(err, ErrClosed) || !Undelivered(err) {
		t.Errorf("Get after Close: %v", err)
	}
}

func TestCloseEndsIdleConnections(t *testing.T) {
	o := newOrigin(t, "unix", web(echo))
	p := o.pool(Options{})
	warm(t, p, 3)
	p.Close()
	p.Close()
	if s := p.Stats(); s.Open != 0 || s.Idle != 0 {
		t.Errorf("%+v", s)
	}
	eventually(t, "the app sees it", func() bool { return o.open() == 0 })
}

func TestADialThatEndsAfterCloseIsClosed(t *testing.T) {
	o := newOrigin(t, "tcp", web(echo))
	dialled, goOn := make(chan struct{}), make(chan struct{})
	p := o.pool(Options{Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		close(dialled)
		<-goOn
		return c, err
	}})
	got := make(chan error)
	go func() {
		_, err := p.Get(context.Background(), true)
		got <- err
	}()
	<-dialled
	eventually(t, "the app has it", func() bool { return o.open() == 1 })
	p.Close()
	close(goOn)
	if err := <-got; !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	eventually(t, "the app sees it close", func() bool { return o.open() == 0 })
}

func TestLimitsOfThePoolHold(t *testing.T) {
	o := newOrigin(t, "unix", web(echo))
	p := o.pool(Options{MaxIdle: 2, MaxConns: 3})
	warm3 := []*Conn{get(t, p, true), get(t, p, true), get(t, p, true)}
	_, err := p.Get(context.Background(), true)
	if !errors.Is(err, ErrFull) || MayRetry(Evidence{Err: err, Idempotent: true}) {
		t.Errorf("the fourth connection: %v", err)
	}
	for _, c := range warm3 {
		if _, err := converse(c, "GET", "/", ""); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range warm3 {
		p.Put(c)
	}
	age(p, 2*time.Second)
	p.sweepSoon()
	eventually(t, "one of those that rest is closed", func() bool { return p.Stats().Open == 2 })
	p.mu.Lock()
	defer p.mu.Unlock()
	if idle := p.row(nil).conns; len(idle) != 2 || idle[0] != warm3[1] {
		t.Error("not the oldest idle connection was closed")
	}
}

func TestAWaveOfRequestsFindsTheConnectionsOfTheLastOne(t *testing.T) {
	p := newOrigin(t, "unix", web(echo)).pool(Options{MaxIdle: 2})
	for range 3 {
		warm(t, p, 8)
	}
	if s := p.Stats(); s.Dialled != 8 || s.Idle != 8 {
		t.Errorf("%+v", s)
	}
}

func TestThereIsNoCapByDefault(t *testing.T) {
	p := newOrigin(t, "unix", web(echo)).pool(Options{})
	var conns []*Conn
	for range 600 {
		conns = append(conns, get(t, p, true))
	}
	for _, c := range conns {
		p.Discard(c)
	}
}

func TestIdleConnectionsExpireAndLeaveNothingBehind(t *testing.T) {
	o := newOrigin(t, "tcp", web(echo))
	p := o.pool(Options{IdleTimeout: 20 * time.Millisecond})
	for range 3 {
		var conns []*Conn
		for range 4 { // on a busy machine one may expire before the next is there
			c := get(t, p, true)
			if _, err := converse(c, "GET", "/", ""); err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
		for _, c := range conns {
			p.Put(c)
		}
		eventually(t, "the pool is empty", func() bool { return p.Stats().Open == 0 })
		eventually(t, "the app sees it", func() bool { return o.open() == 0 })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed {
		t.Error("the timer of an empty pool runs on")
	}
}

func TestTheSweepClosesWhatTheAppHasClosed(t *testing.T) {
	o := newOrigin(t, "tcp", web(echo))
	p := o.pool(Options{})
	warm(t, p, 3)
	o.hangUp()
	allLook(t, p, closed)
	warm(t, p, 2) // takes one, finds the others dead
	warm(t, p, 2)
	age(p, 10*time.Second)
	p.sweepSoon()
	eventually(t, "the sweep has run", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.looking == 0 && p.armed
	})
	if s := p.Stats(); s.Idle != 2 || s.Open != 2 {
		t.Errorf("live ones were closed: %+v", s)
	}
	o.hangUp()
	allLook(t, p, closed)
	p.sweepSoon()
	eventually(t, "dead ones are gone", func() bool { return p.Stats().Open == 0 })
}

func TestFailedConnectsAreUndelivered(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		o := newOrigin(t, network, web(echo))
		o.stop()
		p := o.pool(Options{})
		_, err := p.Get(context.Background(), false)
		if !Undelivered(err) || Timeout(err) || Reset(err) {
			t.Errorf("%v: undelivered %t, timeout %t, reset %t", err, Undelivered(err), Timeout(err), Reset(err))
		}
		if s := p.Stats(); s != (Stats{}) {
			t.Errorf("%+v", s)
		}
	})
}

// narrow listens with the smallest backlog and accepts nothing by itself.
func narrow(t *testing.T) (path string, fd int) {
	t.Helper()
	path = t.TempDir() + "/s"
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err == nil {
		err = unix.Listen(fd, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path, fd
}

func TestAFullUnixBacklogIsWaitedFor(t *testing.T) {
	path, fd := narrow(t)
	var refused atomic.Int64
	p := NewPool(Options{Network: "unix", Address: path, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if errors.Is(err, syscall.EAGAIN) {
			refused.Add(1)
		}
		return c, err
	}})
	defer p.Close()
	const n = 5
	got := make(chan *Conn, n)
	for range n {
		go func() {
			c, err := p.Get(context.Background(), false)
			if err != nil {
				t.Error(err)
			}
			got <- c
		}()
	}
	first := <-got // the backlog holds one, the rest wait
	eventually(t, "the others were refused", func() bool { return refused.Load() >= n-1 })
	for range n {
		eventually(t, "another connection waits", func() bool {
			nfd, _, err := unix.Accept(fd)
			if err == nil {
				t.Cleanup(func() { unix.Close(nfd) })
			}
			return err == nil
		})
	}
	p.Discard(first)
	for range n - 1 {
		if c := <-got; c != nil {
			p.Discard(c)
		}
	}
}

func TestAFullUnixBacklogTimesOut(t *testing.T) {
	path, _ := narrow(t)
	p := NewPool(Options{Network: "unix", Address: path, DialTimeout: 300 * time.Millisecond})
	defer p.Close()
	c := get(t, p, false)
	defer p.Discard(c)
	_, err := p.Get(context.Background(), false)
	if !Undelivered(err) || !Timeout(err) || !errors.Is(err, syscall.EAGAIN) {
		t.Errorf("%v: undelivered %t, timeout %t", err, Undelivered(err), Timeout(err))
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err = p.Get(ctx, false); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestConnectionsThatCannotBeLookedAtServeOnce(t *testing.T) {
	p := NewPool(Options{Dial: func(context.Context, string, string) (net.Conn, error) {
		mine, theirs := net.Pipe()
		go func() {
			web(echo)(theirs)
			theirs.Close()
		}()
		return mine, nil
	}})
	defer p.Close()
	if answer, err := send(p, "GET", "/x", ""); answer != "/x" || err != nil {
		t.Fatalf("%q, %v", answer, err)
	}
	if s := p.Stats(); s.Open != 0 {
		t.Errorf("%+v", s)
	}
}

func TestManyHoldersShareAPool(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		before := descriptors(t)
		o := newOrigin(t, network, web(echo))
		p := o.pool(Options{MaxIdle: 4, IdleTimeout: 5 * time.Millisecond})
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() { hammer(t, p, worker) })
		}
		for range 20 {
			<-time.After(2 * time.Millisecond)
			p.sweepSoon()
			p.Stats()
		}
		wg.Wait()
		p.Retire()
		p.Close()
		o.stop()
		if s := p.Stats(); s.Open != 0 || s.Idle != 0 {
			t.Errorf("%+v", s)
		}
		eventually(t, "descriptors are back", func() bool { return descriptors(t) <= before })
	})
}

func hammer(t *testing.T, p *Pool, worker int) {
	for i := range 100 {
		path := fmt.Sprintf("/%d/%d", worker, i)
		if i%10 == 9 { // leaves without the answer
			c, err := p.Get(context.Background(), true)
			if err == nil {
				_, _ = c.Write(request("GET", path, ""))
				p.Put(c)
			}
			continue
		}
		if answer, err := send(p, "POST", path, "b"); answer != path+"b" || err != nil {
			t.Errorf("%s: %q, %v", path, answer, err)
		}
	}
}

// sweepSoon lets the sweep run now, if it is armed.
func (p *Pool) sweepSoon() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.armed && p.sweeper.Stop() {
		p.sweeper.Reset(0)
	}
}
