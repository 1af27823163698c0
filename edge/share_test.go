package edge

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// parkAs parks a request of that client and says how it was refused, if it was.
func parkAs(t *testing.T, e *Edge, client string, buffered int64) (*guest, Cause) {
	t.Helper()
	r := open(e)
	r.Client, r.Buffered = []byte(client), buffered
	if d := e.Decide(r); d.Kind != Park {
		t.Fatalf("%+v", d)
	}
	g := &guest{r: r, verdict: make(chan Cause, 1)}
	go func() { g.verdict <- r.Park(context.Background()) }()
	synctest.Wait()
	c, _ := g.answered()
	if c != CauseNone {
		end(e, r, c.Ending())
	}
	return g, c
}

func TestOneClientCannotFillALot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkLimit: 6})
		a.Place(Placement{State: Waking})
		for range 3 {
			if _, c := parkAs(t, e, "192.0.2.1", 0); c != CauseNone {
				t.Fatalf("refused within its half: %s", c)
			}
		}
		if _, c := parkAs(t, e, "192.0.2.1", 0); c != CauseClientParkFull {
			t.Fatalf("a client with half of the lot: %s", c)
		}
		// Two addresses of one IPv6 network are one client.
		for range 2 {
			if _, c := parkAs(t, e, "2001:db8::1", 0); c != CauseNone {
				t.Fatalf("another client: %s", c)
			}
		}
		last, c := parkAs(t, e, "2001:db8::ffff:1", 0)
		if c != CauseNone {
			t.Fatalf("another client: %s", c)
		}
		if _, c := parkAs(t, e, "192.0.2.9", 0); c != CauseParkFull {
			t.Fatalf("a full lot: %s", c)
		}
		last.r.Abandon()
		synctest.Wait()
		end(e, last.r, Gone)
		if _, c := parkAs(t, e, "192.0.2.1", 0); c != CauseClientParkFull {
			t.Fatalf("its half is still taken: %s", c)
		}
		if _, c := parkAs(t, e, "2001:db8::2", 0); c != CauseNone {
			t.Fatalf("a place that was given back: %s", c)
		}
		a.Place(Placement{State: Down})
		synctest.Wait()
		if n := len(a.lot.shares); n != 0 {
			t.Fatalf("%d clients are remembered by an empty lot", n)
		}
	})
}

func TestAClientsShareOfALotIsInBytesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkBytes: 100, ParkBytesPerClient: 30})
		a.Place(Placement{State: Waking})
		if _, c := parkAs(t, e, "192.0.2.1", 40); c != CauseNone {
			t.Fatalf("the first request of a client: %s", c)
		}
		if _, c := parkAs(t, e, "192.0.2.1", 1); c != CauseClientParkFull {
			t.Fatalf("beyond its bytes: %s", c)
		}
		if _, c := parkAs(t, e, "192.0.2.2", 60); c != CauseNone {
			t.Fatalf("another client: %s", c)
		}
		if _, c := parkAs(t, e, "192.0.2.3", 1); c != CauseParkFull {
			t.Fatalf("a full lot: %s", c)
		}
	})
}

func TestUnknownClientsAreBoundByTheLotAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkLimit: 4})
		a.Place(Placement{State: Waking})
		for _, client := range []string{"", "unknown", "", "_x"} {
			if _, c := parkAs(t, e, client, 0); c != CauseNone {
				t.Fatalf("%q: %s", client, c)
			}
		}
		if _, c := parkAs(t, e, "", 0); c != CauseParkFull {
			t.Fatalf("a full lot: %s", c)
		}
	})
}

// A request that was let go and has to come back has its place already.
func TestAClientThatComesBackIsNotRefusedItsShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, a := one(t, Options{}, AppConfig{ParkLimit: 2})
		a.Place(Placement{State: Waking})
		g, _ := parkAs(t, e, "192.0.2.1", 5)
		a.Place(serving(1))
		synctest.Wait()
		if c, ok := g.answered(); !ok || c != CauseNone {
			t.Fatalf("%s, %v", c, ok)
		}
		a.Place(Placement{State: Holding})
		if _, c := parkAs(t, e, "192.0.2.1", 5); c != CauseNone {
			t.Fatalf("the next request: %s", c)
		}
		if d := e.Decide(g.r); d.Kind != Park {
			t.Fatalf("%+v", d)
		}
		go func() { g.verdict <- g.r.Park(context.Background()) }()
		synctest.Wait()
		if c, ok := g.answered(); ok {
			t.Fatalf("turned away: %s", c)
		}
		if n, bytes := a.lot.parked(); n != 2 || bytes != 10 {
			t.Fatalf("%d parked with %d bytes", n, bytes)
		}
	})
}

func TestRequestsInsideAreBoundPerClientWhereTheAppSaysSo(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{MaxInFlightPerClient: 2, MaxInFlight: 3})
	a.Place(serving(1))
	ask := func(client string) (*Request, Decision) {
		r := open(e)
		r.Client = []byte(client)
		return r, e.Decide(r)
	}
	first, _ := ask("192.0.2.1")
	second, _ := ask("192.0.2.1")
	third, d := ask("192.0.2.1")
	if d.Kind != Reply || d.Cause != CauseClientAtCapacity {
		t.Fatalf("%+v", d)
	}
	end(e, third, Refused)
	if n := a.Stats().InFlight; n != 2 {
		t.Fatalf("%d in flight, want 2: who is refused is not inside", n)
	}
	other, d := ask("192.0.2.2")
	if d.Kind != Proxy {
		t.Fatalf("another client: %+v", d)
	}
	if r, d := ask("192.0.2.3"); d.Kind != Reply || d.Cause != CauseAtCapacity {
		t.Fatalf("a full app: %+v", d)
	} else {
		end(e, r, Refused)
	}
	if !first.Retry() { // a retry gives the place back, and takes it again
		t.Fatal("cut")
	}
	if d := e.Decide(first); d.Kind != Proxy {
		t.Fatalf("%+v", d)
	}
	for _, r := range []*Request{first, second, other} {
		end(e, r, Served)
	}
	if n := a.guests.Inside(); n != 0 {
		t.Fatalf("%d clients are counted inside an empty app", n)
	}
	if s := a.Stats(); s.InFlight != 0 || s.Open() != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestSharesHaveDefaultsAndMayBeTheWhole(t *testing.T) {
	c, err := AppConfig{Name: "a", Hosts: []string{"*"}}.complete()
	if err != nil || c.ParkPerClient != defaultParkLimit/2 || c.ParkBytesPerClient != defaultParkBytes/2 || c.MaxInFlightPerClient != 0 {
		t.Errorf("%+v, %v", c, err)
	}
	if c, _ = (AppConfig{Name: "a", Hosts: []string{"*"}, ParkLimit: 1}).complete(); c.ParkPerClient != 1 {
		t.Errorf("half of one place is %d", c.ParkPerClient)
	}
	if _, err := (AppConfig{Name: "a", Hosts: []string{"*"}, ParkPerClient: -1}).complete(); err == nil {
		t.Error("a negative share is accepted")
	}
}

func BenchmarkDecideWithAClientsBound(b *testing.B) {
	e, a := one(b, Options{}, AppConfig{MaxInFlightPerClient: 100})
	a.Place(serving(1))
	r := e.Open(&peer{})
	host, path, client := []byte("app.test"), []byte("/"), []byte("192.0.2.1")
	b.ReportAllocs()
	for b.Loop() {
		r.Begin(time.Now())
		r.Host, r.Path, r.Client = host, path, client
		if d := e.Decide(r); d.Kind != Proxy {
			b.Fatalf("%+v", d)
		}
		end(e, r, Served)
	}
}
