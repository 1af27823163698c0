package activator

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// BenchmarkReload is a reload of a file in which one of many apps has changed, over a
// real database: what the control plane does of it.
func BenchmarkReload(b *testing.B) {
	const n = 20_000
	dir := b.TempDir()
	commits, err := store.Open(dir, store.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = commits.Close() })
	depot, err := artifact.Open(filepath.Join(dir, "builds"))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { openDirs(dir) })
	ports, err := process.NewPorts(process.PortRange{})
	if err != nil {
		b.Fatal(err)
	}
	a, err := New(Options{
		StateDir: dir, RunDir: dir, BootID: "b", Commits: commits, Runs: store.NewMemoryRuns("b"),
		Depot: depot, Ports: ports, Backend: puppets{}, Front: nobody{}, Dial: answers200,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(a.Close)
	program := filepath.Join(dir, "app")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		b.Fatal(err)
	}
	apps := sleepers(n)
	for i := range apps {
		apps[i].Artifact = program
	}
	if _, err := a.Apply(b.Context(), apps); err != nil {
		b.Fatal(err)
	}
	before, ops := cpu(b), 0
	for b.Loop() {
		ops++
		apps[ops].Process.Env = map[string]string{"CHANGED": itoa(ops)}
		ch, err := a.Apply(b.Context(), apps)
		if err != nil || len(ch.Changed) != 1 {
			b.Fatalf("%d apps changed, %v", len(ch.Changed), err)
		}
	}
	b.ReportMetric(float64((cpu(b)-before).Milliseconds())/float64(ops), "cpu-ms/op")
}

// cpu is the processor time of this process so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
