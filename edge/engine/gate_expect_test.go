package engine

import (
	"io"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// expecting is an app that answers with the body it got; on the way to it, it does what
// the path says.
func expecting(t *testing.T) *origin {
	return newOrigin(t, func(s *stage) {
		for {
			r, ok := s.read()
			if !ok {
				return
			}
			if _, sent := r.Header["Expect"]; sent {
				t.Error("Expect was forwarded")
			}
			switch r.URL.Path {
			case "/refuse":
				s.say("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n")
				return
			case "/eager":
				s.say("HTTP/1.1 100 Continue\r\n\r\n")
			case "/hints":
				s.say("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
			}
			b, _ := io.ReadAll(r.Body)
			s.ok(string(b))
		}
	})
}

// expectCase is a request with Expect: what its client is told before it sends the body
// ("" is sent with the head), and what after it.
type expectCase struct {
	line, rfc, name, head, body string
	interim                     []int
	answer                      string
}

func expectCases() []expectCase {
	const (
		line  = "100-continue is answered by us"
		never = "Expect is never forwarded"
		ask   = "Content-Length: 5\r\nExpect: 100-continue\r\n"
	)
	post := func(path, version, fields string) string {
		return "POST " + path + " HTTP/" + version + "\r\n" + gateHost + fields + "\r\n"
	}
	return []expectCase{
		{line, "9110 10.1.1", "an app that reads the body", post("/", "1.1", ask), "hello", []int{100}, "hello"},
		{line, "9110 10.1.1", "in another case", post("/", "1.1", "Content-Length: 5\r\nexpect: 100-CONTINUE\r\n"), "hello", []int{100}, "hello"},
		{line, "9110 10.1.1", "a body in chunks", post("/", "1.1", "Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n"), "5\r\nhello\r\n0\r\n\r\n", []int{100}, "hello"},
		{line, "9110 15.2.1", "once, though the app says so as well", post("/eager", "1.1", ask), "hello", []int{100}, "hello"},
		{line, "9110 15.2", "another 1xx comes too", post("/hints", "1.1", ask), "hello", []int{100, 103}, "hello"},
		{line, "9110 10.1.1", "not for a request without a body", post("/", "1.1", "Content-Length: 0\r\nExpect: 100-continue\r\n"), "", nil, ""},
		{line, "9110 10.1.1", "not for HTTP/1.0", post("/", "1.0", "Connection: keep-alive\r\n"+ask) + "hello", "", nil, "hello"},
		{never, "9110 10.1.1", "without a body", post("/", "1.1", "Expect: 100-continue\r\n"), "", nil, ""},
		{never, "9110 10.1.1", "named by Connection", post("/", "1.1", "Connection: Expect\r\n"+ask), "hello", []int{100}, "hello"},
	}
}

// T11: Expect is answered once, when the app is there, and not if it refuses.
func TestContinueIsSentOnceAndOnlyIfTheAppDoesNotRefuse(t *testing.T) {
	o := expecting(t)
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for _, e := range expectCases() {
		t.Run(e.line+"/"+e.rfc+"/"+e.name, func(t *testing.T) {
			c := r.dial()
			c.t = t
			_ = c.SetDeadline(time.Now().Add(patience)) // one that is not invited waits in vain
			c.send(e.head)
			for _, want := range e.interim {
				if a := c.read("POST"); a.StatusCode != want {
					t.Fatalf("%d, want %d", a.StatusCode, want)
				}
			}
			c.send(e.body)
			c.want(200, e.answer)
			c.get("/next")
			c.want(200, "")
		})
	}
	const ask = "Content-Length: 5\r\nExpect: 100-continue\r\n"
	t.Run("100-continue is answered by us/9110 10.1.1/not while the app wakes", func(t *testing.T) {
		r.app.Place(edge.Placement{State: edge.Waking})
		c := r.dial()
		c.t = t
		c.send(gatePost(ask, ""))
		eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
		_ = c.SetReadDeadline(time.Now().Add(2 * continueAfter))
		if b, err := c.r.Peek(1); err == nil {
			t.Fatalf("%q while the app wakes", b)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		c.r.Reset(c.Conn)
		r.app.Place(o.placement(1))
		if a := c.read("POST"); a.StatusCode != 100 {
			t.Fatalf("%d, want 100", a.StatusCode)
		}
		c.send("hello")
		c.want(200, "hello")
	})
	t.Run("100-continue is answered by us/9110 10.1.1/not if the app refuses at once", func(t *testing.T) {
		eventually(t, "a refusal without an invitation", func() bool { // a machine that is busy for continueAfter makes it too late
			c := r.dial()
			c.t = t
			c.send("POST /refuse HTTP/1.1\r\n" + gateHost + ask + "\r\n")
			a := c.read("POST")
			unasked := a.StatusCode != 100
			if !unasked {
				a = c.read("POST")
			}
			if a.StatusCode != 401 || !a.Close {
				t.Fatalf("%d, close %v", a.StatusCode, a.Close)
			}
			return unasked
		})
	})
}
