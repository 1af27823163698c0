package lifecycle

import "slices"

// moveKind is one thing that can happen next.
type moveKind uint8

const (
	moveLocal   moveKind = iota // the answer of what was carried out at once
	moveOp                      // an operation beside the mailbox ends
	moveStop                    // a stop ends
	moveDrain                   // a drain ends
	moveLate                    // an answer that was overtaken arrives
	moveDies                    // an app process ends by itself
	moveTold                    // usher learns of it
	moveTimer                   // a timer fires
	moveWake                    // the edge's wake arrives
	moveArrives                 // a request arrives
	moveServed                  // a request is answered
	moveAsked                   // people ask
	moveCrash                   // usher crashes while it waits
	moveStart                   // usher starts
)

type move struct {
	kind  moveKind
	gen   uint8
	ev    Event // what is asked; for answers Kind, Result and Reason
	proof bool
	fails bool
}

// moves lists what can happen next in w.
func (x *explorer) moves(w *world, out []move) []move {
	if !w.up {
		out = x.deaths(w, out)
		return append(out, move{kind: moveStart})
	}
	if w.nl > 0 { // the mailbox takes nothing else before
		out = append(out, move{kind: moveLocal})
		switch {
		case x.cfg.between && w.local[0].kind == SwitchDone:
			out = x.asks(w, out)
		case x.cfg.asks&askFence != 0 && !w.fenced(): // it is found by the write that it spoils
			out = append(out, move{kind: moveAsked, ev: Event{Kind: HaltAsked, Halt: HaltFence}})
		}
		return out
	}
	if w.gone && w.s.Halt.ends() {
		return out
	}
	for i := range w.ng {
		out = x.genMoves(w, &w.gens[i], out)
	}
	if w.late.kind != EventNone {
		for _, r := range results(w.late.kind) {
			out = append(out, move{kind: moveLate, gen: w.late.gen, ev: r})
		}
	}
	for t := TimerBackoff; t <= TimerIdle; t++ {
		if w.has(t) {
			out = append(out, move{kind: moveTimer, ev: Event{Kind: TimerFired, Timer: t}})
		}
	}
	if w.g.wake {
		out = append(out, move{kind: moveWake, ev: Event{Kind: WakeAsked}})
	}
	out = x.deaths(w, out)
	out = x.asks(w, out)
	if w.left.usher > 0 {
		out = append(out, move{kind: moveCrash})
	}
	return out
}

func (x *explorer) deaths(w *world, out []move) []move {
	if w.left.app == 0 {
		return out
	}
	for i := range w.ng {
		if g := &w.gens[i]; g.proc == procRunning && !g.ended {
			out = append(out, move{kind: moveDies, gen: g.id})
		}
	}
	return out
}

// results lists how an operation can end, success first.
func results(k EventKind) []Event { return resultTable[k] }

var resultTable = [...][]Event{
	VerifyDone: {{Kind: VerifyDone}, {Kind: VerifyDone, Result: Refused, Reason: ReasonMismatch}},
	PrepareDone: {
		{Kind: PrepareDone},
		{Kind: PrepareDone, Result: BuildFailed, Reason: ReasonExecFailed},
		{Kind: PrepareDone, Result: Refused, Reason: ReasonNotStarted},
	},
	GoDone: {
		{Kind: GoDone},
		{Kind: GoDone, Result: BuildFailed, Reason: ReasonExecFailed},
		{Kind: GoDone, Result: Refused, Reason: ReasonNotStarted},
		{Kind: GoDone, Result: Refused, Reason: ReasonNotStarted, MayHaveRun: true},
	},
	HealthDone: {
		{Kind: HealthDone},
		{Kind: HealthDone, Result: BuildFailed, Reason: ReasonUnhealthy},
		{Kind: HealthDone, Result: Refused, Reason: ReasonUnsupervised},
	},
}

func (x *explorer) genMoves(w *world, g *worldGen, out []move) []move {
	if g.op != EventNone {
		for i, r := range results(g.op) {
			if g.op == HealthDone && i == 0 && g.proc != procRunning && !g.external {
				continue // nobody is there to answer
			}
			out = append(out, move{kind: moveOp, gen: g.id, ev: r, fails: i > 0})
		}
	}
	if g.stop {
		ok := move{kind: moveStop, gen: g.id, proof: true, ev: Event{Kind: StopDone}}
		if g.op == EventNone || x.cfg.late && w.late.kind == EventNone {
			out = append(out, ok)
		}
		if g.op == EventNone && g.proc != procNone {
			out = append(out, move{kind: moveStop, gen: g.id, fails: true, ev: Event{Kind: StopDone, Result: Refused, Reason: ReasonUnproven}})
		}
	}
	if g.drain {
		out = append(out, move{kind: moveDrain, gen: g.id, ev: Event{Kind: DrainDone}})
	}
	if g.untold {
		out = append(out, move{kind: moveTold, gen: g.id, ev: Event{Kind: Exited, Reason: ReasonCrashed}},
			move{kind: moveTold, gen: g.id, fails: true, ev: Event{Kind: Exited, Reason: ReasonCrashed, Quick: true}})
	}
	if w.g.inside == g.id {
		out = append(out, move{kind: moveServed, gen: g.id})
	}
	return out
}

func (x *explorer) asks(w *world, out []move) []move {
	ask := func(e Event) { out = append(out, move{kind: moveAsked, ev: e}) }
	c := &x.cfg
	if w.fenced() { // what people ask is refused, because it cannot be recorded; the rest is the lemma's
		if c.asks&askRequest != 0 && !w.g.parked && w.g.inside == 0 && w.d.desired > 0 {
			out = append(out, move{kind: moveArrives})
		}
		return out
	}
	if w.left.commits > 0 {
		ask(Event{Kind: Committed})
	}
	if w.left.restarts > 0 && w.d.desired > 0 {
		if c.asks&askRestart != 0 {
			ask(Event{Kind: RestartAsked})
		}
		held := w.s.DownHeld >= w.s.Desired.Rev || w.s.Held == w.s.Desired.Rev
		if c.asks&askRetry != 0 && (held || w.s.Deferred != 0 || w.s.Cur.Stage == Serving) {
			ask(Event{Kind: RestartAsked, Retry: true})
		}
	}
	if c.asks&askWake != 0 {
		ask(Event{Kind: WakeAsked})
	}
	if c.between && w.nl == 0 { // the rest is asked only then
		if w.s.Paused {
			ask(Event{Kind: ResumeAsked})
		}
		return out
	}
	if c.asks&askSleep != 0 {
		ask(Event{Kind: SleepAsked})
	}
	if c.asks&askPause != 0 {
		if !w.s.Paused {
			ask(Event{Kind: PauseAsked})
		} else {
			ask(Event{Kind: ResumeAsked})
		}
	}
	if c.asks&askMaintain != 0 && !w.s.Maintenance {
		ask(Event{Kind: PauseAsked, Maintenance: true})
	}
	for h := HaltShutdown; h <= HaltFence; h++ {
		if c.asks&(askHalt<<h) != 0 && w.s.Halt != h { // also a lesser one
			ask(Event{Kind: HaltAsked, Halt: h})
		}
	}
	if c.asks&askRequest != 0 && !w.g.parked && w.g.inside == 0 && w.d.desired > 0 {
		out = append(out, move{kind: moveArrives})
	}
	return out
}

// take makes m happen in w for the choices of the script, and after it the answers
// of what was carried out at once, before which the mailbox takes nothing else.
func (x *explorer) take(w *world, m *move) {
	x.happen(w, m)
	for n := 0; n < maxAnswers && !x.whole && x.broken == nil && x.answersNext(w); n++ {
		out := x.out
		x.happen(w, &move{kind: moveLocal})
		x.out |= out
	}
	if !x.whole {
		w.forget(&x.cfg)
	}
	w.rename()
}

// happen is one step of the core, of its environment, or of both.
func (x *explorer) happen(w *world, m *move) {
	x.out, x.broken = 0, nil
	x.rollout.leave(w)
	if m.fails {
		x.out |= flagFailed
	}
	switch m.kind {
	case moveCrash:
		x.out |= flagAsked | flagCrashed
		w.left.usher--
		x.say("CRASH of usher")
		x.crash(w)
	case moveStart:
		x.start(w)
	case moveDies:
		x.dies(w, w.gen(GenID(m.gen)))
	case moveArrives, moveServed:
		x.request(w, m)
	default:
		if e, ok := x.happens(w, m); ok {
			x.feed(w, e)
		}
	}
	x.follow(w)
	if x.broken == nil {
		x.checkGap(w, m)
	}
	if x.broken == nil {
		x.checkWorld(w)
	}
}

func (x *explorer) dies(w *world, g *worldGen) {
	x.out |= flagAsked
	w.left.app--
	g.proc = procExited
	g.untold = w.up
	x.say("generation %d ends by itself", g.id)
	if w.g.inside == g.id {
		x.loses(w)
	}
}

// request is the life of the ghost request at the edge.
func (x *explorer) request(w *world, m *move) {
	if m.kind == moveServed {
		g := w.gen(GenID(m.gen))
		x.say("generation %d answers the request", m.gen)
		if x.cfg.cache {
			w.g.entry, w.g.content = w.g.key, g.rev
			if x.flaw == flawStoresLate {
				w.g.entry = w.slot.Cache
			}
		}
		x.answered(w, g.rev)
		w.g.ends()
		return
	}
	x.out |= flagAsked | flagGentle
	x.say("a request arrives; slot %s", w.slot.State)
	x.checkHit(w)
	x.arrives(w)
}

// happens changes the environment as m says and returns the event that tells the
// core; false: it is not told.
func (x *explorer) happens(w *world, m *move) (Event, bool) {
	e := m.ev
	e.Gen = GenID(m.gen)
	switch m.kind {
	case moveLocal:
		return x.local(w), true
	case moveLate:
		w.late = answer{}
	case moveOp:
		x.opEnds(w, w.gen(e.Gen), e)
	case moveStop:
		g := w.gen(e.Gen)
		g.stop = false
		if m.proof {
			g.proc, g.untold = procNone, false
		}
	case moveDrain:
		w.gen(e.Gen).drain = false
		if w.g.inside == m.gen {
			w.g.ends()
		}
	case moveTold:
		w.gen(e.Gen).untold = false
	case moveTimer:
		return x.timer(w, e)
	case moveWake:
		w.g.wake = false
	case moveAsked:
		return x.asked(w, e)
	}
	return e, true
}

func (x *explorer) local(w *world) Event {
	a := w.unqueue() // how it ended was decided, and flagged, when it was carried out
	e := Event{Kind: a.kind, Gen: GenID(a.gen), Result: a.res, Reason: a.why}
	if a.kind == Committed {
		e.Release = w.release(w.d.desired)
	}
	return e
}

// opEnds is what an operation has done by the time that its answer arrives.
func (x *explorer) opEnds(w *world, g *worldGen, e Event) {
	g.op = EventNone
	switch e.Kind {
	case VerifyDone:
		if e.Result == OK {
			w.d.verified |= 1 << g.rev
		}
	case PrepareDone:
		if e.Result == OK {
			g.proc, g.phase = procWaiting, phaseStarted
		} else if e.Result == Refused && x.script.choose(2) == 1 {
			g.proc = procWaiting // set up, but its record failed
		}
	case GoDone:
		switch e.Result {
		case OK:
			g.proc = procRunning
			w.touch(g)
		case BuildFailed:
			g.proc, g.ran = procNone, e.MayHaveRun
		case Refused:
			g.proc, g.ran = procNone, e.MayHaveRun
			if e.MayHaveRun {
				w.touch(g)
			}
			if e.MayHaveRun && x.script.choose(2) == 1 {
				g.proc = procRunning
			}
		}
	case HealthDone:
		g.healthy = g.healthy || e.Result == OK
	}
}

func (x *explorer) timer(w *world, e Event) (Event, bool) {
	w.disarm(e.Timer)
	switch e.Timer {
	case TimerBackoff:
		x.out |= flagBackoff
	case TimerSettle:
		e.Gen = GenID(w.settle)
		w.settle = 0
	case TimerIdle: // fires only if nobody came for long
		x.out |= flagAsked | flagGentle
		return Event{Kind: SleepAsked}, true
	}
	return e, true
}

// asked makes durable what people ask before the core hears of it.
func (x *explorer) asked(w *world, e Event) (Event, bool) {
	x.out |= flagAsked
	switch e.Kind {
	case WakeAsked, SleepAsked:
		x.out |= flagGentle
	case Committed:
		n := len(x.cfg.commits) - int(w.left.commits)
		w.left.commits--
		bits := x.cfg.commits[n]
		if bits&relEither != 0 {
			bits &^= relEither
			bits |= [...]uint8{0, relHold}[x.script.choose(2)]
		}
		x.commits(w, bits)
		e.Release = w.release(w.d.desired)
		x.say("revision %d is committed", w.d.desired)
		return e, !x.crashes(w)
	case RestartAsked:
		w.left.restarts--
		w.d.restarts++
		if e.Retry {
			w.d.held, w.d.downHeld = 0, min(w.d.downHeld, w.d.desired-1)
			w.d.failed &^= 1 << w.d.desired
		}
		x.say("a restart is recorded")
		return e, !x.crashes(w)
	case PauseAsked:
		w.d.paused, w.d.maintain = true, e.Maintenance
	case ResumeAsked:
		w.d.paused, w.d.maintain = false, false
	}
	return e, true
}

// feed runs one step.
func (x *explorer) feed(w *world, e Event) {
	e.Fresh = w.fresh()
	if x.log != nil { // else e would be moved to the heap each time
		x.say("%s", e)
	}
	x.before, x.event = w.s, e
	x.checkLate(&w.s)
	next, fx := x.step(w.s, e)
	if w.left.fresh > 0 && next.Next.ID == e.Fresh && x.choose(2) == 1 { // one is needed, and there is none
		w.left.fresh--
		x.event.Fresh = 0
		next, fx = x.step(w.s, x.event)
	}
	x.checkStep(w, &next)
	w.s = next
	x.run(w, &fx)
}

// start is usher coming up again.
func (x *explorer) start(w *world) {
	w.up = true
	if w.owesFallback() && x.choose(2) == 0 {
		x.say("usher commits the fallback that is owed")
		w.fallBack(w.d.good)
		x.follow(w)
		if x.crashes(w) {
			return
		}
	}
	durable := State{
		Desired: w.release(w.d.desired), Good: w.release(w.d.good), Reported: Revision(w.d.reported),
		Restarts: uint32(w.d.restarts), DownHeld: Revision(w.d.downHeld), Paused: w.d.paused, Maintenance: w.d.maintain,
		Limit: LimitRaised, // what it is is read when it is restored
	}
	if w.d.held&(1<<w.d.desired) != 0 {
		durable.Held = durable.Desired.Rev
	}
	var found []Found
	for i := range w.ng {
		g := &w.gens[i]
		f := Found{ID: GenID(g.id), Rel: w.release(g.rev), Restart: uint32(g.restart), Stage: stageOf(g.phase)}
		f.Rel.Ran = true
		f.Alive = g.proc == procRunning && g.healthy && g.phase >= phaseSwitching
		if g.adoptable() && x.cfg.doubts && x.choose(2) == 1 {
			f.Alive = false // it does not answer its one connect
		}
		found = append(found, f)
	}
	x.say("usher starts: %+v", found)
	x.before, x.event = State{}, Event{}
	fresh := w.fresh()
	next, fx := x.rec(durable, slices.Clone(found), fresh)
	if w.left.fresh > 0 && (next.Next.ID == fresh || next.Cur.ID == fresh) && x.choose(2) == 1 {
		w.left.fresh--
		fresh = 0
		next, fx = x.rec(durable, slices.Clone(found), fresh)
	}
	x.checkAdopted(w, found, &next)
	x.checkOwned(atStart, &durable, &next)
	w.s = next
	if next.Cur.ID == fresh && fresh != 0 { // the runner makes a generation for a target that serves at once
		g := w.addGen(Effect{Gen: fresh, Rel: next.Cur.Rel})
		g.ran, g.restart = true, uint8(next.Cur.Restart)
	}
	x.run(w, &fx)
}

func stageOf(phase uint8) Stage {
	switch phase {
	case phaseSwitching:
		return Switching
	case phaseSwitched:
		return Serving
	case phaseRetiring:
		return Draining
	case phaseStopping:
		return Stopping
	}
	return Checking
}
