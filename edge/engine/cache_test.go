package engine

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// shelf is a cache that keeps every 200 to a GET.
type shelf struct {
	mu     sync.Mutex
	spaces map[uint64]*space
}

type space struct {
	mu     sync.Mutex
	closed bool
	pages  map[string]edge.Found
}

func newShelf() *shelf { return &shelf{spaces: map[uint64]*space{}} }

func (s *shelf) Open(_ string, generation uint64) edge.Space {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spaces[generation] == nil {
		s.spaces[generation] = &space{pages: map[string]edge.Found{}}
	}
	return s.spaces[generation]
}

func (s *shelf) NewVisit() edge.Visit { return &visit{} }

func (s *space) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed, s.pages = true, map[string]edge.Found{}
}

type visit struct{ key, method string }

func (v *visit) Lookup(s edge.Space, q *edge.CacheQuery, _ time.Time) edge.Found {
	v.key, v.method = string(q.Scheme)+"://"+string(q.Host)+string(q.Target), string(q.Method)
	if v.method != "GET" && v.method != "HEAD" {
		return edge.Found{Result: edge.CacheBypass}
	}
	sp := s.(*space)
	sp.mu.Lock()
	defer sp.mu.Unlock()
	f, ok := sp.pages[v.key]
	if !ok {
		return edge.Found{Result: edge.CacheMiss}
	}
	if v.method == "HEAD" {
		f.Body = nil
	}
	return f
}

func (v *visit) Begin(s edge.Space, a *edge.CacheAnswer, sent, _ time.Time) edge.Fill {
	if v.method != "GET" || a.Status != 200 || sent.IsZero() {
		return nil
	}
	return &fill{to: s.(*space), key: v.key, fields: string(a.Fields)}
}

type fill struct {
	to          *space
	key, fields string
	body        strings.Builder
}

func (f *fill) Write(p []byte) (int, error) { return f.body.Write(p) }
func (f *fill) Abort()                      {}

func (f *fill) Commit() bool {
	f.to.mu.Lock()
	defer f.to.mu.Unlock()
	if f.to.closed {
		return false
	}
	f.to.pages[f.key] = edge.Found{
		Result: edge.CacheHit, Status: 200, Fields: []byte(f.fields), Body: []byte(f.body.String()),
		Length: int64(f.body.Len()), Age: 3 * time.Second, TTL: 57 * time.Second,
	}
	return true
}

// An app may answer by the scheme that it is told: whatever that is, it tells pages apart.
func TestPagesAreToldApartByTheSchemeThatTheAppIsTold(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, q *http.Request) { s.ok(q.Header.Get("X-Forwarded-Proto")) }))
	r := newRig(t, rigOptions{unix: true, cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
	r.app.Place(o.placement(1))
	c := r.dial()
	for _, x := range []struct{ fields, want string }{
		{"", "http"},
		{"X-Forwarded-Proto: https\r\n", "https"},
		{"X-Forwarded-Proto:\r\n", "http"},
		{"X-Forwarded-Proto:\r\nX-Forwarded-Proto: https\r\n", "https"},
		{"X-Forwarded-Proto: https\r\nX-Forwarded-Proto: http\r\n", "https"},
		{"X-Forwarded-Proto: https, http\r\n", "https, http"},
		{"X-Forwarded-Proto: wss\r\n", "wss"},
	} {
		for range 2 {
			c.send(gateGet(x.fields))
			if a := c.status(200); a.body != x.want {
				t.Errorf("%q: the page for %q, want that for %q", x.fields, a.body, x.want)
			}
		}
	}
}

// An app may make links of the host that it is told. Where that is not the one that pages
// are kept under, there are none.
func TestNoPageIsKeptWhereTheAppIsToldAnotherHost(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, q *http.Request) { s.ok(q.Header.Get("X-Forwarded-Host")) }))
	r := newRig(t, rigOptions{unix: true, cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
	r.app.Place(o.placement(1))
	c := r.dial()
	for i, x := range []struct {
		fields, want string
		kept         bool
	}{
		{"X-Forwarded-Host: evil.test\r\n", "evil.test", false},
		{"", "app.test", true},
		{"X-Forwarded-Host: evil.test\r\n", "evil.test", false},
		{"X-Forwarded-Host: app.test:8080\r\n", "app.test:8080", false},
		{"X-Forwarded-Host: APP.test\r\n", "app.test", true},
		{"X-Forwarded-Host:\r\nX-Forwarded-Host: evil.test\r\n", "evil.test", false},
		{"X-Forwarded-Host:\r\n", "app.test", true},
	} {
		for range 2 {
			c.send(gateGet(x.fields))
			a := c.status(200)
			if asked := a.Header.Get("Cache-Status") != ""; a.body != x.want || asked != x.kept {
				t.Errorf("%d: %q: the page for %q (%s), want that for %q", i, x.fields, a.body, a.Header.Get("Cache-Status"), x.want)
			}
		}
	}
}

func TestHitsAreServedWithoutTheAppAndWakeNothing(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		s.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-App: yes\r\nConnection: X-Hop\r\nX-Hop: 1\r\n\r\n" +
			"3\r\nabc\r\n3\r\ndef\r\n0\r\n\r\n")
	}))
	r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
	p := o.placement(7)
	r.app.Place(p)
	c := r.dial()
	c.get("/page")
	if a := c.want(200, "abcdef"); a.Header.Get("Cache-Status") != "usher; fwd=uri-miss" {
		t.Errorf("%v", a.Header)
	}
	c.send("POST /page HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n")
	if a := c.want(200, "abcdef"); a.Header.Get("Cache-Status") != "usher; fwd=bypass" {
		t.Errorf("%v", a.Header)
	}
	eventually(t, "asleep", func() bool { // the client has its answer a moment before the request has left
		return r.app.TrySleep(7, edge.Placement{State: edge.Asleep, CacheGen: p.CacheGen})
	})
	for _, state := range []edge.State{edge.Asleep, edge.Waking, edge.Holding, edge.Paused} {
		r.app.Place(edge.Placement{State: state, CacheGen: p.CacheGen})
		c.get("/page")
		a := c.want(200, "abcdef")
		for name, want := range map[string]string{
			"Cache-Status": "usher; hit; ttl=57", "Age": "3", "X-App": "yes", "X-Hop": "", "Usher-Generation": "7", "Content-Length": "6",
		} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", state, name, got, want)
			}
		}
	}
	c.send("HEAD /page HTTP/1.1\r\nHost: app.test\r\n\r\n")
	if a := c.read("HEAD"); a.StatusCode != 200 || a.ContentLength != 6 {
		t.Errorf("%+v", a.Response)
	}
	if n := o.heads.Load(); n != 2 || r.wake.Load() != 0 {
		t.Errorf("the app saw %d requests and %d wakes", n, r.wake.Load())
	}
	r.counted("five hits and two answers", func(s edge.Stats) bool { return s.Cached == 5 && s.Served == 2 })
}

// T03: what broke off is not kept.
func TestABrokenAnswerIsNotKept(t *testing.T) {
	var n atomic.Int32
	o := newTCPOrigin(t, func(s *stage) {
		for {
			if _, ok := s.read(); !ok {
				return
			}
			switch n.Add(1) {
			case 1:
				s.say("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc")
				return
			case 2:
				s.say(chunkedHead + "3\r\nabc\r\n")
				return
			default:
				s.ok("abcdef")
			}
		}
	})
	r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
	r.app.Place(o.placement(1))
	for range 2 {
		c := r.dial()
		c.get("/")
		c.wantReset()
	}
	c := r.dial()
	for _, want := range []string{"usher; fwd=uri-miss", "usher; hit; ttl=57"} {
		c.get("/")
		if a := c.want(200, "abcdef"); a.Header.Get("Cache-Status") != want {
			t.Errorf("%v, want %s", a.Header, want)
		}
	}
}

// A page in the cache has no trailers.
func TestAnAnswerWithTrailersIsNotKept(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, _ *http.Request) { s.say(chunkedHead + "6\r\nabcdef\r\n0\r\nX-Sum: 1\r\n\r\n") }))
	r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}})
	r.app.Place(o.placement(1))
	c := r.dial()
	for range 2 {
		c.get("/")
		a := c.want(200, "abcdef")
		if status, sum := a.Header.Get("Cache-Status"), a.Trailer.Get("X-Sum"); status != "usher; fwd=uri-miss" || sum != "1" {
			t.Errorf("%s, with X-Sum %q", status, sum)
		}
	}
}

// C14: a page that a retired generation still delivers is not kept for the new
// one, and nothing of the old one is served after the switch.
func TestAPageThatIsLateDoesNotEndInTheNextGeneration(t *testing.T) {
	release := make(chan struct{})
	app := func(g int, wait bool) *origin {
		return newOrigin(t, each(func(s *stage, r *http.Request) {
			if wait && r.URL.Path == "/slow" {
				<-release
			}
			s.ok(fmt.Sprint(g))
		}))
	}
	cache := newShelf()
	r := newRig(t, rigOptions{cache: cache, app: edge.AppConfig{CacheEnabled: true}})
	old := app(1, true)
	r.app.Place(old.placement(1))
	c, slow := r.dial(), r.dial()
	c.get("/page")
	c.want(200, "1")
	slow.get("/slow")
	eventually(t, "forwarded", func() bool { return old.heads.Load() == 2 })
	r.app.Place(app(2, false).placement(2))
	close(release)
	slow.want(200, "1")
	for _, path := range []string{"/page", "/slow"} {
		c.get(path)
		if a := c.want(200, "2"); a.Header.Get("Usher-Generation") != "2" {
			t.Errorf("%v", a.Header)
		}
	}
	eventually(t, "the old generation's pages are gone", func() bool {
		cache.mu.Lock()
		s := cache.spaces[1]
		cache.mu.Unlock()
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closed && len(s.pages) == 0
	})
}
