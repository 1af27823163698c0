//go:build !race

package activator

import (
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/store"
)

// ledger is a store whose records are not on the heap: each is read as if from a
// disk, with one release that has served, and nothing written is kept.
type ledger struct{ *store.Memory }

func (ledger) Apps() ([]string, error) { return nil, nil }

func (ledger) Get(app string) (store.App, error) {
	spec := Process{Listen: ListenPort}.encode()
	return store.App{
		Name: app, Version: 4, FileValue: "artifact ./app", Desired: 1, Good: 1, Reported: 1,
		Releases: []store.Release{{
			Revision: 1, Kind: store.KindArtifact, Digest: fmt.Sprintf("sha256:%064x", len(app)), Build: "0123456789ab",
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

// nobody is a data plane without requests.
type nobody struct{ Front }

func (nobody) Place(string, Placement)            {}
func (nobody) OpenAccount(string, uint64) Account { return nil }

// BenchmarkSleepingApps says what an app costs that sleeps: the runner with all
// that it remembers of it. What the edge and the config file hold is theirs.
func BenchmarkSleepingApps(b *testing.B) {
	const n = 100_000
	apps := make([]App, n)
	for i := range apps {
		apps[i] = App{
			Name: fmt.Sprintf("app-%06d", i), FileValue: "artifact ./app", Process: Process{Listen: ListenPort},
			Policy: Policy{Health: Health{Path: "/", Timeout: 30 * time.Second}, IdleTimeout: 15 * time.Minute},
		}
	}
	depot, err := artifact.Open(filepath.Join(b.TempDir(), "builds"))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		b.StopTimer()
		mem := store.NewMemory()
		before, routines := heap(), runtime.NumGoroutine()
		b.StartTimer()
		a, err := New(Options{
			StateDir: b.TempDir(), RunDir: b.TempDir(), BootID: "b", Commits: ledger{mem}, Runs: store.NewMemoryRuns("b"),
			Depot: depot, Backend: &OS{}, Front: nobody{}, Log: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := a.Apply(b.Context(), apps); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		perApp := float64(heap()-before) / n
		if perApp > 2<<10 {
			b.Errorf("an app that sleeps costs %.0f bytes: 2 KiB are the most", perApp)
		}
		b.ReportMetric(perApp, "B/app")
		b.ReportMetric(float64(runtime.NumGoroutine()-routines-1)/n, "goroutines/app") // one bounds the logs of all
		if s, err := a.Status(apps[n-1].Name); err != nil || s.State != "asleep" {
			b.Fatalf("state %q, %v", s.State, err)
		}
		a.Close()
		b.StartTimer()
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
