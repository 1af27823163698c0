package edge

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// Account is the books of one window of an app: what became of every request
// that was accepted in it. The control plane opens one for an attempt and closes
// it when the drain is over.
//
// # The contract
//
// A request belongs to the window in which it was accepted, and to no other. It
// carries that account from Decide to Finish, so what began before the window
// and ends within it, and what began within it and ends after, counts where it
// belongs and nowhere else.
//
//	counter    by whom, where                             says
//	accepted   Account.accept, from Decide when the app   a request came in
//	           of the request has been found
//	ledger     Account.accept and Account.end             how many are inside; the
//	                                                      close reads it: "still open"
//	endings    Account.end, from Finish                   the one way it ended
//	splits     Account.end: incumbent, successor and      which generation, which
//	           parked; reasons of refusals and failures   reason
//	waits      Account.end: the histogram of park times   how long the parked waited
//
// Each is a counter of its own, none is computed from another, and what closes
// the books only reads them: accepted must be the sum of all endings and of what
// is still open, an ending the sum of its splits. Whatever is counted twice, or
// not at all, shows as a sum that does not match (Tally.Mismatch).
//
// Upgraded connections live longer than windows, so they have a ledger of their
// own: those that were open when the books were opened, and those opened since,
// must be the sum of those that ended, by how, and of those still open. One is
// claimed by a window with a single compare-and-swap, by whoever comes first:
// the opening, which looks at all lanes, or the upgrade, which looks at the
// window. So it is in the books exactly once.
//
// The books are exact though nobody takes a lock. Entering and leaving a ledger
// is one atomic step on a word that also says whether the books are closed, so
// every request is either in time or not, and the close knows which: what leaves
// later was still open. Who is in time books it at once, and says when it has
// (ledger.done); the close waits for that, which takes as long as a goroutine
// needs for three additions.
//
// Without an open window a request pays one load of a pointer.
type Account struct {
	app       *App
	successor uint64 // the generation that the attempt moves to
	opened    time.Time

	requests ledger
	accepted atomic.Uint64
	ended    [endingCount]atomic.Uint64
	by       [servedByCount]atomic.Uint64
	refused  [causeCount]atomic.Uint64
	failed   [causeCount]atomic.Uint64
	waits    waits

	upgrades ledger
	before   atomic.Uint64 // open when the books were opened
	upgraded atomic.Uint64 // opened since
	parted   [partingCount]atomic.Uint64

	waiting  gate          // those that parked before the turn and have no answer yet
	released chan struct{} // closed when the turn has come and nobody is in waiting

	closing sync.Once
	tally   Tally // once closed
}

// servedBy says who served a request that was accepted in the window.
type servedBy uint8

const (
	byIncumbent servedBy = iota
	bySuccessor
	afterParking // whoever served it: it had to wait
	servedByCount
)

// Parting is how an upgraded connection came to its end.
type Parting uint8

// The partings.
const (
	PartedByApp Parting = iota
	PartedByClient
	PartedByUsher // it was asked to end: WebSocket status 1012
	PartedByCut
	partingCount
)

// Tally is what an account has to say. Each number was counted by itself.
type Tally struct {
	Opened, Closed time.Time

	Accepted uint64
	Served   uint64
	Cached   uint64
	Refused  uint64
	Failed   uint64
	Gone     uint64
	Own      uint64
	Open     uint64 // still open at the close

	// Of those served. One that was parked is no other.
	ByIncumbent, BySuccessor, AfterParking uint64
	// RefusedBy and FailedBy are by the label of the cause.
	RefusedBy, FailedBy map[string]uint64
	// Parked is the histogram of those served after parking.
	Parked Waits

	Upgrades Upgrades

	// Mismatch says what does not add up; nil: all does.
	Mismatch []string
}

// Upgrades are the upgraded connections of a window.
type Upgrades struct {
	Before uint64 // open when the window was opened
	Opened uint64 // since
	Client uint64 // ended by the client
	App    uint64 // ended by the app
	Usher  uint64 // asked to end, as a drain does
	Cut    uint64
	Open   uint64 // still open at the close
}

// OpenAccount opens the books for an attempt that moves the app to the
// generation successor. Only one account of an app is open at a time; one that
// still is gets closed.
func (a *App) OpenAccount(successor uint64) *Account {
	ac := &Account{app: a, successor: successor, opened: time.Now(), released: make(chan struct{})}
	if old := a.account.Swap(ac); old != nil {
		old.Close()
	}
	for _, r := range a.edge.lanes.all() {
		if s := r.stream.Load(); s != nil && s.upgraded && s.target.app == a {
			ac.takeOver(s)
		}
	}
	return ac
}

// accept counts a request in; nil if it came too late for the window.
func (ac *Account) accept() *Account {
	if !ac.requests.enter() {
		return nil
	}
	ac.accepted.Add(1)
	ac.requests.done()
	return ac
}

// forgo undoes accept, unless the books have been closed meanwhile.
func (ac *Account) forgo() {
	if ac.requests.leave() {
		ac.accepted.Add(^uint64(0))
		ac.requests.done()
	}
}

// end counts a request out, unless the books have been closed meanwhile.
func (ac *Account) end(r *Request, res Result) {
	if !ac.requests.leave() {
		return
	}
	ac.ended[res.Ending].Add(1)
	switch res.Ending {
	case Served:
		ac.served(r)
	case Refused:
		ac.refused[res.Cause].Add(1)
	case Failed:
		ac.failed[res.Cause].Add(1)
	default: // is not split further
	}
	ac.requests.done()
}

func (ac *Account) served(r *Request) {
	switch {
	case r.parking.ticket != 0:
		ac.by[afterParking].Add(1)
		ac.waits.observe(r.parked)
	case r.slot.Generation == ac.successor:
		ac.by[bySuccessor].Add(1)
	default:
		ac.by[byIncumbent].Add(1)
	}
}

// takeOver takes an upgraded connection that was open before into the books,
// also one that an earlier window left open, unless it is in them or has ended.
// The ledger is entered first: the connection may end at once.
func (ac *Account) takeOver(s *stream) {
	ac.upgrades.enter() // it is not closed: nobody but OpenAccount knows it yet
	defer ac.upgrades.done()
	for owner := s.account.Load(); owner != ac && owner != partedMark; owner = s.account.Load() {
		if s.account.CompareAndSwap(owner, ac) {
			ac.before.Add(1)
			return
		}
	}
	ac.upgrades.leave()
	ac.upgrades.done()
}

// upgrade takes a connection into the books that has just been upgraded, by the
// goroutine that will end it.
func (ac *Account) upgrade(s *stream) {
	if s.account.CompareAndSwap(nil, ac) && ac.upgrades.enter() {
		ac.upgraded.Add(1)
		ac.upgrades.done()
	}
}

// partedMark stands in stream.account for "has ended". It is compared, never
// used.
var partedMark = new(Account)

// part counts the end of an upgraded connection in the books it is in.
func (s *stream) part(how Parting) {
	ac := s.account.Swap(partedMark)
	if ac == nil || !ac.upgrades.leave() {
		return
	}
	ac.parted[how].Add(1)
	ac.upgrades.done()
}

// park notes that a request of the window waits.
func (ac *Account) park(r *Request) {
	if !r.awaited && ac.waiting.enter(0) == entered {
		r.awaited = true
	}
}

// answered notes that it waits no more.
func (ac *Account) answered(r *Request) {
	if r.awaited {
		r.awaited = false
		if ac.waiting.leave() {
			close(ac.released)
		}
	}
}

// Turn is told when the attempt is over. The channel is closed when none of
// those that had parked by then waits for its answer any more.
func (ac *Account) Turn() <-chan struct{} {
	if ac.waiting.retire() {
		close(ac.released)
	}
	return ac.released
}

// Look is the tally as it stands. While requests come and go its numbers need
// not add up, and it does not say whether they do.
func (ac *Account) Look() Tally {
	t := ac.read(ac.requests.inside(), ac.upgrades.inside())
	t.Closed = time.Now()
	return t
}

// Close closes the books and says what is in them. It may be called again, and
// says the same then.
func (ac *Account) Close() Tally {
	ac.closing.Do(func() {
		ac.app.account.CompareAndSwap(ac, nil)
		open, settled := ac.requests.close()
		upgrades, parted := ac.upgrades.close()
		ac.tally = ac.read(open, upgrades)
		ac.tally.Closed = time.Now()
		ac.tally.check()
		if !settled || !parted {
			ac.tally.Mismatch = append(ac.tally.Mismatch, "somebody never finished counting")
		}
	})
	return ac.tally
}

func (ac *Account) read(open, upgrades uint64) Tally {
	t := Tally{
		Opened: ac.opened, Accepted: ac.accepted.Load(), Open: open,
		Served: ac.ended[Served].Load(), Cached: ac.ended[Cached].Load(), Refused: ac.ended[Refused].Load(),
		Failed: ac.ended[Failed].Load(), Gone: ac.ended[Gone].Load(), Own: ac.ended[Own].Load(),
		ByIncumbent: ac.by[byIncumbent].Load(), BySuccessor: ac.by[bySuccessor].Load(), AfterParking: ac.by[afterParking].Load(),
		RefusedBy: map[string]uint64{}, FailedBy: map[string]uint64{}, Parked: ac.waits.read(),
		Upgrades: Upgrades{
			Before: ac.before.Load(), Opened: ac.upgraded.Load(), Open: upgrades,
			Client: ac.parted[PartedByClient].Load(), App: ac.parted[PartedByApp].Load(),
			Usher: ac.parted[PartedByUsher].Load(), Cut: ac.parted[PartedByCut].Load(),
		},
	}
	for c := range causeCount {
		if n := ac.refused[c].Load(); n > 0 {
			t.RefusedBy[c.String()] += n
		}
		if n := ac.failed[c].Load(); n > 0 {
			t.FailedBy[c.String()] += n
		}
	}
	return t
}

// ledger knows how many are inside, and from one instant on that it is closed.
type ledger struct {
	word atomic.Uint64 // ledgerClosed and who is inside
	busy atomic.Int64  // those between their step on word and done
}

const ledgerClosed = uint64(1) << 63

// enter counts the caller in, who then books that and calls done. It reports
// false if the ledger is closed.
func (l *ledger) enter() bool { return l.step(1) }

// leave counts the caller out, likewise. Each may leave once, after it entered.
func (l *ledger) leave() bool { return l.step(^uint64(0)) }

func (l *ledger) step(by uint64) bool {
	l.busy.Add(1)
	if l.word.Add(by)&ledgerClosed == 0 {
		return true
	}
	l.busy.Add(-1) // too late; nobody reads the word again
	return false
}

func (l *ledger) done() { l.busy.Add(-1) }

func (l *ledger) inside() uint64 { return l.word.Load() &^ ledgerClosed }

// settleTime bounds the wait for those who were in time and have not booked it.
const settleTime = time.Second

// close says how many are inside, and waits until all who entered or left before
// have booked it. Afterwards nobody does.
func (l *ledger) close() (inside uint64, settled bool) {
	inside = l.word.Or(ledgerClosed) &^ ledgerClosed
	const spins = 100
	for i, end := 0, time.Now().Add(settleTime); l.busy.Load() != 0; i++ {
		switch {
		case i < spins:
			runtime.Gosched()
		case time.Now().After(end):
			return inside, false
		default:
			time.Sleep(time.Millisecond)
		}
	}
	return inside, true
}
