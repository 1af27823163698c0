package cache

import (
	"fmt"
	"testing"
)

// C02. RFC 9111 §4.1, RFC 9110 §5.3 for lines that mean the same joined.
func TestVaryKeepsVariantsApart(t *testing.T) {
	tests := []struct {
		rule  string
		vary  []string
		first []string
		asks  []string
		hit   bool
	}{
		{"same value", []string{"Vary: Accept"}, []string{"Accept: a"}, []string{"Accept: a"}, true},
		{"another value", []string{"Vary: Accept"}, []string{"Accept: a"}, []string{"Accept: b"}, false},
		{"longer value", []string{"Vary: Accept"}, []string{"Accept: a"}, []string{"Accept: ab"}, false},
		{"shorter value", []string{"Vary: Accept"}, []string{"Accept: ab"}, []string{"Accept: a"}, false},
		{"values are case-sensitive", []string{"Vary: Accept"}, []string{"Accept: a"}, []string{"Accept: A"}, false},
		{"absent both times", []string{"Vary: Accept"}, nil, nil, true},
		{"absent later", []string{"Vary: Accept"}, []string{"Accept: a"}, nil, false},
		{"absent first", []string{"Vary: Accept"}, nil, []string{"Accept: a"}, false},
		{"empty is not absent", []string{"Vary: Accept"}, []string{"Accept:"}, nil, false},
		{"absent is not empty", []string{"Vary: Accept"}, nil, []string{"Accept:"}, false},
		{"empty both times", []string{"Vary: Accept"}, []string{"Accept:"}, []string{"Accept:"}, true},
		{"names in any case", []string{"vary: aCCept"}, []string{"ACCEPT: a"}, []string{"accept: b"}, false},
		{"white space in Vary", []string{"Vary:  \tAccept \t,\tFoo "}, []string{"Foo: a"}, []string{"Foo: b"}, false},
		{"empty elements in Vary", []string{"Vary: ,Accept,,"}, []string{"Accept: a"}, []string{"Accept: b"}, false},
		{"several Vary lines", []string{"Vary: Foo", "Vary: Accept"}, []string{"Accept: a"}, []string{"Accept: b"}, false},
		{"the first of several Vary lines", []string{"Vary: Accept", "Vary: Foo"}, []string{"Accept: a"}, []string{"Accept: b"}, false},
		{"a name twice", []string{"Vary: Accept, accept"}, []string{"Accept: a"}, []string{"Accept: a"}, true},
		{"one of two names differs", []string{"Vary: A, B"}, []string{"A: 1", "B: 1"}, []string{"A: 1", "B: 2"}, false},
		{"a field not named", []string{"Vary: A"}, []string{"A: 1", "B: 1"}, []string{"A: 1", "B: 2"}, true},
		{"lines are joined", []string{"Vary: A"}, []string{"A: 1, 2"}, []string{"A: 1", "A: 2"}, true},
		{"lines are joined the other way", []string{"Vary: A"}, []string{"A: 1", "A: 2"}, []string{"A: 1, 2"}, true},
		{"order of lines counts", []string{"Vary: A"}, []string{"A: 1", "A: 2"}, []string{"A: 2", "A: 1"}, false},
		{"a line more", []string{"Vary: A"}, []string{"A: 1"}, []string{"A: 1", "A: 2"}, false},
		{"a line less", []string{"Vary: A"}, []string{"A: 1", "A: 2"}, []string{"A: 1"}, false},
		{"an empty line more", []string{"Vary: A"}, []string{"A: 1"}, []string{"A: 1", "A:"}, false},
		{"lines that run together", []string{"Vary: A"}, []string{"A: 12"}, []string{"A: 1", "A: 2"}, false},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, s := newSpace(t, Config{})
			mustStore(t, s, get("/", tt.first...), okay("1", tt.vary...), "1")
			if tt.hit {
				wantHit(t, s, get("/", tt.asks...), t0, "1")
				return
			}
			wantNone(t, s, get("/", tt.asks...), t0, Miss, reasonVaryMiss)
			mustStore(t, s, get("/", tt.asks...), okay("2", tt.vary...), "2")
			wantHit(t, s, get("/", tt.first...), t0, "1")
			wantHit(t, s, get("/", tt.asks...), t0, "2")
		})
	}
}

func TestWhiteSpaceAroundValuesMakesNoVariant(t *testing.T) {
	_, s := newSpace(t, Config{})
	mustStore(t, s, get("/", "A: 1", "A: 2"), okay("x", "Vary: A"), "x")
	untrimmed := get("/")
	untrimmed.Header = &lines{names: []string{"a", "a"}, values: [][]byte{[]byte(" 1\t"), []byte("\t2 ")}}
	wantHit(t, s, untrimmed, t0, "x")
}

func TestVariantIsReplacedByItsSuccessor(t *testing.T) {
	c, s := newSpace(t, Config{})
	for _, body := range []string{"1", "2", "3"} {
		mustStore(t, s, get("/", "Accept: a"), okay(body, "Vary: Accept"), body)
		wantHit(t, s, get("/", "Accept: a"), t0, body)
	}
	if st := c.Stats(); st.Objects != 1 || st.Stores != 3 || st.Evictions != 0 {
		t.Errorf("%+v, want one object, three stores, no eviction", st)
	}
}

func TestOrderOfNamesInVaryMakesNoDifference(t *testing.T) {
	_, s := newSpace(t, Config{})
	mustStore(t, s, get("/", "A: 1"), okay("1", "Vary: A, B"), "1")
	mustStore(t, s, get("/", "A: 2"), okay("2", "Vary: b", "Vary: a"), "2")
	wantHit(t, s, get("/", "A: 1"), t0, "1")
	wantHit(t, s, get("/", "A: 2"), t0, "2")
}

func TestOldestVariantIsDroppedAtTheLimit(t *testing.T) {
	c, s := newSpace(t, Config{})
	variant := func(i int) *Request { return get("/", fmt.Sprintf("Accept: %d", i)) }
	for i := range maxVariants + 2 {
		if !store(s, variant(i), okay("x", "Vary: Accept"), "x", at(i)) {
			t.Fatalf("variant %d was not stored", i)
		}
	}
	now := at(maxVariants + 2)
	wantNone(t, s, variant(0), now, Miss, reasonVaryMiss)
	wantNone(t, s, variant(1), now, Miss, reasonVaryMiss)
	for i := 2; i < maxVariants+2; i++ {
		wantHit(t, s, variant(i), now, "x")
	}
	if st := c.Stats(); st.Objects != maxVariants || st.Evictions != 2 {
		t.Errorf("%+v, want %d objects and 2 evictions", st, maxVariants)
	}
}

func TestExpiredVariantsMakeRoom(t *testing.T) {
	c, s := newSpace(t, Config{})
	mustStore(t, s, get("/", "Accept: a"), okay("1", "Vary: Accept"), "1")
	if !store(s, get("/", "Accept: b"), okay("2", "Vary: Accept"), "2", at(60)) {
		t.Fatal("not stored")
	}
	if st := c.Stats(); st.Objects != 1 || st.Evictions != 0 {
		t.Errorf("%+v, want the fresh one only, and no eviction", st)
	}
}

// An app that begins to say Vary has told us that what was stored without it
// cannot be trusted for everybody.
func TestChangeOfVaryDropsWhatWasChosenByOtherFields(t *testing.T) {
	_, s := newSpace(t, Config{})
	mustStore(t, s, get("/", "Accept: a"), okay("plain"), "plain")
	mustStore(t, s, get("/", "Accept: b"), okay("b", "Vary: Accept"), "b")
	wantNone(t, s, get("/", "Accept: a"), t0, Miss, reasonVaryMiss)
	mustStore(t, s, get("/", "Accept: a"), okay("all"), "all")
	wantHit(t, s, get("/", "Accept: b"), t0, "all")
}

// Answers can overtake each other; the one whose head came last is the newest.
func TestSlowAnswerDoesNotReplaceANewerOne(t *testing.T) {
	for _, vary := range []string{"", "Accept"} {
		_, s := newSpace(t, Config{})
		slow := s.Begin(get("/"), okay("old"), t0)
		_, _ = slow.Write([]byte("old"))
		if !store(s, get("/"), okay("new", "Vary: "+vary), "new", at(1)) {
			t.Fatal("not stored")
		}
		if slow.Commit() {
			t.Error("the slow one was stored")
		}
		wantHit(t, s, get("/"), at(1), "new")
	}
}
