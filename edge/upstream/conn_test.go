package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge/http1"
)

// abortDownload reads about that much of a body and leaves.
func abortDownload(t *testing.T, c *Conn, after int) {
	t.Helper()
	var res http1.Response
	if err := c.ReadHead(&res, []byte("GET"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	for after > 0 {
		data, done, err := c.ReadBody(time.Time{})
		if done || err != nil {
			t.Fatalf("ended early: %v", err)
		}
		after -= len(data)
	}
}

func TestAFinBeforeTheFirstWriteProvesNonDelivery(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		for name, greeting := range map[string]string{"fin": "", "unasked answer": "HTTP/1.1 408 T\r\nConnection: close\r\n\r\n"} {
			t.Run(name, func(t *testing.T) {
				hold := make(chan struct{})
				defer close(hold)
				p := newOrigin(t, network, func(c net.Conn) {
					if _, err := io.WriteString(c, greeting); err == nil && greeting != "" {
						<-hold
					}
				}).pool(Options{})
				c := get(t, p, false)
				eventually(t, "the app has closed or spoken", func() bool { return c.look(noFD) != quiet })
				n, err := c.Write(request("POST", "/", "x"))
				if n != 0 || c.Wrote() != 0 || !Undelivered(err) {
					t.Errorf("%d bytes, %v", n, err)
				}
				if !MayRetry(Evidence{Err: err, Body: true}) {
					t.Error("may not be retried")
				}
				p.Discard(c)
			})
		}
	})
}

// The app closes between the look and the write. A unix socket takes nothing
// then; TCP takes it, and only what may run twice is sent again.
func TestAFinAtTheFirstWriteIsProvenOnUnixOnly(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		o := newOrigin(t, network, web(echo))
		p := o.pool(Options{})
		warm(t, p, 1)
		c := get(t, p, true)
		o.hangUp()
		eventually(t, "the app has closed", func() bool { return c.look(noFD) == closed })
		_, err := converse(c, "POST", "/", "x")
		if err == nil || Undelivered(err) != (network == "unix") || !Reset(err) {
			t.Fatalf("%v: undelivered %t, reset %t", err, Undelivered(err), Reset(err))
		}
		e := Evidence{Err: err, Reused: c.Reused, Responded: c.Responded(), Body: true}
		if MayRetry(e) != (network == "unix") {
			t.Error("POST retried without proof, or not with it")
		}
		e.Body, e.Idempotent = false, true
		if !MayRetry(e) {
			t.Error("GET not retried")
		}
		p.Discard(c)
	})
}

// The app has read the request, so it may have done its work.
func TestARequestThatWasReadIsNeverUndelivered(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		p := newOrigin(t, network, say("", false)).pool(Options{})
		c := get(t, p, false)
		_, err := converse(c, "POST", "/", "x")
		if err == nil || Undelivered(err) || !Reset(err) || c.Responded() {
			t.Errorf("%v: undelivered %t, reset %t", err, Undelivered(err), Reset(err))
		}
		if MayRetry(Evidence{Err: err, Idempotent: true}) {
			t.Error("retried on a connection that was new")
		}
		p.Discard(c)
	})
}

func TestAReaderThatGivesUpStopsTheWriter(t *testing.T) {
	p := newOrigin(t, "tcp", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }).pool(Options{})
	c := get(t, p, false)
	var res http1.Response
	err := c.ReadHead(&res, []byte("POST"), time.Unix(1, 0))
	if !Timeout(err) || !Undelivered(err) {
		t.Errorf("nothing was sent: %v", err)
	}
	if n, err := c.Write([]byte("x")); n != 0 || err == nil || !Undelivered(err) {
		t.Errorf("the writer went on: %d, %v", n, err)
	}
	p.Discard(c)

	c = get(t, p, false)
	if _, err := c.Write(request("POST", "/", "x")); err != nil {
		t.Fatal(err)
	}
	if err = c.ReadHead(&res, []byte("POST"), time.Unix(1, 0)); !Timeout(err) || Undelivered(err) {
		t.Errorf("something was sent: %v", err)
	}
	if MayRetry(Evidence{Err: err, Reused: true, Idempotent: true}) {
		t.Error("a timeout is retried")
	}
	p.Discard(c)
}

func TestInterruptEndsWhateverIsWaiting(t *testing.T) {
	p := newOrigin(t, "unix", func(c net.Conn) {
		var b [1]byte
		_, _ = c.Read(b[:])
		<-time.After(time.Second) // neither reads nor answers
	}).pool(Options{})
	c := get(t, p, false)
	ended := make(chan error, 2)
	go func() {
		for {
			if _, err := c.Write(make([]byte, 1<<16)); err != nil {
				ended <- err
				return
			}
		}
	}()
	go func() {
		var res http1.Response
		ended <- c.ReadHead(&res, []byte("POST"), time.Now().Add(time.Hour))
	}()
	eventually(t, "bytes were taken", func() bool { return c.Wrote() > 0 })
	c.Interrupt()
	for range 2 {
		if err := <-ended; err == nil || Timeout(err) || Undelivered(err) || MayRetry(Evidence{Err: err, Reused: true, Idempotent: true}) {
			t.Errorf("%v", err)
		}
	}
	p.Discard(c)
}

func TestALaterDeadlineDoesNotUndoInterrupt(t *testing.T) {
	p := newOrigin(t, "tcp", func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }).pool(Options{})
	c := get(t, p, false)
	c.Interrupt()
	c.SetWriteDeadline(time.Now().Add(time.Hour))
	if n, err := c.Write([]byte("x")); n != 0 || err == nil {
		t.Errorf("%d bytes written", n)
	}
	p.Discard(c)

	c = get(t, p, false)
	c.Interrupt()
	var res http1.Response
	if err := c.ReadHead(&res, []byte("GET"), time.Now().Add(time.Hour)); err == nil || Timeout(err) {
		t.Errorf("%v", err)
	}
	p.Discard(c)
}

func TestBodiesOfEveryFramingAreReadWhole(t *testing.T) {
	big := strings.Repeat("0123456789abcdef", 1<<14)
	for name, c := range map[string]struct{ method, raw, want string }{
		"length":          {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 262144\r\n\r\n" + big, big},
		"chunked":         {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n40000\r\n" + big + "\r\n1\r\nx\r\n0\r\n\r\n", big + "x"},
		"until close":     {"GET", "HTTP/1.1 200 OK\r\n\r\n" + big, big},
		"until close 1.0": {"GET", "HTTP/1.0 200 OK\r\n\r\n", ""},
		"empty":           {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""},
		"204":             {"GET", "HTTP/1.1 204 N\r\n\r\n", ""},
		"304":             {"GET", "HTTP/1.1 304 N\r\nContent-Length: 9\r\n\r\n", ""},
		"HEAD":            {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", ""},
		"HEAD chunked":    {"HEAD", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", ""},
		"interim ones":    {"GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 E\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			closes := strings.HasPrefix(name, "until close")
			p := newOrigin(t, "tcp", say(c.raw, !closes)).pool(Options{})
			for range 3 {
				conn := get(t, p, true)
				if got, err := converse(conn, c.method, "/", ""); got != c.want || err != nil {
					t.Fatalf("%d bytes, want %d, %v", len(got), len(c.want), err)
				}
				p.Put(conn)
			}
			if s := p.Stats(); (s.Reused == 2) == closes {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestResponsesInTinyPiecesAreReadWhole(t *testing.T) {
	raw := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5;a=b\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 1\r\n\r\n"
	p := newOrigin(t, "unix", func(c net.Conn) {
		for i := range raw {
			if _, err := io.WriteString(c, raw[i:i+1]); err != nil {
				return
			}
		}
		_, _ = io.Copy(io.Discard, c)
	}).pool(Options{})
	c := get(t, p, true)
	c.looked = true // it speaks at once, which is not what is tested here
	if got, err := converse(c, "GET", "/", ""); got != "hello world" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if tr := c.Trailer(); len(tr) != 1 || string(tr[0].Name) != "X-Sum" || string(tr[0].Value) != "1" {
		t.Errorf("trailer %+v", tr)
	}
	p.Put(c)
}

func TestResponsesThatAreCutOrWrongAreErrors(t *testing.T) {
	for name, c := range map[string]struct {
		raw     string
		reset   bool // else not HTTP
		atHead  bool
		partial string
	}{
		"nothing":             {raw: "", reset: true, atHead: true},
		"half a head":         {raw: "HTTP/1.1 200 OK\r\nContent-", reset: true, atHead: true},
		"only a 100":          {raw: "HTTP/1.1 100 C\r\n\r\n", reset: true, atHead: true},
		"no HTTP":             {raw: "hello\r\n\r\n", atHead: true},
		"head too long":       {raw: "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", 40<<10), atHead: true},
		"two framings":        {raw: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", atHead: true},
		"short body":          {raw: "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", reset: true, partial: "hello"},
		"chunks without end":  {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", reset: true, partial: "hello"},
		"chunk without end":   {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nhello", reset: true, partial: "hello"},
		"no end of trailer":   {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n", reset: true},
		"bad chunk size":      {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n"},
		"framing as trailer":  {raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 1\r\n\r\n"},
		"chunked on HTTP/1.0": {raw: "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", atHead: true},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOrigin(t, "tcp", say(c.raw, false)).pool(Options{})
			conn := get(t, p, true)
			got, err := converse(conn, "GET", "/", "")
			var malformed *http1.Error
			if err == nil || got != c.partial || Undelivered(err) || Reset(err) != c.reset || errors.As(err, &malformed) == c.reset {
				t.Errorf("%q, %v: reset %t", got, err, Reset(err))
			}
			var e *Error
			if errors.As(err, &e) && (e.Op == "read head") != c.atHead {
				t.Errorf("while %s", e.Op)
			}
			if conn.Responded() && MayRetry(Evidence{Err: err, Idempotent: true, Reused: true, Responded: true}) {
				t.Error("retried after a byte of response")
			}
			p.Put(conn)
			if s := p.Stats(); s.Open != 0 {
				t.Errorf("kept: %+v", s)
			}
		})
	}
}

func TestAResetIsNeverTheEndOfABody(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	p.opt.Address = ln.Addr().String()
	c := get(t, p, true)
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(request("GET", "/", "")); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(peer, "HTTP/1.1 200 OK\r\n\r\nhello")
	var res http1.Response
	if err := c.ReadHead(&res, []byte("GET"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	_ = peer.(*net.TCPConn).SetLinger(0)
	peer.Close()
	if got, err := readAll(c, time.Time{}); err == nil || !Reset(err) {
		t.Errorf("%q, %v", got, err)
	}
	p.Discard(c)
}

// Frames that come together with the 101, and after a half-close.
func TestASwitchedConnectionLosesNoByte(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		p := newOrigin(t, network, func(c net.Conn) {
			say("HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nframe", false)(c)
			_, _ = io.Copy(c, c)
		}).pool(Options{})
		c := get(t, p, true)
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		var res http1.Response
		soon := time.Now().Add(2 * time.Second) // a busy machine needs some of it
		if err := c.ReadHead(&res, []byte("GET"), soon); err != nil || string(res.Upgrade) != "x" {
			t.Fatalf("%d, %v", res.Status, err)
		}
		<-time.After(time.Until(soon) + time.Millisecond) // the deadline of the head is not the tunnel's
		b := make([]byte, 3)
		if n, err := c.Read(b); n != 3 || string(b) != "fra" || err != nil {
			t.Fatalf("%q, %v", b[:n], err)
		}
		if _, err := c.Write([]byte("!echo")); err != nil {
			t.Fatal(err)
		}
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if rest, err := io.ReadAll(c); string(rest) != "me!echo" || err != nil {
			t.Errorf("%q, %v", rest, err)
		}
		if c.buffer != nil {
			t.Error("a tunnel holds a read buffer")
		}
		c.Sent = true
		p.Put(c)
		if s := p.Stats(); s.Open != 0 {
			t.Errorf("a switched connection was kept: %+v", s)
		}
	})
}

func TestSeveralPiecesAreSentInOneGo(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{})
	c := get(t, p, true)
	whole := request("POST", "/", "hello")
	pieces := net.Buffers{whole[:10], whole[10:30], whole[30:]}
	n, err := c.WriteBuffers(&pieces)
	if n != int64(len(whole)) || c.Wrote() != n || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	var res http1.Response
	if err := c.ReadHead(&res, []byte("POST"), time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(c, time.Time{}); got != "/hello" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	p.Discard(c)
}

func TestDeadlinesOfOneRequestAreNotTheNextOnes(t *testing.T) {
	p := newOrigin(t, "tcp", web(echo)).pool(Options{})
	soon := time.Now().Add(2 * time.Second) // a busy machine needs some of it
	c := get(t, p, true)
	c.SetWriteDeadline(soon)
	if _, err := c.Write(request("GET", "/", "")); err != nil {
		t.Fatal(err)
	}
	c.Sent = true
	var res http1.Response
	if err := c.ReadHead(&res, []byte("GET"), soon); err != nil {
		t.Fatal(err)
	}
	if _, err := readAll(c, soon); err != nil {
		t.Fatal(err)
	}
	p.Put(c)
	<-time.After(time.Until(soon) + time.Millisecond)
	c = get(t, p, true)
	if !c.Reused {
		t.Fatal("not reused")
	}
	if _, err := c.Write(request("GET", "/", "")); err != nil {
		t.Error(err)
	}
	if err := c.ReadHead(&res, []byte("GET"), time.Time{}); err != nil {
		t.Error(err)
	}
	p.Discard(c)
}

func TestRetryFollowsTheProof(t *testing.T) {
	undelivered := &Error{Op: "write", Err: errPeerClosed, undelivered: true}
	refused := &Error{Op: "dial", Err: errors.New("refused"), undelivered: true}
	lost := &Error{Op: "read head", Err: errNoResponse}
	late := &Error{Op: "read head", Err: context.DeadlineExceeded}
	malformed := &Error{Op: "read head", Err: &http1.Error{Status: 502}}
	cases := []struct {
		name string
		e    Evidence
		want bool
	}{
		{"nothing failed", Evidence{Idempotent: true, Reused: true}, false},
		{"POST, connect refused", Evidence{Err: refused, Body: true}, true},
		{"POST, nothing accepted", Evidence{Err: undelivered, Body: true}, true},
		{"POST, nothing accepted, second try", Evidence{Err: undelivered, Body: true, Retried: true}, false},
		{"POST, nothing accepted, body lost", Evidence{Err: undelivered, Body: true, BodyLost: true}, false},
		{"POST, pool full", Evidence{Err: &Error{Err: ErrFull, undelivered: true}}, false},
		{"POST, pool closed", Evidence{Err: &Error{Err: ErrClosed, undelivered: true}}, true},
		{"POST, died", Evidence{Err: lost, Reused: true}, false},
		{"PUT with a body, died", Evidence{Err: lost, Reused: true, Idempotent: true, Body: true}, false},
		{"GET, died on a reused connection", Evidence{Err: lost, Reused: true, Idempotent: true}, true},
		{"GET, died on a reused connection, second try", Evidence{Err: lost, Reused: true, Idempotent: true, Retried: true}, false},
		{"GET, died on a new connection", Evidence{Err: lost, Idempotent: true}, false},
		{"GET, died after a byte", Evidence{Err: lost, Reused: true, Idempotent: true, Responded: true}, false},
		{"GET, timed out", Evidence{Err: late, Reused: true, Idempotent: true}, false},
		{"GET, not HTTP", Evidence{Err: malformed, Reused: true, Idempotent: true}, false},
		{"GET, some other error", Evidence{Err: io.ErrShortWrite, Reused: true, Idempotent: true}, false},
	}
	for _, c := range cases {
		if got := MayRetry(c.e); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}
