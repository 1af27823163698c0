package engine

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/usher-edge/usher/edge"
)

// What reaches the app and the client, byte for byte. Only the request's id and
// start differ from request to request; they read * here.

// ours finds the values that differ from request to request.
var ours = regexp.MustCompile(`(X-Request-Id: )[0-9a-f]{16}\r\n|(X-Request-Start: )t=[0-9]+\.[0-9]{3}\r\n`)

// steady replaces them.
func steady(head string) string { return ours.ReplaceAllString(head, "${1}${2}*\r\n") }

// TestWhatReachesTheApp has "dropped silently" and "always written by us" of the
// gate, and "nothing invented; header order and case preserved; target forwarded
// byte for byte" of what is in between.
func TestWhatReachesTheApp(t *testing.T) {
	const added = "X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: app.test\r\n" +
		"X-Request-Id: *\r\nX-Request-Start: *\r\nVia: 1.1 edge-1\r\n"
	old := strings.Replace(added, "Via: 1.1", "Via: 1.0", 1)
	for _, c := range []struct{ line, rfc, raw, want string }{
		{
			"the least: nothing invented", "9110 7.6", gateGet(""),
			"GET / HTTP/1.1\r\nHost: app.test\r\n" + added + "\r\n",
		},
		{
			"no Content-Type, no Content-Length for a POST without a body", "9110 8.6", gatePost("", ""),
			"POST / HTTP/1.1\r\nHost: app.test\r\n" + added + "\r\n",
		},
		{
			"order, case and repetition", "9110 5.3",
			"GET / HTTP/1.1\r\nzz: 1\r\nAcCePt: a\r\nhOST: app.test\r\nCookie: b\r\nZZ: 2\r\ncookie: c\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: app.test\r\nzz: 1\r\nAcCePt: a\r\nCookie: b\r\nZZ: 2\r\ncookie: c\r\n" + added + "\r\n",
		},
		{
			"target byte for byte", "9112 3.2", gateTarget("//a/./../%2F%3f;p=1?x=%26&&?"),
			"GET //a/./../%2F%3f;p=1?x=%26&&? HTTP/1.1\r\nHost: app.test\r\n" + added + "\r\n",
		},
		{
			"absolute-form becomes origin-form", "9112 3.2.2", gateTarget("http://app.test?a"),
			"GET /?a HTTP/1.1\r\nHost: app.test\r\n" + added + "\r\n",
		},
		{
			"request line: the version is ours", "9112 2.3", "GET /x HTTP/1.0\r\nHost: app.test\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: app.test\r\n" + old + "\r\n",
		},
		{
			"Host: first, in our spelling", "9112 3.2", "GET /x HTTP/1.1\r\nA: 1\r\nhOST:app.test:80 \r\nB: 2\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: app.test:80\r\nA: 1\r\nB: 2\r\n" + strings.Replace(added, "app.test", "app.test:80", 1) + "\r\n",
		},
		{
			"Host: that of absolute-form, though HTTP/1.0 sent none", "9112 3.2.2", "GET http://app.test/x HTTP/1.0\r\n\r\n",
			"GET /x HTTP/1.1\r\nHost: app.test\r\n" + old + "\r\n",
		},
		{
			"framing: chunks are ours", "9112 7.1.1", gateChunks("005;a=b\r\nhello\r\n000;c\r\n\r\n"),
			"POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n" + added + "\r\n5\r\nhello\r\n0\r\n\r\n",
		},
		{
			"Connection: ours", "9110 7.6.1", gateGet("Connection: keep-alive\r\nconnection: close\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\n" + added + "\r\n",
		},
		{
			"Via: ours behind those of others", "9110 7.6.3", gateGet("Via: 1.0 a\r\nvia: 1.1 b, 1.1 c\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\nVia: 1.0 a\r\nvia: 1.1 b, 1.1 c\r\n" + added + "\r\n",
		},
		{
			"hop-by-hop fields", "9110 7.6.1",
			gateGet("Connection: close, X-Hop, Keep-Alive\r\nX-Hop: 1\r\nx-hop: 2\r\nKeep-Alive: a\r\nTE: trailers\r\nTrailer: X\r\nUpgrade: a\r\nX: y\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\nX: y\r\n" + added + "\r\n",
		},
		{
			"what Connection must not take away", "9110 7.6.1",
			gatePost("Connection: Host, Content-Length, X-Forwarded-For, X-Forwarded-Proto, X-Forwarded-Host, X-Request-Id, Via, Authorization\r\nContent-Length: 0\r\nAuthorization: x\r\nVia: 1.1 a\r\n", ""),
			"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\nVia: 1.1 a\r\n" + added + "\r\n",
		},
		{
			"Proxy-*", "9110 11.7", gateGet("Proxy: http://evil\r\nProxy-Authorization: x\r\nProxy-Connection: close\r\nproxy_x: 1\r\nProxied: 1\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\nProxied: 1\r\n" + added + "\r\n",
		},
		{
			"aliases of known names with _", "9110 5.1",
			gateGet("Content_Length: 5\r\nTransfer_Encoding: chunked\r\nX_Forwarded_For: 6.6.6.6\r\nX-Forwarded_Proto: https\r\nCOOKIE: a\r\nX_Mine: 1\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\nCOOKIE: a\r\nX_Mine: 1\r\n" + added + "\r\n",
		},
		{
			"X-Forwarded-* and Forwarded of a stranger", "7239 8.1",
			gateGet("X-Forwarded-For: 6.6.6.6\r\nx-forwarded-proto: https\r\nX-Forwarded-Host: evil\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /x\r\nForwarded: for=6.6.6.6\r\nX-Real-IP: 6.6.6.6\r\nX-Request-Id: a\r\nX-Request-Start: t=1\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\n" + added + "\r\n",
		},
		{
			"X-Forwarded-* of a stranger on HTTP/1.0", "7239 8.1",
			"GET / HTTP/1.0\r\nHost: app.test\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\r\n",
			"GET / HTTP/1.1\r\nHost: app.test\r\n" + old + "\r\n",
		},
		{
			"X-Forwarded-* of a stranger who asks for an upgrade", "7239 8.1",
			gateGet("X-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\nConnection: X-Forwarded-For, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\nSec-WebSocket-Key: a\r\n" + added + "Connection: upgrade\r\nUpgrade: websocket\r\n\r\n",
		},
		{
			"Expect", "9110 10.1.1", gatePost("Expect: 100-continue\r\nContent-Length: 0\r\n", ""),
			"POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n" + added + "\r\n",
		},
		{
			"as many fields as a client may send, and those of ours", "6585 5", gateGet(strings.Repeat("X: y\r\n", 99)),
			"GET / HTTP/1.1\r\nHost: app.test\r\n" + strings.Repeat("X: y\r\n", 99) + added + "\r\n",
		},
		{
			"Max-Forwards of OPTIONS counts down", "9110 7.6.2", "OPTIONS / HTTP/1.1\r\n" + gateHost + "A: 1\r\nmax-forwards: 7\r\nB: 2\r\n\r\n",
			"OPTIONS / HTTP/1.1\r\nHost: app.test\r\nA: 1\r\nmax-forwards: 6\r\nB: 2\r\n" + added + "\r\n",
		},
		{
			"Max-Forwards of other methods passes", "9110 7.6.2", gateGet("Max-Forwards: 0\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\nMax-Forwards: 0\r\n" + added + "\r\n",
		},
		{
			"traceparent passes", "-", gateGet("traceparent: 00-a-b-01\r\ntracestate: c\r\n"),
			"GET / HTTP/1.1\r\nHost: app.test\r\ntraceparent: 00-a-b-01\r\ntracestate: c\r\n" + added + "\r\n",
		},
		{
			"a length that is spelled oddly", "9110 8.6", gatePost("content-length: 0000\r\n", ""),
			"POST / HTTP/1.1\r\nHost: app.test\r\ncontent-length: 0\r\n" + added + "\r\n",
		},
	} {
		t.Run(c.line+"/"+c.rfc, func(t *testing.T) {
			got := make(chan string, 1)
			o := newOrigin(t, func(s *stage) {
				h, _ := s.head()
				_, body, _ := strings.Cut(c.want, "\r\n\r\n")
				b := make([]byte, len(body))
				_, _ = io.ReadFull(s.r, b)
				got <- h + string(b)
				s.ok("")
			})
			r := newRig(t, rigOptions{server: Options{Via: "edge-1"}})
			r.app.Place(o.placement(1))
			k := r.dial()
			k.send(c.raw)
			k.want(200, "")
			if h := steady(<-got); h != c.want {
				t.Errorf("got\n%q, want\n%q", h, c.want)
			}
		})
	}
}

// TestWhatReachesTheClient is the other way: status line, order and case are the
// app's, framing and Connection are ours, and nothing is added but the fields
// that docs/operations.md names.
func TestWhatReachesTheClient(t *testing.T) {
	const added = "Usher-Generation: 1\r\nVia: 1.1 edge-1\r\n"
	old := strings.Replace(added, "Via: 1.1", "Via: 1.0", 1)
	for _, c := range []struct{ line, rfc, request, raw, want string }{
		{
			"the least: no Server, Date or Content-Type", "9110 6.6.1", gateGet(""), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + added + "\r\n",
		},
		{
			"reason, order, case and three cookies", "9110 5.3", gateGet(""),
			"HTTP/1.1 418 I'm a  teapot\r\nset-cookie: a\r\nX: 1\r\nSet-Cookie: b\r\ncontent-LENGTH: 2\r\nSET-COOKIE: c\r\nserver: mine\r\n\r\nhi",
			"HTTP/1.1 418 I'm a  teapot\r\nset-cookie: a\r\nX: 1\r\nSet-Cookie: b\r\ncontent-LENGTH: 2\r\nSET-COOKIE: c\r\nserver: mine\r\n" + added + "\r\nhi",
		},
		{
			"hop-by-hop fields and Usher-*", "9110 7.6.1", gateGet(""),
			"HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=9\r\nProxy-Authenticate: x\r\nUsher-Generation: 99\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + added + "\r\n",
		},
		{
			"chunks that came together are one, extensions go, trailers stay", "9112 7.1", gateGet(""),
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3;a=b\r\nabc\r\n0002\r\nde\r\n0\r\nX-T: v\r\nx-u: w\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n" + added + "\r\n5\r\nabcde\r\n0\r\nX-T: v\r\nx-u: w\r\n\r\n",
		},
		{
			"chunked to HTTP/1.0 ends with the connection, trailers go", "9112 6.1", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n3\r\nabc\r\n0\r\nX-T: v\r\n\r\n",
			"HTTP/1.1 200 OK\r\n" + added + "Connection: close\r\n\r\nabc",
		},
		{
			"close-delimited from HTTP/1.0 becomes chunked", "9112 6.3", gateGet(""), "HTTP/1.0 200 OK\r\nX: y\r\n\r\nabc",
			"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n" + old + "\r\n3\r\nabc\r\n0\r\n\r\n",
		},
		{
			"length to an HTTP/1.0 client that stays", "9112 9.3", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
			"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n" + added + "Connection: keep-alive\r\n\r\nabc",
		},
		{
			"HEAD keeps its length and has no body", "9110 9.3.2", "HEAD / HTTP/1.1\r\n" + gateHost + "\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n" + added + "\r\n",
		},
		{
			"HEAD keeps its coding and has no body", "9112 6.1", "HEAD / HTTP/1.1\r\n" + gateHost + "\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n" + added + "\r\n",
		},
		{
			"204 has neither body nor length", "9110 15.3.5", gateGet(""), "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 204 No Content\r\n" + added + "\r\n",
		},
		{
			"304 keeps its length and has no body", "9110 15.4.5", gateGet(""), "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nETag: \"x\"\r\n\r\n",
			"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\nETag: \"x\"\r\n" + added + "\r\n",
		},
		{
			"1xx are passed on in order, without hop-by-hop fields", "9110 15.2", gateGet(""),
			"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\nX: 1\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + added + "\r\n",
		},
		{
			"no 1xx for HTTP/1.0", "9110 15.2", "GET / HTTP/1.0\r\n\r\n",
			"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + added + "Connection: close\r\n\r\n",
		},
		{
			"a client that closes is told so", "9112 9.6", gateGet("Connection: close\r\n"), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
			"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + added + "Connection: close\r\n\r\n",
		},
		{
			"an app that closes does not close the client", "9112 9.6", gateGet(""), "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi",
			"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n" + added + "\r\nhi",
		},
	} {
		t.Run(c.line+"/"+c.rfc, func(t *testing.T) {
			o := newOrigin(t, func(s *stage) {
				if _, ok := s.read(); ok {
					s.say("%s", c.raw)
				}
			})
			r := newRig(t, rigOptions{server: Options{Via: "edge-1"}})
			r.app.Place(o.placement(1))
			k := r.dial()
			k.send(c.request)
			k.fin() // the answer comes all the same, and the connection ends after it
			b, err := io.ReadAll(k.r)
			if string(b) != c.want || err != nil {
				t.Errorf("%v; got\n%q, want\n%q", err, b, c.want)
			}
		})
	}
}

// Request trailers are dropped unless the app opts in, whether the body comes
// with the head or later.
func TestRequestTrailersReachOnlyAppsThatTakeThem(t *testing.T) { // RFC 9110 6.5.1
	for _, keep := range []bool{false, true} {
		o := newOrigin(t, each(func(s *stage, r *http.Request) {
			b, err := io.ReadAll(r.Body)
			s.ok(fmt.Sprintf("%s %v %q %q", b, err, r.Header.Get("Trailer"), r.Trailer.Get("X-T")))
		}))
		r := newRig(t, rigOptions{app: edge.AppConfig{KeepTrailers: keep}})
		r.app.Place(o.placement(1))
		want := `hello <nil> "" ""`
		if keep {
			want = `hello <nil> "" "v"` // net/http takes Trailer out of the header
		}
		const head = "POST / HTTP/1.1\r\nHost: app.test\r\nTrailer: X-T\r\nTransfer-Encoding: chunked\r\n\r\n"
		c := r.dial()
		c.send(head + "5\r\nhello\r\n0\r\nX-T: v\r\n\r\n")
		c.want(200, want)
		c.send(head)
		eventually(t, "forwarded", func() bool { return o.heads.Load() == 2 })
		c.send("5\r\nhello\r\n0\r\nX-")
		c.send("T: v\r\n\r\n")
		c.want(200, want)
	}
}
