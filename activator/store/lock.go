package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// ErrLocked says that another process owns the state directory.
type ErrLocked struct {
	Path string // of the lock file
	PID  int    // its owner; 0 if it has not written it yet
}

func (e ErrLocked) Error() string {
	who := "another usher"
	if e.PID != 0 {
		who += fmt.Sprintf(" (pid %d)", e.PID)
	}
	return fmt.Sprintf("directory is in use by %s, which holds %s: stop it first, or give this one its own state and run directories", who, e.Path)
}

// StateLock is the ownership of a state directory.
type StateLock struct {
	f     *os.File
	owned owned
	once  sync.Once
	err   error
}

// Lock takes the exclusive lock of the state directory dir, which must exist,
// or returns an ErrLocked that names its owner. It does not wait. The kernel
// gives the lock back when the process ends, however it ends.
func Lock(dir string) (*StateLock, error) {
	path := filepath.Join(dir, "lock")
	f, o, err := openOwned(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state directory: %w", explain(err))
	}
	if err := take(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &StateLock{f: f, owned: o}, nil
}

func take(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked{Path: f.Name(), PID: readPID(f)}
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), explain(err))
	}
	if _, err := fmt.Fprintf(f, "%d\n", os.Getpid()); err != nil {
		return fmt.Errorf("write %s: %w", f.Name(), explain(err))
	}
	return nil
}

// readPID returns what the owner wrote, or 0.
func readPID(f io.Reader) int {
	data, err := io.ReadAll(io.LimitReader(f, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return pid
}

// Unlock gives the directory back. The file stays: removing it would let two
// processes each lock a file of that name. A second Unlock does nothing.
func (l *StateLock) Unlock() error {
	l.once.Do(func() {
		l.err = errors.Join(l.f.Truncate(0), l.f.Close())
	})
	return l.err
}
