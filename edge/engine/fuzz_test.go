package engine

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// fuzzEdge is an edge with one app for all hosts, on real sockets.
type fuzzEdge struct {
	edge *edge.Edge
	addr string

	mu    sync.Mutex
	bytes []byte // what the app was sent, all connections one after the other
	reply []byte // what it says
	fault string // what it was sent that is neither a request nor the beginning of one
}

func newFuzzEdge(f *testing.F, serve func(*fuzzEdge, net.Conn)) *fuzzEdge {
	f.Helper()
	e := &fuzzEdge{edge: edge.New(edge.Options{Waker: wakes{&rig{t: f}}, NewPool: spoiling()})}
	if err := e.edge.SetApps([]edge.AppConfig{{Name: "app", Hosts: []string{"*"}, KeepTrailers: true}}); err != nil {
		f.Fatal(err)
	}
	srv, err := New(Options{Edge: e.edge, Via: "edge-1", poison: true})
	if err != nil {
		f.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "fuzz")
	if err != nil {
		f.Fatal(err)
	}
	app, err := net.Listen("unix", filepath.Join(dir, "app"))
	if err != nil {
		f.Fatal(err)
	}
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.Fatal(err)
	}
	e.addr = front.Addr().String()
	e.edge.App("app").Place(edge.Placement{Generation: 1, State: edge.Serving, Network: "unix", Address: app.Addr().String()})
	var work sync.WaitGroup
	work.Go(func() { _ = srv.Serve(front) })
	work.Go(func() {
		for {
			c, err := app.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				serve(e, c)
			})
		}
	})
	f.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			f.Error(err)
		}
		e.edge.Close()
		app.Close()
		work.Wait()
		os.RemoveAll(dir)
		if s := e.edge.App("app").Stats(); s.Open() != 0 || s.InFlight != 0 {
			f.Errorf("left over: %+v", s)
		}
	})
	return e
}

// talk sends raw and reads up to the end, which the client causes by ending its
// sending side, or the edge.
func (e *fuzzEdge) talk(t *testing.T, raw []byte, finish bool) (got []byte, err error) {
	c, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Skip(err) // out of ports: the run is faster than the kernel forgets
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	_, _ = c.Write(raw) // the edge may have had enough of it
	if finish {
		_ = c.(*net.TCPConn).CloseWrite()
	}
	got, err = io.ReadAll(c)
	if isTimeout(err) {
		t.Fatalf("%q: no end; so far %q", raw, got)
	}
	return got, err
}

// take returns the requests that the app was sent since the last time. What was
// wrong with one that the edge gave up may only be known a little later.
func (e *fuzzEdge) take(t *testing.T) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fault != "" {
		t.Fatalf("the app was sent %s", e.fault)
	}
	b := e.bytes
	e.bytes = nil
	return b
}

// A stream of requests: those that are forwarded are those that the second
// parser and net/http read in it, in number and in meaning, and their bytes
// parse strictly again.
func FuzzRequestsInEqualRequestsOut(f *testing.F) {
	e := newFuzzEdge(f, func(e *fuzzEdge, c net.Conn) {
		var have []byte
		buf := make([]byte, 64<<10)
		for {
			n, err := c.Read(buf)
			have = append(have, buf[:n]...)
			_, rest, bad := readRequest(have, true)
			e.mu.Lock()
			switch {
			case bad == nil:
				e.bytes = append(e.bytes, have...)
				have = nil
			case bad != errPartial:
				e.fault = fmt.Sprintf("%q: %v", have, bad)
			}
			if len(rest) > 0 {
				e.fault = fmt.Sprintf("%q came before its turn", rest)
			}
			e.mu.Unlock()
			if err != nil {
				return
			}
			if bad == nil {
				_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
			}
		}
	})
	post := func(fields, body string) string { return gatePost(fields, body) }
	for _, s := range []string{
		gateGet("") + gateGet("A: b\r\n"), post("Content-Length: 5\r\n", "hello") + gateGet(""),
		gateChunks("5\r\nhello\r\n0\r\n\r\n") + gateTarget("/a%2Fb?c=%26"),
		gateChunks("5;a=\"b\\\"\";c\r\nhello\r\n0\r\nX: y\r\n\r\n") + "\r\n" + gateGet(""),
		gateTarget("http://app.test?x") + "OPTIONS * HTTP/1.1\r\n" + gateHost + "\r\n" + gateHostOf("[::1]:80"),
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n" + gateHostOf("a_b.test."),
		post("Content-Length: 1\r\nExpect: 100-continue\r\n", "x"),
		gateGet("Connection: X-A, upgrade\r\nX-A: 1\r\nUpgrade: websocket\r\nVia: 1.1 edge-1\r\n") + gateGet(""),
		gateGet("Connection: close\r\n") + gateGet(""), post("Content-Length: 9\r\n", "hello"), gateChunks("5\r\nhel"),
		gateGet("X-Forwarded-For: 1\r\nX_Forwarded_For: 2\r\nProxy: x\r\nContent_Length: 5\r\n") + "hello",
	} {
		f.Add([]byte(s))
	}
	for _, c := range gateRefusals() {
		f.Add([]byte(gateGet("") + c.raw))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		e.take(t)
		_, _ = e.talk(t, raw, true)
		in, bad := readRequests(raw, false)
		wantNetHTTP(t, raw, in)
		forwarded := slicesOf(in, func(m message) bool { return m.target != "*" && !loops(m) && !isLast(m) })
		out, err := readRequests(e.take(t), true)
		if len(out) != len(forwarded) {
			t.Fatalf("%q: %d requests came in (%v), %d went out (%v)", raw, len(forwarded), bad, len(out), err)
		}
		for i, m := range forwarded {
			o := out[i]
			if o.method != m.method || o.target != m.target || !strings.EqualFold(o.host, m.host) || !bytes.Equal(o.body, m.body) {
				t.Fatalf("%q: %s %s %s %q was forwarded as %s %s %s %q", raw,
					m.method, m.host, m.target, m.body, o.method, o.host, o.target, o.body)
			}
			if had, has := forwardsOf(m), forwardsOf(o); has != max(had-1, -1) {
				t.Fatalf("%q: Max-Forwards was %d and is %d", raw, had, has)
			}
		}
	})
}

func slicesOf(all []message, keep func(message) bool) (some []message) {
	for _, m := range all {
		if keep(m) {
			some = append(some, m)
		}
	}
	return some
}

// forwardsOf is the Max-Forwards of an OPTIONS; -1: it has none.
func forwardsOf(m message) int {
	v := m.fields["max-forwards"]
	if m.method != "OPTIONS" || len(v) == 0 {
		return -1
	}
	n, _ := strconv.Atoi(v[0]) // the parser has seen to it
	return n
}

// isLast says whether nobody may forward it any further.
func isLast(m message) bool { return forwardsOf(m) == 0 }

// loops says whether Via names the edge.
func loops(m message) bool {
	for _, hop := range strings.Split(strings.Join(m.fields["via"], ","), ",") {
		_, by, _ := strings.Cut(strings.ReplaceAll(strings.Trim(hop, " \t"), "\t", " "), " ")
		by = strings.TrimLeft(by, " ")
		if i := strings.IndexAny(by, " ("); i >= 0 {
			by = by[:i]
		}
		if strings.EqualFold(by, "edge-1") {
			return true
		}
	}
	return false
}

// wantNetHTTP compares with net/http, as far as that reads.
func wantNetHTTP(t *testing.T, raw []byte, in []message) {
	t.Helper()
	r := bufio.NewReader(bytes.NewReader(raw))
	for _, m := range in {
		if b, _ := r.Peek(2); string(b) == "\r\n" {
			_, _ = r.Discard(2)
		}
		q, err := http.ReadRequest(r)
		if err != nil {
			return // it may be stricter
		}
		body, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		target := q.RequestURI
		if a := slowAbsolute.FindStringSubmatch(target); a != nil {
			target = m.target // taken apart already
		}
		if q.Method != m.method || target != m.target || !strings.EqualFold(q.Host, m.host) || !bytes.Equal(body, m.body) {
			t.Fatalf("%q: net/http reads %s %s %s %q, the second parser %s %s %s %q", raw,
				q.Method, q.Host, target, body, m.method, m.host, m.target, m.body)
		}
	}
}

// An app's bytes: what the client gets is the answer that the second parser and
// net/http read in them, or 502, or an answer that visibly breaks off; and it
// parses strictly.
func FuzzAnswersInEqualAnswersOut(f *testing.F) {
	e := newFuzzEdge(f, func(e *fuzzEdge, c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err != nil {
			return
		}
		e.mu.Lock()
		reply := e.reply
		e.mu.Unlock()
		_, _ = c.Write(reply)
	})
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc", "HTTP/1.1 200 OK\r\n\r\nabc", "HTTP/1.0 200 OK\r\n\r\nabc",
		chunkedHead + "3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 304 N\r\nContent-Length: 9\r\n\r\n",
		"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
		"HTTP/1.1 426 U\r\nConnection: upgrade\r\nUpgrade: a\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200\r\nContent-Type: text/event-stream\r\nConnection: X\r\nX: 1\r\n\r\ndata: a\n\n", chunkedHead + "3\r\nab",
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	for _, b := range unsent() {
		f.Add([]byte(b.raw), false)
	}
	f.Fuzz(func(t *testing.T, raw []byte, toHead bool) {
		method := "GET"
		if toHead {
			method = "HEAD"
		}
		e.mu.Lock()
		e.reply = raw
		e.mu.Unlock()
		got, broke := e.talk(t, fmt.Appendf(nil, "%s / HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n", method), false)
		in, interim, bad := readAnswer(raw, method, false)
		out, passed, err := readAnswer(got, method, true)
		switch {
		case bad == nil && (broke != nil || err != nil):
			t.Fatalf("%q ended in %q, %v, %v", raw, got, broke, err)
		case bad == nil:
			wantSame(t, raw, method, in, out)
			if want := interim - strings.Count(latin1(raw[:min(len(raw), 1<<15)]), " 100"); passed < want {
				t.Fatalf("%q: %d interim answers came in, %d went out", raw, interim, passed)
			}
		case bad == errMore && len(raw) > 1<<14: // what is beyond the first read may not have been seen
		case broke == nil && err == nil && out.status == 502 && out.fields["proxy-status"] != nil:
		case broke == nil:
			t.Fatalf("%q (%v) became %q, which ends neatly", raw, bad, got)
		}
	})
}

// wantSame expects the answer to have come through, and net/http to read it so.
func wantSame(t *testing.T, raw []byte, method string, in, out message) {
	t.Helper()
	if in.status != out.status || !bytes.Equal(in.body, out.body) {
		t.Fatalf("%q: %d %q became %d %q", raw, in.status, in.body, out.status, out.body)
	}
	r := bufio.NewReader(bytes.NewReader(raw))
	for {
		res, err := http.ReadResponse(r, &http.Request{Method: method})
		if err != nil {
			return // it may be stricter
		}
		if res.StatusCode < 200 {
			continue
		}
		if body, err := io.ReadAll(res.Body); err == nil && (res.StatusCode != out.status || !bytes.Equal(body, out.body)) {
			t.Fatalf("%q: net/http reads %d %q, the client got %d %q", raw, res.StatusCode, body, out.status, out.body)
		}
		return
	}
}
