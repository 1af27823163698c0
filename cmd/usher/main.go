// Command usher is the front door for hosted apps on one box.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/cmd/internal/daemon"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	w := realWorld()
	code := run(ctx, newRoot(w, serveCommand(w), validateCommand(w, daemon.Env)), os.Args[1:])
	stop()
	os.Exit(code)
}

func realWorld() world {
	return world{
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		getenv:  os.Getenv,
		uid:     os.Geteuid(),
		now:     time.Now,
		version: builtVersion(),
		pack:    pack,
		program: os.Executable,
	}
}

func pack(ctx context.Context, path string) (string, io.ReadCloser, error) {
	kind, body, err := artifact.Pack(ctx, path)
	return string(kind), body, err
}

// builtVersion is what the Go tool recorded about this binary.
func builtVersion() admin.VersionInfo {
	v := admin.VersionInfo{Version: "devel"}
	bi, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	v.Go = bi.GoVersion
	if bi.Main.Version != "" {
		v.Version = bi.Main.Version
	}
	for _, s := range bi.Settings {
		if s.Key == "vcs.revision" && len(s.Value) >= 12 {
			v.Commit = s.Value[:12]
		}
	}
	return v
}
