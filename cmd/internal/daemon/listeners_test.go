package daemon

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/cmd/internal/config"
)

// accepted is the congestion control of a connection to a listener on that address.
func accepted(t *testing.T, address string) (name string) {
	t.Helper()
	ln, err := listen(t.Context(), config.Addr{Network: "tcp", Address: address}, config.Group{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := netip.MustParseAddrPort(ln.Addr().String()).Port()
	client, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String())
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
	if cerr := raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}); cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
	return name
}

func TestAListenerOnALoopbackAddressDoesNotPace(t *testing.T) {
	if name := accepted(t, "127.0.0.1:0"); name != "reno" {
		t.Errorf("a connection to a loopback address uses %s", name)
	}
}
