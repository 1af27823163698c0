package engine

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// The gate, through the real engine: what each line of it refuses is answered,
// ends the connection, and neither it nor what comes after it reaches the app.
// Every spelling of every line is tried on the parser itself (edge/http1,
// TestGateRefusesWhatTwoParsersCouldReadDifferently); here each line stands with
// the section it follows and the cases that the engine could get wrong.

const gateHost = "Host: app.test\r\n"

func gateGet(fields string) string { return "GET / HTTP/1.1\r\n" + gateHost + fields + "\r\n" }

func gateChunks(chunks string) string {
	return "POST / HTTP/1.1\r\n" + gateHost + "Transfer-Encoding: chunked\r\n\r\n" + chunks
}

func gateHostOf(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }

func gateTarget(target string) string { return "GET " + target + " HTTP/1.1\r\n" + gateHost + "\r\n" }

func gatePost(fields, body string) string {
	return "POST / HTTP/1.1\r\n" + gateHost + fields + "\r\n" + body
}

// gateCase is the line of the gate, its section, a message, and what it is answered.
type gateCase struct {
	line, rfc, name, raw string
	status               int
}

func (c *gateCase) title() string { return c.line + "/" + c.rfc + "/" + c.name }

func gateRefusals() []gateCase {
	long := func(n int) string { return strings.Repeat("a", n) }
	return []gateCase{
		{"LF without CR", "9112 2.2", "request line", "GET / HTTP/1.1\n" + gateHost + "\r\n", 400},
		{"LF without CR", "9112 2.2", "field", "GET / HTTP/1.1\r\nHost: app.test\nX: y\r\n\r\n", 400},
		{"LF without CR", "9112 2.2", "end of the head", "GET / HTTP/1.1\r\n" + gateHost + "\n", 400},
		{"CR without LF", "9112 2.2", "request line", "GET / HTTP/1.1\r" + gateHost + "\r\n", 400},
		{"CR without LF", "9112 2.2", "field", gateGet("X: a\rTransfer-Encoding: chunked\r\n"), 400},
		{"more than one leading CRLF", "9112 2.2", "two", "\r\n\r\n" + gateGet(""), 400},
		{"a name that is not a token", "9110 5.1", "blank before the colon", gateGet("Content-Length : 5\r\n"), 400},
		{"a name that is not a token", "9110 5.1", "empty", gateGet(": x\r\n"), 400},
		{"a name that is not a token", "9110 5.1", "NUL", gateGet("X\x00: y\r\n"), 400},
		{"a name longer than 128 bytes", "9110 5.1", "129", gateGet(long(129) + ": y\r\n"), 400},
		{"obs-fold", "9112 5.2", "blank", gateGet("X: a\r\n b\r\n"), 400},
		{"obs-fold", "9112 5.2", "coding in a fold", gatePost("X: a\r\n\tTransfer-Encoding: chunked\r\n", ""), 400},
		{"controls other than HTAB in a value", "9110 5.5", "NUL", gateGet("X: a\x00b\r\n"), 400},
		{"controls other than HTAB in a value", "9110 5.5", "DEL", gateGet("X: a\x7fb\r\n"), 400},
		{"CL together with TE", "9112 6.1", "CL first", gatePost("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
		{"CL together with TE", "9112 6.1", "TE first", gatePost("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), 400},
		{"TE other than exactly chunked", "9112 6.1", "list", gatePost("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 400},
		{"TE other than exactly chunked", "9112 6.1", "vertical tab", gatePost("Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n"), 400},
		{"TE other than exactly chunked", "9112 6.1", "twice", gatePost("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
		{"TE other than exactly chunked", "9112 6.1", "identity", gatePost("Transfer-Encoding: identity\r\n", ""), 400},
		{"TE on HTTP/1.0", "9112 6.1", "chunked", "POST / HTTP/1.0\r\n" + gateHost + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
		{"CL not 1 to 18 digits", "9110 8.6", "sign", gatePost("Content-Length: +5\r\n", "hello"), 400},
		{"CL not 1 to 18 digits", "9110 8.6", "list", gatePost("Content-Length: 5, 5\r\n", "hello"), 400},
		{"CL not 1 to 18 digits", "9110 8.6", "19 digits", gatePost("Content-Length: 0000000000000000005\r\n", "hello"), 400},
		{"CL not 1 to 18 digits", "9110 8.6", "none", gatePost("Content-Length: \r\n", "hello"), 400},
		{"CL repeated", "9112 6.3", "alike", gatePost("Content-Length: 5\r\nContent-Length: 5\r\n", "hello"), 400},
		{"CL repeated", "9112 6.3", "different", gatePost("Content-Length: 5\r\ncontent-length: 6\r\n", "hello"), 400},
		{"chunk sizes with signs", "9112 7.1", "plus", gateChunks("+5\r\nhello\r\n0\r\n\r\n"), 400},
		{"chunk sizes with signs", "9112 7.1", "0x", gateChunks("0x5\r\nhello\r\n0\r\n\r\n"), 400},
		{"chunk sizes with signs", "9112 7.1", "minus", gateChunks("-5\r\nhello\r\n0\r\n\r\n"), 400},
		{"chunk sizes with blanks", "9112 7.1", "before", gateChunks(" 5\r\nhello\r\n0\r\n\r\n"), 400},
		{"chunk sizes with blanks", "9112 7.1", "after", gateChunks("5 \r\nhello\r\n0\r\n\r\n"), 400},
		{"chunk sizes with blanks", "9112 7.1", "before an extension", gateChunks("5 ;a\r\nhello\r\n0\r\n\r\n"), 400},
		{"chunk sizes out of range", "9112 7.1", "17 digits", gateChunks("00000000000000005\r\nhello\r\n0\r\n\r\n"), 400},
		{"chunk sizes out of range", "9112 7.1", "beyond 63 bits", gateChunks("ffffffffffffffff\r\nhello\r\n0\r\n\r\n"), 400},
		{"bare LF in chunk framing", "9112 7.1", "after the size", gateChunks("5\nhello\r\n0\r\n\r\n"), 400},
		{"bare LF in chunk framing", "9112 7.1", "after the data", gateChunks("5\r\nhello\n0\r\n\r\n"), 400},
		{"bare LF in chunk framing", "9112 7.1", "after the last chunk", gateChunks("5\r\nhello\r\n0\n\r\n"), 400},
		{"bare LF in chunk framing", "9112 7.1", "at the end", gateChunks("5\r\nhello\r\n0\r\n\n"), 400},
		{"bare LF in chunk framing", "9112 7.1", "in an extension", gateChunks("5;a\nb\r\nhello\r\n0\r\n\r\n"), 400},
		{"bare LF in chunk framing", "9112 7.1", "chunk longer than its size", gateChunks("5\r\nhello!\r\n0\r\n\r\n"), 400},
		{"controls in chunk extensions", "9112 7.1.1", "NUL", gateChunks("5;a\x00\r\nhello\r\n0\r\n\r\n"), 400},
		{"controls in chunk extensions", "9112 7.1.1", "CR in quotes", gateChunks("5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n"), 400},
		{"more than 4 KiB of chunk extensions", "9112 7.1.1", "4097", gateChunks("5;" + long(4096) + "\r\nhello\r\n0\r\n\r\n"), 400},
		{"framing fields in trailers", "9110 6.5.1", "CL", gateChunks("0\r\nContent-Length: 5\r\n\r\n"), 400},
		{"framing fields in trailers", "9110 6.5.1", "TE", gateChunks("0\r\nTransfer-Encoding: chunked\r\n\r\n"), 400},
		{"Host missing on 1.1", "9112 3.2", "no Host", "GET / HTTP/1.1\r\nX: y\r\n\r\n", 400},
		{"Host repeated", "9112 3.2", "alike", gateGet(gateHost), 400},
		{"Host repeated", "9112 3.2", "different", gateGet("Host: b.test\r\n"), 400},
		{"Host not name | IPv4 | [IPv6]", "9110 7.2", "empty", gateHostOf(""), 400},
		{"Host not name | IPv4 | [IPv6]", "9110 7.2", "userinfo", gateHostOf("u@app.test"), 400},
		{"Host not name | IPv4 | [IPv6]", "9110 7.2", "path", gateHostOf("app.test/x"), 400},
		{"Host not name | IPv4 | [IPv6]", "9110 7.2", "list", gateHostOf("app.test, b.test"), 400},
		{"Host not name | IPv4 | [IPv6]", "9110 7.2", "half an IPv4", gateHostOf("127.1"), 400},
		{"Host not name | IPv4 | [IPv6]", "9110 7.2", "zone", gateHostOf("[fe80::1%25lo]"), 400},
		{"Host with a port not 1-65535", "9110 7.2", "0", gateHostOf("app.test:0"), 400},
		{"Host with a port not 1-65535", "9110 7.2", "65536", gateHostOf("app.test:65536"), 400},
		{"Host with a port not 1-65535", "9110 7.2", "none", gateHostOf("app.test:"), 400},
		{"absolute-form and another Host", "9112 3.2.2", "name", gateTarget("http://b.test/"), 400},
		{"absolute-form and another Host", "9112 3.2.2", "port", gateTarget("http://app.test:81/"), 400},
		{"absolute-form with userinfo", "9110 4.2.4", "user", gateTarget("http://u@app.test/"), 400},
		{"target: #", "9112 3.2", "fragment", gateTarget("/a#b"), 400},
		{"target: %00", "3986 2.1", "path", gateTarget("/a%00b"), 400},
		{"target: bad percent escape", "3986 2.1", "not hex", gateTarget("/%zz"), 400},
		{"target: bad percent escape", "3986 2.1", "cut short", gateTarget("/%2"), 400},
		{"target: bytes outside 0x21-0x7e", "9112 3.2", "above", gateTarget("/\xc3\xa9"), 400},
		{"target: bytes outside 0x21-0x7e", "9112 3.2", "blank", gateTarget("/a b"), 400},
		{"more than 100 fields", "6585 5", "101", gateGet(strings.Repeat("X: y\r\n", 100)), 431},
		{"a head over 32 KiB", "6585 5", "one field", gateGet("X: " + long(32<<10) + "\r\n"), 431},
		{"target over 8 KiB", "9110 15.5.15", "8193", gateTarget("/" + long(8192)), 414},
		{"version other than 1.0 or 1.1", "9110 15.6.6", "2.0", "GET / HTTP/2.0\r\n" + gateHost + "\r\n", 505},
		{"version other than 1.0 or 1.1", "9110 15.6.6", "1.2", "GET / HTTP/1.2\r\n" + gateHost + "\r\n", 505},
		{"version other than 1.0 or 1.1", "9110 15.6.6", "0.9", "GET / HTTP/0.9\r\n" + gateHost + "\r\n", 505},
		{"CONNECT", "9110 9.3.6", "authority", "CONNECT app.test:443 HTTP/1.1\r\n" + gateHost + "\r\n", 405},
		{"TRACE", "9110 9.3.8", "path", "TRACE / HTTP/1.1\r\n" + gateHost + "\r\n", 405},
		{"Max-Forwards of OPTIONS", "9110 7.6.2", "no number", "OPTIONS / HTTP/1.1\r\n" + gateHost + "Max-Forwards: 1, 2\r\n\r\n", 400},
		{"Max-Forwards of OPTIONS", "9110 7.6.2", "twice", "OPTIONS / HTTP/1.1\r\n" + gateHost + "Max-Forwards: 0\r\nMax-Forwards: 9\r\n\r\n", 400},
		{"Expect other than 100-continue", "9110 10.1.1", "unknown", gatePost("Content-Length: 5\r\nExpect: wonders\r\n", "hello"), 417},
	}
}

func TestTheGateRefusesAndNothingIsForwarded(t *testing.T) {
	const next = "GET /smuggled HTTP/1.1\r\n" + gateHost + "\r\n"
	var app recorder
	o := newOrigin(t, app.serve)
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for _, c := range gateRefusals() {
		t.Run(c.title(), func(t *testing.T) {
			k := r.dial()
			defer k.Close()
			k.t = t
			_, _ = io.WriteString(k, c.raw+next) // the edge may close while it is sent
			a := k.status(c.status)
			if !a.Close || a.err != nil {
				t.Errorf("close %t, %v", a.Close, a.err)
			}
			if c.status == 405 && a.Header.Get("Allow") == "" {
				t.Error("405 without Allow (9110 15.5.6)")
			}
			k.wantEOF()
			if n := app.bytes.Load(); n > 0 {
				t.Fatalf("reached the app: %q", app.seen())
			}
		})
	}
	if n := r.last(len(gateRefusals())).Result; n.Ending != edge.Refused {
		t.Errorf("%+v", n)
	}
}

// A body that turns out malformed once its head is on the way: the app never
// gets a body that looks whole, and its connection is not used again.
func TestChunkFramingThatBreaksLaterNeverLooksWhole(t *testing.T) {
	for _, g := range []gateCase{
		{"chunk sizes with signs", "9112 7.1", "plus", "+5\r\nhello\r\n0\r\n\r\n", 400},
		{"chunk sizes with blanks", "9112 7.1", "after", "5 \r\nhello\r\n0\r\n\r\n", 400},
		{"chunk sizes with signs", "9112 7.1", "garbage", "zz\r\n", 400},
		{"bare LF in chunk framing", "9112 7.1", "after the size", "5\nhello\r\n0\r\n\r\n", 400},
		{"bare LF in chunk framing", "9112 7.1", "at the end", "0\r\n\n", 400},
		{"controls in chunk extensions", "9112 7.1.1", "NUL", "5;a\x00\r\nhello\r\n0\r\n\r\n", 400},
		{"framing fields in trailers", "9110 6.5.1", "CL", "0\r\nContent-Length: 5\r\n\r\n", 400},
	} {
		t.Run(g.title(), func(t *testing.T) {
			o, got := newReader(t)
			r := newRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send(gateChunks("5\r\nhello\r\n"))
			eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
			c.send(g.raw + gateGet(""))
			if a := c.status(g.status); !a.Close {
				t.Error("the connection is said to live on")
			}
			c.wantEOF()
			if err := <-got; err == nil {
				t.Error("the app got a body that looks whole")
			}
			if n := o.conns.Load(); n != 1 {
				t.Errorf("%d connections to the app", n)
			}
		})
	}
}

// answersItself: none of the cases reaches an app or ends the connection.
func answersItself(t *testing.T, cases []gateCase) {
	var app recorder
	o := newOrigin(t, app.serve)
	r := newRig(t, rigOptions{server: Options{Via: "edge-1"}})
	r.app.Place(o.placement(1))
	c := r.dial()
	for _, g := range cases {
		t.Run(g.title(), func(t *testing.T) {
			c.t = t
			c.send(g.raw)
			a := c.read(strings.Fields(g.raw)[0])
			if a.StatusCode != g.status || a.Close || g.status == 200 && a.ContentLength != 0 {
				t.Errorf("%+v, want %d", a.Response, g.status)
			}
			if n := app.bytes.Load(); n > 0 {
				t.Errorf("reached the app: %q", app.seen())
			}
		})
	}
}

// asksTheApp: every case reaches the app, and the connection lives on.
func asksTheApp(t *testing.T, cases []gateCase) {
	var app recorder
	o := newOrigin(t, app.serve)
	r := newRig(t, rigOptions{server: Options{Via: "edge-1"}})
	r.app.Place(o.placement(1))
	c := r.dial()
	for i, g := range cases {
		t.Run(g.title(), func(t *testing.T) {
			c.t = t
			c.send(g.raw)
			if a := c.read(strings.Fields(g.raw)[0]); a.StatusCode != g.status || a.Close {
				t.Errorf("%+v, want %d", a.Response, g.status)
			}
			if n := len(app.seen()); n != i+1 {
				t.Errorf("%d requests reached the app: %q", n, app.seen())
			}
		})
	}
}

func gateOptions(target, host, fields string) string {
	return "OPTIONS " + target + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n"
}

// "OPTIONS * answered by us", in both forms, and the connection lives on.
func TestTheGateAnswersOptionsStarItself(t *testing.T) {
	const line = "OPTIONS * answered by us"
	answersItself(t, []gateCase{
		{line, "9112 3.2.4", "asterisk-form", gateOptions("*", "app.test", ""), 200},
		{line, "9110 9.3.7", "with a body", gateOptions("*", "app.test", "Content-Length: 5\r\n") + "hello", 200},
		{line, "9110 9.3.7", "of nobody's host", gateOptions("*", "nobody.test", ""), 200},
		{line, "9112 3.2.4", "absolute-form without a path", gateOptions("http://app.test", "app.test", "Content-Length: 5\r\n") + "hello", 200},
	})
	asksTheApp(t, []gateCase{
		{line, "9110 9.3.7", "of a path", gateOptions("/", "app.test", ""), 200},
		{line, "9112 3.2.4", "absolute-form with a path", gateOptions("http://app.test/", "app.test", ""), 200},
		{line, "9112 3.2.4", "absolute-form with a query", gateOptions("http://app.test?x", "app.test", ""), 200},
	})
}

// A request that may go no further is answered as OPTIONS * is: no app is asked,
// whoever the host is.
func TestTheGateAnswersOptionsThatMayGoNoFurther(t *testing.T) {
	const line = "Max-Forwards of OPTIONS"
	answersItself(t, []gateCase{
		{line, "9110 7.6.2", "0", gateOptions("/x", "app.test", "Max-Forwards: 0\r\nContent-Length: 5\r\n") + "hello", 200},
		{line, "9110 7.6.2", "0, nobody's host", gateOptions("/x", "nobody.test", "Max-Forwards: 0\r\nContent-Length: 5\r\n") + "hello", 200},
	})
	asksTheApp(t, []gateCase{
		{line, "9110 7.6.2", "1", gateOptions("/", "app.test", "Max-Forwards: 1\r\n"), 200},
		{line, "9110 7.6.2", "0 of GET", gateGet("Max-Forwards: 0\r\n"), 200},
	})
}

// "Loops cut by our own Via, 508", whatever stands around it.
func TestTheGateCutsLoops(t *testing.T) {
	const line = "loops cut by our own Via"
	answersItself(t, []gateCase{
		{line, "9110 7.6.3", "alone", gateGet("Via: 1.1 edge-1\r\n"), 508},
		{line, "9110 7.6.3", "last, in another case, with a comment", gateGet("Via: 1.0 a, 1.1 EDGE-1 (usher)\r\n"), 508},
		{line, "9110 7.6.3", "first, with the protocol's name", gateGet("Via: HTTP/1.1 edge-1, 1.1 b\r\n"), 508},
		{line, "9110 5.3", "in a second field", gateGet("Via: 1.1 a\r\nvia: 1.1 edge-1\r\n"), 508},
		{line, "9110 7.6.1", "named by Connection", gateGet("Connection: Via\r\nVia: 1.1 edge-1\r\n"), 508},
	})
	asksTheApp(t, []gateCase{
		{line, "9110 7.6.3", "another's", gateGet("Via: 1.1 edge-2, 1.1 edge-11\r\n"), 200},
		{line, "9110 7.6.3", "in a comment", gateGet("Via: 1.1 a (edge-1)\r\n"), 200},
	})
}

// "Upgrade on 1.0 or with a body → Upgrade ignored": the request is served as
// if it had not been there.
func TestTheGateIgnoresUpgradesThatAreNone(t *testing.T) {
	const (
		line = "Upgrade ignored"
		up   = "Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\n"
	)
	var app recorder
	o := newOrigin(t, app.serve)
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for _, g := range []gateCase{
		{line, "9110 7.8", "on 1.0", "GET / HTTP/1.0\r\n" + gateHost + up + "\r\n", 200},
		{line, "9110 7.8", "with a body", gatePost(up+"Content-Length: 5\r\n", "hello"), 200},
		{line, "9110 7.8", "not announced", gateGet("Upgrade: websocket\r\n"), 200},
		{line, "9113 3.1", "h2c", gateGet("Connection: upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"), 200},
		{line, "9110 7.8", "not a protocol", gateGet("Connection: upgrade\r\nUpgrade: web socket\r\n"), 200},
		{line, "9110 7.8", "without a value", gateGet("Connection: upgrade\r\nUpgrade:\r\n"), 200},
	} {
		t.Run(g.title(), func(t *testing.T) {
			c := r.dial()
			c.t = t
			c.send(g.raw)
			if a := c.status(g.status); a.Close {
				t.Error("the connection ends")
			}
			seen := app.seen()
			if last := strings.ToLower(seen[len(seen)-1]); strings.Contains(last, "upgrade") || strings.Contains(last, "http2") {
				t.Errorf("the app was asked: %q", last)
			}
		})
	}
}

// "100-continue is answered by us …; Expect is never forwarded": a request
// whose body nobody wants gets no 100, and its connection ends, as the body may
// or may not follow.
func TestTheGateAsksForNoBodyThatItRefuses(t *testing.T) {
	const line, expect = "100-continue is answered by us", "Expect: 100-continue\r\n"
	var app recorder
	o := newOrigin(t, app.serve)
	r := newRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}, MaxBody: 10}})
	r.app.Place(o.placement(1))
	for _, g := range []gateCase{
		{line, "9110 10.1.1", "no such host", "POST / HTTP/1.1\r\nHost: other.test\r\nContent-Length: 5\r\n" + expect + "\r\n", 404},
		{line, "9110 10.1.1", "too large", gatePost("Content-Length: 11\r\n"+expect, ""), 413},
		{line, "9110 10.1.1", "a loop", gatePost("Content-Length: 5\r\n"+expect+"Via: 1.1 "+r.srv.opt.Via+"\r\n", ""), 508},
	} {
		t.Run(g.title(), func(t *testing.T) {
			c := r.dial()
			c.t = t
			c.send(g.raw)
			if a := c.status(g.status); !a.Close {
				t.Error("the connection is said to live on")
			}
			c.wantEOF()
			if n := app.bytes.Load(); n > 0 {
				t.Errorf("reached the app: %q", app.seen())
			}
		})
	}
}

// What is refused for its body is refused so even if the app cannot be reached.
func TestTheGateDoesNotNeedTheApp(t *testing.T) {
	r := newRig(t, rigOptions{app: edge.AppConfig{MaxBody: 10}})
	r.app.Place(edge.Placement{State: edge.Serving, Network: "unix", Address: "/nowhere/at/all"})
	for _, g := range []gateCase{
		{"chunk sizes with signs", "9112 7.1", "plus", gateChunks("+5\r\nhello\r\n0\r\n\r\n"), 400},
		{"a body that is too large", "9110 15.5.14", "in chunks", gateChunks("b\r\n12345678901\r\n0\r\n\r\n"), 413},
		{"nothing wrong", "9110 15.6.3", "in chunks", gateChunks("5\r\nhello\r\n0\r\n\r\n"), 502},
	} {
		t.Run(g.title(), func(t *testing.T) {
			c := r.dial()
			c.t = t
			c.send(g.raw)
			c.status(g.status)
		})
	}
}

// A limit holds for bodies that are here before the app is asked: with the
// head, in one piece.
func TestTheBodyLimitHoldsForWhatComesWithTheHead(t *testing.T) { // RFC 9110 15.5.14
	var app recorder
	o := newOrigin(t, app.serve)
	r := newRig(t, rigOptions{app: edge.AppConfig{MaxBody: 10}})
	r.app.Place(o.placement(1))
	c := r.dial()
	_ = c.SetDeadline(time.Now().Add(patience))
	c.send(gateChunks("b\r\n12345678901\r\n0\r\n\r\n"))
	if a := c.status(413); !a.Close {
		t.Error("the connection is said to live on")
	}
	c.wantEOF()
	if n := app.bytes.Load(); n > 0 {
		t.Errorf("reached the app: %q", app.seen())
	}
}

// The limits of the gate to the byte, as they are documented, through real sockets.
func TestTheLimitsOfTheGateHoldToTheByteOnTheWire(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for _, g := range []struct {
		what, rfc string
		most      int
		of        func(n int) string
		status    int
	}{
		{"head", "6585 5", 32768, func(n int) string {
			return gateGet("X: " + strings.Repeat("a", n-len(gateGet("X: \r\n"))) + "\r\n")
		}, 431},
		{"fields", "6585 5", 100, func(n int) string { return gateGet(strings.Repeat("X: y\r\n", n-1)) }, 431},
		{"name", "9110 5.1", 128, func(n int) string { return gateGet(strings.Repeat("a", n) + ": y\r\n") }, 400},
		{"target", "9110 15.5.15", 8192, func(n int) string { return gateTarget("/" + strings.Repeat("a", n-1)) }, 414},
		{"extensions", "9112 7.1.1", 4096, func(n int) string {
			return gateChunks("5;" + strings.Repeat("a", n-1) + "\r\nhello\r\n0\r\n\r\n")
		}, 400},
	} {
		t.Run(g.what+"/"+g.rfc, func(t *testing.T) {
			c := r.dial()
			c.t = t
			c.send(g.of(g.most))
			if a := c.read("GET"); a.StatusCode != 200 {
				t.Errorf("%d bytes or fields: %d", g.most, a.StatusCode)
			}
			c.send(g.of(g.most + 1))
			if a := c.read("GET"); a.StatusCode != g.status {
				t.Errorf("%d bytes or fields: %d, want %d", g.most+1, a.StatusCode, g.status)
			}
		})
	}
}
