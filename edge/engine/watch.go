package engine

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// watcher looks at connections that nobody reads from: one epoll instance and
// one goroutine for all that are idle, parked or wait long for their app. It
// tells when a client leaves, and when an idle one sends its next request.
//
// Closing a connection takes it out of the epoll set by itself; forget makes
// sure that a late event does not reach the next owner of its number.
type watcher struct {
	fd   int // epoll
	wake int // eventfd that stops run
	done chan struct{}

	mu    sync.Mutex // guards armed and seq, and the kernel's set with them
	armed map[int32]watch
	seq   int32
}

// watch is one armed connection. seq tells apart two that had one number.
type watch struct {
	seq  int32
	conn *conn
}

// What a watch looks for. A reset is always looked for.
const (
	watchReset = uint32(unix.EPOLLONESHOT)
	watchFin   = uint32(unix.EPOLLONESHOT | unix.EPOLLRDHUP)
	watchRead  = uint32(unix.EPOLLONESHOT | unix.EPOLLRDHUP | unix.EPOLLIN)
)

func newWatcher() (*watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch clients: create epoll: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("watch clients: create eventfd: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(wake)}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, wake, &ev); err != nil {
		unix.Close(fd)
		unix.Close(wake)
		return nil, fmt.Errorf("watch clients: arm eventfd: %w", err)
	}
	w := &watcher{fd: fd, wake: wake, done: make(chan struct{}), armed: map[int32]watch{}}
	go w.run()
	return w, nil
}

// close ends the goroutine and waits for it.
func (w *watcher) close() {
	one := [8]byte{1}
	_, _ = unix.Write(w.wake, one[:]) // cannot fail: the counter is far from full
	<-w.done
	unix.Close(w.fd)
	unix.Close(w.wake)
}

// arm calls c.event once, from the watcher's goroutine, when there is what events
// ask for; half says that the client is not gone altogether. Arming again replaces
// what was armed.
func (w *watcher) arm(c *conn, raw syscall.RawConn, events uint32) error {
	var failed error
	err := raw.Control(func(fd uintptr) { failed = w.add(int32(fd), events, c) })
	return errors.Join(err, failed)
}

// add holds the lock until the kernel knows the watch: of two that arm one connection
// at the same time, both have to end up with the same one's number.
func (w *watcher) add(fd int32, events uint32, c *conn) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seq++
	_, again := w.armed[fd]
	w.armed[fd], c.watched = watch{seq: w.seq, conn: c}, fd
	ev := unix.EpollEvent{Events: events, Fd: fd, Pad: w.seq}
	op := unix.EPOLL_CTL_ADD
	if again {
		op = unix.EPOLL_CTL_MOD
	}
	err := unix.EpollCtl(w.fd, op, int(fd), &ev)
	if errors.Is(err, unix.ENOENT) {
		err = unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, int(fd), &ev)
	} else if errors.Is(err, unix.EEXIST) {
		err = unix.EpollCtl(w.fd, unix.EPOLL_CTL_MOD, int(fd), &ev)
	}
	if err != nil {
		return fmt.Errorf("watch client: %w", err)
	}
	return nil
}

// forget must be called before an armed connection is closed, or, if something else
// has closed it, when it is over: its number may be another's by then.
func (w *watcher) forget(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.armed[c.watched].conn == c {
		delete(w.armed, c.watched)
		_ = unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, int(c.watched), nil) // the socket may live on, by another number
	}
}

func (w *watcher) run() {
	defer close(w.done)
	var events [64]unix.EpollEvent
	for {
		n, err := unix.EpollWait(w.fd, events[:], -1)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return // only if the descriptor were closed under us
		}
		for _, ev := range events[:n] {
			if int(ev.Fd) == w.wake {
				return
			}
			if c := w.claim(ev.Fd, ev.Pad); c != nil {
				c.event(ev.Events&(unix.EPOLLHUP|unix.EPOLLERR) == 0)
			}
		}
	}
}

// claim returns whom to tell of an event, nil if it is for an earlier owner of
// the descriptor number.
func (w *watcher) claim(fd, seq int32) *conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a, ok := w.armed[fd]; ok && a.seq == seq {
		return a.conn
	}
	return nil
}
