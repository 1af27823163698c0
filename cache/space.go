package cache

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxOrigin = 320     // bytes of scheme and host; DNS ends at 253
	maxTarget = 8 << 10 // bytes
)

// State says what a lookup came to.
type State uint8

const (
	// Miss: nothing stored can answer. Fetch, and offer the answer to Begin.
	Miss State = iota
	// Hit: Object answers the request.
	Hit
	// Expired: a matching object is there but no longer fresh. As Miss.
	Expired
	// Bypass: the cache has no part in this request. Begin would refuse too.
	Bypass
)

// Reasons for forwarding, values of the "fwd" parameter of Cache-Status
// (RFC 9211 §2.2).
const (
	reasonURIMiss  = "uri-miss"
	reasonVaryMiss = "vary-miss"
	reasonStale    = "stale"
	reasonMethod   = "method"
	reasonRequest  = "request"
	reasonBypass   = "bypass"
)

// Found is the result of a lookup.
type Found struct {
	State  State
	Object *Object       // set on a Hit only
	Age    time.Duration // on a Hit: the value for Age (RFC 9111 §4.2.3); Object.Freshness less Age is left
	Reason string        // "fwd" of Cache-Status (RFC 9211 §2.2); empty on a Hit
}

// Space is one cache generation of an app. A nil Space acts like a closed one.
type Space struct {
	cache *Cache
	app   string
	gen   uint64
	core  atomic.Pointer[core] // what it holds; dead for good once closed

	mu     sync.Mutex // guards closed, and makes changes of core one at a time
	closed bool
}

// Close empties the space and makes it refuse every lookup and store that
// comes or ends later. It may be called more than once.
func (s *Space) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	old := s.core.Load()
	old.dead.Store(true)
	s.mu.Unlock()
	s.cache.unregister(s)
	s.cache.sweep(old)
}

// Purge empties the space and leaves it open. What was looked up before is not
// stored after.
func (s *Space) Purge() {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	old := s.core.Load()
	s.core.Store(s.cache.newCore(old.usage, s.cache.clock.Add(1)))
	old.dead.Store(true)
	s.mu.Unlock()
	s.cache.sweep(old)
}

// Lookup decides whether a stored object answers r (RFC 9111 §4). It looks for
// GET and HEAD only and allocates nothing.
func (s *Space) Lookup(r *Request, now time.Time) Found {
	if s == nil {
		return Found{State: Bypass, Reason: reasonBypass}
	}
	c := s.cache
	r.mark = c.clock.Load()
	if reason := notForUs(r); reason != "" {
		return Found{State: Bypass, Reason: reason}
	}
	wants := c.readers.requestControl(r.Header)
	co := s.core.Load()
	var buf [maxOrigin]byte
	origin := appendOrigin(buf[:0], r)
	if wants.noStore || origin == nil || co.dead.Load() {
		return Found{State: Bypass, Reason: reasonBypass}
	}
	hash := c.hash(origin, r.Target)
	page, set := c.shardOf(hash).find(pageID{co.id, hash}, now.UnixNano())
	if page == nil || !page.holds(origin, r.Target) {
		return Found{State: Miss, Reason: reasonURIMiss}
	}
	return c.choose(set, r, &wants, now)
}

// choose takes the object that r selects, if it may be used.
func (c *Cache) choose(set *variants, r *Request, wants *directives, now time.Time) Found {
	o := c.readers.match(set, r.Header)
	if o == nil {
		return Found{State: Miss, Reason: reasonVaryMiss}
	}
	age := o.ageAt(now)
	if age >= o.Freshness {
		return Found{State: Expired, Reason: reasonStale}
	}
	if !wants.accept(o, age) || preconditionsForOrigin(r.Header) {
		return Found{State: Miss, Reason: reasonRequest}
	}
	return Found{State: Hit, Object: o, Age: age}
}

// Invalidate removes every variant stored for r's URI (RFC 9111 §4.4), and
// what is being fetched for it now will not be stored. Call it when
// Invalidates says so, before the answer is passed on.
func (s *Space) Invalidate(r *Request) {
	if s == nil {
		return
	}
	var buf [maxOrigin]byte
	origin := appendOrigin(buf[:0], r)
	if origin == nil {
		return // never stored
	}
	c := s.cache
	hash := c.hash(origin, r.Target)
	c.shardOf(hash).invalidate(pageID{s.core.Load().id, hash}, &c.clock, origin, r.Target)
}

// Invalidates says whether an answer with that status to that method makes
// what is stored for the URI invalid (RFC 9111 §4.4): the method is not known
// to be safe (RFC 9110 §9.2.1) and the answer is no error.
func Invalidates(method []byte, status int) bool {
	if status < 200 || status > 399 {
		return false
	}
	switch string(method) {
	case "GET", "HEAD", "OPTIONS", "TRACE":
		return false
	}
	return true
}

// appendOrigin appends scheme and host in lower case, nil if they or the
// target are empty or too long for any object to be stored under them.
func appendOrigin(dst []byte, r *Request) []byte {
	n := len(r.Scheme) + 1 + len(r.Host)
	if n > maxOrigin || len(r.Scheme) == 0 || len(r.Target) == 0 || len(r.Target) > maxTarget {
		return nil
	}
	dst = appendLower(dst, r.Scheme)
	dst = append(dst, 0)
	return appendLower(dst, r.Host)
}

func appendLower(dst, src []byte) []byte {
	for _, b := range src {
		dst = append(dst, lower(b))
	}
	return dst
}

func lower(b byte) byte {
	if 'A' <= b && b <= 'Z' {
		return b + 'a' - 'A'
	}
	return b
}

func (c *Cache) hash(origin, target []byte) uint64 {
	const odd = 0x9e3779b97f4a7c15 // so that swapping the two parts shows
	return maphash.Bytes(c.seed, origin)*odd ^ maphash.Bytes(c.seed, target)
}

func (c *Cache) shardOf(hash uint64) *shard { return c.shards[hash>>c.shift] }

// newPage makes the page that a fill for r will be stored as, nil if r's URI
// cannot be stored under.
func (c *Cache) newPage(co *core, r *Request) *page {
	n := len(r.Scheme) + 1 + len(r.Host)
	key := appendOrigin(make([]byte, 0, n+len(r.Target)), r)
	if key == nil {
		return nil
	}
	origin := key[:n:n]
	target := append(key, r.Target...)[n:]
	return &page{
		id:     pageID{co.id, c.hash(origin, target)},
		core:   co,
		origin: origin,
		target: target,
	}
}
