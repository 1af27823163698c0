//go:build stepped

package edge

import (
	"fmt"
	"iter"
	"strconv"
	"time"
)

// The words of words.go, and the stage on which threads take turns at them. Only
// one thread runs at a time, from one operation to the next.

// stage is the run that is under way. It is one at a time, and the words have no
// other way to it.
var stage *run

// fault is a deliberately wrong way in which the words work.
type fault uint8

const (
	faultless           fault = iota
	faultBitFirst             // a switch's store of the slot becomes visible only after its retired bit
	faultReportFirst          // a switch is reported before it begins
	faultBlindCount           // counting in does not see the retired bit
	faultBlindLeave           // nor does counting out
	faultTornSleep            // sleep looks at the count first, and retires then
	faultTornLeave            // leaving counts down first, and looks at what is left then
	faultStaleLook            // parking trusts the slot that was loaded before
	faultUnlockedPlaces       // placements are in no order
	faultBlindLimit           // counting in sees nobody inside
	faultBlindSign            // nobody sees that others wait
	faultKeptLock             // whoever lets the lot go keeps its lock
)

// thread is one of those that take turns.
type thread struct {
	name    string
	run     *run
	resume  func() (struct{}, bool)
	stop    func()
	yield   func(struct{}) bool
	blocked func() bool // nil: may go on
	doing   string      // the operation that it does next
	seen    []byte      // what its operations have shown it: all that its state depends on
	done    bool

	last    *slot // that it has loaded
	hidden  *slot // that it has stored and nobody else sees yet
	locks   int
	placing bool // it holds the lock under which slots are stored
}

type stopped struct{}

// spawn makes a thread, and runs it up to its first operation.
func (r *run) spawn(name string, body func(*thread)) *thread {
	t := &thread{name: name, run: r}
	t.resume, t.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			switch p := recover(); p.(type) {
			case nil, stopped:
			default:
				r.fail("twice", "%s: %v", name, p)
			}
			t.done = true
		}()
		t.yield = yield
		body(t)
	})
	r.threads = append(r.threads, t)
	r.turn(t)
	return t
}

// step ends a turn; the operation itself is in the next one.
func (t *thread) step(doing string) {
	t.doing = doing
	if !t.yield(struct{}{}) {
		panic(stopped{})
	}
}

// wait ends a turn until blocked says false.
func (t *thread) wait(doing string, blocked func() bool) {
	t.blocked = blocked
	t.step(doing)
	t.blocked = nil
}

func (t *thread) saw(v uint64) { t.seen = strconv.AppendUint(append(t.seen, ' '), v, 16) }

func (t *thread) sawWhether(ok bool) {
	v := uint64(0)
	if ok {
		v = 1
	}
	t.saw(v)
}

// on is the thread that has the turn, nil while nothing is on stage.
func on() *thread {
	if stage == nil {
		return nil
	}
	return stage.current
}

// forgets: what it has seen so far matters no more, but for what is said here.
func (t *thread) forgets(format string, args ...any) {
	t.seen = fmt.Appendf(t.seen[:0], format, args...)
}

type gateWord struct{ v uint64 }

func (w *gateWord) Load() uint64 {
	t := on()
	if t == nil {
		return w.v
	}
	t.step("loads the gate")
	v := w.v
	switch t.run.fault {
	case faultBlindCount:
		v &^= retiredBit
	case faultBlindLimit:
		v &= retiredBit
	}
	t.saw(v)
	return v
}

func (w *gateWord) CompareAndSwap(old, to uint64) bool {
	t := on()
	if t == nil {
		ok := w.v == old
		if ok {
			w.v = to
		}
		return ok
	}
	if to == retiredBit {
		return w.sleeps(t, old)
	}
	t.step("counts in")
	ok := w.v == old
	if t.run.fault == faultBlindCount && w.v&^retiredBit == old {
		ok, to = true, w.v+1
	}
	if t.run.fault == faultBlindLimit && w.v&retiredBit == old {
		ok, to = true, w.v+1
	}
	if ok {
		if w.v&retiredBit != 0 {
			t.run.fail("I3", "%s enters a retired target", t.name)
		}
		w.v = to
	}
	t.sawWhether(ok)
	return ok
}

// sleeps is the step of a sleep.
func (w *gateWord) sleeps(t *thread, old uint64) bool {
	t.step("retires the gate if nobody is inside")
	ok := w.v == old
	if ok && t.run.fault == faultTornSleep {
		t.saw(2)
		t.step("retires the gate")
		w.v |= retiredBit
		return true
	}
	if ok {
		w.v = retiredBit
	}
	t.sawWhether(ok)
	return ok
}

func (w *gateWord) Add(delta uint64) uint64 {
	t := on()
	if t == nil {
		w.v += delta
		return w.v
	}
	t.step("counts out")
	w.v += delta
	if t.run.fault == faultTornLeave {
		t.step("looks who is left")
	}
	v := w.v
	if t.run.fault == faultBlindLeave {
		v &^= retiredBit
	}
	t.saw(v)
	return v
}

func (w *gateWord) Or(mask uint64) uint64 {
	t := on()
	if t == nil {
		old := w.v
		w.v |= mask
		return old
	}
	t.step("sets the retired bit")
	old := w.v
	w.v |= mask
	t.saw(old)
	if t.run.fault == faultBitFirst {
		t.step("shows the slot")
		t.show()
	}
	return old
}

// slotPointer is the pointer of the app on stage.
type slotPointer struct{ s *slot }

func (p *slotPointer) Load() *slot {
	t := on()
	if t == nil {
		return p.s
	}
	switch {
	case t.hidden != nil:
		return t.hidden
	case t.placing: // nobody else can store
		return p.s
	}
	t.step("loads the slot")
	s := p.s
	if t.run.fault == faultStaleLook && t.locks > 0 && t.last != nil {
		s = t.last
	}
	t.last = s
	t.saw(s.Generation<<8 | uint64(s.State))
	return s
}

func (p *slotPointer) Store(s *slot) {
	t := on()
	if t == nil {
		p.s = s
		return
	}
	t.step("stores the slot")
	if t.run.fault == faultBitFirst {
		t.hidden = s
		return
	}
	p.s = s
}

// show lets everybody see what the thread has stored.
func (t *thread) show() {
	if t.hidden != nil {
		t.run.app.slot.s, t.hidden = t.hidden, nil
	}
}

// Those that were parked are let go one after the other, and no clock has a say in it.
const (
	releaseFirst = 1
	releaseRound = time.Hour
)

// doorSign is atomic.Bool.
type doorSign struct{ v bool }

func (s *doorSign) Load() bool {
	if t := on(); t != nil {
		t.step("looks who waits")
		v := s.v && t.run.fault != faultBlindSign
		t.sawWhether(v)
		return v
	}
	return s.v
}

func (s *doorSign) Store(v bool) {
	if t := on(); t != nil && s.v != v {
		t.step("says who waits")
	}
	s.v = v
}

type doorLock struct{ held bool }

func (l *doorLock) Lock() {
	t := on()
	if t == nil || t.run.fault == faultUnlockedPlaces && l == &t.run.app.mu {
		return
	}
	t.wait("locks", func() bool { return l.held })
	l.held = true
	t.locks++
	t.placing = t.placing || l == &t.run.app.mu
}

func (l *doorLock) Unlock() {
	t := on()
	if t == nil || t.run.fault == faultUnlockedPlaces && l == &t.run.app.mu {
		return
	}
	l.held = t.run.fault == faultKeptLock && l == &t.run.app.lot.mu
	t.locks--
	t.placing = t.placing && l != &t.run.app.mu
}
