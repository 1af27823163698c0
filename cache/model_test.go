package cache

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The model is a cache of maps that forgets nothing for want of room. With
// room enough the real one must agree with it in every answer; with little
// room it may miss where the model hits, and nothing else.
type model struct {
	real   *Cache
	exact  bool // there is room for everything
	now    time.Time
	seq    int // counts steps; what a fill counts from is a step
	bodies int
	spaces map[string]*modelSpace
	fills  []*modelFill
	floors map[string]int // by bucket of the real cache: the last invalidation
}

type modelSpace struct {
	app    string
	real   *Space
	open   bool
	born   int // step of the last purge
	stored map[string]modelObject
}

type modelObject struct {
	body   string
	stored time.Time
	fresh  time.Duration
}

type modelFill struct {
	real   *Fill
	space  *modelSpace
	key    string
	bucket string
	object modelObject
	begun  int // step of its lookup
}

func newModel(cfg Config, exact bool) *model {
	return &model{real: New(cfg), exact: exact, now: t0, spaces: map[string]*modelSpace{}, floors: map[string]int{}}
}

func (m *model) drawSpace(t *rapid.T) *modelSpace {
	app, gen := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "app"), rapid.Uint64Range(1, 2).Draw(t, "gen")
	name := fmt.Sprint(app, gen)
	s := m.spaces[name]
	if s == nil {
		s = &modelSpace{app: app, real: m.real.Space(app, gen), open: true, stored: map[string]modelObject{}}
		m.spaces[name] = s
	}
	return s
}

// drawRequest draws a URI and what it is asked with. Only /v… vary.
func drawRequest(t *rapid.T) (r *Request, key, uri string, varies bool) {
	uri = rapid.SampledFrom([]string{"/p1", "/p2", "/p3", "/v1", "/v2"}).Draw(t, "uri")
	value := rapid.SampledFrom([]string{"x", "y"}).Draw(t, "accept")
	varies = uri[1] == 'v'
	key = uri
	if varies {
		key += " " + value
	}
	return get(uri, "Accept: "+value), key, uri, varies
}

func (m *model) begin(t *rapid.T) {
	s := m.drawSpace(t)
	r, key, _, varies := drawRequest(t)
	seconds := rapid.IntRange(1, 20).Draw(t, "max-age")
	size := rapid.IntRange(0, 3000).Draw(t, "size")
	known := rapid.Bool().Draw(t, "length known")
	m.bodies++
	body := fmt.Sprint(m.bodies, " ", text(size))
	resp := response(200, int64(len(body)), fmt.Sprintf("Cache-Control: max-age=%d", seconds))
	if varies {
		resp = response(200, resp.Length, fmt.Sprintf("Cache-Control: max-age=%d", seconds), "Vary: Accept")
	}
	if !known {
		resp.Length = -1
	}
	s.real.Lookup(r, m.now)
	f := s.real.Begin(r, resp, m.now)
	if (f != nil) != s.open && (m.exact || f != nil) {
		t.Fatalf("began: %v, the space is open: %v", f != nil, s.open)
	}
	if f == nil {
		return
	}
	m.fills = append(m.fills, &modelFill{
		real: f, space: s, key: key, begun: m.seq,
		bucket: bucketOf(m.real, f.page.id.hash),
		object: modelObject{body: body, stored: m.now, fresh: time.Duration(seconds) * time.Second},
	})
}

func bucketOf(c *Cache, hash uint64) string {
	return fmt.Sprint(c.shardOf(hash).index, hash%floorBuckets)
}

func (m *model) drawFill(t *rapid.T) *modelFill {
	if len(m.fills) == 0 {
		t.Skip("no fill")
	}
	i := rapid.IntRange(0, len(m.fills)-1).Draw(t, "fill")
	f := m.fills[i]
	m.fills = append(m.fills[:i:i], m.fills[i+1:]...)
	return f
}

func (m *model) commit(t *rapid.T) {
	f := m.drawFill(t)
	cut := rapid.IntRange(0, len(f.object.body)).Draw(t, "cut")
	_, _ = f.real.Write([]byte(f.object.body[:cut]))
	_, _ = f.real.Write([]byte(f.object.body[cut:]))
	s := f.space
	newer, found := s.stored[f.key]
	allowed := s.open && f.begun >= s.born && f.begun >= m.floors[f.bucket]
	newest := !found || !newer.stored.After(f.object.stored)
	got := f.real.Commit()
	if got && !allowed || m.exact && got != (allowed && newest) {
		t.Fatalf("%s was stored: %v, allowed: %v, the newest: %v", f.key, got, allowed, newest)
	}
	if got {
		s.stored[f.key] = f.object
	}
}

func (m *model) abort(t *rapid.T) {
	f := m.drawFill(t)
	_, _ = f.real.Write([]byte(f.object.body))
	f.real.Abort()
}

func (m *model) short(t *rapid.T) {
	f := m.drawFill(t)
	if f.real.length < 0 {
		f.real.Abort()
		return
	}
	_, _ = f.real.Write([]byte(f.object.body[1:]))
	if f.real.Commit() {
		t.Fatal("a short body was stored")
	}
}

func (m *model) lookup(t *rapid.T) {
	s := m.drawSpace(t)
	r, key, _, _ := drawRequest(t)
	found := s.real.Lookup(r, m.now)
	o, known := s.stored[key]
	want := s.open && known && m.now.Sub(o.stored) < o.fresh
	if hit := found.State == Hit; hit != want && (hit || m.exact) {
		t.Fatalf("%s: hit %v (%s), want %v", key, hit, found.Reason, want)
	}
	if found.State == Hit && string(found.Object.Body) != o.body {
		t.Fatalf("%s: %.12q, want %.12q", key, found.Object.Body, o.body)
	}
	if found.State == Hit && found.Age != m.now.Sub(o.stored) {
		t.Fatalf("%s: age %v, want %v", key, found.Age, m.now.Sub(o.stored))
	}
}

func (m *model) invalidate(t *rapid.T) {
	s := m.drawSpace(t)
	r, _, uri, _ := drawRequest(t)
	s.real.Invalidate(r)
	delete(s.stored, uri)
	delete(s.stored, uri+" x")
	delete(s.stored, uri+" y")
	page := m.real.newPage(s.real.core.Load(), r)
	m.floors[bucketOf(m.real, page.id.hash)] = m.seq
}

func (s *modelSpace) empty(seq int) {
	s.stored, s.born = map[string]modelObject{}, seq
}

func (m *model) purge(t *rapid.T) {
	s := m.drawSpace(t)
	s.real.Purge()
	s.empty(m.seq)
}

func (m *model) purgeApp(t *rapid.T) {
	app := m.drawSpace(t).app
	m.real.Purge(app)
	for _, s := range m.spaces {
		if s.app == app {
			s.empty(m.seq)
		}
	}
}

// end closes a space. Later steps go on with the closed one, or open another
// with the same key.
func (m *model) end(t *rapid.T) {
	s := m.drawSpace(t)
	s.real.Close()
	s.open = false
	if rapid.Bool().Draw(t, "reopen") {
		maps.DeleteFunc(m.spaces, func(_ string, other *modelSpace) bool { return other == s })
	}
}

func (m *model) forget(t *rapid.T) {
	app := m.drawSpace(t).app
	m.real.Forget(app)
	for name, s := range m.spaces {
		if s.app == app {
			s.open = false
			delete(m.spaces, name)
		}
	}
}

func (m *model) wait(t *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 8).Draw(t, "seconds")) * time.Second)
}

func (m *model) check(t *rapid.T) {
	m.seq++
	st := m.real.Stats()
	if st.Bytes+st.Filling > st.Limit || st.Filling > st.Limit/fillShare {
		t.Fatalf("%d bytes stored and %d filling, %d allowed", st.Bytes, st.Filling, st.Limit)
	}
	if m.exact && st.Evictions != 0 {
		t.Fatal("evicted although there was room")
	}
}

func (m *model) run(t *rapid.T) {
	t.Repeat(map[string]func(*rapid.T){
		"begin": m.begin, "begin again": m.begin, "commit": m.commit, "commit again": m.commit,
		"abort": m.abort, "short": m.short, "lookup": m.lookup, "lookup again": m.lookup,
		"invalidate": m.invalidate, "purge": m.purge, "purge app": m.purgeApp,
		"close": m.end, "forget": m.forget, "wait": m.wait, "": m.check,
	})
	for _, f := range m.fills {
		f.real.Abort()
	}
	if err := inconsistency(m.real); err != nil {
		t.Fatal(err)
	}
}

func TestCacheWithRoomAgreesWithTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		newModel(Config{MaxBytes: 8 << 20, Shards: 2}, true).run(t)
	})
}

func TestCacheWithoutRoomOnlyMissesMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.Int64Range(100, 30_000).Draw(t, "bytes")
		shards := rapid.IntRange(1, 4).Draw(t, "shards")
		newModel(Config{MaxBytes: limit, Shards: shards}, false).run(t)
	})
}
