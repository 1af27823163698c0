package engine

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// writesFirst writes all that it has before it reads a byte, as Python's http.client
// and others do. It returns the answer.
func (r *rig) writesFirst(head string, body io.Reader) (a answer, err error) {
	c := r.dial()
	defer c.Close()
	if _, err := io.WriteString(c, head); err != nil {
		return answer{}, fmt.Errorf("head: %w", err)
	}
	if n, err := io.Copy(c, body); err != nil {
		return answer{}, fmt.Errorf("after %d bytes of body: %w", n, err)
	}
	a, err = c.tryRead("POST")
	if err != nil {
		return a, fmt.Errorf("read answer: %w", err)
	}
	if !a.Close { // all of the body had been taken before the answer began
		return a, nil
	}
	if rest, err := io.ReadAll(c.r); len(rest) > 0 || err != nil {
		return a, fmt.Errorf("and then %q: %w", rest, err)
	}
	return a, nil
}

// An early answer reaches a client that writes its whole body first, whoever gives it
// and why.
func TestAnEarlyAnswerReachesAClientThatWritesItsBodyFirst(t *testing.T) { // RFC 9112 9.6
	early := func(then func(s *stage)) func(*stage) {
		return func(s *stage) {
			if _, ok := s.read(); !ok {
				return
			}
			s.say("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\nConnection: close\r\n\r\nno")
			then(s)
		}
	}
	stays := early(func(s *stage) { <-s.o.stopping })
	reads := early(func(s *stage) { _, _ = io.Copy(io.Discard, s.r) })
	closes := early(func(*stage) {})
	cases := map[string]struct {
		fields string
		app    func(*stage)      // nil: it must not be asked
		cfg    edge.AppConfig    // of the app
		place  func(r *rig) bool // true: instead of the app
		status int
	}{
		"413":                   {cfg: edge.AppConfig{MaxBody: 1 << 20}, status: 413},
		"413 within the body":   {fields: "Transfer-Encoding: chunked\r\n", app: func(s *stage) { s.read(); _, _ = io.Copy(io.Discard, s.r) }, cfg: edge.AppConfig{MaxBody: 1 << 20}, status: 413},
		"417":                   {fields: "Expect: more\r\n", status: 417},
		"400":                   {fields: "X Y: z\r\n", status: 400},
		"431":                   {fields: "X-Y: " + strings.Repeat("y", 40<<10) + "\r\n", status: 431},
		"503":                   {place: func(*rig) bool { return true }, status: 503},
		"503 of a full lot":     {cfg: edge.AppConfig{ParkLimit: 1}, place: parkOne, status: 503},
		"an app that stays":     {app: stays, status: 403},
		"an app that reads":     {app: reads, status: 403},
		"an app that closes":    {app: closes, status: 403},
		"chunks, it stays":      {fields: "Transfer-Encoding: chunked\r\n", app: stays, status: 403},
		"chunks, it closes":     {fields: "Transfer-Encoding: chunked\r\n", app: closes, status: 403},
		"an app that is no app": {app: func(s *stage) { s.read(); s.say("nonsense\r\n\r\n") }, status: 502},
	}
	for name, x := range cases {
		for _, unix := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unix %v", name, unix), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, rigOptions{app: x.cfg, unix: unix})
				app := x.app
				if app == nil {
					app = always("never")
				}
				o := newTCPOrigin(t, app)
				if x.place == nil || !x.place(r) {
					r.app.Place(o.placement(1))
				}
				for _, size := range []int{3 << 20, 20 << 20} {
					head := "POST / HTTP/1.1\r\nHost: app.test\r\n" + x.fields
					body := io.LimitReader(zeros{}, int64(size))
					if strings.Contains(x.fields, "chunked") {
						body = strings.NewReader(chunks(strings.Repeat("x", size), 60_000))
					} else {
						head += fmt.Sprintf("Content-Length: %d\r\n", size)
					}
					a, err := r.writesFirst(head+"\r\n", body)
					if err != nil || a.StatusCode != x.status || a.err != nil {
						t.Errorf("%d bytes: %v, %v", size, a.Response, err)
					}
				}
			})
		}
	}
}

// parkOne fills a lot that has room for one.
func parkOne(r *rig) bool {
	r.app.Place(edge.Placement{State: edge.Paused})
	c := r.dial()
	c.get("/")
	eventually(r.t, "parked", func() bool { return r.app.Stats().Parked == 1 })
	return true
}

// lingering is a connection that has its answer, and goes on sending.
func (r *rig) lingering() *client {
	r.t.Helper()
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nContent-Length: 100000000\r\n\r\n")
	c.status(503)
	return c
}

// Nobody goes on for ever: neither who sends nothing nor who does not stop.
func TestAClientThatGoesOnSendingIsCutOffInTheEnd(t *testing.T) {
	r := newRig(t, rigOptions{server: Options{linger: 400 * time.Millisecond}})
	silent, busy := r.lingering(), r.lingering()
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(busy, zeros{})
		ended <- err
	}()
	select {
	case err := <-ended:
		if isTimeout(err) {
			t.Errorf("%v", err)
		}
	case <-time.After(2 * patience):
		t.Fatal("it is still read")
	}
	silent.wantEOF()
	eventually(t, "no connection is left", func() bool { return r.srv.Connections() == 0 })
}

// Meanwhile they are connections like others, for the limits, and hold none of what a
// request holds.
func TestAClientThatGoesOnSendingCountsAsConnected(t *testing.T) {
	r := newRig(t, rigOptions{server: Options{MaxPerClient: 1}})
	c := r.lingering()
	r.counted("its request is over", func(s edge.Stats) bool { return s.Refused == 1 && s.Open() == 0 })
	next := r.dial()
	next.status(429)
	c.Close()
	eventually(t, "room for another", func() bool { return r.srv.Connections() == 0 })
	next = r.dial()
	next.get("/")
	next.status(503)
}

// A shutdown does not wait for those who go on sending, but gives them a moment.
func TestShutdownEndsThoseWhoGoOnSending(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.lingering()
	before := time.Now()
	if err := r.srv.Shutdown(context.Background()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(before); took > lingerMost/2 {
		t.Errorf("it took %v", took)
	}
}
