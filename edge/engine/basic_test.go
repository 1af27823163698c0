package engine

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

func TestAGetIsForwardedAndTheConnectionsAreKept(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) { s.ok("path " + r.RequestURI) }))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(3))
	c := r.dial()
	for i := range 5 {
		c.get(fmt.Sprintf("/%d?q", i))
		a := c.want(200, fmt.Sprintf("path /%d?q", i))
		if g := a.Header.Get("Usher-Generation"); g != "3" {
			t.Fatalf("generation %q", g)
		}
	}
	if n := o.conns.Load(); n != 1 {
		t.Errorf("%d connections to the app, want 1", n)
	}
	n := r.last(5)
	if n.Result != (edge.Result{Ending: edge.Served, Status: 200, BytesOut: int64(len("path /4?q"))}) ||
		n.App != "app" || n.Generation != 3 || string(n.Target) != "/4?q" || string(n.Client) != "127.0.0.1" {
		t.Errorf("%+v", n)
	}
}

func TestOwnAnswersSayWhatAndWhen(t *testing.T) {
	r := newRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}}})
	for _, c := range []struct {
		place  edge.Placement
		host   string
		status int
		retry  string
		proxy  string
	}{
		{edge.Placement{}, "app.test", 503, "5", "usher; error=destination_unavailable"},
		{edge.Placement{}, "other.test", 404, "", "usher; error=destination_not_found"},
		{edge.Placement{State: edge.Down, Boot: 9e9}, "app.test", 503, "9", "usher; error=destination_unavailable"},
		{edge.Placement{State: edge.Maintenance}, "app.test", 503, "30", "usher; error=destination_unavailable"},
		{edge.Placement{State: edge.Serving, Network: "unix", Address: "/nowhere/at/all"}, "app.test", 502, "", "usher; error=connection_refused"},
	} {
		r.app.Place(c.place)
		k := r.dial()
		k.send("GET / HTTP/1.1\r\nHost: " + c.host + "\r\n\r\n")
		a := k.status(c.status)
		if a.Header.Get("Retry-After") != c.retry || a.Header.Get("Proxy-Status") != c.proxy {
			t.Errorf("%v: %v", c.place.State, a.Header)
		}
		k.get("/again") // the connection lives on
		k.read("GET")
	}
}

func TestHeadsThatAreNoHTTPAreAnsweredAndEndTheConnection(t *testing.T) {
	o := newOrigin(t, always("never"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for head, status := range map[string]int{
		"GET / HTTP/1.1\r\n\r\n":                       400,
		"GET / HTTP/1.1\nHost: a\n\n":                  400,
		"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n": 400,
		"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
		"GET / HTTP/2.0\r\nHost: a\r\n\r\n":                                                                  505,
		"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n":                                                          405,
		"GET /" + strings.Repeat("a", 9000) + " HTTP/1.1\r\nHost: a\r\n\r\n":                                 414,
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", 40000) + "\r\n\r\n":                         431,
		"POST / HTTP/1.1\r\nHost: a\r\nExpect: wonders\r\nContent-Length: 1\r\n\r\nx":                        417,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n":                             400,
		"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n+1\r\nx\r\n0\r\n\r\n": 400,
		"GET / HTTP/1.1\r\nHost: app.test\r\nVia: 1.1 " + r.srv.opt.Via + "\r\n\r\n":                         508,
	} {
		c := r.dial()
		c.send(head)
		_ = c.SetDeadline(time.Now().Add(patience))
		a, err := c.tryRead("GET")
		if err != nil || a.StatusCode != status {
			t.Errorf("%.60q: %+v, %v; want %d", head, a.Response, err, status)
			continue
		}
		if status != 508 {
			if a.Header.Get("Connection") != "close" && !a.Close {
				t.Errorf("%.40q: the connection lives on", head)
			}
			c.wantEOF()
		}
	}
	if n := o.heads.Load(); n != 0 {
		t.Errorf("%d of them reached the app", n)
	}
}

func TestOptionsStarIsAnsweredHere(t *testing.T) {
	o := newOrigin(t, always("never"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("OPTIONS * HTTP/1.1\r\nHost: app.test\r\n\r\n")
	if a := c.read("OPTIONS"); a.StatusCode != 200 || a.ContentLength != 0 || a.Header.Get("Date") == "" {
		t.Fatalf("%+v", a)
	}
	if o.heads.Load() != 0 {
		t.Error("it reached the app")
	}
}

func TestPipelinedRequestsAreAnsweredInOrderAndEachAtOnce(t *testing.T) {
	gate := make(chan struct{})
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-gate
		}
		s.ok(r.URL.Path)
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	one := func(p string) string { return "GET " + p + " HTTP/1.1\r\nHost: app.test\r\n\r\n" }
	post := "POST /post HTTP/1.1\r\nHost: app.test\r\nContent-Length: 5\r\n\r\nhello"
	chunked := "POST /chunked HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
	c.send(one("/a") + post + chunked + one("/b") + one("/slow") + one("/c"))
	for _, p := range []string{"/a", "/post", "/chunked", "/b"} {
		c.want(200, p)
	}
	close(gate)
	c.want(200, "/slow")
	c.want(200, "/c")
}

func TestHTTP10IsServedAndClosed(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		s.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send("GET / HTTP/1.0\r\n\r\n")
	b, err := io.ReadAll(c.r)
	if err != nil || !strings.HasSuffix(string(b), "\r\n\r\nhello") || strings.Contains(string(b), "chunked") {
		t.Fatalf("%q, %v", b, err)
	}
}

// The client that a trusted proxy names is the last element of a list, however that is
// written (RFC 9110 5.6.1): its share of everything goes by it.
func TestTheClientIsTheLastOfTheList(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{unix: true})
	r.app.Place(o.placement(1))
	c := r.dial()
	for i, fields := range []string{
		"X-Forwarded-For: 192.0.2.9", "X-Forwarded-For: 192.0.2.1, 192.0.2.9", "X-Forwarded-For: 192.0.2.1,192.0.2.9",
		"X-Forwarded-For: 192.0.2.1,\t192.0.2.9", "X-Forwarded-For: 192.0.2.9,", "X-Forwarded-For: 192.0.2.1, 192.0.2.9 , ,\t,",
		"X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-For:", "X-Forwarded-For: 192.0.2.9\r\nX-Forwarded-For: ,\t,",
		"X-Forwarded-For: 192.0.2.1\r\nX-Forwarded-For: 192.0.2.9",
	} {
		c.send("GET / HTTP/1.1\r\nHost: app.test\r\n" + fields + "\r\n\r\n")
		c.want(200, "x")
		if n := r.last(i + 1); string(n.Client) != "192.0.2.9" {
			t.Errorf("%q: %q", fields, n.Client)
		}
	}
	c.send("GET / HTTP/1.1\r\nHost: app.test\r\nX-Forwarded-For: ,\r\n\r\n")
	c.want(200, "x")
	if n := r.last(10); len(n.Client) != 0 {
		t.Errorf("a list of nothing: %q", n.Client)
	}
}
