//go:build !race

package daemon

import (
	"runtime"
	"testing"
)

// BenchmarkSleepingHouse says what an app costs in all that sleeps and has not been
// asked for: the runner, the edge's side of it, its routes, and what the daemon
// remembers of the file. Time is that of a start, the first that knows the apps.
func BenchmarkSleepingHouse(b *testing.B) {
	const apps = 20_000
	for b.Loop() {
		b.StopTimer()
		path := houseOf(b, apps)
		before, routines := heap(), runtime.NumGoroutine()
		b.StartTimer()
		stop := open(b, path)
		b.StopTimer()
		perApp := float64(heap()-before) / apps
		if perApp > 2<<10 {
			b.Errorf("an app that sleeps costs %.0f bytes: 2 KiB are the most", perApp)
		}
		b.ReportMetric(perApp, "B/app")
		b.ReportMetric(float64(runtime.NumGoroutine()-routines)/apps, "goroutines/app")
		stop()
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
