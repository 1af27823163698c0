package edge

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// visitor decides and parks until it is inside the app or turned away, as a front does.
type visitor struct {
	r    *Request
	done chan Decision
}

func visit(e *Edge, r *Request) *visitor {
	v := &visitor{r: r, done: make(chan Decision, 1)}
	go func() {
		for {
			d := e.Decide(r)
			if d.Kind == Park {
				if c := r.Park(context.Background()); c != CauseNone {
					d = Decision{Kind: Reply, Cause: c}
				}
			}
			if d.Kind != Park {
				v.done <- d
				return
			}
		}
	}()
	synctest.Wait()
	return v
}

func visits(e *Edge, n int) (all []*visitor) {
	for range n {
		all = append(all, visit(e, open(e)))
	}
	return all
}

// inside takes those out of waiting that got in, in whatever order they did. Nobody may
// have been turned away.
func inside(t *testing.T, waiting *[]*visitor) (in []*visitor) {
	t.Helper()
	synctest.Wait()
	var rest []*visitor
	for _, v := range *waiting {
		select {
		case d := <-v.done:
			if d.Kind != Proxy {
				t.Fatalf("who was parked is turned away: %+v", d)
			}
			in = append(in, v)
		default:
			rest = append(rest, v)
		}
	}
	*waiting = rest
	return in
}

func TestWhoWasParkedAndFindsTheAppFullWaitsForRoomInItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{Waker: &waker{}}, AppConfig{MaxInFlight: 4})
		a.Place(Placement{State: Waking})
		waiting := visits(e, 60)
		all := append([]*visitor(nil), waiting...)
		a.Place(serving(1))
		in := inside(t, &waiting)
		if len(in) != 4 || a.Stats().Parked != 56 {
			t.Fatalf("%d are inside, %+v", len(in), a.Stats())
		}
		time.Sleep(10 * releaseTick)
		for next := 0; next < len(all); next++ {
			if in[0] != all[next] {
				t.Fatalf("not in order of arrival: %d", next)
			}
			if next < 56 {
				if d := e.Decide(open(e)); d.Kind != Reply || d.Cause != CauseAtCapacity {
					t.Fatalf("a newcomer, with the app full: %+v", d)
				}
			}
			end(e, in[0].r, Served)
			in = append(in[1:], inside(t, &waiting)...)
			if want := min(4, 59-next); len(in) != want {
				t.Fatalf("after %d answers %d are inside, want %d", next+1, len(in), want)
			}
		}
		if v := visits(e, 1); len(inside(t, &v)) != 1 {
			t.Fatal("nobody waits any more, and the next one does not get in")
		} else if s := a.Stats(); s.Parked != 0 || s.InFlight != 1 {
			t.Fatalf("%+v", s)
		}
	})
}

// full fails unless a newcomer finds the app full.
func full(t *testing.T, e *Edge, when string) {
	t.Helper()
	r := open(e)
	if d := e.Decide(r); d.Kind != Reply || d.Cause != CauseAtCapacity {
		t.Fatalf("%s: %+v", when, d)
	}
	end(e, r, Refused)
}

// enter has a newcomer go in, one that goes behind nobody.
func enter(t *testing.T, e *Edge) *Request {
	t.Helper()
	r := open(e)
	r.Minor = 0
	if d := e.Decide(r); d.Kind != Proxy {
		t.Fatalf("%+v", d)
	}
	return r
}

// paused is serving, but whoever comes waits.
func paused(generation uint64) Placement {
	p := serving(generation)
	p.State = Paused
	return p
}

// Who is inside without ever having been parked makes room too, and it is not the
// next newcomer's, however long whoever it is for takes to get there.
func TestRoomThatANewcomerLeavesIsOfWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 1})
		a.Place(serving(1))
		early := enter(t, e)
		a.Place(paused(1))
		g := parkOne(t, e, 0)
		a.Place(serving(1))
		time.Sleep(3 * releaseTick)
		full(t, e, "the app is full")
		end(e, early, Served)
		synctest.Wait()
		if c, ok := g.answered(); !ok || c != CauseNone {
			t.Fatalf("%s, %v", c, ok)
		}
		full(t, e, "the room is of who waited")
		if a.TrySleep(1, Placement{State: Asleep}) {
			t.Fatal("it sleeps with somebody on the way in")
		}
		if d := e.Decide(g.r); d.Kind != Proxy {
			t.Fatalf("who waited finds no room: %+v", d)
		}
		full(t, e, "the app is full again")
		end(e, g.r, Served)
		end(e, enter(t, e), Served)
	})
}

// Between the step in which somebody leaves and that in which the next one is counted in
// there is room to be seen.
func TestANewcomerDoesNotSlipInBetween(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{MaxInFlight: 1})
	a.Place(serving(1))
	early := enter(t, e)
	a.Place(paused(1))
	g := open(e)
	if d := e.Decide(g); d.Kind != Park {
		t.Fatalf("%+v", d)
	}
	parked := make(chan Cause)
	go func() { parked <- g.Park(context.Background()) }()
	for a.Stats().Parked == 0 {
		runtime.Gosched()
	}
	a.Place(serving(1))
	target := a.slot.Load().target
	target.behind.Store(false) // a tick later
	a.lot.mu.Lock()
	gone := make(chan bool)
	go func() { gone <- end(e, early, Served) }()
	for target.gate.inside() > 0 {
		runtime.Gosched()
	}
	full(t, e, "the room is of who waits")
	a.lot.mu.Unlock()
	<-gone
	if c := <-parked; c != CauseNone {
		t.Fatal(c)
	}
	if d := e.Decide(g); d.Kind != Proxy {
		t.Fatalf("%+v", d)
	}
	end(e, g, Served)
}

// Eight are let go to generation 1, and find generation 2 full, which serves by then.
// Until they are back in the lot nobody that leaves knows that room is owed: all of it
// is, nevertheless.
func TestWhoComesBackFindsAllTheRoomThereIsByThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 20, ParkTimeout: 10 * time.Second})
		a.Place(Placement{State: Waking})
		var all []*guest
		for range 40 {
			all = append(all, parkOne(t, e, 0))
		}
		a.Place(serving(1))
		synctest.Wait()
		a.Place(serving(2))
		synctest.Wait()
		var early []*Request
		for a.slot.Load().target.gate.inside() < 20 {
			early = append(early, enter(t, e))
		}
		for _, g := range all[:8] {
			<-g.verdict
			if d := e.Decide(g.r); d.Kind != Park {
				t.Fatalf("%+v", d)
			}
		}
		for _, r := range early {
			end(e, r, Served)
		}
		for _, g := range all[:8] {
			go func() { g.verdict <- g.r.Park(context.Background()) }()
			synctest.Wait()
		}
		in := free(t, e, all)
		time.Sleep(10 * releaseTick)
		in = append(in, free(t, e, all)...)
		if s := a.Stats(); len(in) != 20 || s.Parked != 20 {
			t.Fatalf("%d of 20 are inside, %+v", len(in), s)
		}
		for _, g := range in { // for hours
			g.r.Streaming(func(Haste) {})
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if s := a.Stats(); s.Parked != 0 {
			t.Fatalf("%+v", s)
		}
		end(e, in[0].r, Served)
		end(e, enter(t, e), Served)
		end(e, enter(t, e), Served)
	})
}

func TestWhoCameMeanwhileDoesNotTakeTheRoomAtATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 10})
		a.Place(Placement{State: Waking})
		first := visits(e, 30)
		a.Place(serving(1))
		if n := len(inside(t, &first)); n != 8 {
			t.Fatalf("%d are inside", n)
		}
		late := visits(e, 20)
		time.Sleep(releaseTick)
		if n, m := len(inside(t, &first)), len(inside(t, &late)); n != 2 || m != 0 {
			t.Fatalf("of room for two %d of the parked took some, and %d of those who came later", n, m)
		}
	})
}

// A newcomer for whom there is no place behind those who wait is refused. It was not
// inside, and leaves no room.
func TestWhoIsRefusedLeavesNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 1, ParkLimit: 3})
		a.Place(Placement{State: Waking})
		waiting := visits(e, 3)
		a.Place(serving(1))
		if n := len(inside(t, &waiting)); n != 1 {
			t.Fatalf("%d are inside", n)
		}
		waiting = append(waiting, visits(e, 1)...)
		late := visit(e, open(e))
		if d := <-late.done; d.Cause != CauseAtCapacity {
			t.Fatalf("%+v", d)
		}
		if late.r.parking.ticket != 0 {
			t.Fatal("it counts as one that was parked")
		}
		before := a.lot.head
		end(e, late.r, Refused)
		if a.lot.head != before || a.lot.n != 3 {
			t.Fatal("the first that waits was let go, with no room for it")
		}
		a.Place(Placement{State: Down})
		synctest.Wait()
	})
}

// Who has waited is not refused for its client's others, nor is who is tried again, but
// they count: a newcomer is.
func TestNobodyWaitsToBeRefusedForItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlightPerClient: 2})
		as := func() *Request {
			r := open(e)
			r.Client = []byte("192.0.2.1")
			return r
		}
		refused := func() {
			t.Helper()
			r := as()
			if d := e.Decide(r); d.Kind != Reply || d.Cause != CauseClientAtCapacity {
				t.Fatalf("%+v", d)
			}
			end(e, r, Refused)
		}
		a.Place(Placement{State: Waking})
		all := []*guest{park(t, e, as()), park(t, e, as()), park(t, e, as())}
		a.Place(serving(1))
		synctest.Wait()
		for _, g := range all {
			if c := <-g.verdict; c != CauseNone {
				t.Fatal(c)
			}
			if d := e.Decide(g.r); d.Kind != Proxy {
				t.Fatalf("%+v", d)
			}
		}
		refused()
		end(e, all[2].r, Served)
		refused()
		if !all[0].r.Retry() { // its place is its own until it has ended
			t.Fatal("cut")
		}
		refused()
		if d := e.Decide(all[0].r); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		end(e, all[0].r, Served)
		last := as()
		if d := e.Decide(last); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		end(e, last, Served)
		end(e, all[1].r, Served)
		if n := a.guests.Inside(); n != 0 {
			t.Fatalf("%d clients are counted, and nobody is there", n)
		}
	})
}

// Who is answered by usher is not inside, however long its client takes to read that.
func TestWhoIsAnsweredByUsherIsNotOneOfItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{Cache: hits{}}, AppConfig{MaxInFlight: 1, MaxInFlightPerClient: 1, CacheEnabled: true})
		as := func(ip string) *Request {
			r := open(e)
			r.Client = []byte(ip)
			return r
		}
		want := func(inside int, when string) {
			t.Helper()
			if n := a.guests.Inside(); n != inside {
				t.Errorf("%s: %d clients are counted, want %d", when, n, inside)
			}
		}
		a.Place(Placement{State: Waking})
		g := park(t, e, as("192.0.2.1"))
		want(0, "parked")
		p := serving(1)
		p.CacheGen = 1
		a.Place(p)
		synctest.Wait()
		<-g.verdict
		g.r.Target = []byte("/cached")
		if d := e.Decide(g.r); d.Kind != Hit {
			t.Fatalf("%+v", d)
		}
		want(0, "answered from the cache")
		end(e, g.r, Cached)

		first := as("192.0.2.1")
		if d := e.Decide(first); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		second := as("192.0.2.2")
		if d := e.Decide(second); d.Cause != CauseAtCapacity {
			t.Fatalf("%+v", d)
		}
		want(1, "refused by an app that is full")
		end(e, second, Refused)
		if !first.Retry() {
			t.Fatal("cut")
		}
		want(1, "tried again")
		first.Target = []byte("/cached")
		if d := e.Decide(first); d.Kind != Hit {
			t.Fatalf("%+v", d)
		}
		want(0, "tried again, and answered from the cache")
		end(e, first, Cached)

		first = as("192.0.2.1")
		if d := e.Decide(first); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		if !first.Retry() {
			t.Fatal("cut")
		}
		a.Place(Placement{State: Down})
		if d := e.Decide(first); d.Cause != CauseWakeFailed {
			t.Fatalf("%+v", d)
		}
		want(0, "refused by an app that is down")
		end(e, first, Refused)
	})
}

// A limit that comes with a reload refuses nobody who waits, or was inside and is tried
// again. They count for it.
func TestALimitThatIsNewRefusesNobodyWhoWasThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{})
		as := func() *Request {
			r := open(e)
			r.Client = []byte("192.0.2.1")
			return r
		}
		a.Place(serving(1))
		again := as()
		if d := e.Decide(again); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		a.Place(Placement{State: Holding})
		all := []*guest{park(t, e, as()), park(t, e, as()), park(t, e, as())}
		if err := e.SetApps([]AppConfig{{Name: "app", Hosts: []string{"*"}, MaxInFlightPerClient: 1}}); err != nil {
			t.Fatal(err)
		}
		a.Place(serving(2))
		if in := free(t, e, all); len(in) != len(all) {
			t.Fatalf("%d of %d are inside", len(in), len(all))
		}
		if !again.Retry() {
			t.Fatal("cut")
		}
		if d := e.Decide(again); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		for _, r := range []*Request{again, all[0].r, all[1].r, all[2].r} {
			one := as()
			if d := e.Decide(one); d.Cause != CauseClientAtCapacity {
				t.Fatalf("%+v", d)
			}
			end(e, one, Refused)
			end(e, r, Served)
		}
		if d := e.Decide(as()); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
	})
}

// Who is let go to an app with room for so many is inside it. If that app is removed
// then, it gives the room back before it waits for another.
func TestWhoMovesToAnotherAppLeavesNothingInsideTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{})
		t.Cleanup(e.Close)
		if err := e.SetApps([]AppConfig{
			{Name: "first", Hosts: []string{"app.test"}, MaxInFlight: 1},
			{Name: "second", Hosts: []string{"*"}, MaxInFlight: 2 * releaseFirst},
		}); err != nil {
			t.Fatal(err)
		}
		a, b := e.App("first"), e.App("second")
		a.Place(Placement{State: Waking})
		b.Place(Placement{State: Waking})
		moved := park(t, e, open(e))
		for range 2 * releaseFirst {
			r := open(e)
			r.Host = []byte("other.test")
			park(t, e, r)
		}
		a.Place(serving(1))
		b.Place(serving(2))
		synctest.Wait()
		if c := <-moved.verdict; c != CauseNone || a.Stats().InFlight != 1 {
			t.Fatalf("%s, %+v", c, a.Stats())
		}
		gone := a.Drained(1)
		a.Remove()
		if d := e.Decide(moved.r); d.Kind != Park { // behind those that wait for the second
			t.Fatalf("%+v", d)
		}
		if !isClosed(gone) {
			t.Error("it waits for the second app inside the first")
		}
	})
}

// A request that goes over to another app is no longer one of its client's at the first.
func TestWhoMovesToAnotherAppIsCountedThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := New(Options{})
		t.Cleanup(e.Close)
		if err := e.SetApps([]AppConfig{
			{Name: "first", Hosts: []string{"app.test"}, MaxInFlightPerClient: 1},
			{Name: "second", Hosts: []string{"*"}, MaxInFlightPerClient: 1},
		}); err != nil {
			t.Fatal(err)
		}
		a, b := e.App("first"), e.App("second")
		a.Place(Placement{State: Waking})
		b.Place(serving(1))
		r := open(e)
		r.Client = []byte("192.0.2.1")
		g := park(t, e, r)
		a.Remove()
		synctest.Wait()
		if c := <-g.verdict; c != CauseNone {
			t.Fatal(c)
		}
		if d := e.Decide(r); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		if n, m := a.guests.Inside(), b.guests.Inside(); n != 0 || m != 1 {
			t.Fatalf("%d are counted at the first app, %d at the second", n, m)
		}
		end(e, r, Served)
		if n := b.guests.Inside(); n != 0 {
			t.Fatalf("%d are counted, and nobody is there", n)
		}
	})
}

// Who was let go and is answered from the cache may take long to read that.
func TestWhoIsAnsweredFromTheCacheKeepsNoRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{Cache: hits{}}, AppConfig{MaxInFlight: 1, CacheEnabled: true})
		a.Place(Placement{State: Waking})
		var all []*guest
		for range 3 {
			all = append(all, parkOne(t, e, 0))
		}
		p := serving(1)
		p.CacheGen = 1
		a.Place(p)
		synctest.Wait()
		<-all[0].verdict
		all[0].r.Target = []byte("/cached")
		if d := e.Decide(all[0].r); d.Kind != Hit {
			t.Fatalf("%+v", d)
		}
		if in := free(t, e, all); len(in) != 1 || in[0] != all[1] {
			t.Fatalf("%d are let go while another is answered from the cache", len(in))
		}
		end(e, all[0].r, Cached)
		if s := a.Stats(); s.Parked != 1 || s.InFlight != 1 {
			t.Fatalf("%+v", s)
		}
		a.Place(Placement{State: Down})
		synctest.Wait()
	})
}

// A try that failed before anything was delivered leaves room, and others wait for it.
// The next try waits too; it was inside, and is not refused.
func TestAnotherTryAtAnAppThatIsFullWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 2})
		a.Place(serving(1))
		r := enter(t, e)
		r.Minor = 1
		a.Place(paused(1))
		waiting := visits(e, 5)
		a.Place(serving(1))
		time.Sleep(2 * releaseTick)
		in := inside(t, &waiting)
		if !r.Retry() {
			t.Fatal("it was cut")
		}
		in = append(in, inside(t, &waiting)...)
		if len(in) != 2 {
			t.Fatalf("%d are inside", len(in))
		}
		waiting = append(waiting, visit(e, r))
		for len(in) > 0 {
			end(e, in[0].r, Served)
			in = append(in[1:], inside(t, &waiting)...)
		}
		if s := a.Stats(); s.Served != 6 || s.Refused != 0 || s.Parked != 0 || s.InFlight != 0 {
			t.Fatalf("%+v", s)
		}
	})
}

// A request that was let go may end without going in; the room is then the next one's.
func TestRoomThatIsNotTakenIsTheNextOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 2})
		a.Place(Placement{State: Waking})
		var all []*guest
		for range 6 {
			all = append(all, parkOne(t, e, 0))
		}
		a.Place(serving(1))
		time.Sleep(3 * releaseTick)
		synctest.Wait()
		if n := a.Stats().Parked; n != 4 {
			t.Fatalf("%d wait, with room for two of six", n)
		}
		for i, g := range all { // each is let go once the one before has ended
			if c, ok := g.answered(); !ok || c != CauseNone {
				t.Fatalf("%d: %s, %v", i, c, ok)
			}
			end(e, g.r, Gone) // as of a client that has left by now
			synctest.Wait()
		}
		if s := a.Stats(); s.Parked != 0 || s.InFlight != 0 || s.Gone != 6 || s.DrainCut != 0 {
			t.Fatalf("%+v", s)
		}
		if d := e.Decide(open(e)); d.Kind != Proxy {
			t.Fatalf("nobody waits any more: %+v", d)
		}
	})
}

func TestWhoWaitsForRoomDoesSoForItsOwnTimeOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 1, ParkTimeout: time.Second})
		a.Place(Placement{State: Waking})
		waiting := visits(e, 2)
		a.Place(serving(1))
		if in := inside(t, &waiting); len(in) != 1 {
			t.Fatalf("%d are inside", len(in))
		}
		time.Sleep(900 * time.Millisecond)
		if len(inside(t, &waiting)) != 0 || a.Stats().Parked != 1 {
			t.Fatalf("%+v", a.Stats())
		}
		time.Sleep(101 * time.Millisecond)
		synctest.Wait()
		select {
		case d := <-waiting[0].done:
			if d.Cause != CauseParkTimeout {
				t.Fatalf("%+v", d)
			}
		default:
			t.Fatal("it waits for longer than its time")
		}
	})
}

func TestAnAppThatMayHaveMoreInsideTakesInWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 1})
		a.Place(Placement{State: Waking})
		waiting := visits(e, 7)
		a.Place(serving(1))
		time.Sleep(2 * releaseTick)
		if in := inside(t, &waiting); len(in) != 1 {
			t.Fatalf("%d are inside", len(in))
		}
		if err := e.SetApps([]AppConfig{{Name: "app", Hosts: []string{"*"}, MaxInFlight: 3}}); err != nil {
			t.Fatal(err)
		}
		if in := inside(t, &waiting); len(in) != 2 {
			t.Fatalf("%d more are inside, want 2", len(in))
		}
		if err := e.SetApps([]AppConfig{{Name: "app", Hosts: []string{"*"}}}); err != nil {
			t.Fatal(err)
		}
		if in := inside(t, &waiting); len(in) != 4 {
			t.Fatalf("%d more are inside, want all 4", len(in))
		}
	})
}

// life is a random one of an app that may have few inside.
type life struct {
	t     *testing.T
	rnd   *rand.Rand
	e     *Edge
	a     *App
	limit int
	gen   uint64
	out   []*visitor // that have no decision yet
	in    []*visitor
	done  uint64
}

func (l *life) step() {
	switch n := l.rnd.IntN(20); {
	case n < 8:
		for range l.rnd.IntN(12) {
			r := open(l.e)
			r.Client = []byte{'1', '0', '.', '0', '.', '0', '.', '0' + byte(l.rnd.IntN(3))}
			r.Minor = uint8(min(l.rnd.IntN(5), 1))
			if l.rnd.IntN(10) == 0 {
				r.Target = []byte("/cached")
			}
			l.out = append(l.out, visit(l.e, r))
		}
	case n < 14:
		for range l.rnd.IntN(4) {
			l.endOne()
		}
	case n == 14:
		if len(l.out) > 0 {
			l.out[l.rnd.IntN(len(l.out))].r.Abandon()
		}
	case n == 15 && len(l.in) > 0:
		v := l.in[0]
		if l.in = l.in[1:]; v.r.Retry() {
			l.out = append(l.out, visit(l.e, v.r))
		}
	case n == 16:
		l.limit = l.rnd.IntN(10)
		cfg := AppConfig{Name: "app", Hosts: []string{"*"}, MaxInFlight: l.limit, MaxInFlightPerClient: l.rnd.IntN(4), ParkLimit: 30, CacheEnabled: true}
		if err := l.e.SetApps([]AppConfig{cfg}); err != nil {
			l.t.Fatal(err)
		}
	case n == 17:
		p := serving(l.gen)
		p.State, p.CacheGen = []State{Waking, Holding, Paused, Asleep}[l.rnd.IntN(4)], 1
		if l.rnd.IntN(2) == 0 {
			p.Address = ""
		}
		l.a.Place(p)
	default:
		l.gen += uint64(l.rnd.IntN(2))
		p := serving(l.gen)
		p.CacheGen = 1
		l.a.Place(p)
	}
	if l.rnd.IntN(3) == 0 {
		time.Sleep(time.Duration(l.rnd.IntN(300)) * time.Millisecond)
	}
	l.sort()
}

func (l *life) endOne() {
	if len(l.in) == 0 {
		return
	}
	i := l.rnd.IntN(len(l.in))
	end(l.e, l.in[i].r, Served)
	l.in = append(l.in[:i], l.in[i+1:]...)
	l.done++
}

// sort ends those that were turned away, and sees who is inside.
func (l *life) sort() {
	synctest.Wait()
	var out []*visitor
	for _, v := range l.out {
		select {
		case d := <-v.done:
			switch {
			case d.Kind == Proxy:
				l.in = append(l.in, v)
			case d.Kind == Reply && d.Cause == CauseAtCapacity && v.r.parked > 0:
				l.t.Errorf("it was parked for %v, and is refused as the app is full", v.r.parked)
			case d.Kind == Reply && d.Cause == CauseClientAtCapacity && (v.r.parked > 0 || v.r.retries > 0):
				l.t.Errorf("it was parked for %v and tried again %d times, and is refused for its client's others", v.r.parked, v.r.retries)
			default:
				end(l.e, v.r, Refused)
				l.done++
			}
		default:
			out = append(out, v)
		}
	}
	l.out = out
	synctest.Wait() // an ending may have let others go
	for _, v := range l.out {
		if len(v.done) > 0 {
			l.sort()
			return
		}
	}
}

// look asks what must hold when nobody can take a step.
func (l *life) look(step int) {
	s, waiting := l.a.slot.Load(), l.a.Stats().Parked
	if s.State != Serving {
		return
	}
	inside, owed := int(s.target.gate.inside()), s.target.owed.Load()
	if owed && (waiting == 0 || inside < l.limit) {
		l.t.Fatalf("step %d: room is owed, %d wait, %d of %d are inside", step, waiting, inside, l.limit)
	}
	if waiting == 0 && s.target.behind.Load() {
		l.t.Fatalf("step %d: nobody waits, and newcomers go behind", step)
	}
	mine := 0
	for _, v := range l.in {
		if v.r.target == s.target {
			mine++
		}
	}
	if mine != inside {
		l.t.Fatalf("step %d: %d are inside, %d are counted in", step, mine, inside)
	}
}

func TestWhateverHappensRoomIsUsedAndNobodyIsForgotten(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			e, a := one(t, Options{Waker: &waker{}, Cache: hits{}}, AppConfig{MaxInFlight: 4, ParkLimit: 30, CacheEnabled: true})
			l := &life{t: t, rnd: rand.New(rand.NewPCG(seed, 1)), e: e, a: a, limit: 4, gen: 1}
			a.Place(Placement{State: Waking})
			for step := range 150 {
				l.step()
				l.look(step)
			}
			a.Place(serving(l.gen))
			for range 200 {
				l.endOne()
				l.sort()
				l.look(-1)
			}
			time.Sleep(40 * releaseTick)
			l.sort()
			for len(l.in) > 0 {
				l.endOne()
				l.sort()
			}
			if s := a.Stats(); len(l.out) != 0 || s.Parked != 0 || s.InFlight != 0 || s.Accepted != l.done || s.Open() != 0 || s.DrainCut != 0 {
				t.Fatalf("seed %d: %d wait, %d are done, %+v", seed, len(l.out), l.done, s)
			}
			if n := a.guests.Inside(); n != 0 {
				t.Fatalf("seed %d: %d clients are counted, and nobody is there", seed, n)
			}
		})
	}
}
