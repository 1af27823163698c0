package process

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel is asked in two ways, and must say the same.
func TestListenersAreTheSameAskedOfTheKernelAndPrinted(t *testing.T) {
	if err := askListeners(1, map[string]bool{}); err != nil {
		t.Skipf("%v", err)
	}
	for _, addresses := range [][]string{{}, {"127.0.0.1"}, {"0.0.0.0"}, {"127.0.0.2"}, {"127.0.0.1", "127.0.0.3", "::1"}, {"::"}, {"::1"}} {
		port := 0
		var open []net.Listener
		for _, a := range addresses {
			l, err := net.Listen("tcp", net.JoinHostPort(a, fmt.Sprint(port)))
			if err != nil && !hasIPv6() {
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, l)
			port = l.Addr().(*net.TCPAddr).Port
			// A connection has the same port and does not listen.
			if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
				defer c.Close()
			}
		}
		asked, printed := map[string]bool{}, map[string]bool{}
		if err := errors.Join(askListeners(port, asked), printedListeners(port, printed)); err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(asked) != fmt.Sprint(printed) || len(asked) > len(addresses) {
			t.Errorf("%v: asked %v, printed %v", addresses, asked, printed)
		}
		if want := len(open) > 0 && addresses[0] != "127.0.0.2"; want != (len(asked) > 0) {
			t.Errorf("%v: %v", addresses, asked)
		}
		for _, l := range open {
			l.Close()
		}
	}
}

func TestAnAnswerOfTheKernelIsReadStrictly(t *testing.T) {
	message := func(kind, flags uint16, body []byte) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(unix.SizeofNlMsghdr+len(body)))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = binary.NativeEndian.AppendUint16(b, flags)
		return append(append(b, make([]byte, 8)...), body...)
	}
	socket := func(family, state uint8, port uint16, inode uint32, address ...byte) []byte {
		b := make([]byte, diagMessageLen)
		b[messageFamily], b[messageState] = family, state
		binary.BigEndian.PutUint16(b[messagePort:], port)
		copy(b[messageAddress:], address)
		binary.NativeEndian.PutUint32(b[messageInode:], inode)
		return b
	}
	refusal := binary.NativeEndian.AppendUint32(nil, ^uint32(unix.ENOENT)+1)
	mapped := append(append(make([]byte, 10), 0xff, 0xff), 127, 0, 0, 1)
	listen := func(b []byte) []byte { return message(unix.SOCK_DIAG_BY_FAMILY, unix.NLM_F_MULTI, b) }
	end := message(unix.NLMSG_DONE, 0, make([]byte, 4))
	for name, tc := range map[string]struct {
		pieces [][]byte
		want   string
		done   bool
		err    error
	}{
		"all that loopback reaches": {pieces: [][]byte{
			listen(socket(unix.AF_INET, tcpListen, 8080, 1, 127, 0, 0, 1)), listen(socket(unix.AF_INET, tcpListen, 8080, 2)),
			listen(socket(unix.AF_INET6, tcpListen, 8080, 3)), listen(socket(unix.AF_INET6, tcpListen, 8080, 4, mapped...)), end,
		}, want: "map[1:true 2:true 3:true 4:true]", done: true},
		"others": {pieces: [][]byte{
			listen(socket(unix.AF_INET, tcpListen, 8081, 1)), listen(socket(unix.AF_INET, tcpListen, 8080, 2, 127, 0, 0, 2)),
			listen(socket(unix.AF_INET, 1, 8080, 3)), end,
		}, want: "map[]", done: true},
		"not the end":    {pieces: [][]byte{listen(socket(unix.AF_INET, tcpListen, 8080, 1))}, want: "map[1:true]"},
		"a refusal":      {pieces: [][]byte{message(unix.NLMSG_ERROR, 0, refusal)}, want: "map[]", err: unix.ENOENT},
		"an interrupted": {pieces: [][]byte{message(unix.NLMSG_DONE, unix.NLM_F_DUMP_INTR, nil)}, want: "map[]", err: errUnclear},
		"too short":      {pieces: [][]byte{listen(make([]byte, diagMessageLen-1))}, want: "map[]", err: errUnclear},
		"cut off":        {pieces: [][]byte{end[:len(end)-1]}, want: "map[]", err: errUnclear},
	} {
		var all []byte
		for _, p := range tc.pieces {
			all = append(all, p...)
		}
		got := map[string]bool{}
		done, err := diagMessages(all, 8080, got)
		if done != tc.done || !errors.Is(err, tc.err) || fmt.Sprint(got) != tc.want {
			t.Errorf("%s: %v, %v, %v", name, got, done, err)
		}
	}
}
