package engine

import (
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/usher-edge/usher/edge"
)

// brokenAnswer is what an app says instead of a valid answer, at once and then
// nothing more.
type brokenAnswer struct {
	name, rfc, raw string
	cause          edge.Cause
	stays          bool // the app keeps the connection
}

// unsent are those that show before the head has gone out: the client gets 502.
func unsent() []brokenAnswer {
	const length = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: "
	return []brokenAnswer{
		{"no HTTP", "9112 4", "hello there\r\n\r\n", edge.CauseBadResponse, true},
		{"bare LF", "9112 2.2", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", edge.CauseBadResponse, true},
		{"two lengths", "9112 6.3", length + "5\r\nContent-Length: 6\r\n\r\nhello!", edge.CauseBadResponse, true},
		{"length and coding", "9112 6.3", length + "5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", edge.CauseBadResponse, true},
		{"coding other than chunked", "9112 6.1", "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", edge.CauseBadResponse, true},
		{"coding on 1.0", "9112 6.1", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", edge.CauseBadResponse, true},
		{"fold", "9112 5.2", length + "0\r\nX: a\r\n b\r\n\r\n", edge.CauseBadResponse, true},
		{"101 that nobody asked for", "9110 15.2.2", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", edge.CauseBadResponse, true},
		{"1xx and then no HTTP", "9112 4", "HTTP/1.1 103 Early Hints\r\n\r\nhello\r\n", edge.CauseBadResponse, true},
		{"1xx with a body", "9110 15.2", "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", edge.CauseBadResponse, true},
		{"head cut short", "9112 8", "HTTP/1.1 200 OK\r\nContent-Le", edge.CauseDiedBeforeResponse, false},
		{"nothing", "9112 8", "", edge.CauseDiedBeforeResponse, false},
		{"surplus after a length", "9112 6.3", length + "2\r\n\r\nhi and more", edge.CauseBadResponse, true},
		{"a second answer", "9112 6.3", length + "2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL", edge.CauseBadResponse, true},
		{"a body where there is none", "9110 15.3.5", "HTTP/1.1 204 No Content\r\n\r\nhello", edge.CauseBadResponse, true},
		{"chunk size", "9112 7.1", chunkedHead + "5\r\nhello\r\nzz\r\n", edge.CauseBadResponse, true},
		{"surplus after the last chunk", "9112 7.1", chunkedHead + "5\r\nhello\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n", edge.CauseBadResponse, true},
		{"head and no body", "9112 8", length + "10\r\n\r\n", edge.CauseAborted, false},
	}
}

// T02, T03, "An app's response that is not valid HTTP, has surplus bytes, a short body or
// bad chunking: 502 before the head was sent …; that connection is never pooled;
// nothing of it is cached."
func TestABrokenAnswerIs502BeforeItsHeadWasSent(t *testing.T) {
	for _, b := range unsent() {
		t.Run(b.name+"/"+b.rfc, func(t *testing.T) {
			broken := new(atomic.Bool)
			broken.Store(true)
			o := newTCPOrigin(t, func(s *stage) {
				for {
					_, ok := s.read()
					switch {
					case !ok:
						return
					case broken.Load():
						s.say("%s", b.raw)
						if !b.stays {
							return
						}
					default:
						s.ok("whole")
					}
				}
			})
			r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
			r.app.Place(o.placement(1))
			c := r.dial()
			for range 2 {
				c.send("PUT / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n")
				a := c.finalStatus(502)
				if a.Header.Get("Proxy-Status") != "usher; error="+b.cause.Verdict().Error || a.Close {
					t.Errorf("%v, close %t", a.Header, a.Close)
				}
			}
			c.get("/")
			c.finalStatus(502)
			if n := o.conns.Load(); n < 3 {
				t.Errorf("3 requests on %d connections to the app", n)
			}
			broken.Store(false)
			c.get("/")
			if a := c.want(200, "whole"); a.Header.Get("Cache-Status") != "usher; fwd=uri-miss" {
				t.Errorf("something was kept: %v", a.Header)
			}
			n := r.last(3).Result
			if n.Ending != edge.Failed || n.Cause != b.cause || n.Status != 502 {
				t.Errorf("%+v", n)
			}
		})
	}
}

// "… a reset (never a neat ending) after". The app says what is after the | once
// the client has seen what is before it.
func TestABrokenAnswerEndsInAResetAfterItsHeadWasSent(t *testing.T) {
	for _, b := range []brokenAnswer{
		{"length", "9112 8", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello|", edge.CauseAborted, false},
		{"chunked", "9112 8", chunkedHead + "5\r\nhello\r\n|", edge.CauseAborted, false},
		{"within a chunk", "9112 8", chunkedHead + "5\r\nhel|", edge.CauseAborted, false},
		{"no last CRLF", "9112 7.1", chunkedHead + "5\r\nhello\r\n0\r\n|", edge.CauseAborted, false},
		{"chunk size", "9112 7.1", chunkedHead + "5\r\nhello\r\n|zz\r\n", edge.CauseAborted, true},
		{"chunk size with a sign", "9112 7.1", chunkedHead + "5\r\nhello\r\n|+0\r\n\r\n", edge.CauseAborted, true},
		{"bare LF", "9112 7.1", chunkedHead + "5\r\nhello\r\n|0\n\n", edge.CauseAborted, true},
		{"framing in the trailer", "9110 6.5.1", chunkedHead + "5\r\nhello\r\n|0\r\nContent-Length: 5\r\n\r\n", edge.CauseAborted, true},
		{"surplus after the last chunk", "9112 7.1", chunkedHead + "5\r\nhello\r\n|0\r\n\r\nHTTP/1.1 200 OK\r\n", edge.CauseAborted, true},
	} {
		t.Run(b.name+"/"+b.rfc, func(t *testing.T) {
			good, bad, _ := strings.Cut(b.raw, "|")
			seen := make(chan struct{})
			defer close(seen)
			o := newTCPOrigin(t, func(s *stage) {
				for {
					if _, ok := s.read(); !ok {
						return
					}
					s.say("%s", good)
					<-seen
					s.say("%s", bad)
					if !b.stays {
						return
					}
				}
			})
			r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
			r.app.Place(o.placement(1))
			for range 2 { // nothing of it is kept
				c := r.dial()
				c.get("/")
				if _, err := c.r.Peek(1); err != nil {
					t.Fatal(err)
				}
				seen <- struct{}{}
				got, err := io.ReadAll(c.r)
				if err == nil || isTimeout(err) {
					t.Fatalf("%q, %v; want a reset", got, err)
				}
				_, body, _ := strings.Cut(string(got), "\r\n\r\n")
				if strings.HasSuffix(body, "0\r\n\r\n") || strings.Contains(string(got), "HTTP/1.1 502") {
					t.Errorf("the rest of the answer is made up: %q", got)
				}
			}
			n := r.last(2).Result
			if n.Ending != edge.Failed || n.Cause != edge.CauseAborted || n.Status != 200 {
				t.Errorf("%+v", n)
			}
			if n := o.conns.Load(); n != 2 {
				t.Errorf("2 requests on %d connections to the app", n)
			}
		})
	}
}

// A close-delimited body has no end of its own, but a reset is none.
func TestACloseDelimitedAnswerThatIsResetIsNotMadeWhole(t *testing.T) { // RFC 9112 8
	o := newTCPOrigin(t, func(s *stage) {
		s.read()
		s.say("HTTP/1.1 200 OK\r\n\r\nhello")
		_, _ = s.r.ReadByte() // until it is reset
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	if _, err := c.r.ReadByte(); err != nil {
		t.Fatal(err)
	}
	o.resetAll()
	c.wantReset()
	if n := r.last(1).Result; n.Ending != edge.Failed || n.Cause != edge.CauseAborted {
		t.Errorf("%+v", n)
	}
}
