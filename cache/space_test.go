package cache

import (
	"fmt"
	"testing"
)

// begun looks r up and starts to store an answer, body included.
func begun(t *testing.T, s *Space, r *Request, body string) *Fill {
	t.Helper()
	s.Lookup(r, t0)
	f := s.Begin(r, okay(body), t0)
	if f == nil {
		t.Fatalf("%s may not be stored", r.Target)
	}
	_, _ = f.Write([]byte(body))
	return f
}

func TestSpaceIsTheSameWhileItIsOpen(t *testing.T) {
	c, s := newSpace(t, Config{})
	if c.Space("app", 1) != s {
		t.Error("another space for the same key")
	}
	if c.Space("app", 2) == s || c.Space("other", 1) == s {
		t.Error("one space for two keys")
	}
	s.Close()
	again := c.Space("app", 1)
	if again == s {
		t.Fatal("a closed space was handed out")
	}
	s.Close() // late, must not unregister its successor
	if c.Space("app", 1) != again {
		t.Error("closing twice closed the next space")
	}
}

func TestSpacesDoNotSeeEachOther(t *testing.T) {
	c, s := newSpace(t, Config{})
	mustStore(t, s, get("/"), okay("mine"), "mine")
	for _, other := range []*Space{c.Space("app", 2), c.Space("other", 1)} {
		wantNone(t, other, get("/"), t0, Miss, reasonURIMiss)
		mustStore(t, other, get("/"), okay("theirs"), "theirs")
		other.Invalidate(get("/"))
		other.Close()
	}
	wantHit(t, s, get("/"), t0, "mine")
}

func TestClosedSpaceAnswersAndTakesNothing(t *testing.T) {
	c, s := newSpace(t, Config{})
	mustStore(t, s, get("/"), okay("x"), "x")
	late := begun(t, s, get("/late"), "late")
	s.Close()
	s.Close()
	if st := c.Stats(); st.Objects != 0 || st.Bytes != 0 {
		t.Errorf("%+v left behind", st.Usage)
	}
	wantNone(t, s, get("/"), t0, Bypass, reasonBypass)
	if late.Commit() {
		t.Error("a late store landed")
	}
	if s.Begin(get("/"), okay("x"), t0) != nil {
		t.Error("a store began")
	}
	s.Purge()
	if s.Begin(get("/"), okay("x"), t0) != nil {
		t.Error("a purge opened the space again")
	}
	wantNone(t, c.Space("app", 1), get("/late"), t0, Miss, reasonURIMiss)
}

func TestClosedSpaceLetsGoOfUnfinishedBodies(t *testing.T) {
	c, s := newSpace(t, Config{})
	f := begun(t, s, get("/"), "x")
	g := s.Begin(get("/"), response(200, 1000, "Cache-Control: max-age=60"), t0)
	s.Close()
	_, _ = g.Write([]byte("y"))
	f.Abort()
	if got := c.Stats().Filling; got != 0 {
		t.Errorf("%d bytes are still booked", got)
	}
}

func TestPurgedSpaceIsEmptyAndOpen(t *testing.T) {
	c, s := newSpace(t, Config{})
	for _, target := range []string{"/a", "/b"} {
		mustStore(t, s, get(target), okay("x"), "x")
	}
	s.Purge()
	if st := c.Stats(); st.Objects != 0 || st.Evictions != 0 {
		t.Errorf("%+v, want nothing, and no evictions", st.Usage)
	}
	wantNone(t, s, get("/a"), t0, Miss, reasonURIMiss)
	mustStore(t, s, get("/a"), okay("new"), "new")
	wantHit(t, s, get("/a"), t0, "new")
}

func TestWhatWasLookedUpBeforeAPurgeIsNotStoredAfterIt(t *testing.T) {
	_, s := newSpace(t, Config{})
	running := begun(t, s, get("/running"), "old")
	waiting := get("/waiting")
	s.Lookup(waiting, t0) // its request is with the app
	s.Purge()
	if running.Commit() {
		t.Error("a fill from before the purge landed")
	}
	if s.Begin(waiting, okay("old"), t0) != nil {
		t.Error("an answer to a request from before the purge was taken")
	}
	if f := begun(t, s, waiting, "new"); !f.Commit() {
		t.Error("the next request's answer was not stored")
	}
}

// A request that was looked up in one space and, parked across a switch,
// answered by the next generation belongs to the next space.
func TestAnswerMayBeStoredInAnotherSpaceThanItWasLookedUpIn(t *testing.T) {
	c, s := newSpace(t, Config{})
	r := get("/")
	s.Lookup(r, t0)
	next := c.Space("app", 2)
	s.Close()
	f := next.Begin(r, okay("x"), t0)
	_, _ = f.Write([]byte("x"))
	if !f.Commit() {
		t.Fatal("not stored")
	}
	wantHit(t, next, get("/"), t0, "x")

	r = get("/purged")
	s.Lookup(r, t0)
	next.Purge()
	if next.Begin(r, okay("x"), t0) != nil {
		t.Error("an answer from before the purge was taken")
	}
}

// RFC 9111 §4.4.
func TestInvalidationRemovesEveryVariantOfTheURI(t *testing.T) {
	c, s := newSpace(t, Config{})
	mustStore(t, s, get("/a", "Accept: 1"), okay("1", "Vary: Accept"), "1")
	mustStore(t, s, get("/a", "Accept: 2"), okay("2", "Vary: Accept"), "2")
	mustStore(t, s, get("/b"), okay("b"), "b")
	s.Invalidate(ask("POST", "/a"))
	wantNone(t, s, get("/a", "Accept: 1"), t0, Miss, reasonURIMiss)
	wantNone(t, s, get("/a", "Accept: 2"), t0, Miss, reasonURIMiss)
	wantHit(t, s, get("/b"), t0, "b")
	if got := c.Stats().Objects; got != 1 {
		t.Errorf("%d objects, want 1", got)
	}
}

// outsideBucket begins a fill for a URI that does not share f's floor.
func outsideBucket(t *testing.T, s *Space, f *Fill) *Fill {
	t.Helper()
	for i := range 100 {
		g := begun(t, s, get(fmt.Sprintf("/other/%d", i)), "x")
		if g.page.id.hash%floorBuckets != f.page.id.hash%floorBuckets {
			return g
		}
		g.Abort()
	}
	t.Fatal("a hundred URIs share one bucket")
	return nil
}

func TestWhatIsFetchedDuringAnInvalidationIsNotStored(t *testing.T) {
	_, s := newSpace(t, Config{})
	running := begun(t, s, get("/a"), "old")
	other := outsideBucket(t, s, running)
	waiting := get("/a")
	s.Lookup(waiting, t0)
	s.Invalidate(ask("DELETE", "/a"))
	if running.Commit() {
		t.Error("a fill from before the invalidation landed")
	}
	f := s.Begin(waiting, okay("old"), t0)
	_, _ = f.Write([]byte("old"))
	if f.Commit() {
		t.Error("an answer to a request from before the invalidation landed")
	}
	if !other.Commit() {
		t.Error("an answer for another URI was lost")
	}
	if f := begun(t, s, get("/a"), "new"); !f.Commit() {
		t.Error("the next request's answer was not stored")
	}
	wantHit(t, s, get("/a"), t0, "new")
}

// RFC 9111 §4.4 with RFC 9110 §9.2.1.
func TestOnlySuccessfulUnsafeRequestsInvalidate(t *testing.T) {
	tests := []struct {
		method string
		status int
		want   bool
	}{
		{"POST", 200, true},
		{"PUT", 204, true},
		{"PATCH", 200, true},
		{"DELETE", 303, true},
		{"PURGE", 200, true},
		{"POST", 400, false},
		{"POST", 500, false},
		{"POST", 103, false},
		{"GET", 200, false},
		{"HEAD", 200, false},
		{"OPTIONS", 200, false},
		{"TRACE", 200, false},
	}
	for _, tt := range tests {
		if got := Invalidates([]byte(tt.method), tt.status); got != tt.want {
			t.Errorf("%s %d: %v, want %v", tt.method, tt.status, got, tt.want)
		}
	}
}

func TestPurgeAndForgetReachAllSpacesOfOneApp(t *testing.T) {
	c, first := newSpace(t, Config{})
	second, other := c.Space("app", 2), c.Space("other", 1)
	fill := func() {
		for _, s := range []*Space{first, second, other} {
			mustStore(t, s, get("/"), okay("x"), "x")
		}
	}
	fill()
	c.Purge("app")
	wantNone(t, first, get("/"), t0, Miss, reasonURIMiss)
	wantNone(t, second, get("/"), t0, Miss, reasonURIMiss)
	wantHit(t, other, get("/"), t0, "x")
	fill()
	late := begun(t, second, get("/late"), "x")
	c.Forget("app")
	wantNone(t, first, get("/"), t0, Bypass, reasonBypass)
	wantNone(t, second, get("/"), t0, Bypass, reasonBypass)
	wantHit(t, other, get("/"), t0, "x")
	if late.Commit() {
		t.Error("a late store of a forgotten app landed")
	}
	st := c.Stats()
	if _, ok := st.Apps["app"]; ok || len(st.Apps) != 1 || st.Objects != 1 {
		t.Errorf("%+v, want the other app only", st)
	}
	c.Purge("nobody")
	c.Forget("nobody")
	if c.Space("app", 2) == second {
		t.Error("a forgotten space was handed out")
	}
}

func TestStatsAreKeptPerAppAndInTotal(t *testing.T) {
	c, s := newSpace(t, Config{})
	mustStore(t, s, get("/"), okay("x"), "x")
	mustStore(t, s, get("/"), okay("y"), "y")
	mustStore(t, c.Space("other", 7), get("/"), okay(text(5000)), text(5000))
	f := begun(t, s, get("/running"), "z")
	st := c.Stats()
	app, other := st.Apps["app"], st.Apps["other"]
	if app.Objects != 1 || app.Stores != 2 || app.Evictions != 0 || other.Objects != 1 || other.Stores != 1 {
		t.Errorf("app %+v, other %+v", app, other)
	}
	if other.Bytes < 5000 || app.Bytes+other.Bytes != st.Bytes || st.Filling <= 0 {
		t.Errorf("bytes: app %d, other %d, total %d, filling %d", app.Bytes, other.Bytes, st.Bytes, st.Filling)
	}
	f.Abort()
	s.Close()
	if got := c.Stats().Apps["app"]; got.Objects != 0 || got.Bytes != 0 || got.Stores != 2 {
		t.Errorf("after close: %+v, want no bytes but the count of stores", got)
	}
}
