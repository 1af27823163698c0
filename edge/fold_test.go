package edge

import (
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"
)

func TestAllThatIsCountedIsFolded(t *testing.T) {
	words := (&counters{}).words()
	const follow = 2 // accepted, streams
	if all := int(unsafe.Sizeof(counters{}) / 8); len(words)+follow != all {
		t.Fatalf("%d words are folded and %d follow from them; there are %d", len(words), follow, all)
	}
	c := &counters{}
	for i, w := range c.words() {
		if i%3 != 1 { // the others stay 0
			w.Store(uint64(i)<<(i%50) + 1)
		}
	}
	u := c.fold().unfold()
	for i, w := range u.words() {
		if got, want := w.Load(), c.words()[i].Load(); got != want {
			t.Errorf("word %d was %d and is %d", i, want, got)
		}
	}
	if got, want := u.everAccepted(), c.allEnded(); got != want {
		t.Errorf("%d are accepted, %d have ended", got, want)
	}
}

func asleep() Placement { return Placement{Revision: 1, CacheGen: 1, State: Asleep} }

func TestAnAppThatSleepsKeepsWhatWasCountedInFewBytes(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	ask := func(n int) {
		for range n {
			r := open(e)
			e.Decide(r)
			e.Finish(r, Result{Ending: Served, Status: 200, BytesIn: 3, BytesOut: 1000})
			r.Close()
		}
	}
	a.Place(serving(1))
	ask(5)
	awake, activity := gather(t, e), a.Activity()
	if !a.TrySleep(1, asleep()) {
		t.Fatal("it is not put to sleep")
	}
	if a.counters.Load() != nil || len(a.folded) == 0 || len(a.folded) > 64 {
		t.Errorf("asleep it keeps %d bytes, and counters %p", len(a.folded), a.counters.Load())
	}
	for key, v := range gather(t, e) {
		if awake[key] != v {
			t.Errorf("asleep, %s = %v; it was %v", key, v, awake[key])
		}
		delete(awake, key)
	}
	if len(awake) > 0 || a.Activity() != activity {
		t.Errorf("asleep it does not tell %v; it was active %+v and is %+v", awake, activity, a.Activity())
	}
	a.Place(serving(2))
	ask(2)
	if s := a.Stats(); s.Accepted != 7 || s.Served != 7 {
		t.Errorf("awake again: %+v", s)
	}
	if got := gather(t, e)["usher_body_bytes_total app=app direction=out"]; got != 7000 {
		t.Errorf("%v bytes went out, want 7000", got)
	}
}

func TestCountersStayWhereTheyAreWhileARequestIsOpen(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(asleep())
	r := open(e)
	if d := e.Decide(r); d.Kind != Park {
		t.Fatalf("%+v", d)
	}
	a.Place(asleep())
	if a.counters.Load() != r.counters {
		t.Fatal("the counters of an open request are folded")
	}
	end(e, r, Gone)
	gather(t, e)
	if a.counters.Load() != nil {
		t.Error("a scrape of an app that sleeps does not fold what nobody uses any more")
	}
	if s := a.Stats(); s.Accepted != 1 || s.Gone != 1 || s.Open() != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNothingIsLostAndNothingFallsWhileCountersAreFolded(t *testing.T) {
	const workers, each = 4, 5000
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	var work, watch sync.WaitGroup
	over := make(chan struct{})
	for range workers {
		work.Go(func() {
			r := e.Open(&peer{})
			defer r.Close()
			for range each {
				begin(r)
				e.Decide(r)
				e.Finish(r, Result{Ending: Served, Status: 200, BytesOut: 1})
			}
		})
	}
	watch.Go(func() {
		var was Stats
		for !isClosed(over) {
			a.fold()
			s := a.Stats()
			if s.Accepted < was.Accepted || s.Served < was.Served || s.Open() < 0 {
				t.Errorf("%+v after %+v", s, was)
				return
			}
			was = s
		}
	})
	work.Wait()
	close(over)
	watch.Wait()
	if s := a.Stats(); s.Accepted != workers*each || s.Served != workers*each {
		t.Errorf("of %d requests: %+v", workers*each, s)
	}
	if n := a.counted().bytesOut.Load(); n != workers*each {
		t.Errorf("%d bytes went out", n)
	}
}

func TestALotThatIsEmptyHoldsNothing(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{ParkTimeout: time.Hour})
	a.Place(asleep())
	r := open(e)
	r.Client = []byte("192.0.2.1")
	d := e.Decide(r)
	if d.Kind != Park {
		t.Fatalf("%+v", d)
	}
	done := make(chan Cause)
	go func() { done <- r.Park(t.Context()) }()
	for n := 0; n == 0; n, _ = a.lot.parked() {
		runtime.Gosched()
	}
	a.Place(serving(1))
	if c := <-done; c != CauseNone {
		t.Fatal(c)
	}
	e.Decide(r)
	end(e, r, Served)
	if !a.TrySleep(1, asleep()) {
		t.Fatal("it is not put to sleep")
	}
	if a.lot.timer != nil || a.lot.shares != nil || a.crowds.open != nil {
		t.Errorf("timer %v, shares %v, generations %v", a.lot.timer, a.lot.shares, a.crowds.open)
	}
}
