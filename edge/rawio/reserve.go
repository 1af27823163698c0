package rawio

import (
	"errors"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Reserve is a few descriptors that are kept back, for those who serve clients that
// are here already and must have one when there is none left. It is worth something only
// if whoever takes descriptors for new clients asks first whether it is Whole: what
// frees up then goes back to it before anybody else gets it.
//
// Its methods may be called from any goroutine. They never wait for a descriptor. nil is
// a Reserve of nothing.
type Reserve struct {
	size  int
	whole atomic.Bool // len(held) == size

	mu   sync.Mutex // guards held; held while somebody uses what was given up
	held []int
}

// NewReserve keeps n descriptors back. Close gives them up.
func NewReserve(n int) (*Reserve, error) {
	r := &Reserve{size: n}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fill(); err != nil {
		r.empty()
		return nil, err
	}
	return r, nil
}

// Whole says whether nothing is missing, or can be had back at once.
func (r *Reserve) Whole() bool {
	if r == nil || r.whole.Load() {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fill() == nil
}

// For calls f, and again while it fails for want of descriptors and there is one to
// give up for it, and returns its last error. One at a time is served.
func (r *Reserve) For(f func() error) error {
	err := f()
	if r == nil || !Exhausted(err) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for Exhausted(err) && r.drop() {
		err = f() // unless somebody else was quicker
	}
	_ = r.fill() // Whole tries again
	return err
}

// Land is the function Land, which needs two descriptors for a moment.
func (r *Reserve) Land(fd int) (nc net.Conn, err error) {
	err = r.For(func() error {
		nc, err = Land(fd)
		return err
	})
	return nc, err
}

// Accept is that of a listener that must be reached when there is no descriptor left. It
// waits where others would fail for want of one.
func (r *Reserve) Accept(ln net.Listener) (net.Conn, error) {
	const pause = 100 * time.Millisecond
	for {
		nc, err := ln.Accept()
		if !Exhausted(err) {
			return nc, err
		}
		if !r.give() {
			time.Sleep(pause) // until somebody closes one
		}
	}
}

// give gives one up. Unlike For it does not hold the lock while that is used: it may be
// waited for.
func (r *Reserve) give() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drop()
}

// Close gives all of it up. Nothing may follow.
func (r *Reserve) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.empty()
}

func (r *Reserve) fill() error {
	for len(r.held) < r.size {
		fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: os.DevNull, Err: err}
		}
		r.held = append(r.held, fd)
	}
	r.whole.Store(true)
	return nil
}

func (r *Reserve) drop() bool {
	n := len(r.held)
	if n == 0 {
		return false
	}
	r.whole.Store(false)
	unix.Close(r.held[n-1])
	r.held = r.held[:n-1]
	return true
}

func (r *Reserve) empty() {
	for _, fd := range r.held {
		unix.Close(fd)
	}
	r.held = nil
}

// Exhausted says that a call failed because there is no descriptor, or no memory for
// what it stands for, just now.
func Exhausted(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
