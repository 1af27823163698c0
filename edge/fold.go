package edge

import (
	"encoding/binary"
	"sync/atomic"
)

// foldedBit marks, in counters.accepted, counters that are folded away: nobody
// counts there any more. As in a gate, it shares a word with the count, so that
// "count me, unless they are folded" and "fold them if nobody is counted who has
// not ended" are each a single step.
const foldedBit = uint64(1) << 63

// enter counts one request as accepted. It reports false if the counters are
// folded: then it counts nowhere.
func (c *counters) enter() bool { return c.accepted.Add(1)&foldedBit == 0 }

// forgo undoes enter.
func (c *counters) forgo() { c.accepted.Add(^uint64(0)) }

// seal marks the counters as folded if every request that they know has ended.
// They do not change any more then: a request's ending is what it counts last.
func (c *counters) seal() bool {
	n := c.allEnded()
	return c.accepted.CompareAndSwap(n, n|foldedBit)
}

// everAccepted is how many requests were accepted. Those who came too late have
// left their marks in a folded count; all that were in time have ended.
func (c *counters) everAccepted() uint64 {
	if n := c.accepted.Load(); n&foldedBit == 0 {
		return n
	}
	return c.allEnded()
}

func (c *counters) allEnded() (n uint64) {
	for e := range c.ended {
		n += c.ended[e].Load()
	}
	return n
}

// words are all counts but those that follow from the others when no request is
// open: accepted is the sum of all endings, and no stream is left.
func (c *counters) words() []*atomic.Uint64 {
	all := []*atomic.Uint64{&c.bytesIn, &c.bytesOut, &c.lastRelease, &c.retries, &c.upgrades, &c.duration.sum, &c.park.sum}
	for _, list := range [][]atomic.Uint64{
		c.ended[:], c.classes[:], c.causes[:], c.cache[:], c.duration.buckets[:], c.park.buckets[:],
	} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return all
}

// folded are the counters of an app that sleeps: of each word that is not 0, how
// many are before it since the last such, and its value. That is some 50 bytes
// instead of 700.
type folded []byte

func (c *counters) fold() folded {
	var f folded
	skipped := uint64(0)
	for _, w := range c.words() {
		v := w.Load()
		if v == 0 {
			skipped++
			continue
		}
		f = binary.AppendUvarint(binary.AppendUvarint(f, skipped), v)
		skipped = 0
	}
	return append(folded(nil), f...) // without room to grow
}

func (f folded) unfold() *counters {
	c := &counters{}
	words := c.words()
	for i := 0; len(f) > 0; i++ {
		skipped, n := binary.Uvarint(f)
		v, m := binary.Uvarint(f[n:])
		f = f[n+m:]
		i += int(skipped)
		words[i].Store(v)
	}
	c.accepted.Store(c.allEnded())
	return c
}

// unfolded makes counters that go on where the folded ones ended.
func (a *App) unfolded() *counters {
	a.folding.Lock()
	defer a.folding.Unlock()
	c := a.counters.Load()
	if c == nil {
		c = a.folded.unfold()
		a.folded = nil
		a.counters.Store(c)
	}
	return c
}

// fold folds the counters unless a request is open.
func (a *App) fold() {
	a.folding.Lock()
	defer a.folding.Unlock()
	if c := a.counters.Load(); c != nil && c.seal() {
		a.folded = c.fold()
		a.counters.Store(nil)
	}
}

// counted are the counters, to be read only; nil: no request has come yet. Those
// of an app that sleeps are a copy.
func (a *App) counted() *counters {
	if c := a.counters.Load(); c != nil {
		return c
	}
	a.folding.Lock()
	defer a.folding.Unlock()
	if c := a.counters.Load(); c != nil || a.folded == nil {
		return c
	}
	return a.folded.unfold()
}
