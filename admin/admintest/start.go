package admintest

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// Start serves c on a unix socket in a directory of its own. Stop is idempotent
// and is called at the end of the test.
func Start(tb testing.TB, c admin.Control, o admin.Options) (addr admin.Address, stop func()) {
	tb.Helper()
	addr = admin.Address{Scheme: "unix", Path: SocketPath(tb)}
	return addr, StartAt(tb, c, o, addr.Path)
}

// SocketPath is a path short enough for a unix socket, unlike those of
// testing.TB.TempDir.
func SocketPath(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("", "usher")
	if err != nil {
		tb.Fatalf("make directory: %v", err)
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "admin.sock")
}

// StartAt serves c on the socket at path.
func StartAt(tb testing.TB, c admin.Control, o admin.Options, path string) (stop func()) {
	tb.Helper()
	l, err := admin.ListenUnix(context.Background(), path, admin.SocketOptions{})
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	return serve(tb, c, o, l)
}

// StartTCP serves c on a loopback port.
func StartTCP(tb testing.TB, c admin.Control, o admin.Options) (addr admin.Address, stop func()) {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen: %v", err)
	}
	return admin.Address{Scheme: "http", Host: l.Addr().String()}, serve(tb, c, o, l)
}

func serve(tb testing.TB, c admin.Control, o admin.Options, l net.Listener) (stop func()) {
	s := admin.NewServer(c, o)
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }() // stopped by Shutdown
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			tb.Errorf("shut down: %v", err)
		}
		if err := <-served; err != nil {
			tb.Errorf("serve: %v", err)
		}
	})
	tb.Cleanup(stop)
	return stop
}
