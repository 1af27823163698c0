package daemon

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/cmd/internal/config"
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
