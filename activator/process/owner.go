package process

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/usher-edge/usher/activator/cgroup"
)

// OwnsPort reports whether what answers on the port of this machine's loopback
// addresses is the generation: there is a listening TCP socket on 127.0.0.1,
// 0.0.0.0, ::1 or :: with that port, and each one there is belongs to a process
// of the group (or to pid, its main process; 0 for none). false without an
// error means that nobody listens or somebody else does. The cost is that of
// reading the listening sockets and the descriptors of the group.
func OwnsPort(group cgroup.Group, pid, port int) (bool, error) {
	sockets := map[string]bool{}
	if askListeners(port, sockets) != nil { // a kernel, or a sandbox, that does not answer such questions
		if err := printedListeners(port, sockets); err != nil {
			return false, fmt.Errorf("look for the owner of port %d: %w", port, err)
		}
	}
	owned, err := ownsAll(group, pid, sockets)
	if err != nil {
		return false, fmt.Errorf("look for the owner of port %d: %w", port, err)
	}
	return owned, nil
}

// printedListeners is askListeners by what is in /proc.
func printedListeners(port int, sockets map[string]bool) error {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if err := collect(file, func(r io.Reader) error { return listeners(r, port, sockets) }); err != nil {
			return err
		}
	}
	return nil
}

// OwnsUnix is OwnsPort for a listening unix socket at path. It is best effort: a
// socket that was bound by a relative path is looked up from the main process's
// working directory.
func OwnsUnix(group cgroup.Group, pid int, path string) (bool, error) {
	sockets := map[string]bool{}
	dir := cwd(pid)
	err := collect("/proc/net/unix", func(r io.Reader) error { return unixListeners(r, path, dir, sockets) })
	if err == nil {
		var owned bool
		if owned, err = ownsAll(group, pid, sockets); err == nil {
			return owned, nil
		}
	}
	return false, fmt.Errorf("look for the owner of %s: %w", path, err)
}

func collect(file string, read func(io.Reader) error) error {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no IPv6 in this kernel
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return read(f)
}

// stateListen is TCP_LISTEN as /proc/net/tcp prints it.
const stateListen = "0A"

// listeners adds the inodes of the listening sockets on port that a connection
// to loopback can reach. The kernel lists all listening sockets before the
// others, so the first other one ends the search.
func listeners(r io.Reader, port int, sockets map[string]bool) error {
	scanner := bufio.NewScanner(r)
	scanner.Scan() // column names
	for scanner.Scan() {
		f := strings.Fields(scanner.Text())
		if len(f) < 10 || f[3] != stateListen {
			break
		}
		addr, ok := parseSocketAddress(f[1])
		if ok && int(addr.Port()) == port && reachable(addr.Addr()) {
			sockets[f[9]] = true
		}
	}
	return scanner.Err()
}

func reachable(a netip.Addr) bool {
	return a.IsUnspecified() || a == netip.IPv6Loopback() || a == netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

// parseSocketAddress reads "0100007F:1F90": the address in 32-bit words, each in
// the machine's own byte order, and the port.
func parseSocketAddress(text string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(text, ":")
	if !ok || len(host)%8 != 0 {
		return netip.AddrPort{}, false
	}
	var raw []byte
	for i := 0; i < len(host); i += 8 {
		word, err := strconv.ParseUint(host[i:i+8], 16, 32)
		if err != nil {
			return netip.AddrPort{}, false
		}
		raw = binary.NativeEndian.AppendUint32(raw, uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	n, err := strconv.ParseUint(port, 16, 16)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok && err == nil
}

// flagListening is __SO_ACCEPTCON in the Flags column of /proc/net/unix.
const flagListening = 1 << 16

// unixListeners adds the inodes of the listening sockets that are bound to path.
func unixListeners(r io.Reader, path, cwd string, sockets map[string]bool) error {
	scanner := bufio.NewScanner(r)
	for scanner.Scan() {
		f := strings.SplitN(strings.Join(strings.Fields(scanner.Text()), " "), " ", 8)
		if len(f) < 8 {
			continue
		}
		flags, err := strconv.ParseUint(f[3], 16, 64)
		if err != nil || flags&flagListening == 0 {
			continue
		}
		bound := f[7]
		if !filepath.IsAbs(bound) {
			bound = filepath.Join(cwd, bound)
		}
		if bound == path {
			sockets[f[6]] = true
		}
	}
	return scanner.Err()
}

// ownsAll reports whether there are sockets and all of them are open in
// processes of the group.
func ownsAll(group cgroup.Group, pid int, sockets map[string]bool) (bool, error) {
	if len(sockets) == 0 {
		return false, nil
	}
	pids, err := group.Procs()
	if err != nil {
		return false, err
	}
	if pid > 0 {
		// Mostly it is the main process, so it is asked first.
		pids = append([]int{pid}, slices.DeleteFunc(pids, func(p int) bool { return p == pid })...)
	}
	var errs []error
	for _, pid := range pids {
		if err := crossOff(pid, sockets); err != nil {
			errs = append(errs, err)
		}
		if len(sockets) == 0 {
			return true, nil
		}
	}
	return false, errors.Join(errs...)
}

// crossOff removes the sockets that pid has open. A thread that has ended is root's, so
// that it may not be looked into says nothing about the others.
func crossOff(pid int, sockets map[string]bool) error {
	var failed error
	for dir := range tasks(pid) {
		names, err := readNames(dir + "/fd")
		if err != nil {
			failed = err
			continue
		}
		for _, name := range names {
			target, err := os.Readlink(dir + "/fd/" + name)
			if err != nil {
				continue // closed meanwhile
			}
			if inode, ok := strings.CutPrefix(target, "socket:["); ok {
				delete(sockets, strings.TrimSuffix(inode, "]"))
			}
		}
		if len(names) > 0 {
			return nil
		}
	}
	return failed
}

// cwd is the working directory of a process, / if it cannot be told.
func cwd(pid int) string {
	for dir := range tasks(pid) {
		if path, err := os.Readlink(dir + "/cwd"); err == nil {
			return path
		}
	}
	return "/"
}

// tasks yields where in /proc to ask what all threads of a process share: first for
// its main one, which has none of that any more if it has ended and the others go on.
func tasks(pid int) iter.Seq[string] {
	return func(yield func(string) bool) {
		dir := "/proc/" + strconv.Itoa(pid)
		if !yield(dir) {
			return
		}
		threads, err := readNames(dir + "/task")
		if err != nil {
			return // what was asked of the main thread failed as well
		}
		for _, thread := range threads {
			if !yield(dir + "/task/" + thread) {
				return
			}
		}
	}
}

// readNames lists a /proc directory; a process that is gone has none.
func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if err == nil {
		defer f.Close()
		var names []string
		if names, err = f.Readdirnames(-1); err == nil {
			return names, nil
		}
	}
	if cgroup.Ended(err) {
		return nil, nil
	}
	return nil, err
}
