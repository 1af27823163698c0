package http1

import (
	"regexp"
	"strings"
	"testing"
)

// A second parser, slow and by other means, that shares no code with the
// first: what is written to apps and clients must satisfy it.

var (
	strictLine   = regexp.MustCompile(`^([!#$%&'*+\-.^_\x60|~0-9A-Za-z]+) ([\x21\x22\x24-\x7e]+) HTTP/1\.1$`)
	strictStatus = regexp.MustCompile(`^HTTP/1\.1 ([1-9][0-9][0-9]) [\t\x20-\x7e\x80-\xff]*$`)
	strictField  = regexp.MustCompile(`^([!#$%&'*+\-.^_\x60|~0-9A-Za-z]+): ((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)$`)
	strictDigits = regexp.MustCompile(`^(0|[1-9][0-9]{0,17})$`)
)

type strictHead struct {
	method, target, status string
	fields                 map[string][]string
	length                 string // "", digits, or "chunked"
}

func strictRequest(t testing.TB, head []byte) strictHead {
	t.Helper()
	first, h := strictFields(t, head)
	m := strictLine.FindStringSubmatch(first)
	if m == nil {
		t.Fatalf("request line %q", first)
	}
	h.method, h.target = m[1], m[2]
	if len(h.fields["host"]) != 1 {
		t.Fatalf("%d Host fields in %q", len(h.fields["host"]), head)
	}
	for _, name := range []string{"expect", "te", "keep-alive", "proxy-connection", "proxy", "http2-settings"} {
		if h.fields[name] != nil {
			t.Fatalf("%s was forwarded: %q", name, head)
		}
	}
	return h
}

func strictResponse(t testing.TB, head []byte) strictHead {
	t.Helper()
	first, h := strictFields(t, head)
	m := strictStatus.FindStringSubmatch(first)
	if m == nil {
		t.Fatalf("status line %q", first)
	}
	h.status = m[1]
	return h
}

// latin1 makes each byte a rune, because regexp reads UTF-8.
func latin1(b []byte) string {
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	return string(runes)
}

func strictFields(t testing.TB, head []byte) (string, strictHead) {
	t.Helper()
	text, ok := strings.CutSuffix(latin1(head), "\r\n\r\n")
	if !ok {
		t.Fatalf("no empty line at the end of %q", head)
	}
	lines := strings.Split(text, "\r\n")
	h := strictHead{fields: map[string][]string{}}
	for _, l := range lines[1:] {
		m := strictField.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("field line %q", l)
		}
		name := strings.ToLower(m[1])
		h.fields[name] = append(h.fields[name], m[2])
	}
	te, cl := h.fields["transfer-encoding"], h.fields["content-length"]
	switch {
	case len(te)+len(cl) > 1:
		t.Fatalf("two framings in %q", head)
	case len(te) == 1 && te[0] != "chunked":
		t.Fatalf("coding %q", te[0])
	case len(te) == 1:
		h.length = "chunked"
	case len(cl) == 1 && !strictDigits.MatchString(cl[0]):
		t.Fatalf("length %q", cl[0])
	case len(cl) == 1:
		h.length = cl[0]
	}
	if len(h.fields["connection"]) > 1 {
		t.Fatalf("two Connection fields in %q", head)
	}
	return lines[0], h
}
