package cache

import "sync/atomic"

// ledger accounts for every byte. At rest, used == total.bytes + filling.
type ledger struct {
	limit     int64 // of used
	fillLimit int64 // of filling
	used      atomic.Int64
	filling   atomic.Int64
	total     usage
}

// usage counts what one app, or everybody, has in the cache.
type usage struct {
	bytes, objects    atomic.Int64
	stores, evictions atomic.Uint64
}

// take books n bytes if they fit right now.
func (l *ledger) take(n int64) bool { return raise(&l.used, n, l.limit) }

// takeFill books n bytes of the share of unfinished fills. The caller takes
// them from the whole as well.
func (l *ledger) takeFill(n int64) bool { return raise(&l.filling, n, l.fillLimit) }

// raise adds n to v unless that would exceed the limit.
func raise(v *atomic.Int64, n, limit int64) bool {
	for {
		old := v.Load()
		if old+n > limit {
			return false
		}
		if v.CompareAndSwap(old, old+n) {
			return true
		}
	}
}

// giveFill returns n bytes of an unfinished fill.
func (l *ledger) giveFill(n int64) {
	l.filling.Add(-n)
	l.used.Add(-n)
}

// stored turns the n bytes of a fill into those of an object.
func (l *ledger) stored(app *usage, n int64) {
	for _, u := range [...]*usage{&l.total, app} {
		u.bytes.Add(n)
		u.objects.Add(1)
		u.stores.Add(1)
	}
	l.filling.Add(-n)
}

// dropped returns the n bytes of an object.
func (l *ledger) dropped(app *usage, n int64, evicted bool) {
	for _, u := range [...]*usage{&l.total, app} {
		u.bytes.Add(-n)
		u.objects.Add(-1)
		if evicted {
			u.evictions.Add(1)
		}
	}
	l.used.Add(-n)
}

// Usage says what is stored now and what happened since the start (for an app:
// since its first space was opened, or since it was forgotten).
type Usage struct {
	Bytes     int64  // held by stored objects, overhead included
	Objects   int64  // stored objects; variants of one URI count each
	Stores    uint64 // fills that were committed
	Evictions uint64 // objects dropped for want of room or as one variant too many
}

// Stats is a moment's view. Counters that change meanwhile may be seen on
// either side of the change.
type Stats struct {
	Usage
	Filling int64            // bytes held by unfinished fills
	Limit   int64            // Config.MaxBytes in effect; Bytes + Filling stay within it
	Apps    map[string]Usage // every app with a space, or that had one and was not forgotten
}

// Stats reads the counters. It takes no shard lock.
func (c *Cache) Stats() Stats {
	st := Stats{
		Usage:   c.ledger.total.read(),
		Filling: c.ledger.filling.Load(),
		Limit:   c.ledger.limit,
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	st.Apps = make(map[string]Usage, len(c.apps))
	for name, t := range c.apps {
		st.Apps[name] = t.usage.read()
	}
	return st
}

func (u *usage) read() Usage {
	return Usage{
		Bytes:     u.bytes.Load(),
		Objects:   u.objects.Load(),
		Stores:    u.stores.Load(),
		Evictions: u.evictions.Load(),
	}
}
