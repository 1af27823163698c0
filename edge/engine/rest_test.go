package engine

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/upstream"
)

// Where the rest of a body is: whatever body a request has, whatever the app does
// with it and however it comes, the next request on the connection is read where
// it begins, or there is none.

// restBody is a request's body as it is sent. It is full of what would be a request.
type restBody struct {
	name, fields, raw string
	plain             string // what the app should get
}

func restBodies() []restBody {
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n"
	all := []restBody{{name: "no body"}}
	for _, n := range []int{100, 6_000, 40_000, 200_000} { // with the head, nearly, gathered, pumped
		plain := strings.Repeat(smuggled, n/len(smuggled)+1)[:n]
		length := restBody{name: fmt.Sprintf("%d bytes", n), fields: fmt.Sprintf("Content-Length: %d\r\n", n), raw: plain, plain: plain}
		var b strings.Builder
		for left := plain; left != ""; {
			k := min(len(left), len(smuggled)*(1+b.Len()%97))
			fmt.Fprintf(&b, "%x\r\n%s\r\n", k, left[:k])
			left = left[k:]
		}
		chunks := restBody{name: length.name + ", chunked", fields: "Transfer-Encoding: chunked\r\n", raw: b.String() + "0\r\nX-Trailer: x\r\n\r\n", plain: plain}
		for _, body := range []restBody{length, chunks} {
			all = append(all, body)
			if n == 100 || n == 200_000 {
				body.name, body.fields = body.name+", expected", body.fields+"Expect: 100-continue\r\n"
				all = append(all, body)
			}
		}
	}
	return all
}

// restApp is what an app does with a request. It returns false to close.
type restApp struct {
	name   string
	serve  func(s *stage, r *http.Request, body *seenBody) bool
	status []int // of the answer; 0: the connection may break off in its place
	next   int   // the status of the next request's answer; 0 means 200
	dials  int32 // how many connects are refused for each request
	parks  bool  // the request waits for its app
	down   bool  // and in vain
	broken bool  // its connections take bytes and say they do not: see brokenPipe
}

// seenBody reads a request's body and keeps what it has read.
type seenBody struct {
	io.Reader
	got bytes.Buffer
}

func (b *seenBody) take(n int64) bool {
	_, err := io.CopyN(&b.got, b.Reader, n)
	return err == nil || err == io.EOF
}

const wholeBody = 1 << 30

func restApps() []restApp {
	says := func(text string) func(*stage, *http.Request, *seenBody) bool {
		return func(s *stage, _ *http.Request, b *seenBody) bool {
			s.say("%s", text)
			return b.take(wholeBody)
		}
	}
	after := func(n int64, text string, stays bool) func(*stage, *http.Request, *seenBody) bool {
		return func(s *stage, _ *http.Request, b *seenBody) bool {
			if !b.take(n) {
				return false
			}
			s.say("%s", text)
			return stays
		}
	}
	const (
		okay    = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
		no      = "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno"
		large   = "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n"
		events  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: x\n\n\r\n0\r\n\r\n"
		surplus = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more"
	)
	return []restApp{
		{name: "takes all", serve: after(wholeBody, okay, true), status: []int{200}},
		{name: "takes all, then closes", serve: after(wholeBody, okay, false), status: []int{200}},
		{name: "says 103 and takes all", serve: after(wholeBody, "HTTP/1.1 103 Early Hints\r\n\r\n"+okay, true), status: []int{200}},
		{name: "answers early", serve: says(no), status: []int{401}},
		{name: "answers early and much", serve: says(large + strings.Repeat("x", 300_000)), status: []int{200}},
		{name: "answers early with events", serve: says(events), status: []int{200, 0}},
		{name: "answers early and closes", serve: after(0, no, false), status: []int{401, 502, 0}},
		{name: "answers in the middle and closes", serve: after(1000, no, false), status: []int{401, 502, 0}},
		{name: "answers early and takes no more", serve: after(0, no, false), status: []int{401}, broken: true},
		{name: "says garbage and takes no more", serve: after(0, "what?\r\n\r\n", false), status: []int{502}, broken: true},
		{name: "says garbage early", serve: says("what?\r\n\r\n"), status: []int{502}},
		{name: "says garbage", serve: after(wholeBody, "what?\r\n\r\n", false), status: []int{502}},
		{name: "breaks the framing early", serve: says(chunkedHead + "zz\r\n"), status: []int{502, 0}},
		{name: "breaks the framing", serve: after(wholeBody, chunkedHead+"zz\r\n", false), status: []int{502, 0}},
		{name: "breaks the framing later", serve: after(wholeBody, chunkedHead+"2\r\nok\r\nzz\r\n", false), status: []int{200, 502, 0}},
		{name: "says more early", serve: says(surplus), status: []int{502, 200, 0}},
		{name: "says more", serve: after(wholeBody, surplus, false), status: []int{502, 200, 0}},
		{name: "says less", serve: after(wholeBody, large+"x", false), status: []int{200, 502, 0}},
		{name: "dies at once", serve: after(0, "", false), status: []int{502, 0}},
		{name: "dies in the middle", serve: after(1000, "", false), status: []int{502, 0}},
		{name: "dies", serve: after(wholeBody, "", false), status: []int{502, 0}},
		{name: "is there at the second try", serve: after(wholeBody, okay, true), status: []int{200}, dials: 1},
		{name: "is not there", status: []int{502}, dials: 2, next: 502},
		{name: "wakes", serve: after(wholeBody, okay, true), status: []int{200}, parks: true},
		{name: "does not wake", status: []int{503}, parks: true, down: true, next: 503},
	}
}

// restClient is how a client sends. rest is what follows the body.
type restClient struct {
	name string
	send func(c net.Conn, head, body, rest string, pause func())
	cut  bool // not all of the body comes
	fin  bool // the sending side is closed
}

func restClients() []restClient {
	write := func(c net.Conn, parts ...string) {
		_, _ = io.WriteString(c, strings.Join(parts, "")) // fails if usher has closed
	}
	return []restClient{
		{name: "at once", send: func(c net.Conn, head, body, rest string, _ func()) { write(c, head, body, rest) }},
		{name: "in pieces", send: func(c net.Conn, head, body, rest string, _ func()) {
			for all := head + body + rest; all != ""; {
				k := min(len(all), 1+rand.IntN(len(all)/4+100))
				write(c, all[:k])
				all = all[k:]
			}
		}},
		{name: "the body later", send: func(c net.Conn, head, body, rest string, pause func()) {
			write(c, head)
			pause()
			write(c, body, rest)
		}},
		{name: "stalls", send: func(c net.Conn, head, body, rest string, pause func()) {
			write(c, head, body[:len(body)/2])
			pause()
			write(c, body[len(body)/2:], rest)
		}},
		{name: "stalls at the end", send: func(c net.Conn, head, body, rest string, pause func()) {
			k := max(0, len(body)-1)
			write(c, head, body[:k])
			pause()
			write(c, body[k:], rest)
		}},
		{name: "half-closes", fin: true, send: func(c net.Conn, head, body, rest string, _ func()) {
			write(c, head, body, rest)
		}},
		{name: "half-closes too early", fin: true, cut: true, send: func(c net.Conn, head, body, _ string, _ func()) {
			write(c, head, body[:len(body)/2])
		}},
	}
}

// restRig is an edge before one restApp.
type restRig struct {
	*rig
	app     restApp
	origin  *origin
	refused atomic.Int32 // how many of the next connects are refused
	busy    atomic.Int32 // requests that the app has not done with

	mu   sync.Mutex
	seen []string // paths, each with its body
}

func newRestRig(t *testing.T, a restApp) *restRig {
	t.Helper()
	r := &restRig{app: a}
	r.origin = newOrigin(t, r.serve)
	pool := spoiling()
	r.rig = newRig(t, rigOptions{pool: func(opt upstream.Options) *upstream.Pool {
		opt.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if r.refused.Add(-1) >= 0 {
				return nil, syscall.ECONNREFUSED
			}
			nc, err := new(net.Dialer).DialContext(ctx, network, address)
			if a.broken && err == nil {
				nc = brokenPipe{nc}
			}
			return nc, err
		}
		return pool(opt)
	}})
	r.rig.app.Place(r.origin.placement(1))
	return r
}

func (r *restRig) serve(s *stage) {
	for {
		q, ok := s.read()
		if !ok {
			return
		}
		r.busy.Add(1)
		b := &seenBody{Reader: q.Body}
		switch q.URL.Path {
		case "/first":
			ok = r.app.serve(s, q, b)
		default:
			ok = b.take(wholeBody)
			s.ok(q.URL.Path)
		}
		r.mu.Lock()
		r.seen = append(r.seen, q.URL.Path+" "+b.got.String())
		r.mu.Unlock()
		r.busy.Add(-1)
		if !ok {
			return
		}
	}
}

// run sends a request and the one after it over one connection.
func (r *restRig) run(t *testing.T, body restBody, how restClient, before bool) {
	r.mu.Lock()
	r.seen = nil
	r.mu.Unlock()
	c := r.dial()
	c.t = t
	defer c.Close()
	if before {
		c.get("/before")
		c.want(200, "/before")
	}
	requests := r.rig.app.Stats().Accepted
	if r.app.parks {
		r.rig.app.Place(edge.Placement{State: edge.Asleep})
	}
	if r.app.dials > 0 {
		r.origin.hangUp()
		eventually(t, "no connection to the app is left", func() bool { return r.origin.open.Load() == 0 })
	}
	r.refused.Store(r.app.dials)
	if r.app.next == 502 {
		r.refused.Store(1 << 20)
	}
	var sent sync.WaitGroup
	sent.Go(func() {
		r.send(c, body, how, requests)
	})
	r.judge(t, c, body, how)
	c.Close()
	sent.Wait()
	r.refused.Store(0)
	r.rig.app.Place(r.origin.placement(1))
	eventually(t, "all has ended", func() bool {
		return r.rig.app.Stats().Open() == 0 && r.srv.Connections() == 0 && r.busy.Load() == 0
	})
	r.reached(t, body)
}

func (r *restRig) send(c *client, body restBody, how restClient, requests uint64) {
	head := "POST /first HTTP/1.1\r\nHost: app.test\r\n" + body.fields + "\r\n"
	next := "GET /next HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\nX-Pad: " + strings.Repeat("x", 400) + "\r\n\r\n"
	moved := sync.OnceFunc(func() {
		if !r.app.parks {
			return
		}
		eventually(r.t, "parked", func() bool {
			s := r.rig.app.Stats()
			return s.Parked > 0 || s.Accepted > requests && s.Open() == 0
		})
		if r.app.down {
			r.rig.app.Place(edge.Placement{State: edge.Down})
		} else {
			r.rig.app.Place(r.origin.placement(2))
		}
	})
	how.send(c, head, body.raw, next, func() {
		moved()
		select {
		case <-time.After(5 * time.Millisecond):
		case <-r.srv.work.Done():
		}
	})
	if how.fin {
		_ = c.Conn.(*net.TCPConn).CloseWrite() // fails if usher has closed
	}
	moved()
}

// judge reads the answers.
func (r *restRig) judge(t *testing.T, c *client, body restBody, how restClient) {
	t.Helper()
	first, err := c.tryRead("POST")
	for err == nil && first.StatusCode < 200 {
		first, err = c.tryRead("POST")
	}
	leaves := how.fin && (r.app.parks || how.cut)
	if err != nil || first.err != nil {
		if !slices.Contains(r.app.status, 0) && !leaves {
			t.Errorf("no answer: %v %v", err, first.err)
		}
		return
	}
	if !slices.Contains(r.app.status, first.StatusCode) && !leaves {
		t.Errorf("the first is answered with %d %q", first.StatusCode, first.body)
	}
	next, err := c.tryRead("GET")
	switch {
	case err != nil && (first.Close || how.cut):
	case err != nil:
		t.Errorf("the connection was to live on, and there is no answer: %v", err)
	case first.Close || how.cut && body.raw != "":
		t.Errorf("answered beyond the end: %d %q", next.StatusCode, next.body)
	case next.StatusCode != max(200, r.app.next) || next.StatusCode == 200 && next.body != "/next":
		t.Errorf("the next is answered with %d %q", next.StatusCode, next.body)
	}
	if a, err := c.tryRead("GET"); err == nil {
		t.Errorf("one answer too much: %d %q", a.StatusCode, a.body)
	}
}

// reached looks at what the app got.
func (r *restRig) reached(t *testing.T, body restBody) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.seen {
		path, got, _ := strings.Cut(s, " ")
		switch path {
		case "/before", "/next":
		case "/first":
			if !strings.HasPrefix(body.plain, got) {
				t.Errorf("the app got another body: %.60q…, %d bytes", got, len(got))
			}
		default:
			t.Errorf("a request that nobody sent: %.60q", s)
		}
	}
}

func TestTheNextRequestBeginsWhereTheBodyEndsOrThereIsNone(t *testing.T) { // RFC 9112 6.3, 9.3
	for _, a := range restApps() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			r := newRestRig(t, a)
			for _, body := range restBodies() {
				for i, how := range restClients() {
					t.Run(body.name+"/"+how.name, func(t *testing.T) { r.run(t, body, how, i%2 == 0) })
				}
			}
		})
	}
}
