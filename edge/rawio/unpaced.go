package rawio

import (
	"net/netip"
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
