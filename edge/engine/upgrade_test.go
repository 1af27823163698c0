package engine

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usher-edge/usher/edge"
)

const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"

// echoes switches protocols and sends back what comes, until the end.
func echoes(s *stage) {
	r, ok := s.read()
	if !ok {
		return
	}
	if r.Header.Get("Upgrade") == "" {
		s.ok("plain")
		return
	}
	s.say("%s", switching)
	_, _ = io.Copy(s, s.r)
}

const upgrade = "GET / HTTP/1.1\r\nHost: app.test\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n"

// S04: bytes that come together with the heads arrive.
func TestBytesThatComeWithTheHeadsOfAnUpgradeArrive(t *testing.T) {
	o := newOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("%shello", switching)
		_, _ = io.Copy(s, s.r)
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for i := range 100 {
		c := r.dial()
		word := fmt.Sprintf("early %03d", i)
		c.send(upgrade + word)
		if a := c.read("GET"); a.StatusCode != 101 || a.Header.Get("Upgrade") != "echo" {
			t.Fatalf("%+v", a.Response)
		}
		b := make([]byte, len("hello")+len(word))
		if _, err := io.ReadFull(c.r, b); err != nil || string(b) != "hello"+word {
			t.Fatalf("%q, %v", b, err)
		}
		c.Close()
	}
	eventually(t, "no stream left", func() bool { return r.app.Stats().Streams == 0 && o.open.Load() == 0 })
	if s := r.app.Stats(); s.Upgrades != 100 {
		t.Errorf("%+v", s)
	}
}

func TestAHalfCloseGoesThroughATunnel(t *testing.T) {
	o := newOrigin(t, echoes)
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send(upgrade)
	c.read("GET")
	c.send("hello")
	c.fin()
	if b, err := io.ReadAll(c.r); string(b) != "hello" || err != nil {
		t.Fatalf("%q, %v", b, err)
	}
	if n := r.last(1).Result; n.Ending != edge.Served || n.BytesIn != 5 || n.BytesOut != 5 || n.Status != 101 {
		t.Errorf("%+v", n)
	}
}

// S07: a refused upgrade and a client that resets leave nothing open.
func TestRefusedUpgradesAndVanishedClientsLeaveNothingOpen(t *testing.T) {
	o := newTCPOrigin(t, func(s *stage) {
		for {
			r, ok := s.read()
			if !ok {
				return
			}
			if r.URL.Path == "/no" {
				s.say("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnope")
				continue
			}
			s.say("%s", switching)
			_, _ = io.Copy(s, s.r)
			return
		}
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	for i := range 50 {
		c := r.dial()
		c.send(strings.Replace(upgrade, "GET /", "GET /no", 1))
		c.want(404, "nope")
		c.send(upgrade)
		if a := c.read("GET"); a.StatusCode != 101 {
			t.Fatalf("%d: %+v", i, a.Response)
		}
		c.rst()
	}
	eventually(t, "no stream left", func() bool { return r.app.Stats().Streams == 0 && r.srv.Connections() == 0 })
	r.app.Place(edge.Placement{State: edge.Asleep})
	eventually(t, "no connection to the app", func() bool { return o.open.Load() == 0 })
}

// wsOrigin echoes WebSocket messages.
func wsOrigin(t *testing.T) *origin {
	t.Helper()
	return httpOrigin(t, http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if _, there := q.Header["Sec-Websocket-Extensions"]; there {
			t.Error("S05: an extensions field that nobody sent")
		}
		ws, err := websocket.Accept(w, q, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			return
		}
		defer func() { _ = ws.CloseNow() }()
		ws.SetReadLimit(1 << 20)
		for {
			kind, b, err := ws.Read(q.Context())
			if err != nil || ws.Write(q.Context(), kind, b) != nil {
				return
			}
		}
	}))
}

func (r *rig) websocket() *websocket.Conn {
	r.t.Helper()
	ws, _, err := websocket.Dial(r.t.Context(), "ws://"+r.addr, &websocket.DialOptions{
		CompressionMode: websocket.CompressionDisabled, HTTPClient: &http.Client{Transport: &http.Transport{}},
	})
	if err != nil {
		r.t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	return ws
}

// echoed sends a message and expects it back.
func echoed(ws *websocket.Conn, msg string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := ws.Write(ctx, websocket.MessageText, []byte(msg)); err != nil {
		return err
	}
	_, b, err := ws.Read(ctx)
	if err == nil && string(b) != msg {
		err = fmt.Errorf("echo is %d bytes, want %d", len(b), len(msg))
	}
	return err
}

// S02, S03, O05: a WebSocket lives over the switch, counts as in flight, and is
// closed with 1012 when the drain comes to its end.
func TestAWebSocketLivesOverTheSwitchAndIsClosedPolitely(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.app.Place(wsOrigin(t).placement(1))
	ws := r.websocket()
	for _, n := range []int{1, 200, 70000} {
		if err := echoed(ws, strings.Repeat("x", n)); err != nil {
			t.Fatal(err)
		}
	}
	r.app.Place(wsOrigin(t).placement(2))
	if err := echoed(ws, "still there"); err != nil {
		t.Fatal(err)
	}
	if a := r.app.Activity(); a.InFlight != 1 {
		t.Errorf("%+v", a)
	}
	r.app.CloseStreams(1, 10*time.Millisecond)
	_, _, err := ws.Read(t.Context())
	if code := websocket.CloseStatus(err); code != websocket.StatusServiceRestart {
		t.Fatalf("closed with %v", err)
	}
	r.drained(1)
	again := r.websocket()
	if err := echoed(again, "new"); err != nil {
		t.Fatal(err)
	}
	_ = again.Close(websocket.StatusNormalClosure, "")
	eventually(t, "no stream left", func() bool { return r.app.Stats().Streams == 0 })
}

// S01: what happens to other apps does not touch a WebSocket.
func TestChangesOfOtherAppsLeaveAWebSocketAlone(t *testing.T) {
	r := newRig(t, rigOptions{})
	r.app.Place(wsOrigin(t).placement(1))
	ws := r.websocket()
	for i := range 20 {
		cfgs := []edge.AppConfig{{Name: "app", Hosts: []string{"*"}, MaxBody: int64(i)}}
		if i%2 == 0 {
			cfgs = append(cfgs, edge.AppConfig{Name: "b", Hosts: []string{"b.test"}})
		}
		if err := r.edge.SetApps(cfgs); err != nil {
			t.Fatal(err)
		}
		if b := r.edge.App("b"); b != nil {
			b.Place(edge.Placement{Generation: uint64(i), State: edge.Serving, Network: "unix", Address: "/nowhere"})
			b.CloseStreams(uint64(i), 0)
			b.Cut(uint64(i))
		}
		if err := echoed(ws, fmt.Sprint(i)); err != nil {
			t.Fatalf("after change %d: %v", i, err)
		}
	}
	_ = ws.Close(websocket.StatusNormalClosure, "")
}

func TestAnUpgradeThatTheDrainCutsIsReset(t *testing.T) {
	o := newTCPOrigin(t, echoes)
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send(upgrade)
	c.read("GET")
	r.app.Place(edge.Placement{State: edge.Holding})
	r.app.Cut(1)
	c.wantReset()
	<-r.app.Drained(1)
	if n := r.last(1).Result; n.Cause != edge.CauseDrainCut || n.Ending != edge.Failed {
		t.Errorf("%+v", n)
	}
}

func TestFramesKnowWhereAMessageEnds(t *testing.T) {
	long := func(n int, mask bool) string {
		bit := byte(0)
		if mask {
			bit = 0x80
		}
		var h []byte
		switch {
		case n < 126:
			h = []byte{0x82, bit | byte(n)}
		case n < 1<<16:
			h = []byte{0x82, bit | 126, byte(n >> 8), byte(n)}
		default:
			h = []byte{0x82, bit | 127, 0, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
		}
		if mask {
			h = append(h, 1, 2, 3, 4)
		}
		return string(h) + strings.Repeat("x", n)
	}
	stream := ""
	ends := map[int]bool{0: true}
	for _, n := range []int{0, 1, 125, 126, 65535, 65536} {
		for _, mask := range []bool{false, true} {
			stream += long(n, mask)
			ends[len(stream)] = true
		}
	}
	for _, piece := range []int{1, 3, 1000, len(stream)} {
		var f frames
		for at := 0; at < len(stream); {
			n := min(piece, len(stream)-at)
			f.follow([]byte(stream[at : at+n]))
			at += n
			if f.boundary() != ends[at] {
				t.Fatalf("pieces of %d: boundary at %d is %v", piece, at, f.boundary())
			}
		}
		if f.closed {
			t.Fatal("a close frame was seen that was not there")
		}
		if f.follow([]byte(closeRestart)); !f.closed || !f.boundary() {
			t.Fatal("the close frame was not seen")
		}
	}
}

// halfClosed is a tunnel one side of which, "app" or "client", has ended what it
// sends. The app's connection comes out of the channel.
func halfClosed(t *testing.T, r *rig, by string) (*client, *stage) {
	t.Helper()
	stages, over := make(chan *stage, 1), make(chan struct{})
	o := newTCPOrigin(t, func(s *stage) {
		if _, ok := s.read(); !ok {
			return
		}
		s.say("%s", switching)
		if by == "app" {
			_ = s.Conn.(interface{ CloseWrite() error }).CloseWrite()
		}
		stages <- s
		<-over
	})
	t.Cleanup(func() { close(over) }) // before the origin waits for its connections
	r.app.Place(o.placement(1))
	c := r.dial()
	c.send(upgrade)
	if a := c.read("GET"); a.StatusCode != 101 {
		t.Fatalf("%+v", a.Response)
	}
	s := <-stages
	_ = s.SetDeadline(time.Now().Add(patience))
	if by == "client" {
		c.fin()
		if _, err := s.r.ReadByte(); err != io.EOF {
			t.Fatalf("the half-close does not come through: %v", err)
		}
	} else if _, err := c.r.ReadByte(); err != io.EOF {
		t.Fatalf("the half-close does not come through: %v", err)
	}
	return c, s
}

// One side has ended what it sends, the other goes on for longer than a silent one
// would live.
func TestAHalfOpenTunnelLivesAsLongAsBytesFlow(t *testing.T) {
	for _, by := range []string{"app", "client"} {
		t.Run("ended by the "+by, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, rigOptions{server: Options{halfOpen: 2 * time.Second}})
			c, s := halfClosed(t, r, by)
			const pieces = 25
			for i := range pieces {
				<-time.After(200 * time.Millisecond)
				var err error
				if by == "app" {
					c.send("x")
					_, err = s.r.ReadByte()
				} else {
					s.say("x")
					_, err = c.r.ReadByte()
				}
				if err != nil {
					t.Fatalf("byte %d: %v", i, err)
				}
			}
			if by == "app" {
				c.fin()
				if _, err := s.r.ReadByte(); err != io.EOF {
					t.Errorf("the app reads %v", err)
				}
			} else {
				_ = s.Conn.(interface{ CloseWrite() error }).CloseWrite()
				c.wantEOF()
			}
			if n := r.last(1).Result; n.Ending != edge.Served || n.Cause != edge.CauseNone || n.BytesIn+n.BytesOut != pieces {
				t.Errorf("%+v", n)
			}
		})
	}
}

func TestAHalfOpenTunnelThatIsSilentIsCutAndThatIsLogged(t *testing.T) {
	for _, by := range []string{"app", "client"} {
		t.Run("ended by the "+by, func(t *testing.T) {
			r := newRig(t, rigOptions{server: Options{halfOpen: 300 * time.Millisecond}})
			c, _ := halfClosed(t, r, by)
			if n := r.last(1).Result; n.Ending != edge.Failed || n.Cause != edge.CauseHalfOpen {
				t.Errorf("%+v", n)
			}
			if by == "client" {
				c.wantReset()
				return
			}
			eventually(t, "a reset", func() bool { // it has read the end already
				_, err := c.Write([]byte("x"))
				return err != nil
			})
		})
	}
}

// A half-open tunnel keeps no drain and no Shutdown waiting, and the news that its
// client has gone altogether ends it.
func TestAHalfOpenTunnelEndsWhenItIsAskedTo(t *testing.T) {
	for _, by := range []string{"app", "client"} {
		t.Run("ended by the "+by, func(t *testing.T) {
			r := newRig(t, rigOptions{})
			halfClosed(t, r, by)
			r.app.CloseStreams(1, 0)
			if n := r.last(1).Result; n.Ending != edge.Served || n.Cause != edge.CauseNone {
				t.Errorf("%+v", n)
			}
		})
	}
	t.Run("by a client that leaves", func(t *testing.T) {
		r := newRig(t, rigOptions{})
		c, _ := halfClosed(t, r, "client")
		c.rst()
		if n := r.last(1).Result; n.Ending != edge.Gone || n.Cause != edge.CauseClientGone {
			t.Errorf("%+v", n)
		}
	})
}

// The watcher that looked at a parked client must not take its half-close in the
// tunnel that follows for leaving.
func TestATunnelThatWasParkedKnowsAHalfClose(t *testing.T) {
	o := newOrigin(t, echoes)
	r := newRig(t, rigOptions{})
	r.app.Place(edge.Placement{State: edge.Asleep})
	c := r.dial()
	c.send(upgrade)
	eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
	r.app.Place(o.placement(1))
	c.read("GET")
	c.send(strings.Repeat("x", 1<<20))
	c.fin()
	if b, err := io.ReadAll(c.r); len(b) != 1<<20 || err != nil {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	if n := r.last(1).Result; n.Ending != edge.Served || n.Cause != edge.CauseNone {
		t.Errorf("%+v", n)
	}
}
