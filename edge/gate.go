package edge

// retiredBit marks a gate that lets nobody in any more. The other bits count
// who is inside.
const retiredBit = uint64(1) << 63

// gate is the one-word door of a target: how many requests are inside and
// whether the target is retired. Both live in one atomic word, so that "let me
// in unless it is retired" and "retire it if nobody is inside" are each a
// single step, and nobody can slip in between.
//
// A retired gate stays retired. Exactly one call, the one that makes the word
// (retired, 0), gets to know that the gate is empty for good.
type gate struct{ word gateWord }

// entry is what came of trying to enter a gate.
type entry uint8

const (
	entered entry = iota
	isRetired
	isFull
)

// enter counts the caller in, unless the gate is retired or limit are inside
// already. A limit of 0 means none.
func (g *gate) enter(limit uint64) entry {
	for {
		w := g.word.Load()
		if w&retiredBit != 0 {
			return isRetired
		}
		if limit != 0 && w >= limit {
			return isFull
		}
		if g.word.CompareAndSwap(w, w+1) {
			return entered
		}
	}
}

// leave counts the caller out and reports whether that emptied a retired gate.
func (g *gate) leave() (empty bool) {
	return g.word.Add(^uint64(0)) == retiredBit
}

// retire closes the gate at any count and reports whether that made it empty
// for good: true only for the first call, and only if nobody is inside.
func (g *gate) retire() (empty bool) {
	return g.word.Or(retiredBit) == 0
}

// retireIfIdle closes the gate only if nobody is inside and it is still open.
func (g *gate) retireIfIdle() bool {
	return g.word.CompareAndSwap(0, retiredBit)
}

// inside says how many are inside.
func (g *gate) inside() uint64 { return g.word.Load() &^ retiredBit }

// retired says whether the gate is closed to newcomers.
func (g *gate) retired() bool { return g.word.Load()&retiredBit != 0 }
