package http1

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"testing"
)

// What the gate accepts, net/http reads the same, and what is written from it
// satisfies the second parser and means the same.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		get(""), "\r\n" + get("A: b\r\n"), post("Content-Length: 5\r\n") + "hello", post("Transfer-Encoding: chunked\r\n"),
		target("http://a.test?x"), target("/a%2Fb?c=%26"), "OPTIONS * HTTP/1.1\r\n" + okHost + "\r\n",
		"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", host("[::1]:80"), host("a_b.test."),
		get("Connection: X-A, upgrade\r\nX-A: 1\r\nUpgrade: websocket\r\nVia: 1.1 usher\r\n"),
		post("Content-Length: 1\r\nExpect: 100-continue\r\n"), get("X-Forwarded-For: 1\r\nX_Forwarded_For: 2\r\nProxy: x\r\n"),
		string(browserRequest()),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if parseAllWays(t, newRequest, string(raw)).n == 0 {
			return
		}
		r := new(Request)
		n, _ := r.Parse(raw, nil)
		sameAsNetHTTP(t, r, bytes.TrimPrefix(raw[:n], []byte("\r\n")))
		for _, fw := range []*Forward{{}, fullForward(), {Trusted: true, Trailers: true, Close: true}} {
			sameWhenForwarded(t, r, fw)
		}
	})
}

func sameAsNetHTTP(t *testing.T, r *Request, head []byte) {
	q, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return // it may be stricter
	}
	if q.Method != string(r.Method) || q.RequestURI != string(r.Target) || q.Close == r.KeepAlive {
		t.Fatalf("%q: method %q, target %q, close %t", head, q.Method, q.RequestURI, q.Close)
	}
	if !strings.EqualFold(q.Host, string(r.HostPort)) {
		t.Fatalf("%q: host %q, ours %q", head, q.Host, r.HostPort)
	}
	if q.ContentLength != r.Length || (len(q.TransferEncoding) > 0) != (r.Length == Chunked) {
		t.Fatalf("%q: length %d %q, ours %d", head, q.ContentLength, q.TransferEncoding, r.Length)
	}
}

func sameWhenForwarded(t *testing.T, r *Request, fw *Forward) {
	head := AppendRequest(nil, r, fw)
	h := strictRequest(t, head)
	if h.method != string(r.Method) || h.target != string(AppendTarget(nil, r)) || h.fields["host"][0] != string(r.HostPort) {
		t.Fatalf("forwarded as %q", head)
	}
	if h.length != lengthText(r.Length) && (h.length != "0" || r.Length != 0) {
		t.Fatalf("length %q forwarded for %d", h.length, r.Length)
	}
	if r.HostPort == nil {
		return // an HTTP/1.0 request without Host is not one we would accept back
	}
	again := new(Request)
	if n, err := again.Parse(head, &Limits{Head: 1 << 20, Fields: 1000}); n != len(head) || err != nil {
		t.Fatalf("%q does not parse: %d, %v", head, n, err)
	}
	if again.Length != r.Length || (again.Upgrade == nil) != (r.Upgrade == nil) || again.Expect {
		t.Fatalf("%q means something else", head)
	}
}

func lengthText(n int64) string {
	switch {
	case n == Chunked:
		return "chunked"
	case n <= 0:
		return ""
	}
	return strconv.FormatInt(n, 10)
}

// The same for responses.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		ok("Content-Length: 3\r\n"), ok(""), ok("Transfer-Encoding: chunked\r\nTrailer: X\r\n"), "HTTP/1.1 304 N\r\nContent-Length: 1\r\n\r\n",
		"HTTP/1.1 204\r\n\r\n", "HTTP/1.0 200 OK\r\nConnection: keep-alive, X\r\nX: 1\r\n\r\n", "HTTP/1.1 103 E\r\nLink: a\r\n\r\n",
		"HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n", "HTTP/1.1 426 U\r\nUpgrade: a\r\n\r\n", string(appResponse()),
	} {
		f.Add([]byte(s), false)
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, raw []byte, toHead bool) {
		method := "GET"
		if toHead {
			method = "HEAD"
		}
		if parseAllWays(t, newResponse(method), string(raw)).n == 0 {
			return
		}
		r := new(Response)
		n, _ := r.Parse(raw, []byte(method), nil)
		q, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(raw[:n])), &http.Request{Method: method})
		if err == nil && (q.StatusCode != r.Status || !r.bodiless() && q.ContentLength != max(-1, r.Length)) {
			t.Fatalf("%q: status %d, length %d, ours %d, %d", raw[:n], q.StatusCode, q.ContentLength, r.Status, r.Length)
		}
		for _, a := range []Answer{{}, {Minor: 1, KeepAlive: true}, {Minor: 1, KeepAlive: true, Chunked: true, Via: []byte("u")}} {
			sameWhenAnswered(t, r, method, &a)
		}
	})
}

func sameWhenAnswered(t *testing.T, r *Response, method string, a *Answer) {
	head := AppendResponse(nil, r, a)
	strictResponse(t, head)
	again := new(Response)
	if n, err := again.Parse(head, []byte(method), &Limits{Head: 1 << 20, Fields: 1000}); n != len(head) || err != nil {
		t.Fatalf("%q does not parse: %d, %v", head, n, err)
	}
	want := r.Length
	if want < 0 {
		want = UntilClose
		if a.Chunked && a.Minor == 1 {
			want = Chunked
		}
	}
	if again.Status != r.Status || again.Length != want {
		t.Fatalf("%q: length %d, want %d", head, again.Length, want)
	}
	if want == UntilClose && again.KeepAlive {
		t.Fatalf("%q keeps a close-delimited connection", head)
	}
}

// A chunked body that is accepted reads the same however it is cut, and the
// same with net/http's reader.
func FuzzFramer(f *testing.F) {
	for _, s := range []string{
		"5\r\nhello\r\n0\r\n\r\n", "5;a=\"b\\\"\";c\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\nrest",
		"0\r\nContent-Length: 1\r\n\r\n", "00001\r\nx\r\n000\r\n\r\n", "1 \r\nx\r\n0\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, wire []byte) {
		var fr Framer
		fr.Reset(Chunked)
		data, rest, done, err := unframe(&fr, wire, len(wire)+1)
		fr.Reset(Chunked)
		data1, rest1, done1, err1 := unframe(&fr, wire, 1)
		if done != done1 || err != err1 || done && (!bytes.Equal(data, data1) || len(rest) != len(rest1)) {
			t.Fatalf("whole %q %t %v, by byte %q %t %v", data, done, err, data1, done1, err1)
		}
		if !done {
			return
		}
		theirs, err := io.ReadAll(httputil.NewChunkedReader(bytes.NewReader(wire)))
		if err != nil || !bytes.Equal(theirs, data) {
			t.Fatalf("net/http reads %q (%v), we %q", theirs, err, data)
		}
		written := AppendLastChunk(AppendChunk(nil, data), fr.Trailer())
		fr.Reset(Chunked)
		if again, _, done, err := unframe(&fr, written, len(written)+1); !done || err != nil || !bytes.Equal(again, data) {
			t.Fatalf("written back: %q, %t, %v", again, done, err)
		}
	})
}
