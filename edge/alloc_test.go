//go:build !race

package edge

import (
	"fmt"
	"runtime"
	"testing"
)

func TestDecideAndFinishAllocateNothing(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r := open(e)
	end(e, r, Served)
	if n := testing.AllocsPerRun(100, func() {
		begin2(r)
		e.Decide(r)
		e.Finish(r, Result{Ending: Served, Status: 200})
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

func TestAnOpenAccountAllocatesNothingForARequest(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	ac := a.OpenAccount(1)
	r := open(e)
	end(e, r, Served)
	if n := testing.AllocsPerRun(100, func() {
		begin2(r)
		e.Decide(r)
		e.Finish(r, Result{Ending: Served, Status: 200})
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
	if y := ac.Close(); y.BySuccessor != 101 {
		t.Fatalf("%+v", y)
	}
}

func TestLookupAllocatesNothing(t *testing.T) {
	e := routes(t, "a a.test", "w *.w.test", "p a.test/x")
	tab := e.table.Load()
	host, deep, path := []byte("A.test.:80"), []byte("x.y.w.test"), []byte("/x/y")
	if n := testing.AllocsPerRun(100, func() {
		tab.lookup(host, path)
		tab.lookup(deep, path)
	}); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

// BenchmarkAppsThatSleepAgain says what an app keeps that was woken, answered, and
// sleeps again, beyond one that nobody has asked for: little, for 100,000 of them.
func BenchmarkAppsThatSleepAgain(b *testing.B) {
	const n, most = 5_000, 128
	for b.Loop() {
		e := New(Options{})
		var list []AppConfig
		for i := range n {
			name := fmt.Sprintf("app-%06d", i)
			list = append(list, AppConfig{Name: name, Hosts: []string{name + ".test"}})
		}
		if err := e.SetApps(list); err != nil {
			b.Fatal(err)
		}
		apps := e.Apps()
		for _, a := range apps {
			a.Place(asleep())
		}
		r := e.Open(&peer{})
		wakeAndSleep(b, r, apps[0]) // makes what the lane needs
		before := heap()
		for _, a := range apps {
			wakeAndSleep(b, r, a)
		}
		perApp := float64(int64(heap())-int64(before)) / n
		if perApp > most {
			b.Errorf("an app that was awake keeps %.0f bytes: %d are the most", perApp, most)
		}
		b.ReportMetric(perApp, "B/app")
		runtime.KeepAlive(apps)
		r.Close()
		e.Close()
	}
}

// wakeAndSleep parks a request, lets it in, asks more, and puts the app to sleep.
func wakeAndSleep(b *testing.B, r *Request, a *App) {
	for i := range 5 {
		begin(r)
		r.Host, r.Client = []byte(a.name+".test"), []byte("192.0.2.1")
		if i == 0 {
			r.edge.Decide(r)
			done := make(chan Cause)
			go func() { done <- r.Park(b.Context()) }()
			for n := 0; n == 0; n, _ = a.lot.parked() {
				runtime.Gosched()
			}
			a.Place(serving(1))
			<-done
		}
		r.edge.Decide(r)
		r.edge.Finish(r, Result{Ending: Served, Status: 200, BytesOut: 1000})
	}
	if !a.TrySleep(1, asleep()) {
		b.Fatalf("app %s is not put to sleep", a.name)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
