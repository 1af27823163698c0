package rawio

import (
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Unpaced is for the Control of a net.ListenConfig or net.Dialer: on a loopback
// address, as behind a TLS proxy or in front of an app, a socket does without BBR,
// where that is the machine's default. It sets a timer between the pieces of a large
// body, to spare a network that is not there, which is a quarter and more of what the
// body costs. Accepted connections inherit this; one that has begun to be paced stays
// so. Where Reno cannot be had nothing changes.
func Unpaced(_, address string, raw syscall.RawConn) error {
	if a, err := netip.ParseAddrPort(address); err != nil || !a.Addr().IsLoopback() {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
	})
}

// Moves says whether what is accepted at ln is worth moving bytes to (Pipe): a TCP
// socket that is not paced. BBR sends each of the pages that are moved on its own, with
// a timer, and takes several times what copying costs.
func Moves(ln net.Listener) bool {
	l, ok := ln.(*net.TCPListener)
	if !ok {
		return false
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return false
	}
	moves := false
	_ = raw.Control(func(fd uintptr) { // fails only if closed
		name, err := unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
		moves = err == nil && !strings.HasPrefix(name, "bbr")
	})
	return moves
}
