//go:build !race

package activator

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/usher-edge/usher/activator/artifact"
	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// ledger is a store whose records are not on the heap: each is read as if from a
// disk, with one release that has served, and nothing written is kept.
type ledger struct {
	*store.Memory
	digest string
}

func (ledger) Apps() ([]string, error) { return nil, nil }

func (l ledger) Get(app string) (store.App, error) {
	spec := Process{Listen: ListenPort}.encode()
	return store.App{
		Name: app, Version: 4, FileValue: "artifact ./app", Desired: 1, Good: 1, Reported: 1,
		Releases: []store.Release{{
			Revision: 1, Kind: store.KindArtifact, Digest: l.digest, Build: "0123456789ab",
			ArtifactKind: "file", Spec: spec, Cause: "install", Ran: true,
		}},
		Outcomes: []store.Outcome{{Attempt: 1, Revision: 1, Generation: 1, Cause: "install", Mode: "overlap", Outcome: "done", Executed: true}},
	}, nil
}

func (l ledger) Update(app string, _ uint64, fn func(*store.App) error) (store.App, error) {
	a, err := l.Get(app)
	if err == nil {
		err = fn(&a)
	}
	return a, err
}

func (ledger) AppendEvent(store.Event) uint64 { return 0 }

// house is an activator with n apps that sleep, and the heap before it was made.
func house(b *testing.B, n int) (a *Activator, before uint64) {
	b.Helper()
	dir := b.TempDir()
	depot, err := artifact.Open(filepath.Join(dir, "builds"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { openDirs(dir) })
	build, err := depot.Receive(b.Context(), strings.NewReader("#!/bin/sh\n"), artifact.File)
	if err != nil {
		b.Fatal(err)
	}
	ports, err := process.NewPorts(process.PortRange{})
	if err != nil {
		b.Fatal(err)
	}
	apps := sleepers(n)
	mem := store.NewMemory()
	before = heap()
	b.StartTimer()
	a, err = New(Options{
		StateDir: dir, RunDir: dir, BootID: "b", Commits: ledger{mem, build.Digest}, Runs: store.NewMemoryRuns("b"),
		Depot: depot, Ports: ports, Backend: puppets{}, Front: nobody{}, Dial: answers200, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err == nil {
		_, err = a.Apply(b.Context(), apps)
	}
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	return a, before
}

// BenchmarkSleepingApps says what an app costs that sleeps: the runner with all
// that it remembers of it. What the edge and the config file hold is theirs.
func BenchmarkSleepingApps(b *testing.B) {
	const n = 100_000
	for b.Loop() {
		b.StopTimer()
		routines := runtime.NumGoroutine()
		a, before := house(b, n)
		report(b, "", before, n)
		b.ReportMetric(float64(runtime.NumGoroutine()-routines-2)/n, "goroutines/app") // one bounds the logs of all, one looks after the state
		if s, err := a.Status(fmt.Sprintf("app-%06d", n-1)); err != nil || s.State != "asleep" {
			b.Fatalf("state %q, %v", s.State, err)
		}
		a.Close()
		b.StartTimer()
	}
}

// BenchmarkAppsThatSleepAgain is the same of apps that were awake since usher began.
func BenchmarkAppsThatSleepAgain(b *testing.B) {
	const n = 5_000
	for b.Loop() {
		b.StopTimer()
		a, before := house(b, n)
		report(b, "-never-awake", before, n)
		for name := range a.apps {
			a.Wanted(name)
			await(b, a, name, "awake")
			a.apps[name].event(lc.Event{Kind: lc.SleepAsked})
			await(b, a, name, "asleep")
		}
		report(b, "", before, n)
		a.Close()
		b.StartTimer()
	}
}

// await waits until an app is in that state and nothing is on its way there.
func await(b *testing.B, a *Activator, app, state string) {
	b.Helper()
	for range 1_000_000 {
		s, err := a.Status(app)
		if err != nil {
			b.Fatal(err)
		}
		if s.State == state && (state != "asleep" || len(s.Generations) == 0) {
			return
		}
		runtime.Gosched()
	}
	b.Fatalf("app %s is never %s", app, state)
}

// report says what each of n apps holds of the heap, and that this is not much.
func report(b *testing.B, which string, before uint64, n int) {
	b.Helper()
	perApp := float64(heap()-before) / float64(n)
	if perApp > 2<<10 {
		b.Errorf("an app that sleeps costs %.0f bytes: 2 KiB are the most", perApp)
	}
	b.ReportMetric(perApp, "B/app"+which)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
