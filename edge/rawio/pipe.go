package rawio

import (
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	// pipeSize takes at once what an app's socket holds at most, by Linux's defaults
	// (net.core.wmem_default), in pieces of a page.
	pipeSize = 256 << 10
	// leastPipe is what is worth moving through. Who has many pipes gets those of one
	// or two pages (pipe(7), pipe-user-pages-soft).
	leastPipe = 64 << 10
)

// Pipe is a pipe of the kernel, through which bytes go from one socket to another
// without being copied (splice(2)). It belongs to one goroutine at a time.
type Pipe struct {
	r, w    int
	held    int
	cleanup runtime.Cleanup
}

// Pipes are pipes that are not in use. Those that are not needed for long are closed.
// The zero value is ready.
type Pipes struct {
	idle sync.Pool
	made atomic.Int64
	none atomic.Bool // this kernel does not move bytes between sockets
}

// Get returns an empty pipe, or nil if there is none to be had.
func (ps *Pipes) Get() *Pipe {
	if ps.none.Load() {
		return nil
	}
	if p, _ := ps.idle.Get().(*Pipe); p != nil {
		return p
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		return nil
	}
	if !widen(fds[0]) {
		closeBoth(fds)
		return nil
	}
	ps.made.Add(1)
	p := &Pipe{r: fds[0], w: fds[1]}
	p.cleanup = runtime.AddCleanup(p, closeBoth, fds)
	return p
}

// widen makes a pipe as large as it may be, and says whether that is large enough.
func widen(fd int) bool {
	size, err := unix.FcntlInt(uintptr(fd), unix.F_SETPIPE_SZ, pipeSize)
	if err != nil {
		size, err = unix.FcntlInt(uintptr(fd), unix.F_GETPIPE_SZ, 0)
	}
	return err == nil && size >= leastPipe
}

// Put takes a pipe back. One that is not empty is closed.
func (ps *Pipes) Put(p *Pipe) {
	if p.held == 0 {
		ps.idle.Put(p)
		return
	}
	p.cleanup.Stop()
	closeBoth([2]int{p.r, p.w})
}

// Made is how many pipes have been made so far.
func (ps *Pipes) Made() int64 { return ps.made.Load() }

func closeBoth(fds [2]int) {
	_ = unix.Close(fds[0]) // nothing to be done about it
	_ = unix.Close(fds[1])
}

// Refused says whether err means that the kernel moves no bytes from such a socket,
// or none at all. In that case Get returns no more pipes.
func (ps *Pipes) Refused(err error) bool {
	refused := err == syscall.EINVAL || err == syscall.ENOSYS || err == syscall.EPERM
	if refused {
		ps.none.Store(true)
	}
	return refused
}

// Held is how many bytes are in the pipe.
func (p *Pipe) Held() int { return p.held }

// From takes up to most bytes from a socket, as Read does.
func (p *Pipe) From(fd uintptr, most int) (int, error) {
	n, err := splice(int(fd), p.w, most)
	p.held += n
	return n, err
}

// To gives the socket as much of what is in the pipe as it takes, as Write does.
func (p *Pipe) To(fd uintptr) (int, error) {
	n, err := splice(p.r, int(fd), p.held)
	p.held -= n
	return n, err
}

// Read takes out what is in the pipe by copying it.
func (p *Pipe) Read(b []byte) (int, error) {
	n, err := syscall.Read(p.r, b)
	n = max(n, 0)
	p.held -= n
	return n, err
}

func splice(from, to, most int) (int, error) {
	for {
		n, _, errno := syscall.RawSyscall6(unix.SYS_SPLICE, uintptr(from), 0, uintptr(to), 0, uintptr(most), unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		switch errno {
		case 0:
			return int(n), nil
		case syscall.EINTR:
		default:
			return 0, errno
		}
	}
}
