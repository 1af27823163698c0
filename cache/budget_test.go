package cache

import (
	"fmt"
	"runtime"
	"testing"
)

func TestDefaultsAndLimitsOfTheConfig(t *testing.T) {
	tests := []struct {
		cfg         Config
		max, object int64
		shards      int
	}{
		{Config{Shards: 3}, 256 << 20, 8 << 20, 4},
		{Config{Shards: 1}, 256 << 20, 8 << 20, 1},
		{Config{Shards: 100_000}, 256 << 20, 8 << 20, 256},
		{Config{MaxBytes: 1 << 20, Shards: 2}, 1 << 20, 256 << 10, 2},
		{Config{MaxBytes: 1 << 20, MaxObjectBytes: 1000, Shards: 2}, 1 << 20, 1000, 2},
		{Config{MaxBytes: -1, MaxObjectBytes: -1, Shards: 2}, 256 << 20, 8 << 20, 2},
	}
	for _, tt := range tests {
		c := New(tt.cfg)
		if c.ledger.limit != tt.max || c.maxObject != tt.object || len(c.shards) != tt.shards {
			t.Errorf("%+v: %d bytes, %d per object, %d shards", tt.cfg, c.ledger.limit, c.maxObject, len(c.shards))
		}
		mustStore(t, c.Space("app", 1), get("/"), okay("x"), "x")
	}
	if n := len(New(Config{}).shards); n < 4*runtime.GOMAXPROCS(0) {
		t.Errorf("%d shards by default", n)
	}
}

func TestLeastRecentlyUsedGoFirst(t *testing.T) {
	c, s := newSpace(t, Config{MaxBytes: 100_000, Shards: 4}) // four: exact order
	body := text(3000)
	target := func(i int) *Request { return get(fmt.Sprintf("/%d", i)) }
	for i := range 100 {
		resp := response(200, 3000, "Cache-Control: max-age=1000")
		if !store(s, target(i), resp, body, at(i)) {
			t.Fatalf("%d was not stored", i)
		}
		wantHit(t, s, target(0), at(i).Add(1), body) // always in use
	}
	st := c.Stats()
	if st.Objects < 20 || st.Evictions != uint64(100-st.Objects) {
		t.Errorf("%+v", st.Usage)
	}
	for i := 1; i < 100; i++ {
		state := s.Lookup(target(i), at(i).Add(2)).State
		if want := i > 100-int(st.Objects); (state == Hit) != want {
			t.Errorf("%d of %d kept: %d is a hit: %v", st.Objects, 100, i, !want)
		}
	}
}

func TestUseCountsAcrossShards(t *testing.T) {
	c, s := newSpace(t, Config{MaxBytes: 200_000, Shards: 4})
	body := text(3000)
	target := func(i int) *Request { return get(fmt.Sprintf("/%d", i)) }
	const all = 40
	for i := range all {
		if !store(s, target(i), okay(body), body, at(i/10)) {
			t.Fatal("not stored")
		}
	}
	if got := c.Stats().Evictions; got != 0 {
		t.Fatalf("%d evictions before it is full", got)
	}
	for i := 0; i < all; i += 2 {
		if i%4 == 0 {
			wantHit(t, s, target(i), at(5), body)
			continue
		}
		f := s.Begin(target(i), okay(body), at(5)) // looked up elsewhere
		_, _ = f.Write([]byte(body))
		if !f.Commit() {
			t.Fatal("not stored again")
		}
	}
	for i := all; c.Stats().Evictions < all/2; i++ {
		if !store(s, target(i), okay(body), body, at(6)) {
			t.Fatal("not stored")
		}
	}
	for i := 0; i < all; i += 2 {
		wantHit(t, s, target(i), at(7), body)
	}
}

func TestOneAppsStoresCountEvictionsForTheAppThatLost(t *testing.T) {
	c, s := newSpace(t, Config{MaxBytes: 50_000})
	mustStore(t, s, get("/"), okay("x"), "x")
	other := c.Space("other", 1)
	for i := range 20 {
		store(other, get(fmt.Sprintf("/%d", i)), okay(text(5000)), text(5000), at(i))
	}
	st := c.Stats()
	if got := st.Apps["app"]; got.Evictions != 1 || got.Objects != 0 {
		t.Errorf("the app that lost: %+v", got)
	}
	if st.Apps["other"].Evictions+1 != st.Evictions {
		t.Errorf("%+v", st)
	}
}

func TestLargeStoreEvictsAsManyAsItNeeds(t *testing.T) {
	c, s := newSpace(t, Config{MaxBytes: 100_000, Shards: 8})
	for i := range 300 {
		mustStore(t, s, get(fmt.Sprintf("/%d", i)), okay("x"), "x")
	}
	before := c.Stats()
	mustStore(t, s, get("/large"), okay(text(20_000)), text(20_000))
	st := c.Stats()
	if st.Evictions-before.Evictions < 5 || st.Bytes > 100_000 {
		t.Errorf("before %+v, after %+v", before.Usage, st.Usage)
	}
	wantHit(t, s, get("/large"), t0, text(20_000))
}
