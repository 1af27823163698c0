//go:build !race

package edge

import (
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
