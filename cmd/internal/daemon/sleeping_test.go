package daemon

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/cmd/internal/config"
)

// houseOf writes a config file with n apps that nobody has asked for yet, and
// returns its path. All of them run the same program.
func houseOf(tb testing.TB, n int) string {
	tb.Helper()
	dir := tb.TempDir()
	var text strings.Builder
	fmt.Fprintf(&text, "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"unix:%s/admin.sock\"\nstate = \"%s/state\"\nrun = \"%s/run\"\ncgroup = \"off\"\naccess_log = \"off\"\n", dir, dir, dir)
	for i := range n {
		fmt.Fprintf(&text, "\n[apps.app-%06d]\nhosts = [\"app-%06d.example.com\"]\nartifact = \"./app\"\n", i, i)
		if os.Geteuid() == 0 {
			text.WriteString("user = \"nobody\"\n")
		}
	}
	for name, content := range map[string]string{"app": "#!/bin/sh\nexit 1\n", "usher.toml": text.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			tb.Fatal(err)
		}
	}
	return filepath.Join(dir, "usher.toml")
}

// open runs usher with that file until it serves, and returns what ends it.
func open(tb testing.TB, path string) (stop func()) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Config: path, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
			Started: func(config.Server, int) { close(started) },
		})
	}()
	select {
	case <-started:
	case err := <-ended:
		tb.Fatalf("usher did not start: %v", err)
	}
	return func() {
		cancel()
		if err := <-ended; err != nil {
			tb.Errorf("usher ended with: %v", err)
		}
	}
}

// TestAnAppThatSleepsHasNoGoroutine at a smaller scale than the benchmark below.
func TestAnAppThatSleepsHasNoGoroutine(t *testing.T) {
	const apps, own = 2000, 100 // usher itself has far fewer
	path := houseOf(t, apps)
	before := runtime.NumGoroutine()
	stop := open(t, path)
	defer stop()
	for end := time.Now().Add(30 * time.Second); runtime.NumGoroutine() > before+own; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d apps sleep and %d goroutines were added", apps, runtime.NumGoroutine()-before)
		}
	}
}
