package http1

import (
	"slices"
	"strings"
	"testing"
)

// forwarded returns the lines that reach the app, Host apart.
func forwarded(t *testing.T, raw string, f *Forward) []string {
	t.Helper()
	head := AppendRequest(nil, mustRequest(t, raw), f)
	strictRequest(t, head)
	lines := fieldLines(head)
	if !strings.HasPrefix(lines[0], "Host: ") {
		t.Errorf("Host is not first: %q", lines)
	}
	return lines[1:]
}

func TestForwardedHeadDropsWhatIsNotForTheApp(t *testing.T) {
	usual := []string{"X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: http", "X-Forwarded-Host: a.test"}
	f := func() *Forward { return &Forward{ClientIP: []byte("192.0.2.1"), Proto: []byte("http")} }
	cases := []struct {
		rfc, name, fields string
		change            func(*Forward)
		want              []string // beside usual
	}{
		{"9110 7.6.1", "hop-by-hop fields", "Connection: keep-alive\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\nTrailer: X\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n", nil, nil},
		{"9110 7.6.1", "fields named by Connection", "Connection: X-A, close\r\nX-a: 1\r\nX-B: 2\r\n", nil, []string{"X-B: 2"}},
		{"9110 7.6.1", "named by a later Connection field", "X-A: 1\r\nConnection: close\r\nConnection: b, x-a\r\nX-A: 2\r\n", nil, nil},
		{"9110 7.6.1", "a name in another field", "X-B: X-A\r\nConnection: x\r\nX-A: 1\r\n", nil, []string{"X-B: X-A", "X-A: 1"}},
		{"9110 7.6.1", "what Connection may not take away", "Connection: Host, Content-Length, Via, X-Forwarded-For, X-Forwarded-Proto, Authorization\r\nContent-Length: 3\r\nVia: 1.1 a\r\nAuthorization: x\r\n", nil, []string{"Content-Length: 3", "Via: 1.1 a"}},
		{"9110 7.6.1", "framing named by Connection", "Connection: Transfer-Encoding\r\nTransfer-Encoding: chunked\r\n", nil, []string{"Transfer-Encoding: chunked"}},
		{"9110 11.7", "Proxy-*", "Proxy: http://evil\r\nProxy-Authorization: x\r\nProxy-Connection: keep-alive\r\nProxy-Status: a\r\nProxy-X: 1\r\n", nil, nil},
		{"9110 5.1", "look-alikes", "Content_Length: 99\r\nTransfer_Encoding: chunked\r\nX_Forwarded_For: 1\r\nUser_Agent: x\r\nX_Own: 1\r\n", nil, []string{"X_Own: 1"}},
		{"9110 10.1.1", "Expect", "Content-Length: 2\r\nExpect: 100-continue\r\n", nil, []string{"Content-Length: 2"}},
		{"9110 8.6", "Content-Length rewritten in its place and case", "A: 1\r\ncontent-length: 007\r\nB: 2\r\n", nil, []string{"A: 1", "content-length: 7", "B: 2"}},
		{"9110 5.3", "order, case and repetition", "b: 1\r\nA: 2\r\nCookie: x\r\nB: 3\r\ncookie: y\r\n", nil, []string{"b: 1", "A: 2", "Cookie: x", "B: 3", "cookie: y"}},
		{"7239 8", "claims of a stranger", "X-Forwarded-For: 1\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: b\r\nX-Forwarded-Port: 1\r\nForwarded: for=1\r\nX-Real-IP: 1\r\nX-Request-Id: evil\r\nX-Request-Start: t=1\r\n", nil, nil},
		{"9110 6.5", "Trailer when the app takes trailers", "Transfer-Encoding: chunked\r\nTrailer: X\r\n", func(f *Forward) { f.Trailers = true }, []string{"Transfer-Encoding: chunked", "Trailer: X"}},
		{"9110 6.5", "Trailer without trailers", "Trailer: X\r\n", func(f *Forward) { f.Trailers = true }, nil},
	}
	for _, c := range cases {
		t.Run(c.rfc+"/"+c.name, func(t *testing.T) {
			fw := f()
			if c.change != nil {
				c.change(fw)
			}
			if got, want := forwarded(t, post(c.fields), fw), append(c.want, usual...); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestMaxForwardsOfOptionsCountsDown(t *testing.T) { // RFC 9110 7.6.2
	for _, c := range []struct {
		name, raw string
		last      bool
		want      string
	}{
		{"none", options(""), false, ""},
		{"0", options("Max-Forwards: 0\r\n"), true, "Max-Forwards: 0"},
		{"000", options("Max-Forwards: 000\r\n"), true, "Max-Forwards: 0"},
		{"1", options("Max-Forwards: 1\r\n"), false, "Max-Forwards: 0"},
		{"in its case", options("max-FORWARDS: 010\r\n"), false, "max-FORWARDS: 9"},
		{"the most", options("Max-Forwards: 999999999999999999\r\n"), false, "Max-Forwards: 999999999999999998"},
		{"named by Connection", options("Connection: Max-Forwards\r\nMax-Forwards: 5\r\n"), false, "Max-Forwards: 4"},
		{"of OPTIONS *", "OPTIONS * HTTP/1.1\r\n" + okHost + "Max-Forwards: 2\r\n\r\n", false, "Max-Forwards: 1"},
		{"of GET", get("Max-Forwards: 0\r\n"), false, "Max-Forwards: 0"},
		{"of GET, named by Connection", get("Connection: Max-Forwards\r\nMax-Forwards: 0\r\n"), false, ""},
		{"of a method in another case", "options / HTTP/1.1\r\n" + okHost + "Max-Forwards: 3\r\n\r\n", false, "Max-Forwards: 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r := mustRequest(t, c.raw); r.IsLast() != c.last {
				t.Errorf("last recipient: %t, want %t", r.IsLast(), c.last)
			}
			got := strings.Join(forwarded(t, c.raw, &Forward{}), "\n")
			want := strings.TrimPrefix(c.want+"\nX-Forwarded-Host: a.test", "\n")
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
	r := mustRequest(t, options("Max-Forwards: 0\r\n"))
	raw := []byte(options(""))
	if _, err := r.Parse(raw, nil); err != nil || r.IsLast() {
		t.Errorf("the next request on the connection is taken for the last recipient's too: %v", err)
	}
}

func TestForwardedHeadHoldsOnlyDocumentedAdditions(t *testing.T) {
	if got := forwarded(t, post(""), &Forward{}); !slices.Equal(got, []string{"X-Forwarded-Host: a.test"}) {
		t.Errorf("bare: %q", got)
	}
	all := &Forward{
		ClientIP: []byte("192.0.2.1"), Proto: []byte("https"), Host: []byte("b.test:81"), RequestID: []byte("id-1"),
		RequestStart: 1700000000042, Via: []byte("usher"), Close: true,
	}
	raw := "DELETE / HTTP/1.0\r\nVia: 1.1 a\r\nHost: a.test:80\r\n\r\n"
	want := crlf("DELETE / HTTP/1.1", "Host: b.test:81", "Via: 1.1 a", "X-Forwarded-For: 192.0.2.1", "X-Forwarded-Proto: https",
		"X-Forwarded-Host: a.test:80", "X-Request-Id: id-1", "X-Request-Start: t=1700000000.042", "Via: 1.0 usher", "Connection: close", "")
	if got := string(AppendRequest(nil, mustRequest(t, raw), all)); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestTrustedPeersAreAppendedToAndBelieved(t *testing.T) {
	const proto, host, start = "X-Forwarded-Proto: http", "X-Forwarded-Host: a.test", "X-Request-Start: t=0.001" // where none was sent
	for _, c := range []struct {
		rfc, name, fields string
		peer              string // "": on a unix socket
		want              []string
	}{
		{"7239 5.2", "appended to", "X-Forwarded-For: 192.0.2.1, 192.0.2.2\r\n", "10.0.0.1", []string{"X-Forwarded-For: 192.0.2.1, 192.0.2.2, 10.0.0.1", proto, host, start}},
		{"9110 5.3", "two lists are one", "X-Forwarded-For: 192.0.2.1, 192.0.2.2\r\nA: b\r\nx-forwarded-for: 192.0.2.3\r\n", "10.0.0.1", []string{"A: b", "X-Forwarded-For: 192.0.2.1, 192.0.2.2, 192.0.2.3, 10.0.0.1", proto, host, start}},
		{"7239 5.2", "nothing sent", "", "10.0.0.1", []string{"X-Forwarded-For: 10.0.0.1", proto, host, start}},
		{"7239 6.2", "a peer without an address", "X-Forwarded-For: 192.0.2.1\r\n", "", []string{"X-Forwarded-For: 192.0.2.1", proto, host, start}},
		{"9110 5.6.1", "an empty element", "X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For:\r\n", "", []string{"X-Forwarded-For: 192.0.2.1", proto, host, start}},
		{"7239 6.2", "nothing sent, and no address", "", "", []string{proto, host, start}},
		{"7239 5.4", "the scheme", "X-Forwarded-Proto: https\r\n", "10.0.0.1", []string{"X-Forwarded-Proto: https", "X-Forwarded-For: 10.0.0.1", host, start}},
		{"9110 5.3", "the scheme, twice: the first", "X-Forwarded-Proto: https\r\nX-Forwarded-Proto: x\r\n", "10.0.0.1", []string{"X-Forwarded-Proto: https", "X-Forwarded-For: 10.0.0.1", host, start}},
		{"7239 5.3", "the host", "X-Forwarded-Host: pub.test\r\n", "10.0.0.1", []string{"X-Forwarded-Host: pub.test", "X-Forwarded-For: 10.0.0.1", proto, start}},
		{"7239 7.4", "others like them, as they are", "X-Forwarded-Port: 443\r\nX-Real-IP: 192.0.2.1\r\n", "10.0.0.1", []string{"X-Forwarded-Port: 443", "X-Real-IP: 192.0.2.1", "X-Forwarded-For: 10.0.0.1", proto, host, start}},
		{"7239 4", "Forwarded, as it is", "Forwarded: for=192.0.2.1\r\n", "10.0.0.1", []string{"Forwarded: for=192.0.2.1", "X-Forwarded-For: 10.0.0.1", proto, host, start}},
		{"7239 8.1", "when it began", "X-Request-Start: t=5\r\n", "10.0.0.1", []string{"X-Request-Start: t=5", "X-Forwarded-For: 10.0.0.1", proto, host}},
		{"7239 8.1", "no id but that which was checked", "X-Request-Id: a\r\nX-Request-Id: b\r\n", "10.0.0.1", []string{"X-Forwarded-For: 10.0.0.1", proto, host, start}},
	} {
		t.Run(c.rfc+"/"+c.name, func(t *testing.T) {
			f := &Forward{ClientIP: []byte(c.peer), Proto: []byte("http"), RequestStart: 1, Trusted: true}
			if got := forwarded(t, get(c.fields), f); !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestTargetReachesTheAppByteForByte(t *testing.T) {
	for sent, want := range map[string]string{
		"/a%2Fb": "/a%2Fb", "/a%3Fb?x=%26": "/a%3Fb?x=%26", "//x": "//x", "/./a/../b": "/./a/../b", "/;p=1": "/;p=1",
		"/?": "/?", "/??": "/??", "/%e4": "/%e4", "/" + strings.Repeat("a", 8191): "/" + strings.Repeat("a", 8191),
		"http://a.test/a%2Fb?x": "/a%2Fb?x", "http://a.test": "/", "http://a.test?": "/?", "https://a.test?x=/": "/?x=/",
	} {
		head := string(AppendRequest(nil, mustRequest(t, target(sent)), &Forward{}))
		if !strings.HasPrefix(head, "GET "+want+" HTTP/1.1\r\n") {
			t.Errorf("%.40s became %.60q", sent, head)
		}
	}
}

func TestUpgradeReachesTheAppOnlyWhenValid(t *testing.T) {
	ws := "Upgrade: websocket\r\nSec-WebSocket-Key: x\r\nConnection: keep-alive, Upgrade, X-A\r\nX-A: 1\r\n"
	got := forwarded(t, get(ws), &Forward{Close: true})
	want := []string{"Sec-WebSocket-Key: x", "X-Forwarded-Host: a.test", "Connection: upgrade", "Upgrade: websocket"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	got = forwarded(t, post(ws+"Content-Length: 1\r\n"), &Forward{})
	want = []string{"Sec-WebSocket-Key: x", "Content-Length: 1", "X-Forwarded-Host: a.test"}
	if !slices.Equal(got, want) {
		t.Errorf("with a body: got %q, want %q", got, want)
	}
}

func TestRequestIDsAreChecked(t *testing.T) {
	for id, want := range map[string]bool{
		"abc-DEF_1.2:3=+/@": true, "": false, "a b": false, "a\"": false, "\xe4": false, "a,b": false,
		strings.Repeat("a", 128): true, strings.Repeat("a", 129): false,
	} {
		if got := ValidRequestID([]byte(id)); got != want {
			t.Errorf("ValidRequestID(%q) = %t", id, got)
		}
	}
}
