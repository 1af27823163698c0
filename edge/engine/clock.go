package engine

import (
	"sync/atomic"
	"time"
)

// phase is what a connection waits for.
type phase uint8

const (
	phaseNone   phase = iota // nothing that has a deadline
	phaseIdle                // the first byte of a request, or whatever comes while it lingers
	phaseHead                // the rest of a head
	phasePark                // its app, in a lot
	phaseBody                // bytes of a request's body
	phaseWait                // the head of an answer, not yet for long
	phaseLong                // the head, for long: the client is watched
	phaseFlow                // more of an answer's body, not yet for long
	phaseStall               // more of the body, for long: the client is watched
	phaseStream              // more of a stream; the client is watched
	phaseWrite               // the client, to take bytes, not yet for long
	phaseTake                // the same, for long: how fast it takes them is measured
	phaseAway                // the first byte of a request, without a goroutine
	phasePass                // the app, to take bytes of a request's body
	phaseTunnel              // bytes of the app in a tunnel; the client is watched once it has ended
	phaseLast                // bytes of the client in a tunnel that the app has ended
	phaseQuick               // an answer, or more of it, at a loop
)

// A clock is one word that says what a goroutine waits for and until when, so
// that no request needs a timer: the server's sweeper looks at all clocks and
// interrupts those that are late. Leaving a phase is one swap, and it tells
// whether the phase was interrupted, so an interrupt can never hit what comes
// after it unnoticed.
//
//	bits 0–4   phase
//	bit  5     late: the deadline has passed
//	bit  6     gone: the client has left
//	bit  7     asked: the client is being asked whether it has, or was (knock.go)
//	bits 8–15  sequence, so that two stays in a phase differ
//	bits 16–63 deadline in milliseconds since the server began; 0 = none
type clock struct{ word atomic.Uint64 }

const (
	phaseMask  = uint64(0x1f)
	lateBit    = uint64(1) << 5
	goneBit    = uint64(1) << 6
	askedBit   = uint64(1) << 7
	seqOne     = uint64(1) << 8
	seqMask    = uint64(0xff) << 8
	deadlineAt = 16
)

// moment is a time in milliseconds since the server began. 0 means never.
type moment uint64

func after(now moment, d time.Duration) moment {
	if d <= 0 {
		return 0
	}
	return now + moment((d+sweepEvery)/time.Millisecond) // now may be one sweep old
}

// wait enters a phase and reports how the last one was left. It is called by
// the clock's own goroutine only.
func (c *clock) wait(p phase, until moment) (was interrupt) {
	old := c.word.Load()
	seq := (old + seqOne) & seqMask
	old = c.word.Swap(uint64(p) | seq | uint64(until)<<deadlineAt)
	return interrupt(old & (lateBit | goneBit | askedBit))
}

// rest leaves the phase.
func (c *clock) rest() (was interrupt) { return c.wait(phaseNone, 0) }

// interrupt is how a wait was interrupted, if it was. Asking the client interrupts
// nothing.
type interrupt uint64

func (i interrupt) late() bool  { return uint64(i)&lateBit != 0 }
func (i interrupt) gone() bool  { return uint64(i)&goneBit != 0 }
func (i interrupt) asked() bool { return uint64(i)&askedBit != 0 }
func (i interrupt) any() bool   { return uint64(i)&(lateBit|goneBit) != 0 }

// now reads the clock from outside.
func (c *clock) now() phase { return phase(c.word.Load() & phaseMask) }

// take ends a phase from outside, unless it has ended or was marked, and says
// whether it did.
func (c *clock) take(p phase) bool {
	w := c.word.Load()
	return phase(w&phaseMask) == p && w&(lateBit|goneBit) == 0 &&
		c.word.CompareAndSwap(w, (w+seqOne)&seqMask)
}

// expire marks the phase late if its deadline has passed, and says which phase
// that was, or phaseNone.
func (c *clock) expire(now moment) phase {
	w := c.word.Load()
	until := moment(w >> deadlineAt)
	if until == 0 || now < until || w&(lateBit|goneBit) != 0 {
		return phaseNone
	}
	if !c.word.CompareAndSwap(w, w|lateBit) {
		return phaseNone
	}
	return phase(w & phaseMask)
}

// lengthen turns a wait that has become long into phaseLong, due at until, or
// phaseStall, which has no deadline. It fails if the wait is over.
func (c *clock) lengthen(now, until moment) bool {
	w := c.word.Load()
	at := moment(w >> deadlineAt)
	if at == 0 || now < at || w&(lateBit|goneBit) != 0 {
		return false
	}
	long := uint64(phaseStall)
	switch phase(w & phaseMask) {
	case phaseWait:
		long = uint64(phaseLong) | uint64(until)<<deadlineAt
	case phaseFlow:
	default:
		return false
	}
	return c.word.CompareAndSwap(w, long|w&seqMask)
}

// linger turns a write that has become long into phaseTake, due at until. It
// fails if the write is over.
func (c *clock) linger(now, until moment) bool {
	w := c.word.Load()
	at := moment(w >> deadlineAt)
	if at == 0 || now < at || w&(lateBit|goneBit) != 0 || phase(w&phaseMask) != phaseWrite {
		return false
	}
	return c.word.CompareAndSwap(w, uint64(phaseTake)|uint64(until)<<deadlineAt|w&seqMask)
}

// postpone moves the deadline if the clock is in one of the phases.
func (c *clock) postpone(until moment, in ...phase) {
	for {
		w := c.word.Load()
		if w&(lateBit|goneBit) != 0 || !oneOf(phase(w&phaseMask), in) {
			return
		}
		if c.word.CompareAndSwap(w, w&(1<<deadlineAt-1)|uint64(until)<<deadlineAt) {
			return
		}
	}
}

// mark sets a bit if the clock is in one of the phases, and says whether it did.
func (c *clock) mark(bit uint64, in ...phase) bool {
	for {
		w := c.word.Load()
		if w&(lateBit|goneBit) != 0 || !oneOf(phase(w&phaseMask), in) {
			return false
		}
		if c.word.CompareAndSwap(w, w|bit) {
			return true
		}
	}
}

func oneOf(p phase, in []phase) bool {
	for _, q := range in {
		if p == q {
			return true
		}
	}
	return false
}

// lateIn says whether it is in that phase, and was marked late.
func (c *clock) lateIn(p phase) bool {
	w := c.word.Load()
	return w&lateBit != 0 && phase(w&phaseMask) == p
}

// due says whether the deadline has passed and nobody was told.
func (c *clock) due(now moment) bool {
	w := c.word.Load()
	until := moment(w >> deadlineAt)
	return until != 0 && now >= until && w&(lateBit|goneBit) == 0
}
