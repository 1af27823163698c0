package cache

import (
	"bytes"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	floorBuckets = 64 // per shard
	maxVariants  = 16 // per URI
	sweepBatch   = 64 // pages removed under one lock
)

// shard is one locked part of the cache.
type shard struct {
	index  int
	ledger *ledger

	// mu guards what follows, the mutable part of the pages in it and this
	// shard's list in every core. Nothing waits or calls out under it.
	mu    sync.Mutex
	pages *simplelru.LRU[pageID, *page]
	// floors remembers when URIs were last invalidated, by a part of their
	// hash: a fill older than its floor is refused. URIs that share a bucket
	// only lose a store now and then.
	floors [floorBuckets]uint64
}

// pageID finds a page. Two URIs may share a hash; the page knows its URI.
type pageID struct{ core, hash uint64 }

// page is everything stored for one URI in one core.
type page struct {
	id     pageID
	core   *core
	origin []byte // scheme, zero byte, host, in lower case
	target []byte

	set        *variants // guarded by the shard's mutex, as are the next two
	touched    int64     // last use, in nanoseconds since 1970
	prev, next *page     // in the core's list
}

// variants are the objects of one page, newest first, all chosen by the same
// request fields (RFC 9111 §4.1). They never change: a store makes a new set.
type variants struct {
	vary    []string // lower case, sorted
	objects []*Object
}

// core is what a space holds between two purges. Closing or purging a space
// kills its core for good.
type core struct {
	id    uint64
	born  uint64      // fills that count from before are refused
	dead  atomic.Bool // set before the sweep, read under the shard's lock by stores
	usage *usage
	pages []*page // one list per shard, each guarded by that shard's mutex
}

// pageOverhead is the heap that one stored object costs beside its bytes: the
// page, the LRU's entry and map slot, the object, its set and the rounding of
// the allocator. Charged per object, so a second variant is charged too much.
const pageOverhead = int64(unsafe.Sizeof(page{})+unsafe.Sizeof(Object{})+unsafe.Sizeof(variants{})) + 272

func newShard(index int, l *ledger) *shard {
	// The LRU counts entries; ours is the bound in bytes, so it never evicts.
	lru, err := simplelru.NewLRU[pageID, *page](math.MaxInt, nil)
	if err != nil {
		panic("cache: new shard: " + err.Error()) // only for a size below one
	}
	return &shard{index: index, ledger: l, pages: lru}
}

// find returns the variants stored under that id and the page that says which
// URI they are of, and notes the use.
func (sh *shard) find(id pageID, now int64) (*page, *variants) {
	sh.mu.Lock()
	p, ok := sh.pages.Get(id)
	if !ok {
		sh.mu.Unlock()
		return nil, nil
	}
	p.touched = now
	set := p.set
	sh.mu.Unlock()
	return p, set
}

// put stores a page of one object, whose bytes are booked as a fill's. False:
// it came too late, and the bytes are still the fill's.
func (sh *shard) put(p *page, now int64) bool {
	o := p.set.objects[0]
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if p.core.dead.Load() || o.mark < sh.floors[p.id.hash%floorBuckets] {
		return false
	}
	old, found := sh.pages.Get(p.id)
	if found && !old.holds(p.origin, p.target) {
		sh.remove(old, true) // two URIs with one hash: the newer stays
		found = false
	}
	if !found {
		p.touched = now
		sh.pages.Add(p.id, p)
		p.link(sh.index)
		sh.ledger.stored(p.core.usage, o.cost)
		return true
	}
	if !sh.merge(old, p.set) {
		return false
	}
	old.touched = now
	sh.ledger.stored(p.core.usage, o.cost)
	return true
}

// merge puts the one object of fresh before those that p has and drops what it
// replaces: the same variant, everything chosen by other fields, what expired,
// and the oldest beyond the limit. False: p has a newer answer already.
func (sh *shard) merge(p *page, fresh *variants) bool {
	o, old := fresh.objects[0], p.set
	same := slices.Equal(old.vary, fresh.vary)
	for _, was := range old.objects {
		if was.StoredAt.After(o.StoredAt) && (!same || was.sameVariant(o)) {
			return false
		}
	}
	kept := make([]*Object, 1, min(len(old.objects)+1, maxVariants))
	kept[0] = o
	for _, was := range old.objects {
		replaced := !same || was.sameVariant(o) || !was.fresh(o.StoredAt)
		if !replaced && len(kept) < maxVariants {
			kept = append(kept, was)
			continue
		}
		sh.ledger.dropped(p.core.usage, was.cost, !replaced)
	}
	p.set = &variants{vary: fresh.vary, objects: kept}
	return true
}

// invalidate removes the page of a URI and refuses fills that count from
// before now on the cache's clock.
func (sh *shard) invalidate(id pageID, clock *atomic.Uint64, origin, target []byte) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.floors[id.hash%floorBuckets] = clock.Add(1)
	if p, ok := sh.pages.Peek(id); ok && p.holds(origin, target) {
		sh.remove(p, false)
	}
}

// oldest returns when the least recently used page was used.
func (sh *shard) oldest() (touched int64, ok bool) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	_, p, ok := sh.pages.GetOldest()
	if !ok {
		return 0, false
	}
	return p.touched, true
}

// evict drops the least recently used page. It returns true also if somebody
// else emptied the shard meanwhile: that made room as well.
func (sh *shard) evict() bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if _, p, ok := sh.pages.GetOldest(); ok {
		sh.remove(p, true)
	}
	return true
}

// sweepSome removes some pages of a dead core and says if there may be more.
func (sh *shard) sweepSome(co *core) bool {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	for range sweepBatch {
		p := co.pages[sh.index]
		if p == nil {
			return false
		}
		sh.remove(p, false)
	}
	return true
}

// remove needs the lock.
func (sh *shard) remove(p *page, evicted bool) {
	sh.pages.Remove(p.id)
	p.unlink(sh.index)
	for _, o := range p.set.objects {
		sh.ledger.dropped(p.core.usage, o.cost, evicted)
	}
}

func (p *page) holds(origin, target []byte) bool {
	return bytes.Equal(p.target, target) && bytes.Equal(p.origin, origin)
}

func (p *page) link(shard int) {
	p.next = p.core.pages[shard]
	if p.next != nil {
		p.next.prev = p
	}
	p.core.pages[shard] = p
}

func (p *page) unlink(shard int) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		p.core.pages[shard] = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.prev, p.next = nil, nil
}
