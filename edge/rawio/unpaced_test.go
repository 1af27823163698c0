package rawio

import (
	"net"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func congestion(t *testing.T, c syscall.Conn) (name string) {
	t.Helper()
	raw, err := c.SyscallConn()
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

func TestOnlyConnectionsOfThisMachineDoWithoutPacing(t *testing.T) {
	plain, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	machines := congestion(t, plain.(*net.TCPListener))
	for address, want := range map[string]string{"127.0.0.1:0": "reno", "[::1]:0": "reno", "0.0.0.0:0": machines} {
		ln, err := (&net.ListenConfig{Control: Unpaced}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Logf("no %s here: %v", address, err)
			continue
		}
		defer ln.Close()
		client, err := (&net.Dialer{Control: Unpaced}).DialContext(t.Context(), "tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if got := congestion(t, server.(*net.TCPConn)); got != want {
			t.Errorf("%s: an accepted connection uses %s, not %s", address, got, want)
		}
		if got := congestion(t, client.(*net.TCPConn)); address != "0.0.0.0:0" && got != want {
			t.Errorf("%s: a dialled connection uses %s, not %s", address, got, want)
		}
	}
}
