package http1

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func newResponse(method string) func() parser {
	return func() parser { return &responseParser{method: method} }
}

func ok(fields string) string { return "HTTP/1.1 200 OK\r\n" + fields + "\r\n" }

func TestResponseThatIsNotStrictHTTPIsRefused(t *testing.T) {
	cases := []struct{ rfc, name, raw string }{
		{"9112 4", "another protocol", "SSH-2.0-OpenSSH\r\n"},
		{"9112 4", "HTTP/2.0", "HTTP/2.0 200 OK\r\n\r\n"},
		{"9112 4", "HTTP/1.2", "HTTP/1.2 200 OK\r\n\r\n"},
		{"9112 4", "HTTP/0.9", "HTTP/0.9 200 OK\r\n\r\n"},
		{"9112 4", "tab after the version", "HTTP/1.1\t200 OK\r\n\r\n"},
		{"9112 4", "two blanks before the status", "HTTP/1.1  200 OK\r\n\r\n"},
		{"9112 4", "status of two digits", "HTTP/1.1 20 OK\r\n\r\n"},
		{"9112 4", "status of four digits", "HTTP/1.1 2000 OK\r\n\r\n"},
		{"9110 15", "status 099", "HTTP/1.1 099 OK\r\n\r\n"},
		{"9112 4", "tab before the reason", "HTTP/1.1 200\tOK\r\n\r\n"},
		{"9112 4", "control in the reason", "HTTP/1.1 200 O\x00K\r\n\r\n"},
		{"9112 2.2", "empty line first", "\r\n" + ok("Content-Length: 0\r\n")},
		{"9112 2.2", "LF ends the status line", "HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n"},
		{"9112 2.2", "LF ends a field", ok("A: b\nContent-Length: 0\r\n")},
		{"9112 2.2", "CR without LF in the status line", "HTTP/1.1 200 OK\rContent-Length: 0\r\n\r\n"},
		{"9112 2.2", "CR without LF in a field", ok("A: b\rC: d\r\n")},
		{"9112 5.2", "folded line", ok("A: b\r\n c\r\n")},
		{"9112 2.2", "blank after the status line", "HTTP/1.1 200 OK\r\n A: b\r\n\r\n"},
		{"9112 5.1", "blank before the colon", ok("Content-Length : 0\r\n")},
		{"9110 5.1", "blank in a name", ok("en-US Content-Type: text/xml\r\n")},
		{"9110 5.5", "control in a value", ok("A: b\x01\r\n")},
		{"9112 6.1", "Content-Length and Transfer-Encoding", ok("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n")},
		{"9112 6.2", "repeated Content-Length", ok("Content-Length: 1\r\nContent-Length: 1\r\n")},
		{"9110 8.6", "Content-Length: 1, 1", ok("Content-Length: 1, 1\r\n")},
		{"9110 8.6", "Content-Length: +1", ok("Content-Length: +1\r\n")},
		{"9112 6.1", "Transfer-Encoding: gzip, chunked", ok("Transfer-Encoding: gzip, chunked\r\n")},
		{"9112 6.1", "Transfer-Encoding: identity", ok("Transfer-Encoding: identity\r\n")},
		{"9112 6.1", "repeated Transfer-Encoding", ok("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")},
		{"9112 6.1", "Transfer-Encoding on HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"9110 15.2.2", "101 without Upgrade", "HTTP/1.1 101 S\r\nConnection: upgrade\r\n\r\n"},
		{"9110 15.2.2", "101 without Connection", "HTTP/1.1 101 S\r\nUpgrade: websocket\r\n\r\n"},
		{"9110 15.2.2", "101 on HTTP/1.0", "HTTP/1.0 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"},
		{"9112 6.3", "101 with a length", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 4\r\n\r\n"},
		{"9112 6.3", "101 with a coding", "HTTP/1.1 101 S\r\nConnection: upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked\r\n\r\n"},
		{"6585 5", "too many fields", ok(strings.Repeat("A: b\r\n", 101))},
		{"6585 5", "head over 32 KiB", ok("A: " + strings.Repeat("b", 32<<10) + "\r\n")},
	}
	for _, c := range cases {
		t.Run(c.rfc+"/"+c.name, func(t *testing.T) {
			if got := parseAllWays(t, newResponse("GET"), c.raw); got.status != 502 {
				t.Errorf("got %+v, want 502", got)
			}
		})
	}
}

func TestResponseTellsItsLengthAndConnection(t *testing.T) {
	cases := []struct {
		rfc, name, method, raw string
		want                   string
	}{
		{"9112 6.3", "length", "GET", ok("Content-Length: 7\r\n"), "200 7 keep"},
		{"9112 6.3", "length 0", "GET", ok("Content-Length: 0\r\n"), "200 0 keep"},
		{"9112 6.3", "chunked", "GET", ok("Transfer-Encoding: chunked\r\n"), "200 -1 keep"},
		{"9112 6.3", "until close", "GET", ok(""), "200 -2 close"},
		{"9112 9.3", "closing", "GET", ok("Content-Length: 1\r\nConnection: close\r\n"), "200 1 close"},
		{"9112 9.3", "1.0", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", "200 1 close"},
		{"9112 9.3", "1.0 keep-alive", "GET", "HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n", "200 1 keep"},
		{"9112 9.3", "1.0 keep-alive until close", "GET", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n", "200 -2 close"},
		{"9112 6.3", "HEAD with a length", "HEAD", ok("Content-Length: 7\r\n"), "200 0 keep"},
		{"9112 6.3", "HEAD with a coding", "HEAD", ok("Transfer-Encoding: chunked\r\n"), "200 0 keep"},
		{"9112 6.3", "HEAD with neither", "HEAD", ok(""), "200 0 keep"},
		{"9112 6.3", "204", "GET", "HTTP/1.1 204 No Content\r\n\r\n", "204 0 keep"},
		{"9112 6.3", "204 with length 0", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", "204 0 keep"},
		{"9112 6.3", "204 with a length is not trusted again", "GET", "HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n", "204 0 close"},
		{"9112 6.3", "204 with a coding is not trusted again", "GET", "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n", "204 0 close"},
		{"9112 6.3", "304 with a length", "GET", "HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", "304 0 keep"},
		{"9110 15.2", "100", "POST", "HTTP/1.1 100 Continue\r\n\r\n", "100 0 keep"},
		{"8297 2", "103", "GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", "103 0 keep"},
		{"9112 4", "no reason", "GET", "HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", "404 0 keep"},
		{"9112 4", "no blank either", "GET", "HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", "404 0 keep"},
		{"9112 4", "reason beyond ASCII", "GET", "HTTP/1.1 500 Ori\xebn\r\nContent-Length: 0\r\n\r\n", "500 0 keep"},
		{"9112 4", "status that nobody registered", "GET", "HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n", "999 0 keep"},
	}
	for _, c := range cases {
		t.Run(c.rfc+"/"+c.name, func(t *testing.T) {
			if got := parseAllWays(t, newResponse(c.method), c.raw); got.n != len(c.raw) {
				t.Fatalf("got %+v, want %d bytes", got, len(c.raw))
			}
			r := mustResponse(t, c.method, c.raw)
			conn := map[bool]string{true: "keep", false: "close"}[r.KeepAlive]
			if got := fmt.Sprintf("%d %d %s", r.Status, r.Length, conn); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestKeepAliveHintIsRead(t *testing.T) {
	for value, want := range map[string]int{
		"timeout=5": 5, "max=100, Timeout=72": 72, "timeout=": 0, "timeout=x": 0, "timeout=99999999999": 0, "": 0,
	} {
		if got := mustResponse(t, "GET", ok("Keep-Alive: "+value+"\r\n")).KeepAliveTimeout; got != want {
			t.Errorf("%s: %d, want %d", value, got, want)
		}
	}
}

func TestOnlyAnUpgradeThatWasAskedForIsOne(t *testing.T) {
	ask := mustRequest(t, get("Connection: upgrade\r\nUpgrade: a/1, WebSocket\r\n"))
	plain := mustRequest(t, get(""))
	for upgrade, want := range map[string]bool{"websocket": true, "a/1": true, "a/1, websocket": true, "a": false, "b": false, "websocket, b": false} {
		r := mustResponse(t, "GET", "HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: "+upgrade+"\r\n\r\n")
		if got := r.Switches(ask); got != want {
			t.Errorf("%s: Switches = %t", upgrade, got)
		}
		if r.Switches(plain) {
			t.Errorf("%s: switches a request that asked for nothing", upgrade)
		}
	}
	if mustResponse(t, "GET", ok("Connection: upgrade\r\nUpgrade: websocket\r\n")).Switches(ask) {
		t.Error("a 200 switches nothing")
	}
}

func TestAnswerKeepsFieldsAndWritesFraming(t *testing.T) {
	keep := Answer{Minor: 1, KeepAlive: true}
	old := Answer{Minor: 0, KeepAlive: true}
	chunk := Answer{Minor: 1, KeepAlive: true, Chunked: true}
	cases := []struct {
		rfc, name, method, raw string
		a                      Answer
		want                   []string
	}{
		{"9110 5.3", "order, case and three cookies", "GET", ok("set-cookie: a\r\nX: 1\r\nSet-Cookie: b\r\ncontent-LENGTH: 03\r\nSET-COOKIE: c\r\n"), keep, []string{"set-cookie: a", "X: 1", "Set-Cookie: b", "content-LENGTH: 3", "SET-COOKIE: c"}},
		{"9110 7.6.1", "hop-by-hop fields", "GET", ok("Connection: X-A\r\nX-A: 1\r\nKeep-Alive: timeout=5\r\nProxy-Authenticate: x\r\nProxy-Connection: x\r\nUpgrade: h2c\r\nTE: x\r\nTrailer: x\r\nContent-Length: 0\r\n"), keep, []string{"Content-Length: 0"}},
		{"9110 7.6.1", "framing named by Connection", "GET", ok("Connection: Content-Length\r\nContent-Length: 2\r\n"), keep, []string{"Content-Length: 2"}},
		{"9209 2", "Proxy-Status is end-to-end", "GET", ok("Proxy-Status: a\r\nContent-Length: 0\r\n"), keep, []string{"Proxy-Status: a", "Content-Length: 0"}},
		{"-", "Usher-* from an app", "GET", ok("Usher-Generation: 99\r\nusher-build: x\r\nContent-Length: 0\r\n"), Answer{Minor: 1, KeepAlive: true, Extra: []byte("Usher-Generation: 7\r\n")}, []string{"Content-Length: 0", "Usher-Generation: 7"}},
		{"9112 9.3", "client closes", "GET", ok("Content-Length: 0\r\n"), Answer{Minor: 1}, []string{"Content-Length: 0", "Connection: close"}},
		{"9112 9.3", "1.0 client stays", "GET", ok("Content-Length: 0\r\n"), old, []string{"Content-Length: 0", "Connection: keep-alive"}},
		{"9112 7.1", "chunked stays in its place", "GET", ok("A: 1\r\ntransfer-encoding: Chunked\r\nTrailer: X\r\nB: 2\r\n"), chunk, []string{"A: 1", "transfer-encoding: chunked", "Trailer: X", "B: 2"}},
		{"9112 6.3", "chunked to 1.0 ends with the connection", "GET", ok("Transfer-Encoding: chunked\r\nTrailer: X\r\n"), Answer{KeepAlive: true, Chunked: true}, []string{"Connection: close"}},
		{"9112 6.3", "until close becomes chunked", "GET", ok("A: 1\r\nTrailer: X\r\n"), chunk, []string{"A: 1", "Transfer-Encoding: chunked"}},
		{"9112 6.3", "until close not chunked", "GET", ok("A: 1\r\n"), keep, []string{"A: 1", "Connection: close"}},
		{"9112 6.3", "known length is never chunked", "GET", ok("Content-Length: 5\r\n"), chunk, []string{"Content-Length: 5"}},
		{"9110 8.6", "HEAD keeps its length", "HEAD", ok("Content-Length: 1234\r\n"), keep, []string{"Content-Length: 1234"}},
		{"9112 6.1", "HEAD keeps its coding", "HEAD", ok("Transfer-Encoding: chunked\r\n"), keep, []string{"Transfer-Encoding: chunked"}},
		{"9112 6.1", "HEAD from 1.0 gets no coding", "HEAD", ok("Transfer-Encoding: chunked\r\n"), old, []string{"Connection: keep-alive"}},
		{"9110 8.6", "HEAD invents no length", "HEAD", ok(""), keep, nil},
		{"9110 8.6", "304 keeps its length", "GET", "HTTP/1.1 304 N\r\nETag: \"a\"\r\nContent-Length: 10\r\n\r\n", keep, []string{"ETag: \"a\"", "Content-Length: 10"}},
		{"9110 8.6", "204 gets no length", "GET", "HTTP/1.1 204 N\r\nContent-Length: 0\r\n\r\n", keep, nil},
		{"9110 8.6", "204 to HEAD gets no length", "HEAD", "HTTP/1.1 204 N\r\nContent-Length: 0\r\n\r\n", keep, nil},
		{"9110 7.6.3", "Via of ours goes last", "GET", "HTTP/1.0 200 OK\r\nVia: 1.1 a\r\nConnection: Via\r\nContent-Length: 0\r\n\r\n", Answer{Minor: 1, KeepAlive: true, Via: []byte("usher")}, []string{"Via: 1.1 a", "Content-Length: 0", "Via: 1.0 usher"}},
		{"9110 7.8", "101", "GET", "HTTP/1.1 101 S\r\nUPGRADE: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n", keep, []string{"Sec-WebSocket-Accept: x", "Upgrade: websocket", "Connection: upgrade"}},
		{"9110 15.5.22", "426 names what it wants", "GET", "HTTP/1.1 426 U\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n", keep, []string{"Content-Length: 0", "Upgrade: websocket", "Connection: upgrade"}},
		{"9110 15.5.22", "426 and closing", "GET", "HTTP/1.1 426 U\r\nUpgrade: websocket\r\nConnection: upgrade\r\nContent-Length: 0\r\n\r\n", Answer{Minor: 1}, []string{"Content-Length: 0", "Upgrade: websocket", "Connection: upgrade, close"}},
	}
	for _, c := range cases {
		t.Run(c.rfc+"/"+c.name, func(t *testing.T) {
			head := AppendResponse(nil, mustResponse(t, c.method, c.raw), &c.a)
			strictResponse(t, head)
			if got := fieldLines(head); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestStatusLineIsKept(t *testing.T) {
	for raw, want := range map[string]string{
		"HTTP/1.0 299 Some  Thing": "HTTP/1.1 299 Some  Thing\r\n",
		"HTTP/1.1 301":             "HTTP/1.1 301 \r\n",
		"HTTP/1.1 301 ":            "HTTP/1.1 301 \r\n",
	} {
		head := AppendResponse(nil, mustResponse(t, "GET", raw+"\r\n\r\n"), &Answer{Minor: 1})
		if !strings.HasPrefix(string(head), want) {
			t.Errorf("%q became %q", raw, head)
		}
	}
}

func TestInterimResponsesGoOnlyToHTTP11(t *testing.T) {
	r := mustResponse(t, "GET", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\nX: 1\r\nContent-Length: 0\r\n\r\n")
	if got := string(AppendInterim(nil, r, &Answer{Minor: 1})); got != "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" {
		t.Errorf("got %q", got)
	}
	if got := AppendInterim(nil, r, &Answer{Minor: 0}); len(got) != 0 {
		t.Errorf("HTTP/1.0 got %q", got)
	}
}

func TestCacheGetsEndToEndFieldsOnly(t *testing.T) {
	r := mustResponse(t, "GET", ok("Date: x\r\nConnection: A\r\nA: 1\r\nContent-Length: 3\r\nUsher-Build: 1\r\nETag: y\r\nUpgrade: z\r\nKeep-Alive: q\r\n"))
	if got := string(AppendFields(nil, r)); got != "Date: x\r\nETag: y\r\n" {
		t.Errorf("got %q", got)
	}
}

func TestResponseFieldsAreFoundByName(t *testing.T) {
	r := mustResponse(t, "GET", ok("Set-Cookie: a\r\nset-cookie: b\r\n"))
	n := 0
	r.Each("set-cookie", func([]byte) bool { n++; return true })
	if n != 2 || string(r.Get("set-cookie")) != "a" || string(r.Value(SetCookie)) != "a" || r.Get("cookie") != nil {
		t.Errorf("%d values, Get %q, Value %q", n, r.Get("set-cookie"), r.Value(SetCookie))
	}
}

func TestOnlyUnknownLengthsAreChunkedAndOnlyForHTTP11(t *testing.T) {
	for raw, want := range map[string]bool{
		ok(""): true, ok("Transfer-Encoding: chunked\r\n"): true, ok("Content-Length: 0\r\n"): false, "HTTP/1.1 204 N\r\n\r\n": false,
	} {
		r := mustResponse(t, "GET", raw)
		if r.ChunkedTo(1) != want || r.ChunkedTo(0) {
			t.Errorf("%q: %t, %t", raw, r.ChunkedTo(1), r.ChunkedTo(0))
		}
	}
}
