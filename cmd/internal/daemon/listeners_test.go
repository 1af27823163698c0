package daemon

import (
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/edge/engine"
)

// Connections inherit what the listener says: see rawio.Unpaced.
func TestAListenerOnALoopbackAddressDoesNotPace(t *testing.T) {
	ln, err := listen(t.Context(), config.Addr{Network: "tcp", Address: "127.0.0.1:0"}, config.Group{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	client, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var name string
	if cerr := raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if name != "reno" {
		t.Errorf("a connection to a loopback address uses %s", name)
	}
}

// Go listens with MPTCP by itself. A client that uses it gets a large answer with pauses
// of 200 ms, whether that is copied or moved.
func TestAListenerSpeaksPlainTCP(t *testing.T) {
	ln, err := listen(t.Context(), config.Addr{Network: "tcp", Address: "127.0.0.1:0"}, config.Group{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	raw, err := ln.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var protocol int
	if cerr := raw.Control(func(fd uintptr) {
		protocol, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PROTOCOL)
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	if protocol != unix.IPPROTO_TCP {
		t.Errorf("protocol %d", protocol)
	}
}

// However many listeners there are, each is told that the server is shut down, and none
// waits for somebody to hear that.
func TestManyListenersEndTogether(t *testing.T) {
	d := &daemon{fail: make(chan error, 1)}
	const many = 20
	for range many {
		d.run(func() error { return engine.ErrClosed })
	}
	await(t, d.wg.Wait, "all listeners that were shut down end")
	if len(d.fail) > 0 {
		t.Errorf("to be shut down is no failure: %v", <-d.fail)
	}
	for range many {
		d.run(func() error { return syscall.EIO })
	}
	await(t, d.wg.Wait, "all listeners that failed end")
	if err := <-d.fail; err != syscall.EIO {
		t.Errorf("they failed with %v", err)
	}
}

func await(t *testing.T, f func(), what string) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("in vain: " + what)
	}
}
