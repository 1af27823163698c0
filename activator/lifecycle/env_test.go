package lifecycle

import (
	"fmt"
	"slices"
	"strings"
)

// The environment of the core as the runner makes it: what is durable, what is
// alive, what is under way and what the edge holds. One world is one state of
// the exploration. Everything in it is a small value, so that it can be copied
// and hashed.

// Budgets bound what would make the state space infinite or too large.
type budgets struct {
	commits  uint8 // releases still to be committed
	restarts uint8
	usher    uint8 // crashes of usher
	app      uint8 // crashes of an app process
	puts     uint8 // best-effort records that fail unseen
	fresh    uint8 // generation numbers that cannot be reserved
}

// The phases of a runtime record.
const (
	phaseNone uint8 = iota
	phaseIntent
	phaseStarted
	phaseSwitching
	phaseSwitched
	phaseRetiring
	phaseStopping
)

var phaseNames = [...]string{"none", "intent", "started", "switching", "switched", "retiring", "stopping"}

// What exists of a generation's process.
const (
	procNone    uint8 = iota // nothing, proven
	procWaiting              // at its go-byte
	procRunning
	procExited // its main process is gone, something of it may be left
)

// world attributes of a release, as bits.
const (
	relHold uint8 = 1 << iota
	relExternal
	relCanary
	relFallback
	relOwn
	relRan
	relLimited
	relEither // the owner may demand hold or not
)

const (
	maxRevs  = 6 // three of the owner, three of usher
	maxGens  = 5
	maxLocal = 4
)

// worldGen is one generation outside the core's memory.
type worldGen struct {
	id, rev, restart uint8
	phase            uint8 // durable
	proc             uint8
	op               EventKind // the answer that an operation beside the mailbox will give
	stop, drain      bool      // such an operation is under way
	ran              bool      // bytes of it may have run
	healthy          bool
	ended            bool // it was told to end
	untold           bool // it ended by itself and the core does not know yet
	external         bool
	cut              bool // its drain was told to hurry
}

// answer is an event that is on its way.
type answer struct {
	kind EventKind
	gen  uint8
	res  Result
	why  Reason
}

// durable is the commit record.
type durable struct {
	rels                    [maxRevs + 1]uint8
	since                   [maxRevs + 1]uint8 // the restarts before usher committed it by itself
	desired, good, reported uint8
	verified                uint8 // bit per revision whose bytes were found to be what was committed; for a check
	held                    uint8 // bit per revision
	downHeld                uint8
	restarts                uint8
	paused, maintain        bool
	owed                    bool // what is desired was not tried to the end yet; not recorded, for a check

	// Not recorded, for checks. touched is the newest revision of which bytes have run
	// in hold mode: nothing older may be started on what it may have changed. failed
	// has a bit per revision that failed in hold mode and that nobody has asked for
	// since. doubt is what the record held down when usher crashed: it may not know
	// any more that nothing ran.
	touched, failed, doubt uint8
}

// ghost follows one request and one cache entry.
type ghost struct {
	parked  bool
	wake    bool  // the edge has asked, the core has not heard yet
	inside  uint8 // the generation that it is being sent to
	key     CacheKey
	head    uint8    // what was reported when its head came; config.heads
	entry   CacheKey // where its answer was stored
	content uint8    // the revision that made the answer
}

type world struct {
	s      State
	slot   Slot // as the edge holds it
	gens   [maxGens]worldGen
	ng     uint8
	local  [maxLocal]answer // answers of what was carried out at once, in order
	nl     uint8
	late   answer // one answer that was overtaken
	d      durable
	timers uint8 // bit per Timer
	settle uint8 // whom TimerSettle is about
	g      ghost
	up     bool
	gone   bool
	raised bool // the limit that the generations share may be that of two
	left   budgets
}

func (w *world) gen(id GenID) *worldGen {
	for i := range w.ng {
		if w.gens[i].id == uint8(id) {
			return &w.gens[i]
		}
	}
	return nil
}

func (w *world) fenced() bool { return w.up && w.s.Halt == HaltFence }

func (w *world) addGen(e Effect) *worldGen {
	if g := w.gen(e.Gen); g != nil {
		return g
	}
	if int(w.ng) == maxGens {
		panic("the model has too few places for generations")
	}
	w.gens[w.ng] = worldGen{id: uint8(e.Gen), rev: uint8(e.Rel.Rev), external: e.Rel.External}
	w.ng++
	return &w.gens[w.ng-1]
}

func (w *world) dropGen(id GenID) {
	for i := range w.ng {
		if w.gens[i].id == uint8(id) {
			copy(w.gens[i:], w.gens[i+1:w.ng])
			w.ng--
			w.gens[w.ng] = worldGen{}
			return
		}
	}
}

// emptied: with the last process of an app the limit goes.
func (w *world) emptied() {
	w.raised = w.raised && slices.ContainsFunc(w.gens[:w.ng], func(g worldGen) bool { return g.proc != procNone })
}

func (w *world) queue(a answer) {
	if int(w.nl) == maxLocal {
		panic("the model has too few places for answers")
	}
	w.local[w.nl] = a
	w.nl++
}

func (w *world) unqueue() answer {
	a := w.local[0]
	copy(w.local[:], w.local[1:])
	w.nl--
	w.local[w.nl] = answer{}
	return a
}

func (w *world) has(t Timer) bool { return w.timers&(1<<t) != 0 }
func (w *world) arm(t Timer)      { w.timers |= 1 << t }
func (w *world) disarm(t Timer)   { w.timers &^= 1 << t }

// release is what the runner would tell the core of a revision.
func (w *world) release(rev uint8) Release {
	if rev == 0 {
		return Release{}
	}
	b := w.d.rels[rev]
	return Release{
		Rev: Revision(rev), Hold: b&relHold != 0, External: b&relExternal != 0, Canary: b&relCanary != 0,
		Fallback: b&relFallback != 0, Own: b&relOwn != 0, Ran: b&relRan != 0, Limited: b&relLimited != 0,
		Restarts: uint32(w.d.since[rev]),
	}
}

// fresh is a number that was never used before.
func (w *world) fresh() GenID {
	top := GenID(w.late.gen)
	for i := range w.ng {
		top = max(top, GenID(w.gens[i].id))
	}
	for _, id := range []GenID{w.s.Cur.ID, w.s.Next.ID, w.s.Old.ID, w.s.Attempt.Gen, GenID(w.g.inside), w.slot.Gen} {
		top = max(top, id)
	}
	return top + 1
}

// violation is a broken promise: its name is the invariant's.
type violation struct{ name, check, text string } // check is its text with the verbs in it

func (v *violation) Error() string { return v.name + ": " + v.text }

// explorer runs the core in its environment. One belongs to one goroutine.
type explorer struct {
	cfg  config
	step func(State, Event) (State, Effects)
	rec  func(State, []Found, GenID) (State, Effects)

	controllers []Controller

	script   script
	out      flags
	broken   *violation
	before   State // of the step whose effects are carried out
	event    Event
	log      func(format string, args ...any) // nil: nobody reads along
	longest  int                              // most effects of one step
	stepping bool                             // effects are being carried out
	rollout  follower
	says     string       // asks only the check that says this; empty: all of them
	flaw     flaw         // of the environment
	whole    bool         // worlds that nothing can tell apart are not made one
	visit    func(*world) // told of every world once; nil: nobody asks
	looked   *coreStates  // asks of every state of the core what a late answer does; nil: nobody asks
}

// flags say what happened on one edge.
type flags uint8

const (
	flagAsked   flags  = 1 << iota // by people, requests, or a crash
	flagFailed                     // something answered that it failed
	flagSpawned                    // a process was set up
	flagBackoff                    // the back-off timer fired
	flagCrashed                    // usher crashed
	flagGentle                     // asked, but only what happens all day: requests, wakes, sleeps
	flagBits    = iota             // how many there are
)

// script lets one piece of code be run once for every way its choices can go.
type script struct {
	pick, arity [128]uint8
	n, pos      int
	draw        func(arity int) int // instead, in a random run
}

func (s *script) choose(k int) int {
	if s.draw != nil {
		return s.draw(k)
	}
	if s.pos == s.n {
		s.pick[s.n], s.arity[s.n] = 0, uint8(k)
		s.n++
	}
	s.pos++
	return int(s.pick[s.pos-1])
}

// advance moves to the next way; false when all were run.
func (s *script) advance() bool {
	for s.n > 0 {
		if s.pick[s.n-1]+1 < s.arity[s.n-1] {
			s.pick[s.n-1]++
			s.pos = 0
			return true
		}
		s.n--
	}
	s.pos = 0
	return false
}

func (x *explorer) fail(name, format string, args ...any) {
	if x.broken == nil && x.rollout.lets(name) && strings.Contains(format, x.says) {
		x.broken = &violation{name, format, fmt.Sprintf(format, args...)}
	}
}

func (x *explorer) say(format string, args ...any) {
	if x.log != nil {
		x.log(format, args...)
	}
}

// choose is a choice where everything but the first way is a failure.
func (x *explorer) choose(k int) int {
	n := x.script.choose(k)
	if n != 0 {
		x.out |= flagFailed
	}
	return n
}

// crashes says whether usher dies right here.
func (x *explorer) crashes(w *world) bool {
	if w.left.usher == 0 || x.script.choose(2) == 0 {
		return false
	}
	w.left.usher--
	x.out |= flagCrashed | flagAsked
	x.say("    CRASH of usher")
	x.crash(w)
	return true
}

// crash loses the memory of usher and nothing else. A child at its go-byte reads
// EOF and ends; what was being sent or stopped at that moment may have arrived
// or not.
func (x *explorer) crash(w *world) {
	for i := range w.ng {
		g := &w.gens[i]
		switch {
		case g.op == GoDone && !g.external:
			g.proc = procNone
			if x.script.choose(2) == 1 {
				g.proc = procRunning
				w.touch(g)
			}
		case g.proc == procWaiting:
			g.proc = procNone
		case g.stop && g.proc != procNone:
			if x.script.choose(2) == 1 {
				g.proc = procNone
			}
		}
		g.op, g.stop, g.drain, g.untold, g.ended = EventNone, false, false, false, false
	}
	for i := 0; i < int(w.ng); {
		g := w.gens[i]
		if g.phase != phaseNone {
			i++
			continue
		}
		if g.proc != procNone {
			x.fail("I8", "usher crashed and nothing is recorded of generation %d, which is alive", g.id)
		}
		w.dropGen(GenID(g.id))
	}
	w.emptied()
	w.forgetUnrecorded()
	w.s, w.slot, w.up, w.gone = State{}, Slot{}, false, false
	w.local, w.nl, w.late = [maxLocal]answer{}, 0, answer{}
	w.timers, w.settle, w.g = 0, 0, ghost{}
}

// put is a record that is written as well as possible.
func (x *explorer) put(w *world, g *worldGen, phase uint8) {
	if g == nil {
		return
	}
	if w.left.puts > 0 && x.choose(2) == 1 {
		w.left.puts--
		x.say("      (the record fails)")
		return
	}
	g.phase = phase
}

// written is a record whose failure is told. Where records are uncertain, one that
// is said to have failed may have taken place.
func (x *explorer) written(w *world, a answer) bool {
	ways := 2
	if x.cfg.uncertain {
		ways = 3
	}
	way := x.choose(ways)
	if way > 0 {
		a.res, a.why = Refused, ReasonNotRecorded
	}
	w.queue(a)
	if way == 2 {
		x.say("      (it took place)")
	}
	return way != 1
}

// run carries out the effects of one step. It returns early when usher crashes.
func (x *explorer) run(w *world, fx *Effects) {
	x.longest = max(x.longest, fx.n)
	x.stepping = true
	defer func() { x.stepping = false }()
	for i := range fx.n {
		e := fx.list[i]
		if x.log != nil { // else e would be moved to the heap each time
			x.say("    %s", e)
		}
		x.checkEffect(w, e)
		if x.broken != nil {
			return
		}
		outside := x.execute(w, e)
		x.follow(w)
		if outside && x.crashes(w) {
			return
		}
		if x.broken != nil {
			return
		}
	}
}

// execute carries out one effect. True: something outside usher's memory
// changed.
func (x *explorer) execute(w *world, e Effect) bool {
	g := w.gen(e.Gen)
	switch e.Kind {
	case Verify:
		g = w.addGen(e)
		g.op, g.rev = VerifyDone, uint8(e.Rel.Rev)
	case Intent:
		g = w.addGen(e)
		g.restart = uint8(w.s.Next.Restart)
		if x.written(w, answer{kind: IntentDone, gen: g.id}) {
			g.phase = phaseIntent
		}
		return true
	case Prepare:
		x.out |= flagSpawned
		x.prepare(w, g)
	case RecordRan:
		if x.written(w, answer{kind: RanDone, gen: g.id}) {
			w.d.rels[e.Rel.Rev] |= relRan
			w.d.downHeld = uint8(e.DownHeld)
		}
		return true
	case Go:
		g.ran = true
		if g.external {
			w.touch(g)
			w.queue(answer{kind: GoDone, gen: g.id})
			return false
		}
		g.op = GoDone
	case Health:
		g.op = HealthDone
	case RecordSwitching:
		if x.written(w, answer{kind: SwitchingDone, gen: g.id}) {
			g.phase = phaseSwitching
		}
		return true
	case Switch:
		return x.swap(w, g, e)
	case RecordSwitched:
		g.drain, g.cut = false, false // an incumbent that was given back
		x.put(w, g, phaseSwitched)
		return true
	case Report:
		w.d.owed = w.d.owed && uint8(e.Rel.Rev) != w.d.desired
		if x.written(w, answer{kind: ReportDone, gen: uint8(e.Gen)}) {
			r := uint8(e.Rel.Rev)
			w.d.good = max(w.d.good, r)
			if !e.Quiet {
				w.d.reported = max(w.d.reported, r)
			}
			w.d.held &^= 1 << r
		}
		return true
	default:
		return x.executeMore(w, g, e)
	}
	return false
}

func (x *explorer) executeMore(w *world, g *worldGen, e Effect) bool {
	switch e.Kind {
	case Place:
		x.place(w, e.Slot)
	case Drain:
		g.drain, g.cut = true, false
		x.put(w, g, phaseRetiring)
		return true
	case Stop:
		return x.stop(w, g, e)
	case CutDrain:
		g.cut = true
	case TrySleep:
		busy := w.slot.Gen != e.Gen || w.g.inside == uint8(e.Gen)
		if busy {
			x.out |= flagFailed
		}
		if busy || x.choose(2) == 1 {
			w.queue(answer{kind: SleepDone, gen: uint8(e.Gen), res: Refused})
			return false
		}
		w.queue(answer{kind: SleepDone, gen: uint8(e.Gen)})
		x.place(w, e.Slot)
	case Forget:
		if g != nil && g.op != EventNone && x.cfg.late && w.late.kind == EventNone {
			w.late = answer{kind: g.op, gen: g.id}
		}
		if w.g.inside == uint8(e.Gen) {
			w.g.ends()
		}
		w.dropGen(e.Gen)
		w.emptied()
		return true
	case RaiseLimit: // one that failed may have changed it
		if x.limited(w, RaiseDone, e) || x.script.choose(2) == 1 {
			w.raised = true
		}
		return true
	case RestoreLimit:
		if x.limited(w, RestoreDone, e) {
			w.raised = false
		}
		return true
	case Arm:
		w.arm(e.Timer)
		if e.Timer == TimerSettle {
			w.settle = uint8(e.Gen)
		}
	case Disarm:
		w.disarm(e.Timer)
		if e.Timer == TimerSettle {
			w.settle = 0
		}
	case RecordOutcome:
		if w.fenced() {
			return false // people are told; nothing is written
		}
		if good := x.before.Good.Rev; blames(e) && e.Mode == Hold && good != 0 && (x.before.Attempt.Stopped || e.Rel.Rev != good) {
			w.d.failed |= 1 << e.Rel.Rev
		}
		if uint8(e.Rel.Rev) == w.d.desired && !cancels(e.Reason) {
			w.d.owed = false
		}
		if w.left.puts > 0 && (e.Held || w.d.downHeld != uint8(e.DownHeld)) && x.choose(2) == 1 {
			w.left.puts--
			return false
		}
		w.d.downHeld = uint8(e.DownHeld)
		if e.Held {
			w.d.held |= 1 << e.Rel.Rev
		}
		return true
	case CommitFallback:
		if x.choose(2) == 1 {
			w.queue(answer{kind: FallbackDone, res: Refused, why: ReasonNotRecorded})
			return false
		}
		if w.d.rels[w.d.desired]&relOwn != 0 {
			x.fail("I9", "usher commits a second release of its own after one of the owner's")
		}
		w.fallBack(uint8(e.Rel.Rev))
		w.queue(answer{kind: Committed, gen: 0})
		return true
	case Gone:
		w.gone = true
	}
	return false
}

// limited answers a change of the limit that the generations share.
func (x *explorer) limited(w *world, k EventKind, e Effect) bool {
	a := answer{kind: k, gen: uint8(e.Gen)}
	bound := slices.ContainsFunc(w.d.rels[:], func(r uint8) bool { return r&relLimited != 0 }) // else it is read and nothing is to be changed
	if bound && x.choose(2) == 1 {
		a.res, a.why = Refused, ReasonNotLimited
	}
	w.queue(a)
	return a.res == OK
}

// blames says that an attempt ended by its build's fault.
func blames(e Effect) bool {
	return (e.Outcome == Failed || e.Outcome == Down) && e.Reason != ReasonNone && e.Reason <= ReasonUnhealthy
}

// touch: bytes of g run, or that will not be known any more.
func (w *world) touch(g *worldGen) {
	if !g.ended && (w.d.rels[g.rev]|w.d.rels[w.s.Good.Rev])&relHold != 0 {
		w.d.touched = max(w.d.touched, g.rev)
	}
}

// forgetUnrecorded: usher crashes, and knows of what has failed only what is on
// record.
func (w *world) forgetUnrecorded() {
	d := &w.d
	d.doubt = d.downHeld
	d.failed &= d.held | 1<<d.doubt
	if d.good == 0 { // then what failed is tried again: there is nothing else
		d.failed = 0
	}
}

// commit makes a new release desired.
func (w *world) commit(bits uint8) {
	w.d.desired++
	w.d.rels[w.d.desired] = bits
	w.d.owed = true
}

// fallBack commits the good build again.
func (w *world) fallBack(good uint8) {
	w.commit(w.d.rels[good]&^relRan | relOwn)
	w.d.since[w.d.desired] = w.d.restarts
}

// owesFallback: usher crashed between the failure of a hold and the commit of the good
// build. The next start makes up for it.
func (w *world) owesFallback() bool {
	d := &w.d
	r := d.rels[d.desired]
	return r&relFallback != 0 && r&relOwn == 0 && d.held&(1<<d.desired) != 0 && d.good != 0 && d.good <= d.downHeld
}

// place stores the slot at the edge; who is parked follows it.
func (x *explorer) place(w *world, s Slot) {
	w.slot = s
	x.settleGhost(w)
}

// ends: the request is over.
func (g *ghost) ends() { g.inside, g.key, g.head = 0, CacheKey{}, 0 }

func (x *explorer) settleGhost(w *world) {
	if !w.g.parked {
		return
	}
	switch w.slot.State {
	case SlotServing:
		x.acquire(w, uint8(w.slot.Gen))
	case SlotAsleep:
		w.g.wake = true
	case SlotEmpty, SlotMaintenance, SlotDown, SlotRemoved, SlotFenced:
		w.g.parked, w.g.wake = false, false
		w.g.ends()
	case SlotWaking, SlotHolding, SlotPaused:
	}
}

func (x *explorer) prepare(w *world, g *worldGen) {
	if g.external {
		w.queue(answer{kind: PrepareDone, gen: g.id})
		return
	}
	g.op = PrepareDone
}

// swap looks at the process a last time and stores the slot.
func (x *explorer) swap(w *world, g *worldGen, e Effect) bool {
	if g.proc == procExited {
		x.out |= flagFailed
		w.queue(answer{kind: SwitchDone, gen: g.id, res: BuildFailed, why: ReasonExited})
		return false
	}
	w.queue(answer{kind: SwitchDone, gen: g.id})
	x.place(w, e.Slot)
	return true
}

func (x *explorer) stop(w *world, g *worldGen, e Effect) bool {
	if g == nil {
		w.queue(answer{kind: StopDone, gen: uint8(e.Gen)})
		return false
	}
	if g.op == GoDone {
		w.touch(g)
	}
	g.stop, g.drain, g.cut, g.ended = true, false, false, true
	x.put(w, g, phaseStopping)
	return true
}
