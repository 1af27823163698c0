package cache

import (
	"hash/maphash"
	"math/bits"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultMaxBytes       = 256 << 20
	defaultMaxObjectBytes = 8 << 20
	maxShards             = 256
	fillShare             = 4 // unfinished fills may use one part in four
)

// Config sizes a cache. The zero value is usable.
type Config struct {
	// MaxBytes bounds stored objects and unfinished fills together, overhead
	// included. Zero or less: 256 MiB.
	MaxBytes int64
	// MaxObjectBytes bounds the body and the field lines of one object. Zero
	// or less: 8 MiB. Never more than a quarter of MaxBytes.
	MaxObjectBytes int64
	// Shards is the number of independently locked parts, rounded up to a
	// power of two, at most 256. Zero or less: four per processor.
	Shards int
	// Unkeyed names request fields that the caller rewrites before the app
	// sees them (X-Forwarded-For, X-Request-Id, …). The client's value says
	// nothing about the answer, so one that varies by such a field is not
	// stored.
	Unkeyed []string
}

// Cache holds every app's spaces within one budget of bytes. Its methods may
// be called by any number of goroutines.
type Cache struct {
	maxObject int64
	unkeyed   map[string]bool
	seed      maphash.Seed
	shards    []*shard
	shift     uint // a key's hash >> shift is its shard
	ledger    *ledger
	readers   *readers
	clock     atomic.Uint64 // counts purges and invalidations; starts at 1
	cores     atomic.Uint64 // number of the last core; never reused
	hand      atomic.Uint64 // where the next search for a victim begins

	mu   sync.Mutex // guards apps and the maps in it; no shard lock under it
	apps map[string]*tenant
}

// tenant is one app's part of the registry.
type tenant struct {
	usage  *usage
	spaces map[uint64]*Space
}

// New makes an empty cache. It starts no goroutine and needs no Close.
func New(cfg Config) *Cache {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultMaxBytes
	}
	if cfg.MaxObjectBytes <= 0 {
		cfg.MaxObjectBytes = defaultMaxObjectBytes
	}
	if cfg.Shards <= 0 {
		cfg.Shards = 4 * runtime.GOMAXPROCS(0)
	}
	width := bits.Len(uint(min(cfg.Shards, maxShards) - 1))
	fills := cfg.MaxBytes / fillShare
	c := &Cache{
		maxObject: min(cfg.MaxObjectBytes, fills),
		unkeyed:   make(map[string]bool, len(cfg.Unkeyed)),
		seed:      maphash.MakeSeed(),
		shards:    make([]*shard, 1<<width),
		shift:     uint(64 - width),
		ledger:    &ledger{limit: cfg.MaxBytes, fillLimit: fills},
		readers:   newReaders(),
		apps:      make(map[string]*tenant),
	}
	c.clock.Store(1)
	for i := range c.shards {
		c.shards[i] = newShard(i, c.ledger)
	}
	for _, name := range cfg.Unkeyed {
		c.unkeyed[strings.ToLower(name)] = true
	}
	return c
}

// Space returns the space of an app's cache generation and opens it if there
// is none. As long as it is open, every call with the same key returns the
// same space. Once it is closed a call opens a new, empty one: keep the
// pointer with whatever belongs to the generation instead of asking again.
func (c *Cache) Space(app string, gen uint64) *Space {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.apps[app]
	if t == nil {
		t = &tenant{usage: new(usage), spaces: make(map[uint64]*Space)}
		c.apps[app] = t
	}
	if s := t.spaces[gen]; s != nil {
		return s
	}
	s := &Space{cache: c, app: app, gen: gen}
	s.core.Store(c.newCore(t.usage, 0))
	t.spaces[gen] = s
	return s
}

// Forget closes every space of an app and drops its counters.
func (c *Cache) Forget(app string) {
	c.mu.Lock()
	spaces := c.openSpaces(app)
	delete(c.apps, app)
	c.mu.Unlock()
	for _, s := range spaces {
		s.Close()
	}
}

// Purge empties every space of an app and leaves them open.
func (c *Cache) Purge(app string) {
	c.mu.Lock()
	spaces := c.openSpaces(app)
	c.mu.Unlock()
	for _, s := range spaces {
		s.Purge()
	}
}

// openSpaces needs the lock.
func (c *Cache) openSpaces(app string) []*Space {
	t := c.apps[app]
	if t == nil {
		return nil
	}
	spaces := make([]*Space, 0, len(t.spaces))
	for _, s := range t.spaces {
		spaces = append(spaces, s)
	}
	return spaces
}

// unregister forgets a closed space, unless its place was taken since.
func (c *Cache) unregister(s *Space) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.apps[s.app]; t != nil && t.spaces[s.gen] == s {
		delete(t.spaces, s.gen)
	}
}

func (c *Cache) newCore(u *usage, born uint64) *core {
	return &core{id: c.cores.Add(1), born: born, usage: u, pages: make([]*page, len(c.shards))}
}

// sweep removes what a dead core still holds, a few pages per lock.
func (c *Cache) sweep(co *core) {
	for _, sh := range c.shards {
		for sh.sweepSome(co) {
		}
	}
}

// reserve books n bytes, which must fit an empty cache, and evicts until they
// fit this one. False: nothing was left to evict.
func (c *Cache) reserve(n int64) bool {
	for !c.ledger.take(n) {
		if !c.evictOne() {
			return false
		}
	}
	return true
}

// evictOne drops a page that was not used for long: the oldest of a few
// shards' oldest, which with few shards is the oldest of all. False: there was
// nothing to drop.
func (c *Cache) evictOne() bool {
	const samples = 4
	var victim *shard
	oldest, seen := int64(0), 0
	hand := c.hand.Add(1)
	for i := range c.shards {
		sh := c.shards[(hand+uint64(i))&uint64(len(c.shards)-1)]
		touched, ok := sh.oldest()
		if !ok {
			continue
		}
		if victim == nil || touched < oldest {
			victim, oldest = sh, touched
		}
		if seen++; seen == samples {
			break
		}
	}
	return victim != nil && victim.evict()
}

// mark returns the point in time, on the cache's own clock, that a fill for r
// counts from.
func (c *Cache) mark(r *Request) uint64 {
	if r.mark != 0 {
		return r.mark
	}
	return c.clock.Load()
}

// elapsed is now minus then, never negative: clocks may be set back.
func elapsed(then, now time.Time) time.Duration {
	return max(0, now.Sub(then))
}
