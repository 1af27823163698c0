package edge

import (
	"context"
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

// Who is inside without ever having been parked makes room too, and it is not the
// next newcomer's.
func TestRoomThatANewcomerLeavesIsOfWhoWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{MaxInFlight: 1})
		a.Place(Placement{State: Waking})
		g := parkOne(t, e, 0)
		a.Place(serving(1))
		synctest.Wait()
		if c, ok := g.answered(); !ok || c != CauseNone {
			t.Fatalf("%s, %v", c, ok)
		}
		full := func(who string) {
			t.Helper()
			if d := e.Decide(open(e)); d.Kind != Reply || d.Cause != CauseAtCapacity {
				t.Fatalf("%s: %+v", who, d)
			}
		}
		early := open(e)
		if d := e.Decide(early); d.Kind != Proxy {
			t.Fatalf("%+v", d)
		}
		park(t, e, g.r) // it decides too late
		full("the app is full")
		end(e, early, Served)
		full("the room is of who waited")
		if d := e.Decide(g.r); d.Kind != Proxy {
			t.Fatalf("who waited finds no room: %+v", d)
		}
		full("the app is full again")
		end(e, g.r, Served)
		if d := e.Decide(open(e)); d.Kind != Proxy {
			t.Fatalf("nobody is inside, nobody waits: %+v", d)
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
		if s := a.Stats(); s.Parked != 0 || s.InFlight != 0 {
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
