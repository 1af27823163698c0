package activator

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// runner runs one app: it feeds events to the core and carries out its effects.
// All fields but roles and tally belong to whoever runs in the mailbox.
type runner struct {
	name string
	act  *Activator
	box  mailbox

	spec    App    // as last applied
	version uint64 // of the record as last seen
	applied uint64 // version of the record that spec was applied to
	floor   uint64 // no new revision is at or below it: generations of them were found

	state   lifecycle.State
	fresh   lifecycle.GenID // reserved for the next attempt
	*motion                 // nil while the app rests
	last    *lastAttempt    // nil: the record says all that is known
	boot    time.Duration   // learned: from the go-byte to the first good health check

	// Small ones stand together: a hundred thousand sleeping apps have them.
	recovered bool // the state was made from what is durable and what runs
	unsure    bool // a write failed and may have taken place: record may be behind
	raised    bool // this usher has raised the limit that the generations share
	over      bool // halted, and nothing is left

	roles atomic.Uint32         // bit per role that a generation has
	tally atomic.Pointer[tally] // nil: nothing was counted yet
}

// motion is what an app has only while something goes on. Whoever runs in the
// mailbox has one.
type motion struct {
	record   *store.App        // as last committed; nil: not read since the app rested (see recorded)
	local    []lifecycle.Event // answers of effects that were carried out at once
	gens     map[lifecycle.GenID]*generation
	timers   map[lifecycle.Timer]*timer
	ops      []*operation    // those that are not settled
	crash    string          // how what served last ended by itself
	retry    time.Time       // when the back-off ends
	receipt  *receipt        // of the attempt whose window is open; nil: none
	unstored []store.Receipt // that could not be stored yet
	gone     []func()        // called when a halted app has nothing left
}

// stir gets ready for what is next in the mailbox.
func (r *runner) stir() {
	if r.motion == nil {
		r.motion = &motion{}
	}
}

// rest lets go of what only an app needs of which something runs, or is waited
// for. The record is read again then: it may be long, and the disk has it.
func (r *runner) rest() {
	m := r.motion
	busy := len(m.local)+len(m.gens)+len(m.timers)+len(m.ops)+len(m.unstored)+len(m.gone) > 0 || m.receipt != nil
	if !busy && !r.unsure && r.state.Slot.State != lifecycle.SlotDown { // else it has a reason to tell
		if r.last != nil && r.last.is(m.record) {
			r.last = nil
		}
		r.motion = nil
	}
}

// is says that the record tells all of the attempt; nil: it was not read.
func (l *lastAttempt) is(rec *store.App) bool {
	if rec == nil || len(rec.Outcomes) == 0 || l.operation != "" || l.exit != nil || len(l.tail) != 0 {
		return false
	}
	o := &rec.Outcomes[len(rec.Outcomes)-1]
	return o.Attempt == l.Attempt && o.Drain == l.Drain
}

// whenGone has f called when the halted app has nothing left. It must not block.
func (r *runner) whenGone(f func()) {
	if r.over {
		f()
		return
	}
	r.gone = append(r.gone, f)
}

// lastAttempt is what status tells of the last attempt beyond its record.
type lastAttempt struct {
	store.Outcome
	operation string // that asked for it; empty: none did
	exit      *Exit
	tail      []string
	wrong     bool // its receipt does not add up: it is kept
}

func newRunner(act *Activator, name string) *runner {
	r := &runner{name: name, act: act}
	r.box.owner = r
	return r
}

// log is made when there is something to say: most apps sleep.
func (r *runner) log() *slog.Logger { return r.act.log.With("app", r.name) }

// event posts an event; the answer of an effect that ran beside the mailbox, a
// timer, an exit.
func (r *runner) event(e lifecycle.Event) { r.box.post(func() { r.step(e) }) }

// step runs one event and everything that its effects answer at once. After
// Close nothing is decided any more: the next start goes on from what is durable.
func (r *runner) step(e lifecycle.Event) {
	if isClosed(r.act.closing) {
		return
	}
	r.answer(e)
	r.drainLocal()
}

// drainLocal runs what was answered at once, until nothing more is.
func (r *runner) drainLocal() {
	for len(r.local) > 0 {
		e := r.local[0]
		r.local = r.local[1:]
		r.one(e)
	}
	r.local = nil // most apps sleep now
	r.settleOps()
	r.publish()
}

func (r *runner) one(e lifecycle.Event) {
	r.checkOwned()
	r.decide(e)
}

// decide tells the core of an event and carries out what it decides.
func (r *runner) decide(e lifecycle.Event) {
	if r.fresh == 0 && !r.fenced() && e.Halt != lifecycle.HaltFence {
		if err := r.reserve(); err != nil {
			r.log().Error("no generation number can be reserved; nothing can be started until the state directory is writable", "error", err)
		}
	}
	e.Fresh = r.fresh
	r.hear(e)
	before := r.state
	next, effects := lifecycle.Step(r.state, e)
	if o := r.act.observe; o != nil {
		o.stepped(r.name, before, e, next, effects)
	}
	r.apply(before, next, &effects)
}

// observer sees every decision of the core before it is carried out.
type observer interface {
	stepped(app string, before lifecycle.State, e lifecycle.Event, next lifecycle.State, effects lifecycle.Effects)
	recovered(app string, durable lifecycle.State, found []lifecycle.Found, fresh lifecycle.GenID, next lifecycle.State, effects lifecycle.Effects)
}

// apply makes next the state and carries out the effects of the step to it.
func (r *runner) apply(before, next lifecycle.State, effects *lifecycle.Effects) {
	r.state = next
	if r.fresh != 0 && (next.Next.ID == r.fresh || next.Cur.ID == r.fresh) {
		r.fresh = 0
	}
	if next.Slot.State != before.Slot.State && ofItsOwn(before, next) {
		r.note("state", 0, next.Slot.State.String())
	}
	for i := range effects.Len() {
		r.effect(effects.At(i))
		r.execute(effects.At(i))
	}
}

// ofItsOwn says that a step is about the app. What befalls all apps at once is told
// once, of usher: an event for each of many thousands that sleep would push that one,
// and all before it, out of the log.
func ofItsOwn(before, next lifecycle.State) bool {
	return next.Halt == before.Halt || next.Halt == lifecycle.HaltRemove
}

func (r *runner) reserve() error {
	n, err := r.act.numbers.take()
	if err != nil {
		return err
	}
	r.fresh = lifecycle.GenID(n)
	return nil
}

// answer queues the answer of an effect that was carried out at once.
func (r *runner) answer(e lifecycle.Event) { r.local = append(r.local, e) }

// note writes an event for people.
func (r *runner) note(kind string, gen lifecycle.GenID, text string) {
	r.act.commits.AppendEvent(store.Event{
		At: r.act.now(), App: r.name, Kind: kind, Generation: uint64(gen),
		Revision: uint64(r.state.Desired.Rev), Text: text,
	})
	r.log().Info(text, "kind", kind, "generation", uint64(gen))
}

// timer is one armed timer of the app.
type timer struct {
	t *time.Timer
}

// arm replaces the timer of that name.
func (r *runner) arm(name lifecycle.Timer, d time.Duration, f func()) {
	r.disarm(name)
	tm := &timer{}
	tm.t = time.AfterFunc(d, func() {
		r.box.post(func() {
			if r.timers[name] == tm { // else it was replaced or disarmed meanwhile
				delete(r.timers, name)
				f()
			}
		})
	})
	if r.timers == nil {
		r.timers = map[lifecycle.Timer]*timer{}
	}
	r.timers[name] = tm
}

func (r *runner) disarm(name lifecycle.Timer) {
	if tm := r.timers[name]; tm != nil {
		tm.t.Stop()
		delete(r.timers, name)
	}
}

// letGo drops what the app holds without touching a process.
func (r *runner) letGo() {
	r.disarmAll()
	for _, g := range r.gens {
		if isClosed(g.busy) { // else whoever is busy with it does it
			g.letGo()
		}
	}
}

func (r *runner) disarmAll() {
	for name := range r.timers {
		r.disarm(name)
	}
}
