package http1

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// verdict is what a parse came to, in a form that can be compared.
type verdict struct {
	n      int
	status int
	text   string
}

func (v verdict) refused() bool { return v.status != 0 }

type parser interface {
	Parse(buf []byte) (int, error)
	dump() string
}

type requestParser struct {
	Request
	limits *Limits
}

func (p *requestParser) Parse(buf []byte) (int, error) { return p.Request.Parse(buf, p.limits) }

func (p *requestParser) dump() string {
	var b strings.Builder
	r := &p.Request
	for _, v := range [][]byte{r.Method, r.Target, r.Path, r.Query, r.Host, r.HostPort, r.Upgrade} {
		b.WriteString(string(v) + "\x00")
	}
	b.WriteString(string(AppendRequest(nil, r, &Forward{})))
	return b.String()
}

type responseParser struct {
	Response
	method string
}

func (p *responseParser) Parse(buf []byte) (int, error) {
	return p.Response.Parse(buf, []byte(p.method), nil)
}

func (p *responseParser) dump() string {
	return string(AppendResponse(nil, &p.Response, &Answer{Minor: 1, KeepAlive: p.KeepAlive}))
}

func outcome(t testing.TB, p parser, n int, err error) verdict {
	t.Helper()
	if err == nil {
		if n == 0 {
			return verdict{}
		}
		return verdict{n: n, text: p.dump()}
	}
	var e *Error
	if !errors.As(err, &e) || n != 0 {
		t.Fatalf("Parse = %d, %v: want 0 and an *Error", n, err)
	}
	return verdict{status: e.Status, text: e.Reason}
}

// parseAllWays parses raw whole, then byte by byte in one buffer, then in odd
// pieces with the buffer moved each time, and fails unless all agree.
func parseAllWays(t testing.TB, fresh func() parser, raw string) verdict {
	t.Helper()
	whole := fresh()
	n, err := whole.Parse([]byte(raw))
	want := outcome(t, whole, n, err)

	buf := []byte(raw)
	slow := fresh()
	if got := feed(t, slow, len(raw), 1, func(k int) []byte { return buf[:k] }); got != want {
		t.Errorf("byte by byte %+v, whole %+v", got, want)
	}
	moved := fresh()
	if got := feed(t, moved, len(raw), 7, func(k int) []byte { return []byte(raw[:k]) }); got != want {
		t.Errorf("moved %+v, whole %+v", got, want)
	}
	return want
}

func feed(t testing.TB, p parser, total, step int, upTo func(int) []byte) verdict {
	t.Helper()
	for k := step; ; k += step {
		k = min(k, total)
		n, err := p.Parse(upTo(k))
		if v := outcome(t, p, n, err); v.n > 0 || v.refused() || k == total {
			return v
		}
	}
}

func newRequest() parser { return &requestParser{} }

func mustRequest(t testing.TB, raw string) *Request {
	t.Helper()
	r := new(Request)
	n, err := r.Parse([]byte(raw), nil)
	if err != nil || n == 0 {
		t.Fatalf("Parse(%q) = %d, %v", raw, n, err)
	}
	return r
}

func mustResponse(t testing.TB, method, raw string) *Response {
	t.Helper()
	r := new(Response)
	n, err := r.Parse([]byte(raw), []byte(method), nil)
	if err != nil || n == 0 {
		t.Fatalf("Parse(%q) = %d, %v", raw, n, err)
	}
	return r
}

// crlf turns a readable text into lines that end with CRLF.
func crlf(lines ...string) string { return strings.Join(lines, "\r\n") + "\r\n" }

func fieldLines(head []byte) []string {
	_, rest, _ := bytes.Cut(head, []byte("\r\n"))
	rest = bytes.TrimSuffix(rest, []byte("\r\n\r\n"))
	if len(rest) == 0 || string(rest) == "\r\n" {
		return nil
	}
	return strings.Split(string(rest), "\r\n")
}
