package admin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what fits into sockaddr_un, its ending zero aside.
const maxSocketPath = 107

// SocketOptions of [ListenUnix]. The zero value makes a socket for its owner only.
type SocketOptions struct {
	// Mode of the socket; 0 is 0600.
	Mode fs.FileMode
	// GID to give the socket to, if Chown is set. Use with Mode 0660.
	GID   int
	Chown bool
}

// ListenUnix opens the admin socket at path. It
//
//   - makes a missing parent directory with mode 0700;
//   - replaces a socket only when connecting to it is refused, that is when
//     nobody listens any more; a live one, one it cannot ask, and anything that
//     is no socket is left untouched and is an error;
//   - never has the socket open to more than Mode says, not for an instant.
//
// Closing the listener removes the path if it is still this listener's.
func ListenUnix(ctx context.Context, path string, o SocketOptions) (net.Listener, error) {
	if o.Mode == 0 {
		o.Mode = 0o600
	}
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen on %s: the path has %d bytes and a unix socket takes %d; choose a shorter one",
			path, len(path), maxSocketPath)
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make directory of admin socket: %w", err)
	}
	unlock, err := lockDir(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer unlock()
	if err := clearStale(ctx, path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return bindUnix(ctx, path, o)
}

// lockDir keeps two starting ushers from taking each other's new socket for a
// stale one. The lock leaves no file and goes with the process.
func lockDir(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	retry := time.NewTicker(10 * time.Millisecond)
	defer retry.Stop()
	for tries := 0; ; tries++ {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || tries == 300 {
			_ = f.Close()
			return nil, fmt.Errorf("lock directory %s: %w; another usher may be starting there", dir, err)
		}
		select {
		case <-retry.C:
		case <-ctx.Done():
			_ = f.Close()
			return nil, ctx.Err()
		}
	}
}

func clearStale(ctx context.Context, path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode()&fs.ModeSocket == 0 {
		return fmt.Errorf("there is a %s and not a socket, it is left untouched; move it away or choose another path",
			kindOf(fi.Mode()))
	}
	d := net.Dialer{Timeout: 2 * time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
		return errors.New("another process listens there; stop it or choose another path")
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("the socket there may be in use and is left untouched: %w", err)
	}
	return os.Remove(path)
}

func kindOf(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "regular file"
	case m.IsDir():
		return "directory"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	}
	return "special file"
}

// bindUnix sets the mode of the socket before bind, when it is already the mode
// that the kernel gives to the new path.
func bindUnix(ctx context.Context, path string, o SocketOptions) (net.Listener, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var chmodErr error
		err := c.Control(func(fd uintptr) { chmodErr = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, chmodErr)
	}}
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	ul := l.(*net.UnixListener)
	ul.SetUnlinkOnClose(false)
	own := &ownedListener{UnixListener: ul, path: path}
	if err := own.adopt(o); err != nil {
		_ = ul.Close()
		_ = os.Remove(path)
		return nil, fmt.Errorf("set permissions of %s: %w", path, err)
	}
	return own, nil
}

// ownedListener removes its path when it closes, unless another listener has
// taken it over meanwhile.
type ownedListener struct {
	*net.UnixListener
	path string
	made fs.FileInfo
	once sync.Once
}

func (l *ownedListener) adopt(o SocketOptions) error {
	if o.Chown {
		if err := os.Chown(l.path, -1, o.GID); err != nil {
			return err
		}
	}
	if err := os.Chmod(l.path, o.Mode); err != nil {
		return err
	}
	var err error
	l.made, err = os.Lstat(l.path)
	return err
}

func (l *ownedListener) Close() error {
	l.once.Do(func() {
		if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.made) {
			_ = os.Remove(l.path)
		}
	})
	return l.UnixListener.Close()
}
