package http1

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

const okHost = "Host: a.test\r\n"

func get(fields string) string { return "GET / HTTP/1.1\r\n" + okHost + fields + "\r\n" }

func target(s string) string { return "GET " + s + " HTTP/1.1\r\n" + okHost + "\r\n" }

func host(s string) string { return "GET / HTTP/1.1\r\nHost: " + s + "\r\n\r\n" }

func options(fields string) string { return "OPTIONS / HTTP/1.1\r\n" + okHost + fields + "\r\n" }

func post(fields string) string { return "POST / HTTP/1.1\r\n" + okHost + fields + "\r\n" }

func TestGateRefusesWhatTwoParsersCouldReadDifferently(t *testing.T) {
	long := strings.Repeat("a", 129)
	cases := []struct {
		rfc, name, raw string
		status         int
	}{
		{"9112 2.2", "LF ends the request line", "GET / HTTP/1.1\nHost: a.test\r\n\r\n", 400},
		{"9112 2.2", "LF ends a field", "GET / HTTP/1.1\r\nHost: a.test\nX: y\r\n\r\n", 400},
		{"9112 2.2", "LF ends the head", "GET / HTTP/1.1\r\nHost: a.test\r\n\n", 400},
		{"9112 2.2", "CR without LF in the request line", "GET / HTTP/1.1\rHost: a.test\r\n\r\n", 400},
		{"9112 2.2", "CR without LF in a value", get("X: a\rb\r\n"), 400},
		{"9112 2.2", "CR without LF before the end", get("X: y\r\r\n"), 400},
		{"9112 2.2", "CR without LF at the end of the head", "GET / HTTP/1.1\r\nHost: a.test\r\n\rX", 400},
		{"9112 2.2", "two leading CRLF", "\r\n\r\n" + get(""), 400},
		{"9112 2.2", "leading LF", "\n" + get(""), 400},
		{"9112 2.2", "leading CR", "\r" + get(""), 400},
		{"9112 2.2", "leading blank", " " + get(""), 400},
		{"9112 3", "no version", "GET /\r\n\r\n", 400},
		{"9112 3", "two blanks before the target", "GET  / HTTP/1.1\r\n" + okHost + "\r\n", 400},
		{"9112 3", "two blanks before the version", "GET /  HTTP/1.1\r\n" + okHost + "\r\n", 400},
		{"9112 3", "blank after the version", "GET / HTTP/1.1 \r\n" + okHost + "\r\n", 400},
		{"9112 3", "tab as a blank", "GET\t/ HTTP/1.1\r\n" + okHost + "\r\n", 400},
		{"9112 3", "tab in the target", target("/a\tb"), 400},
		{"9112 3", "no method", " / HTTP/1.1\r\n" + okHost + "\r\n", 400},
		{"9110 9.1", "method that is not a token", "G(T / HTTP/1.1\r\n" + okHost + "\r\n", 400},
		{"9112 3", "TLS on a plain port", "\x16\x03\x01\x02\x00\x01\x00", 400},
		{"9112 3", "method that nobody has", strings.Repeat("M", 65) + " / HTTP/1.1\r\n" + okHost + "\r\n", 501},
		{"9110 9.3.6", "CONNECT", "CONNECT a.test:443 HTTP/1.1\r\n" + okHost + "\r\n", 405},
		{"9110 9.3.8", "TRACE", "TRACE / HTTP/1.1\r\n" + okHost + "\r\n", 405},
		{"9112 2.3", "HTTP/1.2", "GET / HTTP/1.2\r\n" + okHost + "\r\n", 505},
		{"9112 2.3", "HTTP/2.0", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
		{"9112 2.3", "HTTP/0.9", "GET / HTTP/0.9\r\n\r\n", 505},
		{"9112 2.3", "lower-case version", "GET / http/1.1\r\n" + okHost + "\r\n", 400},
		{"9112 2.3", "version of two digits", "GET / HTTP/1.10\r\n" + okHost + "\r\n", 400},
		{"9112 2.3", "version without minor", "GET / HTTP/1\r\n" + okHost + "\r\n", 400},
		{"9112 2.3", "another protocol", "GET / ICE/1.0\r\n" + okHost + "\r\n", 400},

		{"9110 5.1", "blank in a name", get("X Y: z\r\n"), 400},
		{"9112 5.1", "blank before the colon", get("X : y\r\n"), 400},
		{"9112 5.1", "tab before the colon", get("X\t: y\r\n"), 400},
		{"9110 5.1", "empty name", get(": y\r\n"), 400},
		{"9110 5.1", "byte above 0x7f in a name", get("X\xe9: y\r\n"), 400},
		{"9110 5.1", "NUL in a name", get("X\x00Y: y\r\n"), 400},
		{"9110 5.1", "parenthesis in a name", get("X(: y\r\n"), 400},
		{"9112 5", "line without a colon", get("Xy\r\n"), 400},
		{"9112 2.2", "LF after a name", get("Xy\n"), 400},
		{"9110 5.1", "name of 129 bytes", get(long + ": y\r\n"), 400},
		{"9112 5.2", "folded line", get("X: a\r\n b\r\n"), 400},
		{"9112 5.2", "line folded with a tab", get("X: a\r\n\tb\r\n"), 400},
		{"9112 2.2", "blank after the request line", "GET / HTTP/1.1\r\n " + okHost + "\r\n", 400},
		{"9110 5.5", "NUL in a value", get("X: a\x00b\r\n"), 400},
		{"9110 5.5", "control in a value", get("X: a\x1bb\r\n"), 400},
		{"9110 5.5", "DEL in a value", get("X: a\x7fb\r\n"), 400},
		{"9110 5.5", "vertical tab before a value", get("X:\x0by\r\n"), 400},

		{"9112 6.1", "Content-Length and Transfer-Encoding", post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding and Content-Length", post("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding: gzip, chunked", post("Transfer-Encoding: gzip, chunked\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding: chunked, identity", post("Transfer-Encoding: chunked, identity\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding: xchunked", post("Transfer-Encoding: xchunked\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding: identity", post("Transfer-Encoding: identity\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding: , chunked", post("Transfer-Encoding: , chunked\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding: chunked;q=1", post("Transfer-Encoding: chunked;q=1\r\n"), 400},
		{"9112 6.1", "empty Transfer-Encoding", post("Transfer-Encoding:\r\n"), 400},
		{"9112 6.1", "quoted coding", post("Transfer-Encoding: \"chunked\"\r\n"), 400},
		{"9112 6.1", "repeated Transfer-Encoding", post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
		{"9112 6.1", "Transfer-Encoding on HTTP/1.0", "POST / HTTP/1.0\r\n" + okHost + "Transfer-Encoding: chunked\r\n\r\n", 400},
		{"9112 6.2", "repeated equal Content-Length", post("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
		{"9112 6.2", "repeated differing Content-Length", post("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
		{"9110 8.6", "Content-Length: 5, 5", post("Content-Length: 5, 5\r\n"), 400},
		{"9110 8.6", "Content-Length: +5", post("Content-Length: +5\r\n"), 400},
		{"9110 8.6", "Content-Length: -5", post("Content-Length: -5\r\n"), 400},
		{"9110 8.6", "Content-Length: 0x5", post("Content-Length: 0x5\r\n"), 400},
		{"9110 8.6", "Content-Length: 5 5", post("Content-Length: 5 5\r\n"), 400},
		{"9110 8.6", "empty Content-Length", post("Content-Length:\r\n"), 400},
		{"9110 8.6", "Content-Length of 19 digits", post("Content-Length: 1000000000000000000\r\n"), 400},
		{"9110 8.6", "Content-Length in other digits", post("Content-Length: \xd9\xa5\r\n"), 400},

		{"9112 3.2", "Host missing", "GET / HTTP/1.1\r\nX: y\r\n\r\n", 400},
		{"9112 3.2", "no fields at all", "GET / HTTP/1.1\r\n\r\n", 400},
		{"9112 3.2", "Host repeated", "GET / HTTP/1.1\r\n" + okHost + okHost + "\r\n", 400},
		{"9112 3.2", "Host repeated on HTTP/1.0", "GET / HTTP/1.0\r\n" + okHost + okHost + "\r\n", 400},
		{"9110 7.2", "Host empty", host(""), 400},
		{"9110 7.2", "Host with userinfo", host("u@a.test"), 400},
		{"9110 7.2", "Host with a path", host("a.test/x"), 400},
		{"9110 7.2", "Host list", host("a.test, b.test"), 400},
		{"9110 7.2", "Host with a blank", host("a .test"), 400},
		{"9110 7.2", "Host with an escape", host("a%2etest"), 400},
		{"9110 7.2", "Host beyond ASCII", host("\xc3\xa4.test"), 400},
		{"9110 7.2", "Host with an empty label", host("a..test"), 400},
		{"9110 7.2", "Host that begins with a dot", host(".a.test"), 400},
		{"9110 7.2", "Host of 255 bytes", host(strings.Repeat("a.", 127) + "a"), 400},
		{"9110 4.2.1", "port 0", host("a.test:0"), 400},
		{"9110 4.2.1", "port 65536", host("a.test:65536"), 400},
		{"9110 4.2.1", "port empty", host("a.test:"), 400},
		{"9110 4.2.1", "port not a number", host("a.test:8o"), 400},
		{"9110 4.2.1", "port signed", host("a.test:+80"), 400},
		{"9110 4.2.1", "two ports", host("a.test:80:81"), 400},
		{"3986 3.2.2", "IPv4 out of range", host("1.2.3.256"), 400},
		{"3986 3.2.2", "IPv4 of three parts", host("1.2.3"), 400},
		{"3986 3.2.2", "IPv4 with a leading zero", host("1.2.3.04"), 400},
		{"3986 3.2.2", "IPv6 without brackets", host("::1"), 400},
		{"3986 3.2.2", "IPv6 without an end", host("[::1"), 400},
		{"3986 3.2.2", "IPv6 with a zone", host("[fe80::1%25eth0]"), 400},
		{"3986 3.2.2", "IPv6 with two gaps", host("[1::2::3]"), 400},
		{"3986 3.2.2", "IPv6 of eight groups and a gap", host("[1:2:3:4:5:6:7::8]"), 400},
		{"3986 3.2.2", "IPv6 of seven groups", host("[1:2:3:4:5:6:7]"), 400},
		{"3986 3.2.2", "IPv6 with a group of five", host("[::12345]"), 400},
		{"3986 3.2.2", "IPv6 and IPv4 of nine groups", host("[1:2:3:4:5:6:7:1.2.3.4]"), 400},
		{"3986 3.2.2", "IPv6 that ends with a colon", host("[1::2:]"), 400},
		{"3986 3.2.2", "IPv6 of nine groups", host("[1:2:3:4:5:6:7:8:9]"), 400},
		{"3986 3.2.2", "IPvFuture", host("[v1.a]"), 400},
		{"3986 3.2.2", "something after the bracket", host("[::1]x"), 400},
		{"9112 3.2.2", "absolute target and another Host", target("http://b.test/"), 400},
		{"9112 3.2.2", "absolute target and another port", target("http://a.test:8080/"), 400},
		{"9112 3.2.2", "absolute target without Host", "GET http://a.test/ HTTP/1.1\r\n\r\n", 400},
		{"9110 4.2.4", "userinfo in the target", target("http://u@a.test/"), 400},
		{"9110 4.2.4", "userinfo with a password", target("http://u:p@a.test/"), 400},
		{"9112 3.2.2", "absolute target without a host", target("http:///x"), 400},
		{"9112 3.2.2", "another scheme", target("ftp://a.test/"), 400},
		{"9112 3.2", "target without a slash", target("x"), 400},
		{"9112 3.2.3", "authority as target", target("a.test:443"), 400},
		{"9112 3.2.4", "GET *", target("*"), 400},
		{"9112 3.2", "fragment", target("/a#b"), 400},
		{"3986 2.1", "%00", target("/a%00"), 400},
		{"3986 2.1", "%00 in the query", target("/?a=%00"), 400},
		{"3986 2.1", "escape of one digit", target("/a%2"), 400},
		{"3986 2.1", "escape without digits", target("/a%zz"), 400},
		{"3986 2.1", "lone percent", target("/%"), 400},
		{"9112 3.2", "bytes above 0x7e in the target", target("/\xc3\xa4"), 400},
		{"9112 3.2", "DEL in the target", target("/a\x7f"), 400},
		{"9112 3.2", "NUL in the target", target("/a\x00"), 400},
		{"9112 3", "target over 8 KiB", target("/" + strings.Repeat("a", 8192)), 414},
		{"9112 3", "absolute target over 8 KiB", target("http://a.test/" + strings.Repeat("a", 8192)), 414},
		{"6585 5", "101 fields", get(strings.Repeat("X: y\r\n", 100)), 431},
		{"6585 5", "head over 32 KiB", get("X: " + strings.Repeat("a", 32<<10) + "\r\n"), 431},
		{"6585 5", "head without an end", "GET / HTTP/1.1\r\n" + okHost + strings.Repeat("Xxxxxxxxxx: "+strings.Repeat("a", 490)+"\r\n", 66), 431},
		{"9110 10.1.1", "unknown expectation", post("Content-Length: 5\r\nExpect: 200-ok\r\n"), 417},
		{"9110 10.1.1", "two expectations", post("Content-Length: 5\r\nExpect: 100-continue, x\r\n"), 417},
		{"9110 10.1.1", "repeated Expect", post("Content-Length: 5\r\nExpect: 100-continue\r\nExpect: 100-continue\r\n"), 417},
		{"9110 7.6.2", "empty Max-Forwards of OPTIONS", options("Max-Forwards:\r\n"), 400},
		{"9110 7.6.2", "Max-Forwards with a sign", options("Max-Forwards: -1\r\n"), 400},
		{"9110 7.6.2", "Max-Forwards that is no number", options("Max-Forwards: 1x\r\n"), 400},
		{"9110 7.6.2", "Max-Forwards as a list", options("Max-Forwards: 1, 2\r\n"), 400},
		{"9110 7.6.2", "Max-Forwards of 19 digits", options("Max-Forwards: 1000000000000000000\r\n"), 400},
		{"9110 7.6.2", "repeated Max-Forwards", options("Max-Forwards: 1\r\nmax-forwards: 1\r\n"), 400},
		{"9110 7.6.1", "more than 64 options in Connection", get("Connection: " + strings.Repeat("a,", 65) + "\r\n"), 400},
	}
	for _, c := range cases {
		t.Run(c.rfc+"/"+c.name, func(t *testing.T) {
			if got := parseAllWays(t, newRequest, c.raw); got.status != c.status {
				t.Fatalf("got %+v, want status %d", got, c.status)
			}
		})
	}
}

func TestGateAcceptsWhatIsUnambiguous(t *testing.T) {
	cases := []struct{ rfc, name, raw string }{
		{"9112 3", "the least", get("")},
		{"9112 2.2", "one leading CRLF", "\r\n" + get("")},
		{"9112 3.2", "HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n"},
		{"9112 3.2.2", "HTTP/1.0 absolute without Host", "GET http://a.test/ HTTP/1.0\r\n\r\n"},
		{"9112 3.2.2", "absolute target", target("http://a.test/x?y")},
		{"9112 3.2.2", "absolute target in another case", target("HTTP://A.test/")},
		{"9112 3.2.2", "absolute https target with only a query", target("https://a.test?x")},
		{"9112 3.2.4", "OPTIONS *", "OPTIONS * HTTP/1.1\r\n" + okHost + "\r\n"},
		{"9110 9.1", "unknown method", "BREW / HTTP/1.1\r\n" + okHost + "\r\n"},
		{"9110 9.1", "method of 64 bytes", strings.Repeat("M", 64) + " / HTTP/1.1\r\n" + okHost + "\r\n"},
		{"9112 5.1", "no blank after the colon", get("X:y\r\n")},
		{"9112 5.1", "blanks around a value", get("X: \t y\t \r\n")},
		{"9110 5.5", "empty value", get("X:\r\n")},
		{"9110 5.5", "tab inside a value", get("X: a\tb\r\n")},
		{"9110 5.5", "bytes above 0x7f in a value", get("X: \xff\xe4\r\n")},
		{"9110 5.1", "name of 128 bytes", get(strings.Repeat("a", 128) + ": y\r\n")},
		{"6585 5", "100 fields", get(strings.Repeat("X: y\r\n", 99))},
		{"9112 3", "target of 8 KiB", target("/" + strings.Repeat("a", 8191))},
		{"9112 3.2", "every byte a target may hold", target("/!\"$&'()*+,-./09:;<=>?@AZ[\\]^_`az{|}~%20")},
		{"9112 3.2", "double slash and dot segments", target("//x/./a/../b;p=1")},
		{"9112 6.1", "coding in another case", post("Transfer-Encoding: Chunked\r\n")},
		{"9110 8.6", "18 digits", post("Content-Length: 999999999999999999\r\n")},
		{"9110 8.6", "leading zeros", post("Content-Length: 005\r\n")},
		{"9110 8.6", "Content-Length: 0", post("Content-Length: 0\r\n")},
		{"9110 7.2", "IPv4 and port", host("127.0.0.1:65535")},
		{"9110 7.2", "IPv6", host("[::1]")},
		{"9110 7.2", "IPv6 and port", host("[2001:db8::1:0]:8080")},
		{"9110 7.2", "IPv6 with IPv4", host("[::ffff:192.0.2.1]")},
		{"9110 7.2", "IPv6 of eight groups", host("[1:2:3:4:5:6:7:8]")},
		{"9110 7.2", "IPv6 with a last gap", host("[1:2::]")},
		{"9110 7.2", "name with a last dot", host("a.test.")},
		{"9110 7.2", "name with underscore and dash", host("my_app-1.a.test")},
		{"9110 7.2", "label that begins with digits", host("1a.4b")},
		{"9110 10.1.1", "Expect in another case", post("Content-Length: 5\r\nExpect: 100-Continue\r\n")},
		{"9110 7.6.2", "Max-Forwards of OPTIONS", options("Max-Forwards: 999999999999999999\r\n")},
		{"9110 7.6.2", "Max-Forwards of another method is not looked at", get("Max-Forwards: x\r\nMax-Forwards: -1\r\n")},
		{"9110 7.6.1", "64 options in Connection", get("Connection: " + strings.Repeat("a,", 64) + "\r\n")},
	}
	for _, c := range cases {
		t.Run(c.rfc+"/"+c.name, func(t *testing.T) {
			if got := parseAllWays(t, newRequest, c.raw); got.n != len(c.raw) {
				t.Fatalf("got %+v, want %d bytes", got, len(c.raw))
			}
		})
	}
}

func TestAddressesAreReadAsNetipReadsThem(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	valid := 0
	for range 50_000 {
		b := make([]byte, 2+random.IntN(16))
		for i := range b {
			b[i] = ":::1f.2"[random.IntN(7)]
		}
		a, err := netip.ParseAddr(string(b))
		if got, want := isIPv6(b), err == nil && a.Is6(); got != want {
			t.Fatalf("IPv6 %s: %t, netip %t", b, got, want)
		}
		if got, want := isIPv4(b), err == nil && a.Is4(); got != want {
			t.Fatalf("IPv4 %s: %t, netip %t", b, got, want)
		}
		if err == nil {
			valid++
		}
	}
	if valid < 200 {
		t.Errorf("only %d addresses were valid", valid)
	}
}

func TestGarbageIsRefusedBeforeItsLineEnds(t *testing.T) {
	for _, raw := range []string{
		"\x16", "{", "GET /\x80", "GET /%4g", "GET / XTTP", "GET / HTTP/1.1\r\nHo st",
		"GET / HTTP/1.1\r\n ", "GET / HTTP/1.1\r\nHost: a\x00", "GET / HTTP/1.1\r\n" + strings.Repeat("n", 129),
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 200) + "\rb", "GET /" + strings.Repeat("a", 8<<10), strings.Repeat("M", 65),
	} {
		if got := parseAllWays(t, newRequest, raw); !got.refused() {
			t.Errorf("%.40q: got %+v, want a refusal", raw, got)
		}
	}
}

func TestHeadLimitsCountExactly(t *testing.T) {
	l := &Limits{Head: 64, Target: 10, Fields: 2, Name: 5}
	p := func() parser { return &requestParser{limits: l} }
	pad := func(n int) string {
		head := "GET / HTTP/1.1\r\nHost: a\r\nX: \r\n\r\n"
		return strings.Replace(head, "X: ", "X: "+strings.Repeat("a", n-len(head)), 1)
	}
	for _, c := range []struct {
		raw    string
		status int
	}{
		{pad(64), 0},
		{pad(65), 431},
		{"GET /234567890 HTTP/1.1\r\nHost: a\r\n\r\n", 0},
		{"GET /2345678901 HTTP/1.1\r\nHost: a\r\n\r\n", 414},
		{"GET / HTTP/1.1\r\nHost: a\r\nXXXXX: 1\r\n\r\n", 0},
		{"GET / HTTP/1.1\r\nHost: a\r\nXXXXXX: 1\r\n\r\n", 400},
		{"GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nY: 1\r\n\r\n", 431},
	} {
		if got := parseAllWays(t, p, c.raw); got.status != c.status {
			t.Errorf("%q: got %+v, want status %d", c.raw, got, c.status)
		}
	}
}

func TestRequestTellsItsParts(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{
			target("/a%2Fb?x=%26?"),
			"GET /a%2Fb?x=%26? path=/a%2Fb query=x=%26? host=a.test hostport=a.test port=0 abs=false",
		},
		{target("/?"), "GET /? path=/ query= host=a.test hostport=a.test port=0 abs=false"},
		{
			"GET http://A.test:81?x HTTP/1.1\r\nhOST: a.TEST:81\r\n\r\n",
			"GET http://A.test:81?x path=/ query=x host=a.TEST hostport=a.TEST:81 port=81 abs=true",
		},
		{
			"OPTIONS http://a.test HTTP/1.1\r\n" + okHost + "\r\n",
			"OPTIONS http://a.test path=* query= host=a.test hostport=a.test port=0 abs=true",
		},
		{
			"GET http://a.test:9/ HTTP/1.0\r\n\r\n",
			"GET http://a.test:9/ path=/ query= host=a.test hostport=a.test:9 port=9 abs=true",
		},
		{host("[::1]:8080"), "GET / path=/ query= host=[::1] hostport=[::1]:8080 port=8080 abs=false"},
	} {
		r := mustRequest(t, c.raw)
		got := fmt.Sprintf("%s %s path=%s query=%s host=%s hostport=%s port=%d abs=%t",
			r.Method, r.Target, r.Path, r.Query, r.Host, r.HostPort, r.Port, r.Absolute)
		if got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	if r := mustRequest(t, target("/?")); r.Query == nil {
		t.Error("a lone ? must leave an empty query, not none")
	}
	if r := mustRequest(t, target("/")); r.Query != nil {
		t.Error("no ? must leave no query")
	}
}

func TestRequestTellsItsLengthAndConnection(t *testing.T) {
	type facts struct {
		length    int64
		keepAlive bool
		expect    bool
		upgrade   string
	}
	ws := "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
	v10 := func(fields string) string { return "GET / HTTP/1.0\r\n" + okHost + fields + "\r\n" }
	for name, c := range map[string]struct {
		raw  string
		want facts
	}{
		"1.1":                        {get(""), facts{keepAlive: true}},
		"1.1 close":                  {get("Connection: x, Close\r\n"), facts{}},
		"1.1 close wins":             {get("Connection: keep-alive\r\nConnection: close\r\n"), facts{}},
		"1.0":                        {v10(""), facts{}},
		"1.0 keep-alive":             {v10("Connection: Keep-Alive\r\n"), facts{keepAlive: true}},
		"1.0 keep-alive, close":      {v10("Connection: keep-alive, close\r\n"), facts{}},
		"length":                     {post("Content-Length: 0042\r\n"), facts{length: 42, keepAlive: true}},
		"chunked":                    {post("Transfer-Encoding: CHUNKED\r\n"), facts{length: Chunked, keepAlive: true}},
		"expect":                     {post("Content-Length: 1\r\nExpect: 100-continue\r\n"), facts{length: 1, keepAlive: true, expect: true}},
		"expect without a body":      {post("Expect: 100-continue\r\n"), facts{keepAlive: true}},
		"expect on 1.0":              {v10("Content-Length: 1\r\nExpect: 100-continue\r\n"), facts{length: 1}},
		"upgrade":                    {get(ws), facts{keepAlive: true, upgrade: "websocket"}},
		"upgrade with length 0":      {get(ws + "Content-Length: 0\r\n"), facts{keepAlive: true, upgrade: "websocket"}},
		"upgrade with a body":        {post(ws + "Content-Length: 1\r\n"), facts{length: 1, keepAlive: true}},
		"upgrade with a stream":      {post(ws + "Transfer-Encoding: chunked\r\n"), facts{length: Chunked, keepAlive: true}},
		"upgrade on 1.0":             {v10(ws), facts{keepAlive: true}},
		"upgrade without connection": {get("Upgrade: websocket\r\n"), facts{keepAlive: true}},
		"connection without upgrade": {get("Connection: upgrade\r\n"), facts{keepAlive: true}},
		"upgrade to h2c":             {get("Connection: upgrade, HTTP2-Settings\r\nUpgrade: H2C\r\nHTTP2-Settings: AA\r\n"), facts{keepAlive: true}},
		"upgrade to a list with h2c": {get("Connection: upgrade\r\nUpgrade: websocket, h2c\r\n"), facts{keepAlive: true}},
		"upgrade to nothing":         {get("Connection: upgrade\r\nUpgrade:\r\n"), facts{keepAlive: true}},
		"upgrade not a protocol":     {get("Connection: upgrade\r\nUpgrade: a b\r\n"), facts{keepAlive: true}},
		"upgrade twice":              {get(ws + "Upgrade: x\r\n"), facts{keepAlive: true}},
		"upgrade with a version":     {get("Connection: upgrade\r\nUpgrade: chat/2\r\n"), facts{keepAlive: true, upgrade: "chat/2"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := mustRequest(t, c.raw)
			if got := (facts{r.Length, r.KeepAlive, r.Expect, string(r.Upgrade)}); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestOneRequestStructServesManyHeads(t *testing.T) {
	stream := get("Connection: close, upgrade\r\nUpgrade: x\r\n") + post("Content-Length: 3\r\nX-A: b\r\n")
	buf := []byte(stream)
	var r Request
	n, err := r.Parse(buf, nil)
	if err != nil || string(r.Upgrade) != "x" || r.KeepAlive {
		t.Fatalf("first: %d, %v, %+v", n, err, r)
	}
	buf = buf[n:]
	if n, err = r.Parse(buf, nil); err != nil || n != len(buf) {
		t.Fatalf("second: %d, %v", n, err)
	}
	if r.Upgrade != nil || !r.KeepAlive || r.Length != 3 || len(r.Fields) != 3 || string(r.Get("x-a")) != "b" {
		t.Fatalf("the first head shows through: %+v", r)
	}
	if _, err = r.Parse([]byte("x\x00"), nil); err == nil {
		t.Fatal("garbage accepted")
	}
	if n, err = r.Parse(buf, nil); err != nil || n != len(buf) || len(r.Fields) != 3 {
		t.Fatalf("after an error: %d, %v, %d fields", n, err, len(r.Fields))
	}
}

func TestFieldsAreFoundByName(t *testing.T) {
	r := mustRequest(t, get("ACCEPT: a\r\nX-Odd: 1\r\naccept: b\r\nAccept:\r\nX-odd: 2\r\n"))
	var all []string
	r.Each("accept", func(v []byte) bool { all = append(all, string(v)); return len(all) < 3 })
	if strings.Join(all, "|") != "a|b|" {
		t.Errorf("Each = %q", all)
	}
	all = nil
	r.Each("x-odd", func(v []byte) bool { all = append(all, string(v)); return false })
	if len(all) != 1 || all[0] != "1" {
		t.Errorf("Each went on: %q", all)
	}
	if string(r.Get("x-odd")) != "1" || string(r.Value(Accept)) != "a" || r.Get("accep") != nil || r.Value(Cookie) != nil {
		t.Error("Get or Value found the wrong field")
	}
	if string(r.Sole(Accept)) != "" || r.Sole(Cookie) != nil || string(mustRequest(t, get("Cookie: a\r\nX: y\r\n")).Sole(Cookie)) != "a" {
		t.Error("Sole found what is not alone, or not what is")
	}
	if v := mustRequest(t, get("X-Empty:\r\n")).Get("x-empty"); v == nil || len(v) != 0 {
		t.Errorf("an empty value must be empty, not nil: %v", v)
	}
}

func TestOwnViaIsSeenAsALoop(t *testing.T) {
	for value, want := range map[string]bool{
		"1.1 usher":                     true,
		"1.0 fred, 1.1 USHER (comment)": true,
		"HTTP/1.1 usher(x)":             true,
		"1.1  usher":                    true,
		"1.1 usherette":                 false,
		"usher":                         false,
		"1.1 a, 1.1 b":                  false,
		"":                              false,
	} {
		if got := mustRequest(t, get("Via: "+value+"\r\n")).Loops([]byte("usher")); got != want {
			t.Errorf("Via: %s: Loops = %t", value, got)
		}
	}
	if mustRequest(t, get("")).Loops([]byte("usher")) {
		t.Error("no Via is no loop")
	}
}

func TestIdempotentMethodsAreKnown(t *testing.T) {
	for method, want := range map[string]bool{
		"GET": true, "HEAD": true, "OPTIONS": true, "PUT": true, "DELETE": true, "POST": false, "PATCH": false, "get": false, "BREW": false,
	} {
		if got := mustRequest(t, method+" / HTTP/1.1\r\n"+okHost+"\r\n").IsIdempotent(); got != want {
			t.Errorf("%s: %t", method, got)
		}
	}
}

func TestResetForgetsAHeadReadInPart(t *testing.T) {
	buf := []byte(get("A: b\r\n"))
	var r Request
	if n, err := r.Parse(buf[:len(buf)-3], nil); n != 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
	r.Reset()
	copy(buf, "PUT / HTTP/1.0\r\n") // another connection got the buffer
	if n, err := r.Parse(buf, nil); n != len(buf) || err != nil || string(r.Method) != "PUT" || len(r.Fields) != 2 {
		t.Fatalf("%d, %v, %s, %d fields", n, err, r.Method, len(r.Fields))
	}
}

func TestErrorsSayWhatIsWrong(t *testing.T) {
	var r Request
	_, err := r.Parse([]byte("GET / HTTP/1.1\r\nX y: z\r\n"), nil)
	if err == nil || err.Error() != "http1: blank before the colon" {
		t.Errorf("got %v", err)
	}
}

// Each limit lets its own value through, and nothing beyond it. The values are those
// of the documentation, not of the code.
func TestTheLimitsOfTheGateHoldToTheByte(t *testing.T) {
	fields := func(n int) string { return get(strings.Repeat("X: y\r\n", n-1)) } // and Host
	for _, c := range []struct {
		what   string
		most   int
		of     func(n int) string
		status int
	}{
		{"head", 32768, func(n int) string { return get("X: " + strings.Repeat("a", n-len(get("X: \r\n"))) + "\r\n") }, 431},
		{"fields", 100, fields, 431},
		{"name", 128, func(n int) string { return get(strings.Repeat("a", n) + ": y\r\n") }, 400},
		{"target", 8192, func(n int) string { return target("/" + strings.Repeat("a", n-1)) }, 414},
	} {
		for _, n := range []int{c.most, c.most + 1} {
			raw := c.of(n)
			for _, cut := range []int{0, len(raw) / 2, len(raw) - 1} {
				var r Request
				limits := Limits{}.WithDefaults()
				var used int
				var err error
				if cut > 0 {
					used, err = r.Parse([]byte(raw[:cut]), &limits)
				}
				if used == 0 && err == nil {
					used, err = r.Parse([]byte(raw), &limits)
				}
				var e *Error
				switch {
				case n == c.most && (err != nil || used != len(raw)):
					t.Errorf("%s of %d, cut at %d: %d bytes used, %v", c.what, n, cut, used, err)
				case n > c.most && (!errors.As(err, &e) || e.Status != c.status):
					t.Errorf("%s of %d, cut at %d: %v, want %d", c.what, n, cut, err, c.status)
				}
			}
		}
	}
	for n, good := range map[int]bool{4096: true, 4097: false} {
		var f Framer
		f.Reset(Chunked)
		_, _, done, err := unframe(&f, []byte("5;"+strings.Repeat("a", n-1)+"\r\nhello\r\n0\r\n\r\n"), 1<<20)
		if done != good || (err == nil) != good {
			t.Errorf("%d bytes of extensions: done %t, %v", n, done, err)
		}
	}
}
