package engine

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

const (
	wsUpgrade   = "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	wsSwitching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
	eventsHead  = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
	wsFrame     = "\x82\x05hello"
	oneEvent    = "data: x\n\n"
)

// says answers the first request with first, goes on with then, and tells that it has.
func says(t *testing.T, first, then string) (o *origin, said chan struct{}) {
	t.Helper()
	said, over := make(chan struct{}, 1), make(chan struct{})
	o = newTCPOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("%s", first)
		flood(s, then)
		said <- struct{}{}
		<-over
	})
	t.Cleanup(func() { close(over) }) // before the origin waits for its connections
	return o, said
}

// flood writes piece until nobody takes it any more.
func flood(c net.Conn, piece string) {
	for b := []byte(strings.Repeat(piece, 10000)); len(b) > 0; {
		_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := c.Write(b); err != nil {
			return
		}
	}
}

// A hold swap closes its streams at once, for all who wait for it. That no client can
// put off, and no app: one that takes nothing, or has nothing more to say.
func TestAHoldWaitsForNoStream(t *testing.T) {
	cases := map[string]struct {
		asks, first string
		then        string // the app writes it until nobody takes it
		sends       string // the client writes it until nobody takes it
		sees, ends  string // by the client, before and after; "": it reads nothing
	}{
		"a WebSocket client that does not close":    {asks: wsUpgrade, first: wsSwitching + wsFrame, sees: wsFrame, ends: closeRestart},
		"in the middle of a frame of the app":       {asks: wsUpgrade, first: wsSwitching + wsFrame[:4], sees: wsFrame[:4]},
		"in the middle of a frame's head":           {asks: wsUpgrade, first: wsSwitching + wsFrame[:1], sees: wsFrame[:1]},
		"a WebSocket client that takes nothing":     {asks: wsUpgrade, first: wsSwitching, then: wsFrame},
		"an app that takes nothing":                 {asks: wsUpgrade, first: wsSwitching + wsFrame, sends: wsFrame, sees: wsFrame, ends: closeRestart},
		"another protocol":                          {asks: upgrade, first: switching + "hello", sees: "hello"},
		"another protocol, a client that is slow":   {asks: upgrade, first: switching, then: "hello"},
		"a reader of events that takes nothing":     {asks: asks, first: eventsHead, then: oneEvent},
		"a reader of events, an app that is silent": {asks: asks, first: eventsHead + oneEvent, sees: oneEvent, ends: "\r\nd\r\n" + retryHint + "\r\n0\r\n\r\n"},
	}
	for name, x := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{server: Options{parting: time.Hour}})
			o, said := says(t, x.first, x.then)
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send(x.asks)
			<-said
			if x.sees != "" {
				c.until(x.sees)
			}
			flood(c, x.sends)
			eventually(t, "the stream is open", func() bool { return r.app.Stats().Streams == 1 })
			r.app.Place(edge.Placement{State: edge.Holding})
			r.app.CloseStreams(1, 0)
			r.drained(1)
			if x.sees == "" {
				return
			}
			_ = c.SetReadDeadline(time.Now().Add(patience))
			rest := make([]byte, len(x.ends))
			if _, err := io.ReadFull(c.r, rest); err != nil || string(rest) != x.ends {
				t.Errorf("%q, %v; want %q", rest, err, x.ends)
			}
		})
	}
}

// What becomes a stream only after the streams were closed is nothing to wait for either.
func TestAHoldWaitsForNoStreamThatBeginsInIt(t *testing.T) {
	for name, x := range map[string]struct{ asks, first, ends string }{
		"a WebSocket": {wsUpgrade, wsSwitching, "\r\n\r\n" + closeRestart},
		"events":      {asks, eventsHead, retryHint},
	} {
		t.Run(name, func(t *testing.T) {
			begin := make(chan struct{})
			o := newTCPOrigin(t, func(s *stage) {
				if _, ok := s.read(); ok {
					<-begin
					s.say("%s", x.first)
					<-s.o.stopping
				}
			})
			r := newRig(t, rigOptions{server: Options{parting: time.Hour}})
			r.app.Place(o.placement(1))
			c := r.dial()
			c.send(x.asks)
			eventually(t, "forwarded", func() bool { return o.heads.Load() == 1 })
			r.app.Place(edge.Placement{State: edge.Holding})
			r.app.CloseStreams(1, 0)
			close(begin)
			c.until(x.ends)
			r.drained(1)
		})
	}
}

// Where nobody waits for it, what is under way in a WebSocket is not lost: the rest of
// a frame of the app, and what the client says before it answers the close frame.
func TestAWebSocketThatIsToEndPolitelyFinishesWhatItIsAt(t *testing.T) {
	asked := make(chan struct{})
	heard := make(chan string, 1)
	const pieces = 20
	o := newTCPOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("%s\x82\x7e\x07\xd0", wsSwitching) // a frame of 2,000 bytes
		<-asked
		for range pieces {
			<-time.After(5 * time.Millisecond)
			s.say("%s", strings.Repeat("x", 2000/pieces))
		}
		b, _ := io.ReadAll(s.r)
		heard <- string(b)
	})
	r := newRig(t, rigOptions{server: Options{parting: patience}})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send(wsUpgrade)
	c.until("\x07\xd0")
	r.app.Place(edge.Placement{State: edge.Holding})
	r.app.CloseStreams(1, time.Millisecond)
	close(asked)
	c.until(strings.Repeat("x", 2000) + closeRestart)
	c.send(wsFrame + closeRestart)
	_ = c.Close()
	if got := <-heard; got != wsFrame+closeRestart {
		t.Errorf("the app heard %q", got)
	}
	r.drained(1)
	if n := r.last(1).Result; n.Ending != edge.Served || n.Parting != edge.PartedByUsher || n.BytesOut != 4+2000 {
		t.Errorf("%+v", n)
	}
}

// Whoever asks a stream to end may come just after it has ended by itself: that must hit
// neither of its connections, which may have others by then.
func TestAStreamThatHasEndedIsAskedNothing(t *testing.T) {
	r := newRig(t, rigOptions{})
	looks := 0
	e := &ending{c: &conn{srv: r.srv}, look: func() { looks++ }}
	e.ask(edge.Politely)
	e.ask(edge.AtOnce)
	if looks != 1 {
		t.Errorf("asked %d times", looks)
	}
	e = &ending{c: &conn{srv: r.srv}, look: func() { looks++ }}
	e.close()
	if e.ask(edge.AtOnce); looks != 1 || e.asked.Load() {
		t.Error("asked after its end")
	}
}
