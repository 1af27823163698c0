//go:build !race

// Without the race detector: there is no goroutine here, and it takes ten times as long.

package engine

import (
	"bytes"
	"strings"
	"testing"

	"github.com/usher-edge/usher/edge/http1"
)

// parsed is a request as edge/http1 reads it, with its body; ok is false if it is refused,
// or raw ends within it.
func parsed(raw []byte) (m message, rest []byte, ok bool) {
	var r http1.Request
	n, err := r.Parse(raw, nil)
	if n == 0 || err != nil {
		return m, nil, false
	}
	m = message{method: string(r.Method), target: string(http1.AppendTarget(nil, &r)), host: string(r.HostPort)}
	m.body, rest, ok = unframed(raw[n:], r.Length)
	return m, rest, ok
}

// unframed takes a body of that length off b; ok is false if b is not all of one.
func unframed(b []byte, length int64) (body, rest []byte, ok bool) {
	if length == 0 {
		return nil, b, true
	}
	var f http1.Framer
	f.Reset(length)
	for {
		data, n, done, err := f.Next(b)
		body = append(body, data...)
		b = b[n:]
		if done || err != nil || n == 0 {
			return body, b, err == nil && (done || length == http1.UntilClose)
		}
	}
}

// answered is an answer as edge/http1 reads it, of a connection that has ended: ok is
// false if it is no valid one, or bytes follow it.
func answered(raw []byte, method string) (m message, ok bool) {
	for {
		var r http1.Response
		n, err := r.Parse(raw, []byte(method), nil)
		if n == 0 || err != nil || r.Status == 101 {
			return m, false
		}
		raw = raw[n:]
		if r.Status >= 200 {
			m.status = r.Status
			m.body, raw, ok = unframed(raw, r.Length)
			return m, ok && len(raw) == 0
		}
	}
}

// agree has both parsers read a request: they accept the same, and read the same in it.
func agree(t *testing.T, raw []byte) {
	ours, left, ok := parsed(bytes.Clone(raw))
	theirs, rest, err := readRequest(raw, false)
	if ok != (err == nil) {
		t.Fatalf("%q: accepted %t, by the second parser: %v", raw, ok, err)
	}
	if ok && (ours.method != theirs.method || ours.target != theirs.target || !strings.EqualFold(ours.host, theirs.host) ||
		!bytes.Equal(ours.body, theirs.body) || !bytes.Equal(left, rest)) {
		t.Fatalf("%q: %s %s %s %q and %q left; the second parser: %s %s %s %q and %q", raw,
			ours.method, ours.host, ours.target, ours.body, left, theirs.method, theirs.host, theirs.target, theirs.body, rest)
	}
}

// agreeOn is agree for an answer to that method.
func agreeOn(method string) func(*testing.T, []byte) {
	return func(t *testing.T, raw []byte) {
		ours, ok := answered(bytes.Clone(raw), method)
		theirs, _, err := readAnswer(raw, method, false)
		if ok != (err == nil) {
			t.Fatalf("%q: accepted %t, by the second parser: %v", raw, ok, err)
		}
		if ok && (ours.status != theirs.status || !bytes.Equal(ours.body, theirs.body)) {
			t.Fatalf("%q: %d %q; the second parser: %d %q", raw, ours.status, ours.body, theirs.status, theirs.body)
		}
	}
}

// pairwise are the bytes that mean something, or nearly, somewhere in a message.
const pairwise = "\r\n\t :;,=\"\\+-0a5XG/%#[@.\x00\x01\x7f\x80"

// Whatever is near a good message, one byte or two that are close together replaced by
// others, one left out or put in, is accepted and refused by both parsers alike: what is
// lenient in one of them only shows.
func TestBothParsersAgreeAboutWhateverIsNearAGoodMessage(t *testing.T) {
	for name, raw := range map[string]string{
		"a field":           "GET /a?b HTTP/1.1\r\nHost: a.b\r\nX-Y: z w\r\n\r\n",
		"after a CRLF":      "\r\nGET / HTTP/1.0\r\n\r\n",
		"absolute":          "GET http://a.b:80/%2f?c HTTP/1.1\r\nHost: a.b:80\r\n\r\n",
		"absolute alone":    "GET http://a.b:80 HTTP/1.0\r\n\r\n",
		"an address":        "GET / HTTP/1.1\r\nHost: [::1]:8\r\n\r\nnext",
		"a number for host": "OPTIONS * HTTP/1.1\r\nHost: 1.2.3.4\r\nMax-Forwards: 1\r\n\r\n",
		"a length":          "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\n\r\nhello worldX",
		"chunks":            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nnext",
		"extensions":        "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n05;a=\"\\b\"; c = d\r\nhello\r\n0;e\r\n\r\n",
		"a trailer":         "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near(t, raw, agree)
		})
	}
}

func TestBothParsersAgreeAboutWhateverIsNearAGoodAnswer(t *testing.T) {
	for name, x := range map[string]struct{ method, raw string }{
		"a length":         {"GET", "HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello worldX"},
		"none":             {"GET", "HTTP/1.0 404 N F\r\nX-Y: z\r\n\r\nhello"},
		"no reason":        {"GET", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n"},
		"without a body":   {"GET", "HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n"},
		"to HEAD":          {"HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"},
		"after an interim": {"GET", "HTTP/1.1 103 E\r\nLink: a\r\n\r\nHTTP/1.1 204 N\r\n\r\n"},
		"chunks":           {"GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\nA: b\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			near(t, x.raw, agreeOn(x.method))
		})
	}
}

// near has agree look at all that is near raw. Of a message in chunks it changes only
// what follows the head: others have one, too.
func near(t *testing.T, raw string, agree func(*testing.T, []byte)) {
	agree(t, []byte(raw))
	_, body, _ := strings.Cut(raw, "chunked\r\n\r\n")
	from := 0
	if body != "" {
		from = len(raw) - len(body)
	}
	for i := from; i < len(raw); i++ {
		nearAt(t, raw, i, agree)
	}
}

func nearAt(t *testing.T, raw string, i int, agree func(*testing.T, []byte)) {
	agree(t, []byte(raw[:i]+raw[i+1:]))
	agree(t, []byte(raw[:i]))
	for c := range 256 {
		b := []byte(raw)
		b[i] = byte(c)
		agree(t, b)
		agree(t, []byte(raw[:i]+string([]byte{byte(c)})+raw[i:]))
	}
	for j := i + 1; j < min(i+4, len(raw)); j++ {
		for _, c := range []byte(pairwise) {
			for _, d := range []byte(pairwise) {
				b := []byte(raw)
				b[i], b[j] = c, d
				agree(t, b)
			}
		}
	}
}
