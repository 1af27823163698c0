package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// Several requests on one connection: what one of them leaves behind must never
// become part of another.

// "A finished answer is flushed at once rather than held behind the next one
// (which may be waiting for a cold start)."
func TestAFinishedAnswerDoesNotWaitForTheColdStartOfTheNext(t *testing.T) { // RFC 9112 9.3.2
	awake, cold := newOrigin(t, always("awake")), newOrigin(t, always("cold"))
	r := newRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}}})
	r.app.Place(awake.placement(1))
	if err := r.edge.SetApps([]edge.AppConfig{
		{Name: "app", Hosts: []string{"app.test"}}, {Name: "cold", Hosts: []string{"cold.test"}},
	}); err != nil {
		t.Fatal(err)
	}
	sleeper := r.edge.App("cold")
	sleeper.Place(edge.Placement{State: edge.Asleep})
	one := func(host string) string { return "GET / HTTP/1.1\r\nHost: " + host + "\r\n\r\n" }
	c := r.dial()
	c.send(one("app.test") + one("nobody.test") + one("cold.test") + one("app.test"))
	c.want(200, "awake") // though the third waits
	c.status(404)
	eventually(t, "the third wakes its app", func() bool { return sleeper.Stats().Parked == 1 && r.wake.Load() == 1 })
	sleeper.Place(cold.placement(1))
	c.want(200, "cold")
	c.want(200, "awake")
}

func TestPipelinedRequestsOfAClientThatHalfClosesAreAllAnswered(t *testing.T) { // RFC 9112 9.6
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.ok(r.URL.Path + string(b))
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	var want []string
	for i := range 50 {
		c.send(fmt.Sprintf("POST /%d HTTP/1.1\r\nHost: app.test\r\nContent-Length: 3\r\n\r\nabc", i))
		want = append(want, fmt.Sprintf("/%dabc", i))
	}
	c.fin()
	for _, w := range want {
		c.want(200, w)
	}
	c.wantEOF()
}

// Reuse after errors: whatever usher or the app says no with, the next request
// on the connection is read where it begins, or the connection ends.
func TestTheConnectionIsReusedAfterErrorsOnlyWhereTheNextRequestBegins(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		switch r.URL.Path {
		case "/garbage":
			s.say("what?\r\n\r\n")
		case "/dies":
			s.Close()
		case "/breaks":
			_, _ = io.Copy(io.Discard, r.Body)
			s.say("%s", chunkedHead+"zz\r\n")
		case "/surplus":
			_, _ = io.Copy(io.Discard, r.Body)
			s.say("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more")
		case "/refuses":
			_, _ = io.Copy(io.Discard, r.Body)
			s.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")
		case "/smuggled":
			t.Error("bytes of a body were taken for a request")
		default:
			b, _ := io.ReadAll(r.Body)
			s.ok(r.URL.Path + string(b))
		}
	}))
	r := newRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}, MaxBody: 100_000}})
	r.app.Place(o.placement(1))
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n"
	post := func(path, host, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n\r\n%s", path, host, len(body), body)
	}
	chunked := func(path, host, body string) string {
		return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", path, host, len(body), body)
	}
	for _, step := range []struct {
		name, raw string
		status    int
		ends      bool // the connection ends with it
	}{
		{"served", post("/a", "app.test", smuggled), 200, false},
		{"served, chunked", chunked("/a", "app.test", smuggled), 200, false},
		{"refused by the app", post("/refuses", "app.test", smuggled), 403, false},
		{"no such host", post("/", "nobody.test", smuggled), 404, false},
		{"no such host, chunked", chunked("/", "nobody.test", smuggled), 404, true},
		{"loop", "GET / HTTP/1.1\r\nHost: app.test\r\nVia: 1.1 " + r.srv.opt.Via + "\r\n\r\n", 508, false},
		{"options", strings.Replace(post("*", "app.test", smuggled), "POST", "OPTIONS", 1), 200, false},
		{"app says garbage", "GET /garbage HTTP/1.1\r\nHost: app.test\r\n\r\n", 502, false},
		{"app dies", "PUT /dies HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n", 502, false},
		{"app dies with a body", post("/dies", "app.test", smuggled), 502, false},
		{"app breaks the framing", post("/breaks", "app.test", smuggled), 502, false},
		{"app breaks the framing, chunked", chunked("/breaks", "app.test", smuggled), 502, false},
		{"app says more", post("/surplus", "app.test", smuggled), 502, false},
		{"app says more, chunked", chunked("/surplus", "app.test", smuggled), 502, false},
		{"body too large", fmt.Sprintf("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 100001\r\n\r\n%s", smuggled), 413, true},
		{"no such host, body to come", fmt.Sprintf("POST / HTTP/1.1\r\nHost: nobody.test\r\nContent-Length: 1001\r\n\r\n%s", smuggled), 404, true},
		{"malformed", "GET / HTTP/1.1\r\nHost: app.test\r\nContent-Length: +42\r\n\r\n" + smuggled, 400, true},
	} {
		for _, at := range []string{"later", "at once"} { // what follows comes
			t.Run(step.name+"/"+at, func(t *testing.T) {
				c := r.dial()
				c.t = t
				before, after := post("/before", "app.test", "x"), post("/after", "app.test", smuggled+smuggled)
				if at == "at once" {
					c.send(before + step.raw + after)
				} else {
					c.send(before + step.raw)
				}
				c.want(200, "/beforex")
				if a := c.status(step.status); a.Close != step.ends {
					t.Errorf("close %t, want %t", a.Close, step.ends)
				}
				if step.ends {
					c.wantEOF()
					return
				}
				if at == "later" {
					c.send(after)
				}
				c.want(200, "/after"+smuggled+smuggled)
			})
		}
	}
}

// Pipelined requests share their memory; what the log says of one is its own.
func TestARefusedRequestIsLoggedWithoutTheBytesOfTheOneBefore(t *testing.T) {
	o := newOrigin(t, always("x"))
	r := newRig(t, rigOptions{app: edge.AppConfig{Hosts: []string{"app.test"}}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send(gatePost("Content-Length: 5\r\n", "hello") + gateHostOf("nobody.test"))
	c.want(200, "x")
	c.status(404)
	r.last(2)
	for i, want := range []int64{5, 0} {
		if n := r.logged()[i].Result; n.BytesIn != want {
			t.Errorf("%+v; want %d bytes in", n, want)
		}
	}
}

// Early answers: an app that answers without reading the body. What is left of
// the body is nobody's request, however it comes.
func TestTheRestOfABodyThatNobodyReadIsNoRequest(t *testing.T) { // RFC 9112 9.3
	const smuggled = "GET /smuggled HTTP/1.1\r\nHost: app.test\r\n\r\n"
	for name, head := range map[string]string{
		"length":   fmt.Sprintf("Content-Length: %d\r\n\r\n", 1+len(smuggled)),
		"chunked":  "Transfer-Encoding: chunked\r\n\r\n",
		"expected": fmt.Sprintf("Expect: 100-continue\r\nContent-Length: %d\r\n\r\n", 1+len(smuggled)),
	} {
		t.Run(name, func(t *testing.T) {
			o := newOrigin(t, func(s *stage) {
				for {
					r, ok := s.read()
					if !ok {
						return
					}
					if r.URL.Path == "/smuggled" {
						t.Error("the rest of a body was taken for a request")
					}
					s.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno")
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						return // what is left of it never comes
					}
				}
			})
			r := newRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send("POST / HTTP/1.1\r\nHost: app.test\r\n" + head)
			if a := c.want(401, "no"); !a.Close {
				t.Error("the connection is said to live on")
			}
			_, _ = io.WriteString(c, "x"+smuggled)
			c.wantEOF()
			d := r.dial() // nor is it the app's next request
			d.get("/next")
			d.want(401, "no")
		})
	}
}

// Whoever closes lets the client read the last answer: bytes that it sent too
// many must not turn the close into a reset.
func TestTheLastAnswerSurvivesWhatTheClientSendsBeyondIt(t *testing.T) { // RFC 9112 9.6
	o := newOrigin(t, always("last"))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for name, raw := range map[string]string{
		"close":     gateGet("Connection: close\r\n"),
		"1.0":       "GET / HTTP/1.0\r\n\r\n",
		"malformed": gateGet("X y: z\r\n"),
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				c := r.dial()
				_, _ = io.WriteString(c, raw+strings.Repeat(gateGet(""), 3000))
				eventually(t, "answered", func() bool { return r.srv.Connections() == 0 || len(r.logged()) > 0 })
				if _, err := c.tryRead("GET"); err != nil {
					t.Fatalf("the answer is lost: %v", err)
				}
				c.wantEOF()
			}
		})
	}
}

// The same where the last read ended with the body, so that what is too much is
// still in the kernel.
func TestTheLastAnswerSurvivesWhatIsLeftUnread(t *testing.T) { // RFC 9112 9.6
	o := newOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		s.say("HTTP/1.1 200 OK\r\n\r\nlast")
	})
	body := strings.Repeat("x", 30_000)
	for _, unix := range []bool{false, true} {
		r := newRig(t, rigOptions{unix: unix})
		r.app.Place(o.placement(1))
		for i := range 5 {
			c := r.dial()
			c.send(fmt.Sprintf("POST / HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s%s", len(body), body, gateGet("")))
			r.last(i + 1)
			c.want(200, "last")
			c.wantEOF()
		}
	}
}

// "Bodies stream with back-pressure both ways, unbuffered": whoever sends is
// held up by whoever does not read, after no more than the buffers on the way.
func TestWhoeverDoesNotReadHoldsUpWhoeverSends(t *testing.T) {
	const far = 256 << 20
	stuck := func(w net.Conn) (int64, error) { // sends until nobody takes it
		b := make([]byte, 1<<20)
		for n := int64(0); n < far; {
			_ = w.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
			k, err := w.Write(b)
			n += int64(k)
			if err != nil {
				return n, err
			}
		}
		return far, nil
	}
	wantStuck := func(t *testing.T, n int64, err error) {
		t.Helper()
		if !errors.Is(err, os.ErrDeadlineExceeded) || n > 64<<20 {
			t.Errorf("%d MiB were taken: %v", n>>20, err)
		}
	}
	t.Run("client", func(t *testing.T) {
		sent := make(chan func(), 1)
		o := newTCPOrigin(t, func(s *stage) {
			s.read()
			s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", int64(far))
			n, err := stuck(s.Conn)
			sent <- func() { wantStuck(t, n, err) }
		})
		r := newRig(t, rigOptions{})
		r.app.Place(o.placement(1))
		c := r.dial()
		c.get("/")
		(<-sent)()
	})
	t.Run("app", func(t *testing.T) {
		done := make(chan struct{})
		o := newTCPOrigin(t, func(s *stage) {
			_, _ = s.head()
			<-done
		})
		r := newRig(t, rigOptions{})
		r.app.Place(o.placement(1))
		c := r.dial()
		c.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n", int64(far)))
		n, err := stuck(c.Conn)
		wantStuck(t, n, err)
		close(done)
	})
}

// Upgrades: the app may end its side first, and the client goes on.
func TestAHalfCloseOfTheAppGoesThroughATunnel(t *testing.T) {
	got := make(chan string, 1)
	o := newOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("%sbye", switching)
		_ = s.Conn.(interface{ CloseWrite() error }).CloseWrite()
		b, _ := io.ReadAll(s.r)
		got <- string(b)
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send(upgrade)
	c.read("GET")
	if b, err := io.ReadAll(c.r); string(b) != "bye" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	c.send("still ")
	c.send("here")
	c.fin()
	if s := <-got; s != "still here" {
		t.Errorf("the app got %q", s)
	}
	if n := r.last(1).Result; n.Ending != edge.Served || n.BytesIn != 10 || n.BytesOut != 3 {
		t.Errorf("%+v", n)
	}
}

// "Only on a matching 101."
func TestOnlyAMatching101Switches(t *testing.T) { // RFC 9110 7.8, 15.2.2
	for name, head := range map[string]string{
		"another protocol":   "Connection: upgrade\r\nUpgrade: other\r\n",
		"one more":           "Connection: upgrade\r\nUpgrade: echo, other\r\n",
		"none named":         "Connection: upgrade\r\n",
		"not in Connection":  "Upgrade: echo\r\n",
		"with a length":      "Connection: upgrade\r\nUpgrade: echo\r\nContent-Length: 5\r\n",
		"with a coding":      "Connection: upgrade\r\nUpgrade: echo\r\nTransfer-Encoding: chunked\r\n",
		"two Upgrade fields": "Connection: upgrade\r\nUpgrade: echo\r\nUpgrade: echo\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			var once sync.Once
			o := newOrigin(t, func(s *stage) {
				for {
					if _, ok := s.read(); !ok {
						return
					}
					evil := false
					once.Do(func() { evil = true })
					if evil {
						s.say("HTTP/1.1 101 Switching Protocols\r\n%s\r\n", head)
						continue
					}
					s.ok("next")
				}
			})
			r := newRig(t, rigOptions{})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send(upgrade)
			c.status(502)
			c.get("/")
			c.want(200, "next")
			if n := o.conns.Load(); n != 2 {
				t.Errorf("%d connections to the app, want 2", n)
			}
		})
	}
}
