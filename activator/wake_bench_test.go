package activator

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// serveAsApp is the test binary as an app: it answers until it is told to end.
func serveAsApp() {
	_ = http.ListenAndServe(net.JoinHostPort("127.0.0.1", os.Getenv("PORT")), http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	os.Exit(1)
}

// BenchmarkWake is a wake of an app that has served before, up to its first good
// health check and the switch: a real process, a real database, and a build of the
// size of a program. The first wake of a build since usher began hashes it.
func BenchmarkWake(b *testing.B) {
	a := awakens(b)
	ctx := context.Background()
	for b.Loop() {
		b.StopTimer()
		op, err := a.Sleep(ctx, Change{App: "hello"})
		awaitOp(b, a, op, err)
		b.StartTimer()
		op, err = a.Wake(ctx, Change{App: "hello"})
		awaitOp(b, a, op, err)
	}
}

func awaitOp(b *testing.B, a *Activator, op Operation, err error) {
	b.Helper()
	for err == nil && op.State == OpRunning {
		_, more := a.Events(0, 1)
		if op, err = a.Operation(op.ID); op.State == OpRunning {
			<-more
		}
	}
	if err != nil || op.State != OpDone {
		b.Fatalf("%s: %s (%s), %v", op.Kind, op.State, op.Reason, err)
	}
}

// awakens is an activator with one app, which is awake and whose build has settled.
func awakens(b *testing.B) *Activator {
	b.Helper()
	dir := b.TempDir()
	depot, err := artifact.Open(filepath.Join(dir, "builds"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { openDirs(dir) })
	commits, err := store.Open(dir, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = commits.Close() })
	boot, err := process.BootID()
	if err != nil {
		b.Fatal(err)
	}
	ports, err := process.NewPorts(process.PortRange{})
	if err != nil {
		b.Fatal(err)
	}
	forker := process.NewForker("")
	b.Cleanup(func() { _ = forker.Close() })
	a, err := New(Options{
		StateDir: dir, RunDir: dir, BootID: boot, Commits: commits, Runs: store.NewMemoryRuns(boot),
		Depot: depot, Ports: ports, Backend: &OS{Forker: forker, BootID: boot, Mark: dir}, Front: nobody{},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := a.Shutdown(context.Background(), true); err != nil {
			b.Error(err)
		}
		a.Close()
	})
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	_, err = a.Apply(b.Context(), []App{{
		Name: "hello", Artifact: self, FileValue: self, Process: Process{Listen: ListenPort},
		Policy: Policy{Health: Health{Path: "/", Timeout: 30 * time.Second}, IdleTimeout: time.Hour, StopTimeout: 10 * time.Second},
	}})
	if err != nil {
		b.Fatal(err)
	}
	<-time.After(4 * time.Second) // by then no change of the build can go unseen
	op, err := a.Wake(context.Background(), Change{App: "hello"})
	awaitOp(b, a, op, err)
	return a
}
