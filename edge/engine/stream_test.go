package engine

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/upstream"
)

const chunkedHead = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"

// T05, T06: whatever framing the app chooses, the body is the same and the
// client's connection lives on.
func TestEveryFramingReachesTheClientAlike(t *testing.T) {
	answers := map[string]struct{ raw, body string }{
		"length":           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello"},
		"chunked":          {chunkedHead + "2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n", "hello"},
		"chunked, trailer": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n5\r\nhello\r\n0\r\nX-T: v\r\n\r\n", "hello"},
		"close, 1.1":       {"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", "hello"},
		"close, 1.0":       {"HTTP/1.0 200 OK\r\n\r\nhello", "hello"},
		"204":              {"HTTP/1.1 204 No Content\r\n\r\n", ""},
		"304":              {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", ""},
		"empty":            {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
		"empty chunked":    {chunkedHead + "0\r\n\r\n", ""},
	}
	o := newOrigin(t, func(s *stage) {
		for {
			r, ok := s.read()
			if !ok {
				return
			}
			raw := answers[r.Header.Get("X-Case")].raw
			if r.Method == "HEAD" {
				raw, _, _ = strings.Cut(raw, "\r\n\r\n")
				raw += "\r\n\r\n"
			}
			s.say("%s", raw)
			if strings.HasPrefix(r.Header.Get("X-Case"), "close") {
				return
			}
		}
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	for name, want := range answers {
		for _, method := range []string{"GET", "HEAD"} {
			c.send(method + " / HTTP/1.1\r\nHost: app.test\r\nX-Case: " + name + "\r\n\r\n")
			a := c.read(method)
			body := want.body
			if method == "HEAD" {
				body = ""
			}
			if a.body != body || a.err != nil {
				t.Errorf("%s %s: %q, %v", method, name, a.body, a.err)
			}
			if method == "HEAD" && name == "length" && a.ContentLength != 5 {
				t.Errorf("HEAD lost its Content-Length: %v", a.Header)
			}
			if name == "chunked, trailer" && method == "GET" && a.Trailer.Get("X-T") != "v" {
				t.Errorf("the trailer is gone: %v", a.Trailer)
			}
			if a.Close {
				t.Errorf("%s %s: the client's connection does not live on", method, name)
			}
		}
	}
}

// Bytes that come after an answer has been passed on are nobody's answer.
func TestSurplusBytesAreNeverTakenForAnAnswer(t *testing.T) {
	more, said := make(chan struct{}), make(chan struct{})
	o := newOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		s.ok(r.URL.Path[1:])
		<-more
		s.ok("EVIL")
		said <- struct{}{}
		_, _ = s.r.ReadByte()
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	for i, p := range []string{"aa", "bb", "cc"} {
		c.get("/" + p)
		c.want(200, p)
		r.last(i + 1)
		more <- struct{}{}
		<-said
	}
}

// T10: bodies stream, both ways, with back-pressure.
func TestLargeBodiesStreamBothWays(t *testing.T) {
	l := newLargeBodies(t)
	l.down()
	l.up()
	l.upChunked()
	l.c.get("/")
	if n := l.r.last(3).Result; n.BytesIn != largeBody || n.Status != 200 {
		t.Errorf("%+v", n)
	}
}

const largeBody = 64 << 20

// largeBodies is a client of an app that sends a large body to who gets, and tells
// who posts how long the body was and what its digest is.
type largeBodies struct {
	t    *testing.T
	r    *rig
	c    *client
	want string
}

func newLargeBodies(t *testing.T) *largeBodies {
	t.Helper()
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		if r.Method == "GET" {
			s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", largeBody)
			_, _ = io.CopyN(s, zeros{}, largeBody)
			return
		}
		h := sha256.New()
		n, _ := io.Copy(h, r.Body)
		s.ok(fmt.Sprintf("%d %x", n, h.Sum(nil)))
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	h := sha256.New()
	_, _ = io.CopyN(h, zeros{}, largeBody)
	return &largeBodies{t, r, r.dial(), fmt.Sprintf("%d %x", largeBody, h.Sum(nil))}
}

func (l *largeBodies) down() {
	l.t.Helper()
	l.c.get("/")
	res, err := http.ReadResponse(l.c.r, nil)
	if err != nil {
		l.t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, res.Body); n != largeBody || err != nil {
		l.t.Fatalf("down: %d, %v", n, err)
	}
}

func (l *largeBodies) up() {
	l.t.Helper()
	l.c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n", largeBody))
	_, _ = io.CopyN(l.c, zeros{}, largeBody)
	l.c.want(200, l.want)
}

func (l *largeBodies) upChunked() {
	l.t.Helper()
	l.c.send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n")
	w := bufio.NewWriterSize(l.c, 1<<16)
	for left := largeBody; left > 0; {
		n := min(left, 12345)
		fmt.Fprintf(w, "%x\r\n", n)
		_, _ = io.CopyN(w, zeros{}, int64(n))
		_, _ = w.WriteString("\r\n")
		left -= n
	}
	_, _ = w.WriteString("0\r\nX-Trailer: dropped\r\n\r\n")
	_ = w.Flush()
	l.c.want(200, l.want)
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestBothDirectionsFlowAtOnce(t *testing.T) {
	o := newOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		s.say(chunkedHead)
		b := make([]byte, 100)
		for {
			n, err := r.Body.Read(b)
			if n > 0 {
				s.say("%x\r\n%s\r\n", n, b[:n])
			}
			if err != nil {
				break
			}
		}
		s.say("0\r\n\r\n")
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n")
	var res *http.Response
	for i := range 10 {
		word := fmt.Sprintf("word %d", i)
		c.send(fmt.Sprintf("%x\r\n%s\r\n", len(word), word))
		if res == nil {
			var err error
			if res, err = http.ReadResponse(c.r, nil); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(word))
		if _, err := io.ReadFull(res.Body, got); err != nil || string(got) != word {
			t.Fatalf("%q, %v", got, err)
		}
	}
	c.send("0\r\n\r\n")
	if b, err := io.ReadAll(res.Body); len(b) > 0 || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
}

// An app that answers early and closes, with a large body still to come: the
// client gets the answer.
func TestAnEarlyAnswerReachesAClientThatStillSends(t *testing.T) {
	for name, then := range map[string]func(s *stage){
		"closes": func(*stage) {},
		"stays":  func(s *stage) { _, _ = io.Copy(io.Discard, s.r) },
	} {
		t.Run(name, func(t *testing.T) {
			o := newTCPOrigin(t, func(s *stage) {
				s.read()
				s.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
				then(s)
			})
			r := newRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 100000000\r\n\r\n")
			sent := make(chan struct{})
			go func() {
				defer close(sent)
				_, _ = io.CopyN(c, zeros{}, 100000000) // breaks off when the edge closes
			}()
			a := c.want(401, "no")
			if !a.Close {
				t.Error("the connection is said to live on")
			}
			<-sent
			if n := r.last(1).Result; n.Ending != edge.Served || n.Status != 401 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// brokenPipe is a connection to an app that has answered and closed by the time
// the first bytes are written: they arrive, and the write fails.
type brokenPipe struct{ net.Conn }

func (b brokenPipe) Write(p []byte) (int, error) {
	n, err := b.Conn.Write(p)
	return n, errors.Join(err, syscall.EPIPE)
}

// What is left of a body that the app did not wait for is not the next request.
func TestTheRestOfABodyThatCouldNotBePassedOnIsNoRequest(t *testing.T) {
	for name, framing := range map[string]string{
		"length":  "Content-Length: 1000\r\n\r\n0123456789",
		"chunked": "Transfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, func(s *stage) {
				s.read()
				s.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
			})
			pool := spoiling()
			r := newRig(t, rigOptions{pool: func(opt upstream.Options) *upstream.Pool {
				opt.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					nc, err := new(net.Dialer).DialContext(ctx, network, address)
					return brokenPipe{nc}, err
				}
				return pool(opt)
			}})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send("POST / HTTP/1.1\r\nHost: app.test\r\n" + framing)
			a := c.want(401, "no")
			if !a.Close {
				t.Error("the connection is said to live on")
			}
			c.send("GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n")
			if b, _ := io.ReadAll(c.r); len(b) > 0 {
				t.Errorf("the rest of the body was answered: %q", b)
			}
			if n := r.last(1).Result; n.Ending != edge.Served || n.Status != 401 {
				t.Errorf("%+v", n)
			}
		})
	}
}

func TestInterimAnswersArePassedOn(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		s.say("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
		s.ok("done")
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	for _, want := range []int{102, 103, 200} {
		if a := c.read("GET"); a.StatusCode != want {
			t.Fatalf("%d, want %d", a.StatusCode, want)
		}
	}
	c.send("GET / HTTP/1.0\r\n\r\n")
	if a := c.read("GET"); a.StatusCode != 200 {
		t.Fatalf("1.0: %d", a.StatusCode)
	}
}

// T01, T08: events go out at once; a client that leaves is noticed though the
// app is silent.
func TestEventsAreSentAtOnceAndALeavingReaderEndsTheStream(t *testing.T) {
	next, left := make(chan string), make(chan struct{}, 10)
	o := newOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			_, _ = io.Copy(io.Discard, s.r)
		}()
		for {
			select {
			case e := <-next:
				s.say("%x\r\n%s\r\n", len(e), e)
			case <-gone:
				left <- struct{}{}
				return
			}
		}
	})
	r := newRig(t, rigOptions{app: edge.AppConfig{FirstByteTimeout: time.Second}})
	r.app.Place(o.placement(1))
	for name, leave := range map[string]func(c *client){
		"closes": func(c *client) { c.Close() },
		"half":   func(c *client) { c.fin() },
		"resets": func(c *client) { c.rst() },
	} {
		c := r.dial()
		c.get("/")
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			next <- "data: x\n\n"
			b := make([]byte, 9)
			if _, err := io.ReadFull(res.Body, b); err != nil || string(b) != "data: x\n\n" {
				t.Fatalf("%q, %v", b, err)
			}
		}
		r.counted("one stream", func(s edge.Stats) bool { return s.Streams == 1 && s.InFlight == 1 })
		<-time.After(time.Second + 3*sweepEvery) // S11: no deadline of others ends it
		leave(c)
		select {
		case <-left:
		case <-time.After(patience):
			t.Fatalf("%s: the app was not told", name)
		}
	}
	if n := r.last(3).Result; n.Ending != edge.Gone || n.Cause != edge.CauseClientGone {
		t.Errorf("%+v", n)
	}
}

func TestEventStreamsThatAreAskedToEndGetTheRetryHint(t *testing.T) {
	said := make(chan struct{})
	half := false
	o := newOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: x\n\n")
		if half {
			s.say("data: cut")
		}
		said <- struct{}{}
		_, _ = io.Copy(io.Discard, s.r)
	})
	r := newRig(t, rigOptions{})
	c := r.dial()
	for i, want := range []string{"data: x\n\nretry: 1000\n\n", "data: x\n\ndata: cut"} {
		gen := uint64(i + 1)
		r.app.Place(o.placement(gen))
		c.get("/")
		<-said
		want, begun := want, strings.TrimSuffix(want, retryHint)
		res, err := http.ReadResponse(c.r, nil)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, len(begun))
		if _, err := io.ReadFull(res.Body, b); err != nil {
			t.Fatal(err)
		}
		r.app.CloseStreams(gen, 0)
		rest, err := io.ReadAll(res.Body)
		if got := string(b) + string(rest); got != want || err != nil {
			t.Fatalf("%q, %v; want %q", got, err, want)
		}
		half = true
	}
	if n := r.last(2).Result; n.Ending != edge.Served {
		t.Errorf("%+v", n)
	}
}

// T04: a connection with unread bytes is never used again.
func TestAbortedDownloadsLeaveNothingBehind(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		if r.URL.Path == "/big" {
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n")
			_, _ = io.CopyN(s, zeros{}, 5000000)
			return
		}
		s.ok(r.URL.RawQuery)
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for i := range 100 {
		c := r.dial()
		c.get("/big")
		_, _ = io.CopyN(io.Discard, c.r, int64(i*20000))
		if i%2 == 0 {
			c.rst()
		} else {
			c.Close()
		}
		d := r.dial()
		d.get(fmt.Sprintf("/id?%d", i))
		d.want(200, fmt.Sprint(i))
		d.Close()
	}
	eventually(t, "nothing in flight", func() bool { return r.app.Activity().InFlight == 0 })
}

func TestAClientThatHalfClosesGetsItsAnswer(t *testing.T) {
	got := make(chan struct{})
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-got
		s.ok("late")
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello")
	eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
	c.fin()
	if a := c.read("POST"); a.StatusCode != 100 {
		t.Fatalf("%d; it was to be asked whether it is there", a.StatusCode)
	}
	close(got)
	c.want(200, "late")
	c.wantEOF()
}

func TestAClientThatResetsWhileTheAppWorksIsNoticed(t *testing.T) {
	gone := make(chan error, 1)
	o := newOrigin(t, func(s *stage) {
		s.read()
		_, err := s.r.ReadByte()
		gone <- err
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
	c.rst()
	select {
	case err := <-gone:
		if !errors.Is(err, io.EOF) {
			t.Logf("the app saw %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the app was not told")
	}
	if n := r.last(1).Result; n.Ending != edge.Gone || n.Status != 0 {
		t.Errorf("%+v", n)
	}
}

// newReader is an app that reads one request with its body, and tells how that
// ended.
func newReader(t *testing.T) (*origin, <-chan error) {
	got := make(chan error, 1)
	return newOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		_, err := io.Copy(io.Discard, r.Body)
		got <- err
	}), got
}

func TestARequestBodyThatBreaksOffIsNotMadeWhole(t *testing.T) {
	for name, head := range map[string]string{
		"length":  "Content-Length: 100000\r\n\r\nhello",
		"chunked": "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
	} {
		o, got := newReader(t)
		r := newRig(t, rigOptions{})
		r.app.Place(o.placement(1))
		c := r.dial()
		c.send("POST / HTTP/1.1\r\nHost: app.test\r\n" + head)
		eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
		c.fin()
		if err := <-got; err == nil {
			t.Errorf("%s: the app got a body that looks whole", name)
		}
		if n := r.last(1).Result; n.Ending != edge.Gone || n.BytesIn != 5 {
			t.Errorf("%s: %+v", name, n)
		}
	}
}

// An app whose answers have surplus bytes in the same write: whatever the length of
// the answer, so even where it ends with a read, no other client gets them.
func TestSurplusBytesBehindAnAnswerOfAnyLengthReachNobody(t *testing.T) {
	const surplus = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		var n int
		if _, err := fmt.Sscanf(r.URL.Path, "/long/%d", &n); err != nil {
			s.ok(r.URL.Path)
			return
		}
		head := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %06d\r\n\r\n", n)
		_, _ = io.WriteString(s, head+strings.Repeat("a", n)+surplus) // it may be found out meanwhile
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for n := 9200; n < 9600; n++ { // about as much as is lent for an answer
		c, d := r.dial(), r.dial()
		for range 3 {
			c.get("/x")
			c.want(200, "/x")
			d.get("/x")
			d.want(200, "/x")
		}
		c.get(fmt.Sprintf("/long/%06d", n))
		if a, err := c.tryRead("GET"); err == nil && a.StatusCode == 200 && a.err == nil {
			d.get("/y")
			if a, err := d.tryRead("GET"); err == nil && a.body != "/y" {
				t.Errorf("after an answer of %d bytes another client got %d %q", n, a.StatusCode, a.body)
			}
		}
		c.Close()
		d.Close()
	}
}
