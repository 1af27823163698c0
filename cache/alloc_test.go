//go:build !race

package cache

import (
	"fmt"
	"runtime"
	"testing"
)

func TestLookupsAndAnswersAllocateNothing(t *testing.T) {
	_, s := newSpace(t, Config{})
	body := text(1000)
	mustStore(t, s, get("/plain", browser...), okay(body, `ETag: "v1"`, modified, dated), body)
	mustStore(t, s, get("/vary", browser...), okay(body, "Vary: Accept-Encoding, Cookie"), body)
	with := func(target string, texts ...string) *Request {
		return get(target, append(append([]string{}, browser...), texts...)...)
	}
	tests := map[string]struct {
		r     *Request
		state State
	}{
		"hit":                {with("/plain"), Hit},
		"HEAD":               {ask("HEAD", "/plain", browser...), Hit},
		"hit by variant":     {with("/vary"), Hit},
		"hit, directives":    {with("/plain", "Cache-Control: max-age=100, min-fresh=1"), Hit},
		"not modified":       {with("/plain", `If-None-Match: "a", W/"v1"`), Hit},
		"not modified, date": {with("/plain", "If-Modified-Since: "+day+"11:00:00 GMT"), Hit},
		"several ranges":     {with("/plain", "Range: bytes=0-0,-1"), Hit},
		"range that lost":    {with("/plain", "Range: bytes=0-0", `If-Range: "v0"`), Hit},
		"miss":               {with("/nothing"), Miss},
		"variant miss":       {get("/vary", "Accept-Encoding: br"), Miss},
		"refetch":            {with("/plain", "Cache-Control: no-cache", "Pragma: no-cache"), Miss},
		"bypass":             {with("/plain", "Authorization: Basic x"), Bypass},
		"another method":     {ask("POST", "/plain", browser...), Bypass},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := testing.AllocsPerRun(200, func() {
				found := s.Lookup(tt.r, at(1))
				if found.State != tt.state {
					t.Fatalf("state %d, want %d", found.State, tt.state)
				}
				if found.Object != nil && found.Object.Answer(tt.r).Status == 0 {
					t.Fatal("no answer")
				}
			})
			if got != 0 {
				t.Errorf("%v allocations", got)
			}
		})
	}
}

func TestInvalidationAllocatesNothing(t *testing.T) {
	_, s := newSpace(t, Config{})
	r := ask("POST", "/", browser...)
	if got := testing.AllocsPerRun(100, func() { s.Invalidate(r) }); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// The bound is only worth something if a booked byte is a byte of the heap.
func TestBookedBytesCoverTheHeapTheyStandFor(t *testing.T) {
	if testing.Short() {
		t.Skip("measures the heap, which takes its time")
	}
	for _, size := range []int{0, 100, 1000, 10_000, 100_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			const most = 24 << 20
			c := New(Config{MaxBytes: most, Shards: 8})
			s := c.Space("app", 1)
			body := text(size)
			resp := okay(body, "Content-Type: text/html; charset=utf-8", `ETag: "0123456789"`, "Vary: Accept-Encoding, Accept")
			before := heap()
			for i := 0; c.Stats().Evictions == 0; i++ {
				r := get(fmt.Sprintf("/some/path/of/usual/length/%d", i), browser...)
				if !store(s, r, resp, body, at(i%50)) {
					t.Fatal("not stored")
				}
			}
			used, booked := heap()-before, c.Stats().Bytes
			t.Logf("%d objects: booked %d, heap %d (%.2f)", c.Stats().Objects, booked, used, float64(used)/float64(booked))
			if used > booked+booked/20 || used < booked/2 {
				t.Errorf("%d bytes are booked, the heap grew by %d", booked, used)
			}
			runtime.KeepAlive(c)
		})
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
