package cache

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// Failures that users of other caches reported, as tests of this one. The
// letters are those of the table in docs/testing.md.

// C01: darkweak/souin#805, caddyserver/cache-handler#124.
func TestCookieOfOneClientNeverReachesAnother(t *testing.T) {
	_, s := newSpace(t, Config{})
	public := []string{"Cache-Control: public, max-age=60, s-maxage=60", "Set-Cookie: session=alice"}
	if store(s, get("/"), response(200, 5, public...), "hello", t0) {
		t.Error("an answer with a cookie was stored")
	}
	cut := response(200, 5, public...)
	cut.Fields = []byte("Cache-Control: max-age=60\r\n") // the cookie taken out on the way
	if store(s, get("/"), cut, "hello", t0) {
		t.Error("what was said to one client was stored without its cookie")
	}
	wantNone(t, s, get("/"), t0, Miss, reasonURIMiss)

	// Once it comes without a cookie it may be shared; a later one with a
	// cookie must not get in.
	mustStore(t, s, get("/"), okay("hello"), "hello")
	if store(s, get("/", "Cache-Control: no-cache"), response(200, 5, public...), "hallo", t0) {
		t.Error("an answer with a cookie replaced one without")
	}
	wantHit(t, s, get("/"), t0, "hello")
}

// C02: darkweak/souin#192. The table is TestVaryKeepsVariantsApart.
func TestVaryStarIsNeverAHit(t *testing.T) {
	_, s := newSpace(t, Config{})
	for _, vary := range []string{"*", " * ", "Accept, *", "*, Accept"} {
		if store(s, get("/", "Accept: a"), okay("x", "Vary: "+vary), "x", t0) {
			t.Errorf("stored with Vary: %q", vary)
		}
		wantNone(t, s, get("/", "Accept: a"), t0, Miss, reasonURIMiss)
	}
}

// C03: darkweak/souin#247, jonbaldie/varnish#47. RFC 9111 §3.5 would allow to
// share some of them; we never do.
func TestAnswersToAuthorizedRequestsAreNeverShared(t *testing.T) {
	_, s := newSpace(t, Config{})
	alice, bob := get("/", "Authorization: Bearer alice"), get("/", "Authorization: Bearer bob")
	for _, control := range []string{"max-age=60", "public, max-age=60", "s-maxage=60", "max-age=60, must-revalidate"} {
		resp := response(200, 5, "Cache-Control: "+control)
		for _, r := range []*Request{alice, bob} {
			wantNone(t, s, r, t0, Bypass, reasonBypass)
			if store(s, r, resp, "alice", t0) {
				t.Errorf("stored with %q", control)
			}
		}
		wantNone(t, s, get("/"), t0, Miss, reasonURIMiss)
	}
	// What anybody may have is not given to a user either: the app may know
	// better what that user sees.
	mustStore(t, s, get("/"), okay("public"), "public")
	wantNone(t, s, alice, t0, Bypass, reasonBypass)
}

// C05: darkweak/souin#562 and #600, caddyserver/cache-handler#107.
func TestEventStreamsAndUpgradesStayOutOfTheCache(t *testing.T) {
	_, s := newSpace(t, Config{})
	stream := response(200, -1, "Cache-Control: public, max-age=60", "Content-Type: text/event-stream")
	for i := range 10 {
		r := get("/events", "Accept: text/event-stream")
		wantNone(t, s, r, t0, Miss, reasonURIMiss)
		if s.Begin(r, stream, t0) != nil {
			t.Fatalf("stream %d is being stored", i)
		}
	}
	mustStore(t, s, get("/socket"), okay("page"), "page")
	wantNone(t, s, get("/socket", "Connection: Upgrade", "Upgrade: websocket"), t0, Bypass, reasonBypass)
}

// C06: varnishcache/varnish-cache#3461 and #2978. All callers are with the app
// at the same time; one that waited for another would never let them meet.
func TestConcurrentMissesAllGoToTheApp(t *testing.T) {
	_, s := newSpace(t, Config{})
	const callers = 50
	var arrived, done sync.WaitGroup
	arrived.Add(callers)
	for range callers {
		done.Go(func() {
			r := get("/slow")
			if s.Lookup(r, t0).State != Miss {
				t.Error("no miss")
			}
			f := s.Begin(r, response(200, 1, "Cache-Control: no-store"), t0)
			g := s.Begin(r, okay("x"), t0)
			arrived.Done()
			arrived.Wait() // the app answers when all are there
			_, _ = g.Write([]byte("x"))
			if f != nil || !g.Commit() {
				t.Error("stored what may not be, or lost what may")
			}
		})
	}
	done.Wait()
	wantHit(t, s, get("/slow"), t0, "x")
}

// C08: darkweak/souin#467.
func TestConditionalRequestOnAColdCacheDoesNotPoisonIt(t *testing.T) {
	_, s := newSpace(t, Config{})
	r := get("/", `If-None-Match: "v1"`)
	wantNone(t, s, r, t0, Miss, reasonURIMiss)
	if store(s, r, response(304, 0, "Cache-Control: max-age=60", `ETag: "v1"`), "", t0) {
		t.Error("a bare 304 was stored")
	}
	wantNone(t, s, get("/"), t0, Miss, reasonURIMiss)

	// An app that sends everything all the same fills the cache.
	mustStore(t, s, r, okay("body", `ETag: "v1"`), "body")
	plain := wantHit(t, s, get("/"), t0, "body").Answer(get("/"))
	if plain.Status != 200 || string(plain.Body) != "body" {
		t.Errorf("a plain GET got %d %q", plain.Status, plain.Body)
	}
}

// C10: darkweak/souin PR#657.
func TestHeadNeitherPoisonsNorLosesItsLength(t *testing.T) {
	_, s := newSpace(t, Config{})
	head := ask("HEAD", "/")
	wantNone(t, s, head, t0, Miss, reasonURIMiss)
	if store(s, head, response(200, 4, "Cache-Control: max-age=60"), "", t0) {
		t.Error("the answer to a HEAD was stored")
	}
	wantNone(t, s, get("/"), t0, Miss, reasonURIMiss)
	mustStore(t, s, get("/"), okay("body"), "body")
	reply := wantHit(t, s, head, t0, "body").Answer(head)
	if reply.Status != 200 || reply.Body != nil || reply.Length != 4 {
		t.Errorf("HEAD on a hit: %d, body %q, length %d", reply.Status, reply.Body, reply.Length)
	}
	if got := wantHit(t, s, get("/"), t0, "body").Answer(get("/")); string(got.Body) != "body" {
		t.Errorf("GET after HEAD: %q", got.Body)
	}
}

// C12: darkweak/souin PR#796. The table is TestRangesAreCutExactly.
func TestPartialAnswersAreNeverStoredAsTheWhole(t *testing.T) {
	_, s := newSpace(t, Config{})
	r := get("/", "Range: bytes=0-0")
	if store(s, r, response(206, 1, "Cache-Control: max-age=60", "Content-Range: bytes 0-0/4"), "b", t0) {
		t.Error("a part was stored")
	}
	wantNone(t, s, get("/"), t0, Miss, reasonURIMiss)
	mustStore(t, s, r, okay("body"), "body")
	wantHit(t, s, get("/"), t0, "body")
}

// C13: jonbaldie/varnish#71. What is expired is never given out, so an app
// that sleeps or fails is asked, and its failure does not bring the old back.
func TestExpiredObjectIsNotServedWhateverTheAppDoes(t *testing.T) {
	for _, control := range []string{"max-age=60, must-revalidate", "max-age=60", "max-age=60, stale-if-error=600"} {
		_, s := newSpace(t, Config{})
		mustStore(t, s, get("/"), response(200, 1, "Cache-Control: "+control), "x")
		r := get("/")
		wantHit(t, s, r, at(59), "x")
		wantNone(t, s, r, at(60), Expired, reasonStale)
		if store(s, r, response(503, 0, "Cache-Control: max-age=60"), "", at(60)) {
			t.Error("a failure was stored")
		}
		wantNone(t, s, r, at(60), Expired, reasonStale)
		if !store(s, r, okay("y"), "y", at(61)) {
			t.Fatal("the app's next answer was not stored")
		}
		wantHit(t, s, r, at(62), "y")
	}
}

// C14: ampproject/amp.dev#2029, basecamp/kamal#1220.
func TestPagesOfTwoReleasesNeverMix(t *testing.T) {
	c, gen1 := newSpace(t, Config{})
	mustStore(t, gen1, get("/"), okay("one"), "one")

	// A failed swap: its space opens and closes, the incumbent's is intact.
	failed := c.Space("app", 2)
	mustStore(t, failed, get("/"), okay("two"), "two")
	failed.Close()
	wantHit(t, gen1, get("/"), t0, "one")

	// A swap with a slow fetch of the old release in flight.
	slow := begun(t, gen1, get("/slow"), "one, late")
	gen3 := c.Space("app", 3)
	wantNone(t, gen3, get("/"), t0, Miss, reasonURIMiss)
	gen1.Close()
	if slow.Commit() {
		t.Error("the late answer of the old release was stored")
	}
	wantNone(t, gen3, get("/slow"), t0, Miss, reasonURIMiss)
	wantNone(t, gen1, get("/"), t0, Bypass, reasonBypass)
	mustStore(t, gen3, get("/"), okay("three"), "three")

	// A rollback is a new revision and begins empty.
	gen4 := c.Space("app", 4)
	gen3.Close()
	wantNone(t, gen4, get("/"), t0, Miss, reasonURIMiss)
	if st := c.Stats(); st.Objects != 0 {
		t.Errorf("%d objects outlived their release", st.Objects)
	}
}

// A slow fetch that ends before the close lands in its own space only.
func TestLateStoreBeforeTheCloseLandsInItsOwnSpaceOnly(t *testing.T) {
	c, gen1 := newSpace(t, Config{})
	slow := begun(t, gen1, get("/"), "one")
	gen2 := c.Space("app", 2)
	mustStore(t, gen2, get("/"), okay("two"), "two")
	if !slow.Commit() {
		t.Fatal("not stored in its own space")
	}
	wantHit(t, gen2, get("/"), t0, "two")
	wantHit(t, gen1, get("/"), t0, "one")
}

func TestManyGenerationsLeaveNothingBehind(t *testing.T) {
	c := New(Config{Shards: 1})
	for gen := range uint64(200) {
		s := c.Space("app", gen)
		for i := range 3 * sweepBatch {
			mustStore(t, s, get(fmt.Sprintf("/%d", i)), okay("x"), "x")
		}
		s.Close()
	}
	wantConsistent(t, c)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.apps["app"].spaces); n != 0 || c.ledger.used.Load() != 0 {
		t.Errorf("%d spaces and %d bytes left", n, c.ledger.used.Load())
	}
}

func TestHitStaysReadableAfterItsSpaceIsGone(t *testing.T) {
	_, s := newSpace(t, Config{})
	mustStore(t, s, get("/"), okay("body"), "body")
	o := wantHit(t, s, get("/"), t0.Add(time.Second), "body")
	s.Close()
	if got := o.Answer(get("/", "Range: bytes=1-2")); string(got.Body) != "od" {
		t.Errorf("%q", got.Body)
	}
}
