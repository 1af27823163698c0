package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// atLoop says whether a loop has the connection, and it waits for that.
func (c *conn) atLoop(p phase) bool {
	c.poking.Lock()
	defer c.poking.Unlock()
	return c.loop != nil && c.clock.now() == p
}

func (c *conn) handedOver() bool {
	c.poking.Lock()
	defer c.poking.Unlock()
	return c.loop == nil
}

// allAtLoops says whether there are n connections, and all are idle at loops.
func (r *rig) allAtLoops(n int) bool {
	all := r.srv.all()
	return len(all) == n && !slices.ContainsFunc(all, func(k *conn) bool { return !k.atLoop(phaseIdle) })
}

func toGet(target string) string { return "GET " + target + " HTTP/1.1\r\nHost: app.test\r\n\r\n" }

// only is the one connection there is.
func (r *rig) only() *conn {
	r.t.Helper()
	eventually(r.t, "one connection", func() bool { return r.srv.Connections() == 1 })
	return r.srv.all()[0]
}

// loopRig is a rig with two loops, where no connection loses its goroutine by being idle.
func loopRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	o.server.Loops = 2
	if o.server.grace == 0 {
		o.server.grace = time.Minute
	}
	return newRig(t, o)
}

// settle asks until a loop has the connection, with one to the app to spare.
func (r *rig) settle(c *client) *conn {
	r.t.Helper()
	for range longStay + 2 { // a goroutine may have to answer some
		c.get("/")
		c.want(200, "x")
	}
	k := r.only()
	for range 2 { // the last one takes the connection to the app to the loop
		eventually(r.t, "a loop has it", func() bool { return k.atLoop(phaseIdle) })
		c.send("PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n")
		c.want(200, "x")
	}
	eventually(r.t, "a loop has it", func() bool { return k.atLoop(phaseIdle) })
	return k
}

// asksAtLoop has the loop wait for the app.
func (r *rig) asksAtLoop(c *client, k *conn, target string) {
	r.t.Helper()
	c.get(target)
	eventually(r.t, "a loop waits for the app", func() bool { return k.atLoop(phaseQuick) })
}

// held is an app whose answers to what is not / wait for next.
func held(next <-chan struct{}, answers map[string][]string) func(*stage) {
	return each(func(s *stage, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		pieces := answers[q.URL.Path]
		switch {
		case q.Header.Get("Upgrade") != "":
			s.say("%s", switching)
			_, _ = io.Copy(s, s.r)
		case q.URL.Path == "/":
			s.ok("x" + string(b))
		default:
			for i, piece := range pieces {
				if i > 0 || len(pieces) == 1 {
					select {
					case <-next:
					case <-s.o.stopping:
						return
					}
				}
				_, _ = io.WriteString(s, piece)
			}
		}
	})
}

// goroutinesIn is how many goroutines are in a function of this package.
func goroutinesIn(name string) int {
	for size := 1 << 20; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size {
			return strings.Count(string(b[:n]), "edge/engine."+name+"(")
		}
	}
}

func TestConnectionsAtALoopHaveNoGoroutines(t *testing.T) {
	next := make(chan struct{})
	o := newOrigin(t, held(next, map[string][]string{"/held": {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"}}))
	r := loopRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	var clients []*client
	for range 50 {
		c := r.dial()
		c.get("/")
		c.want(200, "x")
		clients = append(clients, c)
	}
	eventually(t, "all are idle at a loop", func() bool { return r.allAtLoops(50) })
	check := func(when string) {
		t.Helper()
		if n := goroutinesIn("(*conn).serve"); n != 0 {
			t.Errorf("%s: %d connections have goroutines", when, n)
		}
		if n := goroutinesIn("(*loop).run"); n != 2 {
			t.Errorf("%s: %d loops", when, n)
		}
	}
	check("idle")
	for range 3 {
		for _, c := range clients {
			c.get("/")
		}
		for _, c := range clients {
			c.want(200, "x")
		}
	}
	eventually(t, "the app has a connection for each", func() bool { return r.allAtLoops(50) })
	open := int(o.open.Load())
	for _, c := range clients[:open] {
		c.get("/held")
	}
	eventually(t, "asked", func() bool { return int(o.heads.Load()) == 4*50+open })
	check("waiting")
	close(next)
	for _, c := range clients[:open] {
		c.want(200, "x")
	}
	check("answered")
	served := map[*loop]int{}
	for _, k := range r.srv.all() {
		k.poking.Lock()
		served[k.loop]++
		k.poking.Unlock()
	}
	if len(served) != 2 || served[r.srv.loops[0]] == 0 {
		t.Errorf("%d loops have connections", len(served))
	}
}

const ok10 = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"

// What is not quick gets a goroutine, and comes back.
func TestWhatIsNotQuickIsHandedOverAndComesBack(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	long := strings.Repeat("x", 5000)
	answers := map[string][]string{
		"/late":   {ok10 + "0123456789"},
		"/pause":  {ok10 + "01234", "56789"},
		"/hints":  {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", ok10 + "0123456789"},
		"/halves": {"HTTP/1.1 200 OK\r\nContent-", "Length: 10\r\n\r\n0123456789"},
		"/big":    {"HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n" + big, ""},
		"/chunk":  {chunkedHead + "a\r\n0123456789\r\n0\r\n\r\n", ""},
		"/long":   {chunkedHead + "1388\r\n" + long + "\r\n0\r\n\r\n", ""},
		"/chunks": {chunkedHead + oneChunk, oneChunk + "0\r\n\r\n"},
		"/events": {"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n", ""},
		"/300K":   {"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n" + big[:60000], ""},
	}
	const post = "POST / HTTP/1.1\r\nHost: app.test\r\n"
	want := func(body string) func(*rig, *client) { return func(_ *rig, c *client) { c.want(200, body) } }
	cases := map[string]struct {
		before func(r *rig, o *origin)
		asks   string
		sees   string                  // what comes before the rest
		passes bool                    // it may be over before anybody looks
		rest   func(r *rig, o *origin) // has the rest come
		more   string                  // of the request
		then   func(r *rig, c *client) // reads the answer
		ends   bool                    // and no other request follows
	}{
		"no idle connection to the app": {
			before: func(r *rig, o *origin) { r.app.Place(o.placement(2)) }, // whose pool is another
			asks:   toGet("/late"), then: want("0123456789"),
		},
		"a body in two parts":  {asks: post + "Content-Length: 10\r\n\r\n01234", more: "56789", then: want("x0123456789")},
		"a chunked body":       {asks: post + "Transfer-Encoding: chunked\r\n\r\n" + oneChunk, more: "0\r\n\r\n", then: want("xhello")},
		"a body that is asked": {asks: post + "Content-Length: 5\r\nExpect: 100-continue\r\n\r\n", sees: goOn, more: "hello", then: want("xhello")},
		"1 MiB":                {asks: toGet("/big"), passes: true, then: want(big)},
		"two pieces":           {asks: toGet("/pause"), sees: "01234", then: func(_ *rig, c *client) { c.until("56789") }},
		"one chunk":            {asks: toGet("/chunk"), passes: true, then: want("0123456789")},
		"one long chunk":       {asks: toGet("/long"), passes: true, then: want(long)},
		"two chunks":           {asks: toGet("/chunks"), sees: oneChunk, then: func(_ *rig, c *client) { c.until(oneChunk + "0\r\n\r\n") }},
		"103 first":            {asks: toGet("/hints"), sees: "\r\n\r\n", then: want("0123456789")},
		"more than a second":   {asks: toGet("/late"), then: want("0123456789")},
		"half a head":          {asks: toGet("/halves"), then: want("0123456789")},
		"a parked request": {
			before: func(r *rig, _ *origin) { r.app.Place(edge.Placement{State: edge.Waking}) },
			asks:   asks, rest: func(r *rig, o *origin) { r.app.Place(o.placement(3)) }, then: want("x"),
		},
		"a client that does not read": {
			asks: strings.Repeat(toGet("/300K"), 200),
			then: func(_ *rig, c *client) {
				for range 200 {
					c.want(200, big[:60000])
				}
			},
		},
		"an upgrade": {
			asks: upgrade, sees: "\r\n\r\n", more: "hello", ends: true,
			then: func(_ *rig, c *client) { c.until("hello"); c.send("again"); c.until("again"); c.Close() },
		},
		"events": {
			asks: toGet("/events"), sees: "data: x\n\n", ends: true,
			then: func(r *rig, c *client) { r.app.CloseStreams(1, 0); c.until("0\r\n\r\n"); c.Close() },
		},
		"a host that is not here": {
			asks: "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", passes: true, then: func(_ *rig, c *client) { c.status(404) },
		},
		"options":      {asks: "OPTIONS * HTTP/1.1\r\nHost: app.test\r\n\r\n", passes: true, then: func(_ *rig, c *client) { c.status(200) }},
		"no request":   {asks: "GET / HTTP/1.1\r\nHost : app.test\r\n\r\n", passes: true, ends: true, then: func(_ *rig, c *client) { c.status(400); c.wantEOF() }},
		"the last one": {asks: "GET / HTTP/1.0\r\nHost: app.test\r\n\r\n", passes: true, ends: true, then: func(_ *rig, c *client) { c.want(200, "x"); c.wantEOF() }},
	}
	for name, x := range cases {
		for _, unix := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unix %v", name, unix), func(t *testing.T) {
				t.Parallel()
				next := make(chan struct{})
				o := newTCPOrigin(t, held(next, answers))
				r := loopRig(t, rigOptions{unix: unix, app: edge.AppConfig{Hosts: []string{"app.test"}, FirstByteTimeout: time.Minute}})
				r.app.Place(o.placement(1))
				c := r.dial()
				k := r.settle(c)
				if x.before != nil {
					x.before(r, o)
				}
				c.send(x.asks)
				if x.sees != "" {
					c.until(x.sees)
				}
				if !x.passes {
					eventually(t, "it is handed over", k.handedOver)
				}
				if x.rest != nil {
					x.rest(r, o)
				}
				close(next)
				c.send(x.more)
				if x.then != nil {
					x.then(r, c)
				}
				if x.ends {
					eventually(t, "it ends", func() bool { return r.srv.Connections() == 0 })
					return
				}
				r.settle(c)
			})
		}
	}
}

// An answer without a length is relayed at the loop as well, each piece at once.
func TestAnAnswerInPiecesIsRelayedAtTheLoop(t *testing.T) {
	for name, x := range map[string]struct {
		pieces []string
		sees   string
		rest   string
		minor  int
	}{
		"chunks":               {[]string{chunkedHead + oneChunk, oneChunk + "0\r\n\r\n"}, oneChunk, oneChunk + "0\r\n\r\n", 1},
		"a head and chunks":    {[]string{chunkedHead, oneChunk + "0\r\n\r\n"}, "\r\n\r\n", oneChunk + "0\r\n\r\n", 1},
		"half a chunk":         {[]string{chunkedHead + "5\r\nhe", "llo\r\n0\r\n\r\n"}, "2\r\nhe\r\n", "3\r\nllo\r\n0\r\n\r\n", 1},
		"a length":             {[]string{ok10 + "01234", "56789"}, "01234", "56789", 1},
		"chunks, HTTP/1.0":     {[]string{chunkedHead + oneChunk, oneChunk + "0\r\n\r\n"}, "hello", "hello", 0},
		"until it closes":      {[]string{"HTTP/1.1 200 OK\r\n\r\nhe", "llo", ""}, "2\r\nhe\r\n", "3\r\nllo\r\n0\r\n\r\n", 1},
		"until it closes, 1.0": {[]string{"HTTP/1.1 200 OK\r\n\r\nhe", "llo", ""}, "he", "llo", 0},
	} {
		t.Run(name, func(t *testing.T) {
			next := make(chan struct{})
			o := newTCPOrigin(t, each(func(s *stage, r *http.Request) {
				if r.URL.Path != "/pieces" {
					s.ok("x")
					return
				}
				s.say("%s", x.pieces[0])
				<-next
				for _, p := range x.pieces[1:] {
					s.say("%s", p)
				}
				if x.pieces[len(x.pieces)-1] == "" {
					s.Close()
				}
			}))
			r := loopRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			c := r.dial()
			k := r.settle(c)
			before, began := r.srv.turn.Load(), time.Now()
			c.send(fmt.Sprintf("GET /pieces HTTP/1.%d\r\nHost: app.test\r\n\r\n", x.minor))
			c.until(x.sees)
			close(next)
			c.until(x.rest)
			if x.minor == 0 {
				c.wantEOF()
				return
			}
			eventually(t, "it is at the loop", func() bool { return k.atLoop(phaseIdle) })
			if n := r.srv.turn.Load() - before; n != 0 && time.Since(began) < watchAfter { // else a goroutine waits for it
				t.Errorf("it was handed over %d times", n)
			}
			c.get("/")
			c.want(200, "x")
		})
	}
}

// silentAfter is an app that answers / and nothing else; left counts the ends of its
// connections on which it was asked something else.
func silentAfter(left chan<- struct{}) func(*stage) {
	return func(s *stage) {
		for {
			q, ok := s.read()
			switch {
			case !ok:
				return
			case q.URL.Path == "/":
				s.ok("x")
			default:
				_, _ = s.r.ReadByte()
				left <- struct{}{}
				return
			}
		}
	}
}

func TestARequestThatIsCutAtALoopIsToldSo(t *testing.T) {
	left := make(chan struct{}, 1)
	o := newTCPOrigin(t, silentAfter(left))
	r := loopRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: time.Minute}})
	r.app.Place(o.placement(1))
	c := r.dial()
	k := r.settle(c)
	n := len(r.logged())
	began := time.Now()
	r.asksAtLoop(c, k, "/wait")
	r.app.Place(edge.Placement{State: edge.Holding})
	r.app.Cut(1)
	if a := c.status(502); !a.Close || !strings.Contains(a.Header.Get("Proxy-Status"), "connection_terminated") {
		t.Errorf("%v", a.Header)
	}
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("after %v", d)
	}
	c.wantEOF()
	r.drained(1)
	<-left
	want := edge.Result{Ending: edge.Failed, Cause: edge.CauseDrainCut, Status: 502, BytesOut: pageSize(edge.CauseDrainCut)}
	if e := r.last(n + 1); e.Result != want {
		t.Errorf("%+v, want %+v", e.Result, want)
	}
}

func TestShutdownEndsWhatLoopsHaveAndLosesNothing(t *testing.T) {
	next := make(chan struct{})
	o := newOrigin(t, held(next, map[string][]string{"/held": {ok10 + "0123456789"}}))
	r := loopRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: time.Minute}})
	r.app.Place(o.placement(1))
	waits := r.dial()
	k := r.settle(waits)
	fresh := r.dial()
	idle := r.dial()
	idle.get("/")
	idle.want(200, "x")
	eventually(t, "loops have all", func() bool { return r.allAtLoops(3) })
	r.asksAtLoop(waits, k, "/held")
	down := make(chan error, 1)
	go func() { down <- r.srv.Shutdown(context.Background()) }()
	idle.wantEOF()
	fresh.wantEOF()
	select {
	case err := <-down:
		t.Fatalf("shut down with a request under way: %v", err)
	default:
	}
	close(next)
	if a := waits.want(200, "0123456789"); !a.Close {
		t.Error("no Connection: close")
	}
	waits.wantEOF()
	select {
	case err := <-down:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("not down")
	}
	eventually(t, "no goroutine is left", func() bool { return goroutinesIn("(*loop).run")+goroutinesIn("(*conn).serve") == 0 })
}

func TestShutdownTellsWhoWaitsAtALoopWhenItsTimeIsUp(t *testing.T) {
	left := make(chan struct{}, 1)
	o := newTCPOrigin(t, silentAfter(left))
	r := loopRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: time.Minute}})
	r.app.Place(o.placement(1))
	c := r.dial()
	k := r.settle(c)
	half := r.dial()
	half.send("GET / HT")
	r.asksAtLoop(c, k, "/wait")
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if err := r.srv.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if g := c.takeIn("GET"); g.status != 502 || !g.whole || g.reset {
		t.Errorf("%+v", g)
	}
	if rest, err := io.ReadAll(half.r); len(rest) > 0 || isTimeout(err) {
		t.Errorf("half a head: %q, %v", rest, err)
	}
	<-left
}

func TestAnAppThatIsTooSlowForALoopIs504InTime(t *testing.T) {
	for _, limit := range []time.Duration{200 * time.Millisecond, 1500 * time.Millisecond} {
		t.Run(limit.String(), func(t *testing.T) {
			t.Parallel()
			left := make(chan struct{}, 1)
			o := newTCPOrigin(t, silentAfter(left))
			r := loopRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: limit}})
			r.app.Place(o.placement(1))
			c := r.dial()
			k := r.settle(c)
			n := len(r.logged())
			began := time.Now()
			r.asksAtLoop(c, k, "/wait")
			c.status(504)
			if d := time.Since(began); d < limit || d > patience {
				t.Errorf("after %v", d)
			}
			<-left
			if e := r.last(n + 1); e.Result.Cause != edge.CauseFirstByteTimeout || e.Retries != 0 {
				t.Errorf("%+v", e)
			}
		})
	}
}

func TestAHeadThatTakesTooLongAtALoopIs408(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := loopRig(t, rigOptions{server: Options{HeadTimeout: 300 * time.Millisecond}})
	r.app.Place(o.placement(1))
	c := r.dial()
	k := r.settle(c)
	began := time.Now()
	c.send("GET / HTTP/1.1\r\nHos")
	eventually(t, "a loop waits for the head", func() bool { return k.atLoop(phaseHead) })
	c.status(408)
	c.wantEOF()
	if d := time.Since(began); d < 300*time.Millisecond || d > patience {
		t.Errorf("after %v", d)
	}
}

func TestAHeadInManyPiecesIsReadAtTheLoop(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := loopRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	k := r.settle(c)
	head := "GET / HTTP/1.1\r\nHost: app.test\r\nX-Long: " + strings.Repeat("y", 10000) + "\r\n\r\n"
	for len(head) > 0 {
		n := min(len(head), 997)
		c.send(head[:n])
		head = head[n:]
		eventually(t, "it is read", func() bool { return k.atLoop(phaseHead) || head == "" })
	}
	c.want(200, "x")
	eventually(t, "idle again", func() bool { return k.atLoop(phaseIdle) })
}

func TestAnIdleConnectionAtALoopIsClosedWithoutAWord(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := loopRig(t, rigOptions{server: Options{IdleTimeout: time.Second, grace: 200 * time.Millisecond}})
	r.app.Place(o.placement(1))
	fresh := r.dial()
	c := r.dial()
	c.get("/")
	c.want(200, "x")
	eventually(t, "loops have both", func() bool { return r.allAtLoops(2) })
	began := time.Now()
	c.wantEOF()
	fresh.wantEOF()
	if d := time.Since(began); d > patience {
		t.Errorf("after %v", d)
	}
}

func TestAClientThatLeavesWhileALoopAsksIsNoticed(t *testing.T) {
	for name, x := range map[string]struct {
		leave   func(*client)
		answers bool
		limit   time.Duration
	}{
		"a reset, and then the answer":      {leave: (*client).rst, answers: true},
		"a reset, and no answer":            {leave: (*client).rst, limit: time.Minute},
		"a close, and no answer":            {leave: func(c *client) { c.Close() }, limit: time.Minute},
		"a reset, and the app has no limit": {leave: (*client).rst},
		"a close, and the app has no limit": {leave: func(c *client) { c.Close() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, ended := make(chan struct{}), make(chan struct{}, 1)
			app := silentAfter(ended)
			if x.answers {
				app = held(next, map[string][]string{"/wait": {ok10 + "0123456789"}})
			}
			o := newTCPOrigin(t, app)
			r := loopRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: x.limit}})
			r.app.Place(o.placement(1))
			c := r.dial()
			k := r.settle(c)
			n := len(r.logged())
			r.asksAtLoop(c, k, "/wait")
			eventually(t, "the app has it", func() bool { return int(o.heads.Load()) == n+1 })
			x.leave(c)
			if x.answers {
				close(next)
			} else {
				select {
				case <-ended:
				case <-time.After(patience):
					t.Fatal("the app was not told")
				}
			}
			if e := r.last(n + 1); e.Result.Ending != edge.Gone || e.Result.Cause != edge.CauseClientGone {
				t.Errorf("%+v", e.Result)
			}
			eventually(t, "it ends", func() bool { return r.srv.Connections() == 0 })
		})
	}
}
