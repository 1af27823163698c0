package edge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// guest is a parked request and what became of it.
type guest struct {
	r       *Request
	verdict chan Cause
}

// parkOne parks a new request and waits until it is in the lot or refused.
func parkOne(t *testing.T, e *Edge, buffered int64) *guest {
	t.Helper()
	r := open(e)
	r.Buffered = buffered
	return park(t, e, r)
}

func park(t *testing.T, e *Edge, r *Request) *guest {
	t.Helper()
	if d := e.Decide(r); d.Kind != Park {
		t.Fatalf("%+v", d)
	}
	g := &guest{r: r, verdict: make(chan Cause, 1)}
	go func() { g.verdict <- r.Park(context.Background()) }()
	synctest.Wait()
	return g
}

// answered returns the verdict if there is one.
func (g *guest) answered() (Cause, bool) {
	select {
	case c := <-g.verdict:
		return c, true
	default:
		return 0, false
	}
}

// free counts those that were let go since the last call.
func free(t *testing.T, e *Edge, guests []*guest) (now []*guest) {
	t.Helper()
	synctest.Wait()
	for _, g := range guests {
		if c, ok := g.answered(); ok {
			if c != CauseNone {
				t.Fatalf("turned away: %s", c)
			}
			if d := e.Decide(g.r); d.Kind != Proxy {
				t.Fatalf("%+v", d)
			}
			now = append(now, g)
		}
	}
	return now
}

func TestParkedRequestsAreLetGoInOrderAFewFirstThenOneForEachAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waker{}
		e, a := one(t, Options{Waker: w}, AppConfig{})
		a.Place(Placement{State: Asleep})
		var all []*guest
		for range 40 {
			all = append(all, parkOne(t, e, 0))
		}
		if w.n.Load() != 40 || a.Stats().Parked != 40 {
			t.Fatalf("%d wakes, %+v", w.n.Load(), a.Stats())
		}
		a.Place(Placement{State: Waking})
		if n := free(t, e, all); len(n) != 0 {
			t.Fatalf("%d were let go to an app that wakes", len(n))
		}
		a.Place(serving(1))
		first := free(t, e, all)
		if len(first) != 8 {
			t.Fatalf("%d were let go at first, want 8", len(first))
		}
		for i, g := range first {
			if g != all[i] {
				t.Fatal("not in order of arrival")
			}
		}
		end(e, first[0].r, Served)
		next := free(t, e, all)
		if len(next) != 1 || next[0] != all[8] {
			t.Fatalf("an answer let %d go, want the next one", len(next))
		}
		next[0].r.Streaming(func(Haste) {}) // an answer without end is an answer
		if n := free(t, e, all); len(n) != 1 {
			t.Fatalf("a stream let %d go, want 1", len(n))
		}
		time.Sleep(releaseTick) // synctest: no real time passes
		if n := free(t, e, all); len(n) != 8 {
			t.Fatalf("%d were let go though nobody answers, want 8", len(n))
		}
		for range 3 {
			time.Sleep(releaseTick)
			free(t, e, all)
		}
		if s := a.Stats(); s.Parked != 0 {
			t.Fatalf("%+v", s)
		}
		for _, g := range all {
			end(e, g.r, Served)
		}
		if s := a.Stats(); s.Parked != 0 || s.InFlight != 0 || s.Open() != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

func TestAnAppThatIsNotFastIsAskedTwiceAsMuchInEachRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{Waker: &waker{}}, AppConfig{})
		a.Place(Placement{State: Waking})
		var all []*guest
		for range 60 {
			all = append(all, parkOne(t, e, 0))
		}
		a.Place(serving(1))
		inside := free(t, e, all)
		for _, want := range []int{16, 32, 4} { // no more are left
			time.Sleep(releaseRound)
			for _, g := range inside {
				end(e, g.r, Served)
			}
			if inside = free(t, e, all); len(inside) != want {
				t.Fatalf("as many answers as were awaited let %d go, want %d", len(inside), want)
			}
		}
	})
}

func TestWhoComesWhileTheParkedAreLetGoGoesBehindThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{Waker: &waker{}}, AppConfig{ParkLimit: 10})
		a.Place(Placement{State: Waking})
		var all []*guest
		for range 9 {
			all = append(all, parkOne(t, e, 0))
		}
		a.Place(serving(1))
		inside := free(t, e, all)
		all = append(all, parkOne(t, e, 0))
		end(e, inside[0].r, Served)
		if n := free(t, e, all); len(n) != 1 || n[0] != all[8] {
			t.Fatal("the newcomer did not go behind who was parked")
		}
		full := open(e)
		for range 9 {
			all = append(all, parkOne(t, e, 0))
		}
		if d := e.Decide(full); d.Kind != Park {
			t.Fatalf("%+v", d)
		}
		if c := full.Park(context.Background()); c != CauseNone {
			t.Fatalf("an app that serves refuses because the lot is full: %s", c)
		}
		if d := e.Decide(full); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		end(e, full, Served)
		late := open(e)
		if d := e.Decide(late); d.Kind != Park {
			t.Fatalf("%+v", d)
		}
		for _, g := range all {
			free(t, e, all)
			end(e, g.r, Served)
		}
		if c := late.Park(context.Background()); c != CauseNone || a.Stats().Parked != 0 {
			t.Fatalf("parked behind nobody: %s, %+v", c, a.Stats())
		}
		end(e, late, Served)
	})
}

func TestNobodyGoesBehindAnswersThatDoNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{Waker: &waker{}}, AppConfig{})
		a.Place(Placement{State: Waking})
		for range 30 {
			parkOne(t, e, 0)
		}
		a.Place(serving(1))
		if late := open(e); e.Decide(late).Kind != Park {
			t.Fatal("it did not go behind those who were parked")
		}
		time.Sleep(releaseTick)
		synctest.Wait()
		r := open(e)
		if d := e.Decide(r); d.Kind != Proxy {
			t.Fatalf("after a tick: %+v", d)
		}
		end(e, r, Served)
		a.Place(Placement{State: Down})
		synctest.Wait()
	})
}

func TestParkedRequestsAreTurnedAwayWithTheReasonOfTheSlot(t *testing.T) {
	for state, want := range map[State]Cause{
		Down: CauseWakeFailed, Maintenance: CauseMaintenance, Empty: CauseNoRelease, Fenced: CauseFenced,
	} {
		synctest.Test(t, func(t *testing.T) {
			e, a := one(t, Options{}, AppConfig{})
			a.Place(Placement{State: Waking})
			g := parkOne(t, e, 0)
			a.Place(Placement{State: state, Boot: 7 * time.Second})
			synctest.Wait()
			if c, ok := g.answered(); !ok || c != want {
				t.Fatalf("%s: %s, %v", state, c, ok)
			}
			if g.r.RetryAfter() != 7*time.Second {
				t.Fatalf("%s: the slot that refused is not told", state)
			}
			end(e, g.r, Refused)
		})
	}
}

func TestRequestsParkedForAnAppThatIsRemovedGoToWhoHasTheirHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := routes(t, "old a.test", "gone b.test")
		e.App("gone").Place(Placement{State: Waking})
		old := e.App("old")
		old.Place(Placement{State: Waking})
		visit := func() *Request {
			r := open(e)
			r.Host = []byte("a.test")
			return r
		}
		guests := []*guest{park(t, e, visit())}
		books := old.OpenAccount(2)
		guests = append(guests, park(t, e, visit()))
		nobody := visit()
		nobody.Host = []byte("b.test")
		guests = append(guests, park(t, e, nobody))
		routed := visit() // and then stops for a moment
		if d := e.Decide(routed); d.Kind != Park {
			t.Fatalf("%+v", d)
		}
		if err := e.SetApps([]AppConfig{{Name: "new", Hosts: []string{"a.test"}}}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, g := range guests {
			if c, ok := g.answered(); !ok || c != CauseNone {
				t.Fatalf("%s, %v: still parked, or turned away", c, ok)
			}
		}
		fresh := e.App("new")
		fresh.Place(serving(7))
		if d := e.Decide(nobody); d.Kind != Reply || d.Cause != CauseNoSuchHost {
			t.Errorf("nobody has its host: %+v", d)
		}
		end(e, nobody, Refused)
		for _, r := range []*Request{guests[0].r, guests[1].r, routed} {
			if d := e.Decide(r); d.Kind != Proxy || d.Target.Generation() != 7 {
				t.Errorf("%+v", d)
			}
			end(e, r, Served)
		}
		if s := fresh.Stats(); s.Accepted != 3 || s.Served != 3 || s.Open() != 0 {
			t.Errorf("the new app: %+v", s)
		}
		if s := old.Stats(); s.Accepted != 0 || s.Open() != 0 || s.Parked != 0 {
			t.Errorf("the old app: %+v", s)
		}
		if tally := books.Close(); tally.Accepted != 0 || tally.Open != 0 || len(tally.Mismatch) != 0 {
			t.Errorf("the old app's books: %+v", tally)
		}
	})
}

// What an app that is down tells is what has become of it, and Retry-After is what is
// left of its back-off when it is read.
func TestAnAppThatIsDownSaysWhyAndHowLongStill(t *testing.T) {
	for down, want := range map[Cause]Cause{CauseNone: CauseWakeFailed, CauseCrashed: CauseCrashed, CauseDraining: CauseDraining} {
		synctest.Test(t, func(t *testing.T) {
			e, a := one(t, Options{}, AppConfig{})
			a.Place(Placement{State: Waking})
			g := parkOne(t, e, 0)
			a.Place(Placement{State: Down, Down: down, Boot: 3 * time.Second, RetryAt: time.Now().Add(30 * time.Second)})
			time.Sleep(20 * time.Second)
			synctest.Wait()
			if c, ok := g.answered(); !ok || c != want {
				t.Errorf("%s, %v, want %s", c, ok, want)
			}
			if left := g.r.RetryAfter(); left != 10*time.Second {
				t.Errorf("%v are left, want 10s", left)
			}
			end(e, g.r, Refused)
		})
	}
}

func TestALotIsBoundedByCountBytesAndTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkLimit: 2, ParkBytes: 100, ParkTimeout: time.Minute})
		a.Place(Placement{State: Waking})
		first := parkOne(t, e, 60)
		if c, ok := parkOne(t, e, 41).answered(); !ok || c != CauseParkFull {
			t.Fatalf("bytes: %s, %v", c, ok)
		}
		time.Sleep(time.Second)
		second := parkOne(t, e, 40)
		if c, ok := parkOne(t, e, 0).answered(); !ok || c != CauseParkFull {
			t.Fatalf("count: %s, %v", c, ok)
		}
		time.Sleep(time.Minute - time.Second)
		synctest.Wait()
		if c, ok := first.answered(); !ok || c != CauseParkTimeout {
			t.Fatalf("time: %s, %v", c, ok)
		}
		if _, ok := second.answered(); ok {
			t.Fatal("timed out too early")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if c, ok := second.answered(); !ok || c != CauseParkTimeout {
			t.Fatalf("time: %s, %v", c, ok)
		}
		// W02: those who timed out have given their places back.
		g := parkOne(t, e, 100)
		if _, ok := g.answered(); ok {
			t.Fatal("a place is lost")
		}
		a.Place(serving(1))
		free(t, e, []*guest{g})
		end(e, g.r, Served)
	})
}

func TestAClientThatLeavesGivesItsPlaceBackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkLimit: 1})
		a.Place(Placement{State: Waking})
		g := parkOne(t, e, 10)
		g.r.Abandon()
		synctest.Wait()
		if c, ok := g.answered(); !ok || c != CauseClientGone {
			t.Fatalf("%s, %v", c, ok)
		}
		if n, bytes := a.lot.parked(); n != 0 || bytes != 0 {
			t.Fatalf("%d parked, %d bytes", n, bytes)
		}
		begin(g.r)
		e.Decide(g.r)
		if c := g.r.Park(context.Background()); c != CauseClientGone {
			t.Fatalf("parked for a client that is gone: %s", c)
		}
		end(e, g.r, Gone)
	})
}

func TestAClientThatLeavesWhileItIsLetGoIsNotForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{})
		a.Place(Placement{State: Waking})
		g := parkOne(t, e, 0)
		a.Place(serving(1)) // the verdict is on its way …
		g.r.Abandon()       // … when the client leaves
		synctest.Wait()
		if c, ok := g.answered(); ok && c == CauseNone {
			t.Skip("the request was quicker")
		} else if !ok || c != CauseClientGone {
			t.Fatalf("%s, %v", c, ok)
		}
		end(e, g.r, Gone)
	})
}

func TestParkingEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{})
		a.Place(Placement{State: Waking})
		r := open(e)
		e.Decide(r)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if c := r.Park(ctx); c != CauseDraining {
			t.Fatal(c)
		}
		if a.Stats().Parked != 0 {
			t.Fatal("still parked")
		}
		end(e, r, Refused)
	})
}

func TestARequestThatMustParkAgainKeepsItsPlaceAndItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkTimeout: 10 * time.Second})
		a.Place(Placement{State: Waking})
		first := parkOne(t, e, 0)
		time.Sleep(6 * time.Second)
		a.Place(serving(1))
		a.Place(Placement{State: Holding})
		synctest.Wait()
		if c, ok := first.answered(); !ok || c != CauseNone {
			t.Fatal("not let go")
		}
		second := parkOne(t, e, 0)
		if d := e.Decide(first.r); d.Kind != Park {
			t.Fatalf("%+v", d)
		}
		go func() { first.verdict <- first.r.Park(context.Background()) }()
		synctest.Wait()
		a.lot.mu.Lock()
		inOrder := a.lot.head == first.r && a.lot.tail == second.r
		a.lot.mu.Unlock()
		if !inOrder {
			t.Fatal("the one who came first is not first")
		}
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if c, ok := first.answered(); !ok || c != CauseParkTimeout {
			t.Fatalf("its time began again: %s, %v", c, ok)
		}
		if _, ok := second.answered(); ok {
			t.Fatal("the second timed out with the first")
		}
		a.Place(serving(2))
		free(t, e, []*guest{second})
		end(e, second.r, Served)
		end(e, first.r, Refused)
	})
}

func TestAShorterParkTimeoutHoldsForThoseWhoComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkTimeout: time.Minute})
		a.Place(Placement{State: Waking})
		long := parkOne(t, e, 0)
		if err := e.SetApps([]AppConfig{{Name: "app", Hosts: []string{"*"}, ParkTimeout: time.Second}}); err != nil {
			t.Fatal(err)
		}
		short := parkOne(t, e, 0)
		time.Sleep(time.Second)
		synctest.Wait()
		if c, ok := short.answered(); !ok || c != CauseParkTimeout {
			t.Fatalf("%s, %v", c, ok)
		}
		if _, ok := long.answered(); ok {
			t.Fatal("the first was promised a minute")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if c, ok := long.answered(); !ok || c != CauseParkTimeout {
			t.Fatalf("%s, %v", c, ok)
		}
	})
}

// W15: the app serves between the decision and the parking.
func TestARequestDoesNotParkOnASlotThatIsGone(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(Placement{State: Waking})
	r := open(e)
	if d := e.Decide(r); d.Kind != Park {
		t.Fatalf("%+v", d)
	}
	a.Place(serving(1))
	if c := r.Park(context.Background()); c != CauseNone {
		t.Fatal(c)
	}
	if d := e.Decide(r); d.Kind != Proxy {
		t.Fatalf("%+v", d)
	}
	end(e, r, Served)
}

func TestFallingAsleepWakesAgainForThoseWhoParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waker{}
		e, a := one(t, Options{Waker: w}, AppConfig{})
		a.Place(Placement{State: Holding})
		g := parkOne(t, e, 0)
		if w.n.Load() != 0 {
			t.Fatal("woken while held")
		}
		a.Place(Placement{State: Asleep})
		if w.n.Load() != 1 {
			t.Fatal("not woken for a parked request")
		}
		a.Place(serving(1))
		free(t, e, []*guest{g})
		end(e, g.r, Served)
	})
}

func TestCloseRefusesTheParked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{})
		a.Place(Placement{State: Paused})
		g := parkOne(t, e, 0)
		e.Close()
		synctest.Wait()
		if c, ok := g.answered(); !ok || c != CauseDraining {
			t.Fatalf("%s, %v", c, ok)
		}
		if c, ok := parkOne(t, e, 0).answered(); !ok || c != CauseDraining {
			t.Fatalf("later: %s, %v", c, ok)
		}
	})
}

// The last of those who were parked leaves, or has waited too long, while the others
// that were let go are being answered: nobody is left to go behind.
func TestNobodyGoesBehindAnEmptyLot(t *testing.T) {
	for _, way := range []string{"it leaves", "it has waited too long"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, a := one(t, Options{Waker: &waker{}}, AppConfig{ParkTimeout: 500 * time.Millisecond})
				a.Place(Placement{State: Waking})
				var all []*guest
				for range 9 {
					all = append(all, parkOne(t, e, 0))
				}
				time.Sleep(460 * time.Millisecond)
				a.Place(serving(1))
				free(t, e, all)
				if way == "it leaves" {
					all[8].r.Abandon()
				} else {
					time.Sleep(40 * time.Millisecond)
				}
				synctest.Wait()
				if a.Stats().Parked != 0 {
					t.Fatal("somebody is parked")
				}
				late := open(e)
				if d := e.Decide(late); d.Kind != Proxy {
					t.Errorf("a newcomer goes behind nobody: %+v", d)
				}
				for _, g := range all {
					end(e, g.r, Served)
				}
				end(e, late, Served)
			})
		})
	}
}

// Answers that never come (long polls), and an app that serves: who comes in the first
// tick waits no longer than that, and nobody is refused for the queue's order.
func TestWhoComesWhileTheQueueIsLetGoWaitsForOneTickAtMost(t *testing.T) {
	for timeout, want := range map[time.Duration]time.Duration{time.Minute: releaseTick - 5*time.Millisecond, releaseTick - 10*time.Millisecond: 0} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, a := one(t, Options{Waker: &waker{}}, AppConfig{ParkTimeout: timeout})
				a.Place(Placement{State: Waking})
				var all []*guest
				for range 200 {
					all = append(all, parkOne(t, e, 0))
				}
				a.Place(serving(1))
				time.Sleep(5 * time.Millisecond)
				late := open(e)
				if d := e.Decide(late); d.Kind != Park {
					t.Fatalf("%+v", d)
				}
				begun := time.Now()
				if c := late.Park(t.Context()); c != CauseNone || time.Since(begun) != want {
					t.Errorf("it waited %v: %q", time.Since(begun), c)
				}
				if d := e.Decide(late); d.Kind != Proxy {
					t.Errorf("then %+v", d)
				}
				a.Place(Placement{State: Down})
				synctest.Wait()
				end(e, late, Served)
				for _, g := range all {
					end(e, g.r, Served)
				}
			})
		})
	}
}
