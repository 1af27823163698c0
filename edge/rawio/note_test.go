package rawio

import (
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// noted is a connection with its note and its other end.
type noted struct {
	net.Conn
	raw  syscall.RawConn
	note Note
	far  net.Conn
}

func newNoted(t *testing.T, network string) *noted {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	near, err := net.Dial(network, ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		near.Close()
		far.Close()
	})
	raw, err := near.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := &noted{Conn: near, raw: raw, note: NoteOf(near), far: far}
	if n.note == (Note{}) {
		t.Fatal("no note: has this version of Go another layout of runtime.pollDesc? see note_go126.go")
	}
	return n
}

// say sends a byte from the other end.
func (n *noted) say(t *testing.T) {
	t.Helper()
	if _, err := n.far.Write([]byte{'x'}); err != nil {
		t.Fatal(err)
	}
}

// hear reads it.
func (n *noted) hear(t *testing.T) {
	t.Helper()
	if _, err := n.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.After(20 * time.Second)
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never happened: %s", what)
		}
	}
}

// onBoth runs a test for both kinds of sockets.
func onBoth(t *testing.T, test func(t *testing.T, network string)) {
	for _, network := range []string{"unix", "tcp"} {
		t.Run(network, func(t *testing.T) { test(t, network) })
	}
}

func TestANoteTellsOfBytesAndOfTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		n := newNoted(t, network)
		blank := func() bool { return n.note.Blank(n.raw) }
		written := func() bool { return !blank() }
		eventually(t, "a new connection has a blank note", blank)
		n.say(t)
		eventually(t, "a byte is noted", written)
		n.hear(t)
		eventually(t, "the note of what was read is blank", blank)
		if !n.note.Still() {
			t.Error("blank, but not still")
		}
		n.far.Close()
		eventually(t, "the end is noted", func() bool { return !n.note.Still() })
		if blank() {
			t.Error("the end is gone from the note")
		}
	})
}

func TestBeginningToReadDoesNotHideWhatWasNoted(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		n := newNoted(t, network)
		eventually(t, "a blank note", func() bool { return n.note.Blank(n.raw) })
		n.say(t)
		eventually(t, "a byte is noted", func() bool { return !n.note.Still() })
		if err := n.raw.Read(func(uintptr) bool { return true }); err != nil { // the poller forgets
			t.Fatal(err)
		}
		if n.note.Still() {
			t.Error("forgotten")
		}
	})
}

// What the note is for: bytes that came before what woke somebody are noted when that
// one runs.
func TestWhoIsWokenFindsWhatCameBefore(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		idle, bell := newNoted(t, network), newNoted(t, "tcp")
		for i := range 2000 {
			eventually(t, "a blank note", func() bool { return idle.note.Blank(idle.raw) })
			waits, missed := make(chan struct{}), make(chan bool)
			go func() {
				calls, blank := 0, false
				_ = bell.raw.Read(func(uintptr) bool {
					if calls++; calls == 1 {
						close(waits)
						return false
					}
					blank = idle.note.Blank(idle.raw)
					return true
				})
				missed <- blank
			}()
			<-waits
			idle.say(t)
			bell.say(t)
			if <-missed {
				t.Fatalf("round %d: woken, and nothing is noted of what came before", i)
			}
			idle.hear(t)
			bell.hear(t)
		}
	})
}

func TestWhatIsNoSocketHasNoNote(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	for _, c := range []net.Conn{nil, a, &noted{}, struct{ net.Conn }{a}} {
		if n := NoteOf(c); n != (Note{}) || n.Blank(nil) {
			t.Errorf("%T: %v", c, n)
		}
	}
}
