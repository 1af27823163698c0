package engine

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usher-edge/usher/edge"
)

// moody is an app that ends a WebSocket as it is told to.
func moody(t *testing.T) *origin {
	t.Helper()
	return httpOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		ws, err := websocket.Accept(w, q, nil)
		if err != nil {
			return
		}
		defer func() { _ = ws.CloseNow() }()
		for {
			kind, b, err := ws.Read(q.Context())
			switch {
			case err != nil || string(b) == "drop":
				return
			case string(b) == "close":
				_ = ws.Close(websocket.StatusNormalClosure, "")
				return
			case ws.Write(q.Context(), kind, b) != nil:
				return
			}
		}
	}))
}

func TestTheBooksKnowWhoEndedAnUpgradedConnection(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.app.Place(moody(t).placement(1))
	say := func(word string) func(*websocket.Conn) {
		return func(ws *websocket.Conn) {
			_ = ws.Write(t.Context(), websocket.MessageText, []byte(word))
			_, _, _ = ws.Read(t.Context()) // answers a close frame
		}
	}
	for _, c := range []struct {
		name string
		end  func(ws *websocket.Conn)
		want edge.Upgrades
	}{
		{"the client closes", func(ws *websocket.Conn) { _ = ws.Close(websocket.StatusNormalClosure, "") }, edge.Upgrades{Client: 1}},
		{"the client is gone", func(ws *websocket.Conn) { _ = ws.CloseNow() }, edge.Upgrades{Client: 1}},
		{"the app closes", say("close"), edge.Upgrades{App: 1}},
		{"the app is gone", say("drop"), edge.Upgrades{App: 1}},
		{"a drain cuts", func(ws *websocket.Conn) {
			r.app.Cut(1)
			_, _, _ = ws.Read(t.Context())
		}, edge.Upgrades{Cut: 1}},
		{"a drain closes", func(ws *websocket.Conn) {
			r.app.CloseStreams(1, 0)
			_, _, _ = ws.Read(t.Context())
		}, edge.Upgrades{Usher: 1}},
	} {
		ac := r.app.OpenAccount(2)
		ws := r.websocket()
		if err := echoed(ws, "hello"); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.end(ws)
		_ = ws.CloseNow()
		eventually(t, c.name, func() bool { y := ac.Look(); return y.Open == 0 && y.Upgrades.Open == 0 })
		c.want.Opened = 1
		if y := ac.Close(); y.Upgrades != c.want || len(y.Mismatch) > 0 || y.Accepted != 1 {
			t.Errorf("%s: %+v", c.name, y)
		}
	}
}

func TestATunnelOfAnotherProtocolIsEndedByWhoeverHangsUp(t *testing.T) {
	o := newOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("%s", switching)
		b := make([]byte, 5)
		if _, err := io.ReadFull(s.r, b); err == nil && string(b) == "stay." {
			_, _ = io.Copy(s, s.r)
		}
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	// 0x88 begins a close frame in WebSocket, and means nothing here.
	for first, want := range map[string]edge.Upgrades{"leave\x88": {Opened: 1, App: 1}, "stay.\x88": {Opened: 1, Client: 1}} {
		ac := r.app.OpenAccount(2)
		c := r.dial()
		c.send(upgrade)
		c.read("GET")
		c.send(first)
		if strings.HasPrefix(first, "stay") {
			c.fin()
		}
		_, _ = io.ReadAll(c.r)
		c.Close()
		eventually(t, first, func() bool { y := ac.Look(); return y.Open == 0 && y.Upgrades.Open == 0 })
		if y := ac.Close(); y.Upgrades != want || len(y.Mismatch) > 0 {
			t.Errorf("%q: %+v", first, y.Upgrades)
		}
	}
}

// The books add up over the real engine too, while generations are switched,
// held and cut under load.
func TestBooksOfSwapsUnderLoadAddUp(t *testing.T) {
	r := newRig(t, rigOptions{})
	a, b := newOrigin(t, always("a")), newOrigin(t, always("b"))
	r.app.Place(a.placement(1))
	ctx, stop := context.WithCancel(t.Context())
	lanes := make(chan struct{})
	const clients = 8
	for range clients {
		go func() {
			defer func() { lanes <- struct{}{} }()
			for ctx.Err() == nil {
				c := r.dial()
				for range 20 {
					if _, err := io.WriteString(c, "GET / HTTP/1.1\r\nHost: app.test\r\n\r\n"); err != nil {
						break // it was cut
					}
					if _, err := c.tryRead("GET"); err != nil {
						break
					}
				}
				c.Close()
			}
		}()
	}
	var accepted uint64
	for i := range uint64(100) {
		gen := i + 2
		ac := r.app.OpenAccount(gen)
		if i%2 == 0 {
			r.app.Place(edge.Placement{State: edge.Holding})
			<-time.After(time.Millisecond)
		}
		next := a
		if i%3 == 0 {
			next = b
		}
		r.app.Place(next.placement(gen))
		released := ac.Turn()
		if i%4 == 0 {
			r.app.Cut(gen - 1)
		}
		<-released
		<-r.app.Drained(gen - 1)
		y := ac.Close()
		for _, m := range y.Mismatch {
			t.Errorf("swap %d: %s", i, m)
		}
		accepted += y.Accepted
	}
	stop()
	for range clients {
		<-lanes
	}
	if accepted == 0 {
		t.Error("nothing was accepted in any window")
	}
}
