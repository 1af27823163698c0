package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// askListeners adds the inodes of the listening sockets on port that a connection
// to loopback can reach. It asks the kernel for just those (sock_diag(7)), which
// takes a fiftieth of the time of /proc/net/tcp: to print what listens, that looks
// through the table of all connections. An error says that it cannot be asked here,
// and nothing about the port.
func askListeners(port int, sockets map[string]bool) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return fmt.Errorf("ask the kernel for sockets: %w", err)
	}
	defer unix.Close(fd)
	// The answer is made while the question is sent, so nothing is waited for.
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return fmt.Errorf("ask the kernel for sockets: %w", err)
	}
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		if err := unix.Sendto(fd, diagRequest(family, port), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
			return fmt.Errorf("ask the kernel for sockets: %w", err)
		}
		if err := diagAnswer(fd, port, sockets); err != nil {
			return fmt.Errorf("ask the kernel for sockets: %w", err)
		}
	}
	return nil
}

// What is sent and received, as the kernel's inet_diag.h has it. Numbers are in the
// machine's byte order, but for ports and addresses.
const (
	tcpListen      = 10
	diagRequestLen = unix.SizeofNlMsghdr + 56
	diagStates     = unix.SizeofNlMsghdr + 4
	diagSourcePort = unix.SizeofNlMsghdr + 8

	diagMessageLen = 72
	messageFamily  = 0
	messageState   = 1
	messagePort    = 4
	messageAddress = 8
	messageInode   = 68
)

func diagRequest(family uint8, port int) []byte {
	b := make([]byte, diagRequestLen)
	binary.NativeEndian.PutUint32(b, diagRequestLen)
	binary.NativeEndian.PutUint16(b[4:], unix.SOCK_DIAG_BY_FAMILY)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	b[unix.SizeofNlMsghdr], b[unix.SizeofNlMsghdr+1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[diagStates:], 1<<tcpListen)
	binary.BigEndian.PutUint16(b[diagSourcePort:], uint16(port))
	return b
}

// errUnclear is an answer that is not to be relied on.
var errUnclear = errors.New("the answer cannot be read")

// diagAnswer reads up to the end of one answer.
func diagAnswer(fd, port int, sockets map[string]bool) error {
	buf := make([]byte, 32<<10)
	for {
		n, _, flags, _, err := unix.Recvmsg(fd, buf, nil, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case flags&unix.MSG_TRUNC != 0:
			return errUnclear
		}
		done, err := diagMessages(buf[:n], port, sockets)
		if done || err != nil {
			return err
		}
	}
}

// diagMessages reads what came in one piece.
func diagMessages(b []byte, port int, sockets map[string]bool) (done bool, err error) {
	for len(b) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(b))
		kind, flags := binary.NativeEndian.Uint16(b[4:]), binary.NativeEndian.Uint16(b[6:])
		if size < unix.SizeofNlMsghdr || size > len(b) || flags&unix.NLM_F_DUMP_INTR != 0 {
			return false, errUnclear
		}
		body := b[unix.SizeofNlMsghdr:size]
		switch kind {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(body) < 4 {
				return false, errUnclear
			}
			return false, unix.Errno(-int32(binary.NativeEndian.Uint32(body)))
		case unix.SOCK_DIAG_BY_FAMILY:
			if len(body) < diagMessageLen {
				return false, errUnclear
			}
			if at := diagAddress(body); int(at.Port()) == port && body[messageState] == tcpListen && reachable(at.Addr()) {
				sockets[strconv.FormatUint(uint64(binary.NativeEndian.Uint32(body[messageInode:])), 10)] = true
			}
		}
		b = b[min((size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(b)):]
	}
	return false, nil
}

// diagAddress is where a socket of an answer listens.
func diagAddress(body []byte) netip.AddrPort {
	var addr netip.Addr
	if body[messageFamily] == unix.AF_INET6 {
		addr = netip.AddrFrom16([16]byte(body[messageAddress : messageAddress+16])).Unmap()
	} else {
		addr = netip.AddrFrom4([4]byte(body[messageAddress : messageAddress+4]))
	}
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(body[messagePort:]))
}
