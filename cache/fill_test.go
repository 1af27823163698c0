package cache

import (
	"strings"
	"testing"
)

func TestOnlyWholeBodiesAreStored(t *testing.T) {
	tests := []struct {
		rule   string
		length int64
		pieces []string
		want   bool
	}{
		{"as long as it said", 6, []string{"abc", "", "def"}, true},
		{"a byte short", 6, []string{"abc", "de"}, false},
		{"nothing came", 6, nil, false},
		{"a byte long", 6, []string{"abc", "defg"}, false},
		{"empty as it said", 0, nil, true},
		{"not empty as it said", 0, []string{"a"}, false},
		{"length not known", -1, []string{"abc", "def"}, true},
		{"length not known, empty", -1, nil, true},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, s := newSpace(t, Config{})
			f := s.Begin(get("/"), response(200, tt.length, "Cache-Control: max-age=60"), t0)
			for _, piece := range tt.pieces {
				if n, err := f.Write([]byte(piece)); n != len(piece) || err != nil {
					t.Fatalf("write: %d, %v: a fill must never stop the stream", n, err)
				}
			}
			if got := f.Commit(); got != tt.want {
				t.Fatalf("stored: %v, want %v", got, tt.want)
			}
			if tt.want {
				wantHit(t, s, get("/"), t0, strings.Join(tt.pieces, ""))
			} else {
				wantNone(t, s, get("/"), t0, Miss, reasonURIMiss)
			}
		})
	}
}

func TestNoContentWithABodyIsNotStored(t *testing.T) {
	_, s := newSpace(t, Config{})
	if s.Begin(get("/"), response(204, 3, "Cache-Control: max-age=60"), t0) != nil {
		t.Error("a 204 with a length was taken")
	}
	if store(s, get("/"), response(204, -1, "Cache-Control: max-age=60"), "abc", t0) {
		t.Error("a 204 with a body was stored")
	}
}

func TestObjectLargerThanTheLimitIsNotStored(t *testing.T) {
	const limit = 10_000
	for _, known := range []bool{true, false} {
		for size, want := range map[int]bool{limit - 100: true, limit - 30: true, limit + 1: false, 3 * limit: false} {
			c, s := newSpace(t, Config{MaxObjectBytes: limit})
			resp := okay(text(size))
			if !known {
				resp.Length = -1
			}
			f := s.Begin(get("/"), resp, t0)
			if known && (f != nil) != want {
				t.Errorf("%d bytes announced: taken %v, want %v", size, f != nil, want)
			}
			for body := text(size); body != ""; {
				n := min(999, len(body))
				_, _ = f.Write([]byte(body[:n]))
				body = body[n:]
			}
			if size > limit && c.Stats().Filling != 0 {
				t.Errorf("%d bytes: still booked before the end: %+v", size, c.Stats())
			}
			if got := f.Commit(); got != want {
				t.Errorf("%d bytes, length known %v: stored %v, want %v", size, known, got, want)
			}
		}
	}
}

func TestFieldLinesCountTowardsTheObjectLimit(t *testing.T) {
	_, s := newSpace(t, Config{MaxObjectBytes: 1000})
	for _, length := range []int64{500, -1} {
		resp := response(200, length, "Cache-Control: max-age=60", "X-Large: "+text(600))
		if store(s, get("/"), resp, text(500), t0) {
			t.Errorf("length %d: stored", length)
		}
	}
}

func TestBodyLongerThanAnnouncedIsLetGoAtOnce(t *testing.T) {
	c, s := newSpace(t, Config{})
	f := s.Begin(get("/"), response(200, 10, "Cache-Control: max-age=60"), t0)
	_, _ = f.Write([]byte(text(11)))
	if got := c.Stats().Filling; got != 0 {
		t.Errorf("%d bytes are still booked", got)
	}
}

func TestFillEndsOnce(t *testing.T) {
	c, s := newSpace(t, Config{})
	committed := s.Begin(get("/a"), okay("a"), t0)
	_, _ = committed.Write([]byte("a"))
	if !committed.Commit() || committed.Commit() {
		t.Error("commit must say true once")
	}
	committed.Abort()
	_, _ = committed.Write([]byte("b"))
	wantHit(t, s, get("/a"), t0, "a")

	aborted := s.Begin(get("/b"), okay("b"), t0)
	_, _ = aborted.Write([]byte("b"))
	aborted.Abort()
	aborted.Abort()
	if aborted.Commit() {
		t.Error("committed after an abort")
	}
	wantNone(t, s, get("/b"), t0, Miss, reasonURIMiss)
	if st := c.Stats(); st.Filling != 0 || st.Objects != 1 {
		t.Errorf("%+v, want one object and nothing filling", st)
	}
}

func TestNilFillAndNilSpaceDoNothing(t *testing.T) {
	var f *Fill
	if n, err := f.Write([]byte("abc")); n != 3 || err != nil {
		t.Errorf("write: %d, %v", n, err)
	}
	if f.Abort(); f.Commit() {
		t.Error("a nil fill was stored")
	}
	var s *Space
	wantNone(t, s, get("/"), t0, Bypass, reasonBypass)
	if s.Begin(get("/"), okay(""), t0) != nil {
		t.Error("a nil space takes answers")
	}
	s.Invalidate(get("/"))
	s.Purge()
	s.Close()
}

func TestUnfinishedFillsAreBounded(t *testing.T) {
	c, s := newSpace(t, Config{MaxBytes: 400_000, MaxObjectBytes: 50_000})
	var fills []*Fill
	for range 100 {
		f := s.Begin(get("/"), response(200, 30_000, "Cache-Control: max-age=60"), t0)
		if f != nil {
			fills = append(fills, f)
		}
	}
	if st := c.Stats(); len(fills) == 0 || len(fills) > 3 || st.Filling > 100_000 {
		t.Errorf("%d fills hold %d bytes, want at most a quarter of 400,000", len(fills), st.Filling)
	}
	for range 100 {
		f := s.Begin(get("/"), response(200, -1, "Cache-Control: max-age=60"), t0)
		_, _ = f.Write([]byte(text(20_000)))
		fills = append(fills, f)
		if st := c.Stats(); st.Filling > 100_000 {
			t.Fatalf("%d bytes filling, want at most 100,000", st.Filling)
		}
	}
	for _, f := range fills {
		f.Abort()
	}
	mustStore(t, s, get("/"), okay("x"), "x")
}

func TestBodyOfUnknownLengthGivesSpareRoomBack(t *testing.T) {
	c, s := newSpace(t, Config{})
	f := s.Begin(get("/"), response(200, -1, "Cache-Control: max-age=60"), t0)
	for range 33 {
		_, _ = f.Write([]byte(text(1 << 10)))
	}
	if !f.Commit() {
		t.Fatal("not stored")
	}
	if st := c.Stats(); st.Bytes > 33<<10+10<<10 {
		t.Errorf("33 KiB are booked with %d bytes", st.Bytes)
	}
	if o := s.Lookup(get("/"), t0).Object; cap(o.Body) > 42<<10 || len(o.Body) != 33<<10 {
		t.Errorf("a body of %d bytes holds on to %d", len(o.Body), cap(o.Body))
	}
}
