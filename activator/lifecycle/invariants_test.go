package lifecycle

// The invariants, by the names they have in the design. What "core" carries is
// decided by Step and Recover; what "env" carries is a promise of the runner, the
// store, the process room or the edge that the model only repeats.
//
//	I1   pointers only grow, reported ≤ good ≤ desired, the core's are the record's, and so is what is held down but while an attempt is under way (core); a commit is one synced transaction (env)
//	I2   the edge's slot is the core's; it joins a generation with the cache of its own revision (core); a late store lands in the cache of the slot it was acquired under (env)
//	I3   a slot names only what passed its health check, was not stopped and is not known to have ended (core); the gate lets nobody into what is retired (env)
//	I4   a report names what the slot sends requests to; nothing below it is started, served, or hit in a cache afterwards (core)
//	I5   at admission, go-byte and switch: the newest release and restart, not paused, not halted; only a build's own failure counts against it; executed is false only if no go-byte was sent (core)
//	I6   nothing is drained or stopped while the slot names it; an overlap never takes the slot from the incumbent; a second generation is set up only under a limit for two, which is restored when only one is left, and before another begins (core); the limit is what was written (env)
//	I7   hold: no go-byte while anything older may be alive, and none for anything older than what has run; what failed stays down (core); the proof of empty is true (env)
//	I8   whatever may be alive has a generation in the core, is forgotten only when proven gone, and is recorded before it exists (core and env)
//	I9   see liveness_test.go; no two releases of usher's own in a row; the gap falls on every step of the machine's own (core)
//	I10  intent, start, "has run" and switch are recorded before they happen; what was switched to and lives is adopted (core)
//	I11  no go-byte for bytes that were never verified (core); they are the bytes that run (env)
//	H    from its first word to the incumbent up to its go-byte a hold asks for nothing that the box may refuse: all of that was asked before, and was granted (core)
//	F    after a fence: no start, stop (but of the attempt that it calls off), sleep, drain, switch, commit, report or restored limit, and no other outcome than fenced or done (core)
//	P1   whatever a generation waits for is under way; timers are armed as the core believes
//	P2   no request is parked while nothing is under way
//	P3   a drain that something waits for hurries
//	P4   who waits for a build that fails waits on for the fallback that is committed in its place, until that was tried
//	C    what each controller guarantees of its own steps, and what an attempt was begun for (controllers_test.go)
//	R    what each controller relies on: nobody else changes what it owns (controllers_test.go)

// checkEffect asks of one effect, before it is carried out, whether it may be.
func (x *explorer) checkEffect(w *world, e Effect) {
	if w.fenced() || x.before.Halt == HaltFence {
		x.checkFenced(w, e)
	}
	g := w.gen(e.Gen)
	x.checkHolding(w, e)
	switch e.Kind {
	case Verify, Intent:
		x.checkBegin(w, e)
	case Prepare:
		if g == nil || g.phase != phaseIntent {
			x.fail("I10", "generation %d is set up without a recorded intent", e.Gen)
		}
		x.checkRoom(w, e)
	case RaiseLimit:
		x.checkRaise(w, e)
	case RestoreLimit:
		x.checkRestore(w)
	case Go:
		x.checkGo(w, g, e)
	case Switch:
		x.checkSwitch(w, g, e)
	case Place:
		x.checkPlace(w, e)
	case TrySleep:
		x.checkCache(w, e.Slot)
	case CutDrain:
		if g == nil || !g.drain || g.cut {
			x.fail("P3", "a drain is cut that does not run, or twice")
		}
	case Stop, Drain, CloseStreams:
		if w.slot.State == SlotServing && w.slot.Gen == e.Gen {
			x.fail("I6", "%s of generation %d while the slot still sends requests to it", e, e.Gen)
		}
	case Report:
		x.checkReport(w, g, e)
	case RecordOutcome:
		x.checkOutcome(w, g, e)
	case Forget:
		if g != nil && g.proc != procNone {
			x.fail("I8", "generation %d is forgotten and may be alive", e.Gen)
		}
	case Gone:
		x.checkGone(w)
	}
}

// checkFenced: usher does not own its state any more.
func (x *explorer) checkFenced(w *world, e Effect) {
	ok := false
	switch e.Kind {
	case Place, Forget, RecordSwitched, Disarm, Gone:
		ok = true
	case Stop:
		ok = e.Gen != w.s.Cur.ID && e.Gen != w.s.Old.ID
	case Arm:
		ok = e.Timer == TimerSweep
	case RecordOutcome:
		ok = e.Outcome == Done || e.Outcome == Restored || e.Outcome == Abandoned && e.Reason == ReasonFenced
	}
	if !ok {
		x.fail("F", "after a fence: %s", e)
	}
}

// checkHolding: once a hold has begun with its incumbent, all that can be refused has
// been asked, and was answered.
func (x *explorer) checkHolding(w *world, e Effect) {
	switch e.Kind {
	case Verify, RaiseLimit, Intent, Prepare, RecordRan:
		if w.slot.State == SlotHolding {
			x.fail("H", "%s while requests are held: the box may refuse it, and its incumbent would have been stopped for nothing", e)
		}
	case Place:
		if g := w.gen(w.s.Next.ID); e.Slot.State == SlotHolding && !w.goes(g) {
			x.fail("H", "requests are held for generation %d, and not all that may be refused was asked", w.s.Next.ID)
		}
	}
}

// goes says that nothing is left to be asked before g gets its go-byte.
func (w *world) goes(g *worldGen) bool {
	if g == nil || w.d.downHeld < g.rev-1 {
		return false
	}
	return g.external || g.phase == phaseStarted && g.proc == procWaiting && w.release(g.rev).Ran
}

// checkRoom: a second generation is set up only under a limit for two.
func (x *explorer) checkRoom(w *world, e Effect) {
	for i := range w.ng {
		o := &w.gens[i]
		limited := w.release(o.rev).Limited || e.Rel.Limited
		if o.proc != procNone && o.id != uint8(e.Gen) && !o.external && !e.Rel.External && limited && !w.raised {
			x.fail("I6", "generation %d is set up beside generation %d under the limit of one", e.Gen, o.id)
		}
	}
}

func (x *explorer) checkRaise(w *world, e Effect) {
	switch {
	case w.raised:
		x.fail("I6", "generation %d begins on top of a limit that was not restored", e.Gen)
	case w.s.Limit != LimitRaised:
		x.fail("I6", "the limit is raised before it is marked as changed")
	}
}

func (x *explorer) checkRestore(w *world) {
	alive := 0
	for i := range w.ng {
		if w.gens[i].proc != procNone && !w.gens[i].external {
			alive++
		}
	}
	if alive > 1 {
		x.fail("I6", "the limit of one is restored while %d generations may be alive", alive)
	}
}

func (x *explorer) checkGo(w *world, g *worldGen, e Effect) {
	if g == nil {
		x.fail("I10", "a go-byte for generation %d, which is not known", e.Gen)
		return
	}
	rel := w.release(g.rev)
	switch {
	case g.external:
	case g.phase != phaseStarted || g.proc != procWaiting:
		x.fail("I10", "a go-byte for generation %d, which is not recorded as waiting for it", e.Gen)
	case w.d.verified&(1<<g.rev) == 0:
		x.fail("I11", "a go-byte for revision %d, whose bytes were never verified", g.rev)
	case !rel.Ran:
		x.fail("I10", "a go-byte before it is recorded that revision %d has run", g.rev)
	}
	if g.rev < w.d.reported {
		x.fail("I4", "revision %d is started, below what was reported", g.rev)
	}
	if g.rev < w.d.touched {
		x.fail("I7", "revision %d is started on what revision %d has changed in hold mode", g.rev, w.d.touched)
	}
	x.checkNewest(w, g, "started")
	for i := range w.ng {
		o := &w.gens[i]
		other := w.release(o.rev)
		if o.id < g.id && o.proc >= procRunning && !g.external && !o.external && (rel.Hold || other.Hold) {
			x.fail("I7", "generation %d of a hold app is started while generation %d may be alive", g.id, o.id)
		}
	}
}

// checkBegin: an attempt begins for what is desired, or for what is good while
// the failure book passes over what is desired.
func (x *explorer) checkBegin(w *world, e Effect) {
	if x.before.Attempt.Gen == e.Gen {
		return
	}
	d := w.s.Desired.Rev
	passed := w.s.Held == d || w.s.Deferred == d
	if e.Rel.Rev != d && !(passed && e.Rel.Rev == w.s.Good.Rev) {
		x.fail("I5", "an attempt at revision %d begins while revision %d is desired", e.Rel.Rev, d)
	}
	if w.d.failed&(1<<e.Rel.Rev) != 0 {
		x.fail("I7", "an attempt begins at revision %d, which failed in hold mode, and nobody asked for it", e.Rel.Rev)
	}
	for i := range w.ng {
		if o := &w.gens[i]; o.proc != procNone && GenID(o.id) != w.s.Cur.ID {
			x.fail("I8", "an attempt begins while generation %d of an earlier one may be alive", o.id)
		}
	}
}

// checkNewest: the last gates before exec and before the switch.
func (x *explorer) checkNewest(w *world, g *worldGen, what string) {
	d := w.d.desired
	switch {
	case g.rev != d && (Revision(g.rev) != w.s.Good.Rev || w.s.Attempt.Desired != Revision(d)):
		x.fail("I5", "revision %d is %s while revision %d is desired", g.rev, what, d)
	case g.restart != w.d.restarts:
		x.fail("I5", "generation %d is %s though a newer restart was asked for", g.id, what)
	case w.d.paused || w.s.Halt != HaltNone:
		x.fail("I5", "generation %d is %s though the app is paused or halted", g.id, what)
	}
}

func (x *explorer) checkSwitch(w *world, g *worldGen, e Effect) {
	if g == nil {
		x.fail("I3", "a switch to generation %d, which is not known", e.Gen)
		return
	}
	x.checkNewest(w, g, "switched to")
	if g.phase != phaseSwitching {
		x.fail("I10", "the switch to generation %d is not recorded", e.Gen)
	}
	x.checkServing(w, e.Slot)
}

func (x *explorer) checkPlace(w *world, e Effect) {
	if w.slot.State == SlotServing && (e.Slot.State != SlotServing || e.Slot.Gen != w.slot.Gen) {
		ev, cur := x.event, w.slot.Gen
		late := x.cfg.between && ev.Kind == SwitchDone && x.before.stopsServing()
		ok := late || ev.Kind == PauseAsked || ev.Kind == HaltAsked && ev.Halt != HaltFence || ev.Kind == Exited && ev.Gen == cur || x.before.Attempt.Mode == Hold
		if !ok {
			x.fail("I6", "the slot leaves generation %d, which serves", cur)
		}
	}
	if s := e.Slot; s.State == SlotDown && s.Reason == ReasonHeld && w.d.owed && w.d.rels[w.d.desired]&relOwn != 0 {
		x.fail("P4", "requests are turned away, and revision %d, which is committed in the place of what failed, was not tried", w.d.desired)
	}
	x.checkServing(w, e.Slot)
}

// checkServing: what a slot that serves promises.
func (x *explorer) checkServing(w *world, s Slot) {
	x.checkCache(w, s)
	if s.State != SlotServing {
		return
	}
	g := w.gen(s.Gen)
	switch {
	case g == nil:
		x.fail("I3", "the slot names generation %d, which is not known", s.Gen)
	case g.ended:
		x.fail("I3", "the slot names generation %d, which was stopped", s.Gen)
	case g.proc == procExited && !g.untold && !x.stepping:
		x.fail("I3", "the slot names generation %d, whose end was told", s.Gen)
	case !g.external && (!g.healthy || g.proc < procRunning):
		x.fail("I3", "the slot names generation %d, which never was healthy", s.Gen)
	case g.phase == phaseRetiring && x.recordsWork(w):
		x.fail("I10", "generation %d serves and is recorded as retiring: the next start would stop it", s.Gen)
	case g.rev < w.d.touched:
		x.fail("I7", "the slot names revision %d after revision %d has run in hold mode", g.rev, w.d.touched)
	case g.rev < w.d.reported:
		x.fail("I4", "the slot names revision %d after revision %d was reported", g.rev, w.d.reported)
	case s.Cache.Rev != Revision(g.rev):
		x.fail("I2", "the slot joins generation %d of revision %d with the cache of revision %d", s.Gen, g.rev, s.Cache.Rev)
	}
}

// recordsWork: no best-effort record has failed unseen in this world.
func (x *explorer) recordsWork(w *world) bool { return w.left.puts == x.cfg.left.puts }

// checkCache: no hit from below what was reported.
func (x *explorer) checkCache(w *world, s Slot) {
	switch s.State {
	case SlotAsleep, SlotWaking, SlotServing, SlotHolding, SlotPaused:
		if s.Cache.Rev != 0 && s.Cache.Rev < Revision(w.d.reported) {
			x.fail("I4", "the slot names the cache of revision %d after revision %d was reported", s.Cache.Rev, w.d.reported)
		}
	}
}

// checkHit: a request that arrives now may be answered by the ghost entry.
func (x *explorer) checkHit(w *world) {
	if w.g.content == 0 || w.g.entry != w.slot.Cache || w.slot.State == SlotEmpty {
		return
	}
	if Revision(w.g.content) != w.slot.Cache.Rev {
		x.fail("I2", "the cache of revision %d holds a page of revision %d", w.slot.Cache.Rev, w.g.content)
	}
	if w.g.content < w.d.reported {
		x.fail("I4", "a page of revision %d is served from the cache after revision %d was reported", w.g.content, w.d.reported)
	}
}

func (x *explorer) checkReport(w *world, g *worldGen, e Effect) {
	r := uint8(e.Rel.Rev)
	switch {
	case g == nil || g.rev != r:
		x.fail("I4", "revision %d is reported for generation %d, which is not of it", r, e.Gen)
	case w.slot.State != SlotServing || w.slot.Gen != e.Gen:
		x.fail("I4", "revision %d is reported while generation %d does not serve (slot %s)", r, e.Gen, w.slot.State)
	}
}

func (x *explorer) checkOutcome(w *world, g *worldGen, e Effect) {
	if !e.Executed && g != nil && g.ran {
		x.fail("I5", "generation %d is said not to have run, and it may have", e.Gen)
	}
	blamed := e.Held || e.Outcome != Done && e.Outcome != Restored && e.Reason != ReasonNone && e.Reason <= ReasonUnhealthy
	fault := x.event.Kind == Exited || x.event.Result == BuildFailed
	done := e.Outcome == Done || e.Outcome == Restored
	switch {
	case e.Outcome == Failed && !blamed:
		x.fail("I5", "an attempt failed for a reason that is not its build's: %s", e.Reason)
	case blamed && !fault:
		x.fail("I5", "a build is blamed (%s) and nothing of it failed", e.Reason)
	case blamed && x.before.Attempt.Desired != Revision(w.d.desired):
		x.fail("I5", "a superseded attempt counts against its build")
	case e.Held && w.d.good == 0 && w.s.Good.Rev == 0:
		x.fail("I9", "the only release there is is passed over")
	case done && (e.Outcome == Restored) != (e.Rel.Own && !w.asked(g) && x.before.Attempt.Reporting):
		x.fail("I9", "revision %d, usher's own: %v, and asked for: %v, ends as %s", e.Rel.Rev, e.Rel.Own, w.asked(g), e.Outcome)
	case done && !x.stays(w, e.Gen):
		x.fail("I4", "an attempt is done and its generation does not serve")
	case done && e.Reason == ReasonNone && uint8(e.Rel.Rev) == w.d.desired && w.d.reported < w.d.desired:
		x.fail("I4", "an attempt is done and its revision is not reported")
	case e.Outcome == Failed && w.s.Cur.Stage != Serving && w.s.Wanted().Rev == 0:
		x.fail("I5", "an attempt failed and nothing can serve: that is down")
	}
}

// asked: it was started for a restart that was asked for after usher had committed its
// release.
func (w *world) asked(g *worldGen) bool { return g != nil && g.restart > w.d.since[g.rev] }

// stays: the slot names the generation, or what was asked while it was being
// switched to has taken it away again.
func (x *explorer) stays(w *world, gen GenID) bool {
	return w.slot.State == SlotServing && w.slot.Gen == gen || x.cfg.between && (w.s.stopsServing() || w.fenced()) && w.slot.State != SlotServing
}

func (s *State) stopsServing() bool { return s.Paused || s.Halt == HaltStop || s.Halt == HaltRemove }

func (x *explorer) checkGone(w *world) {
	for i := range w.ng {
		g := &w.gens[i]
		if g.proc != procNone && (w.s.Halt.ends() || GenID(g.id) == w.s.Next.ID) {
			x.fail("I8", "the app is gone and generation %d may be alive", g.id)
		}
	}
}

// checkStep looks at a step before its effects are carried out.
func (x *explorer) checkStep(w *world, next *State) {
	b := &x.before
	x.checkControllers(b, next)
	x.checkAttempt(next)
	if next.Reported < b.Reported || next.Desired.Rev < b.Desired.Rev || next.Good.Rev < b.Good.Rev {
		x.fail("I1", "a pointer shrinks")
	}
}

// checkAdopted: what was switched to before a crash and is alive serves on.
func (x *explorer) checkAdopted(w *world, found []Found, next *State) {
	want := GenID(0)
	for _, f := range found {
		if f.Alive && (f.Stage == Switching || f.Stage == Serving) && f.Rel.Rev >= Revision(w.d.reported) {
			want = f.ID
		}
	}
	if want != 0 && (next.Cur.ID != want || next.Cur.Stage != Serving) {
		x.fail("I10", "generation %d was switched to and is alive, and the next start does not adopt it", want)
	}
}

// checkWorld looks at a world in which no effect is left to be carried out.
func (x *explorer) checkWorld(w *world) {
	if !w.up {
		return
	}
	if s := &w.s; s.Reported > s.Good.Rev || s.Good.Rev > s.Desired.Rev {
		x.fail("I1", "reported %d ≤ good %d ≤ desired %d does not hold", s.Reported, s.Good.Rev, s.Desired.Rev)
	}
	for i := range w.ng {
		g := &w.gens[i]
		if id := GenID(g.id); g.proc != procNone && id != w.s.Cur.ID && id != w.s.Next.ID && id != w.s.Old.ID {
			x.fail("I8", "nobody looks after generation %d, which may be alive", g.id)
		}
	}
	if w.nl > 0 {
		return
	}
	s := &w.s
	if w.slot != s.Slot {
		x.fail("I2", "the edge holds %+v and the core believes %+v", w.slot, s.Slot)
	}
	behind := s.Reported > Revision(w.d.reported) || s.Reported < Revision(w.d.reported) && !x.cfg.uncertain
	if !w.fenced() && (behind || s.Desired.Rev != Revision(w.d.desired) || s.Good.Rev < Revision(w.d.good)) {
		x.fail("I1", "the core's pointers are not those of the record")
	}
	x.checkHeldDown(w)
	if w.raised && s.Limit == LimitOne {
		x.fail("I6", "the limit was raised for two and nobody will restore it")
	}
	x.checkServing(w, w.slot)
	for _, g := range [...]*Gen{&s.Cur, &s.Next, &s.Old} {
		x.checkUnderWay(w, g)
	}
	x.checkTimers(w)
	x.checkWaiters(w)
}

// checkHeldDown: a run that was recorded and did not happen holds nothing down once its
// attempt is over. After a crash the record may say too much.
func (x *explorer) checkHeldDown(w *world) {
	record, core := Revision(w.d.downHeld), w.s.DownHeld
	crashed := w.left.usher != x.cfg.left.usher
	if w.s.Attempt.Gen == 0 && !w.fenced() && x.recordsWork(w) && (record < core || record > core && !crashed) {
		x.fail("I1", "what is held down goes up to revision %d, and up to revision %d on record", core, record)
	}
}

// checkUnderWay: whatever a generation waits for is on its way.
func (x *explorer) checkUnderWay(w *world, g *Gen) {
	if g.ID == 0 {
		if *g != (Gen{}) {
			x.fail("P1", "leftovers of a generation: %+v", *g)
		}
		return
	}
	wg := w.gen(g.ID)
	if wg == nil {
		x.fail("P1", "generation %d (%s) does not exist", g.ID, g.Stage)
		return
	}
	ok := false
	switch g.Stage {
	case Serving:
		ok = *g == w.s.Cur
	case Verifying, Preparing, Going, Checking:
		ok = wg.op == answerOf[g.Stage]
	case Settling:
		ok = w.has(TimerSettle) && GenID(w.settle) == g.ID
	case Waiting:
		c := w.s.Cur.Stage
		ok = c == Draining || c == Stopping
	case Draining:
		ok = wg.drain || w.fenced()
		if g.ID == w.s.Old.ID && !wg.cut && w.s.Next.ID == 0 && w.s.Attempt.Gen == 0 && w.s.mismatch() {
			x.fail("P3", "an attempt waits for the drain of generation %d, which does not hurry", g.ID)
		}
	case Stopping:
		ok = wg.stop
	case Unproven:
		ok = w.has(TimerSweep) || wg.stop || w.fenced() && g.ID != w.s.Next.ID
	}
	if !ok {
		x.fail("P1", "generation %d is %s and nothing is under way for it", g.ID, g.Stage)
	}
}

func (x *explorer) checkTimers(w *world) {
	s := &w.s
	if s.SweepArmed != w.has(TimerSweep) {
		x.fail("P1", "the sweep is believed to be armed: %v", s.SweepArmed)
	}
	switch s.Limit {
	case LimitOne:
	case LimitRaised:
		if s.Next.ID == 0 && s.Old.ID == 0 && !w.fenced() {
			x.fail("P1", "the limit is raised, only one generation is left, and it is not restored")
		}
	case LimitRestoring:
		x.fail("P1", "the limit is being restored and no answer is on its way")
	case LimitStuck:
		if !w.has(TimerSweep) && !w.fenced() {
			x.fail("P1", "a limit that could not be restored is not tried again")
		}
	}
	if s.FallsBack && !w.fenced() {
		x.fail("P1", "a fallback is waited for, and whether it was committed was answered")
	}
	if (s.Deferred != 0) && !w.has(TimerBackoff) {
		x.fail("P1", "revision %d is put off and no timer is armed", s.Deferred)
	}
	if w.has(TimerSettle) && s.Next.Stage != Settling {
		x.fail("P1", "a settle timer is left behind")
	}
	settled := s.Cur.Stage == Serving && s.Attempt.Gen == 0 && !s.Paused && s.Halt == HaltNone
	if settled && !s.Cur.Rel.External && !w.has(TimerIdle) {
		x.fail("P1", "the app serves and would never sleep")
	}
	if s.ReportOwed && s.Cur.Stage == Serving && !w.has(TimerSweep) && s.Attempt.Gen == 0 && !s.Paused && s.Halt == HaltNone {
		x.fail("P1", "a report is owed and nobody will try again")
	}
}

// checkWaiters: requests are parked only while something leads to an end of it.
func (x *explorer) checkWaiters(w *world) {
	s := &w.s
	if w.slot.State != SlotWaking && w.slot.State != SlotHolding {
		return
	}
	// nothing can be under way for what is not proven gone: the slot is down then
	stopping := s.Cur.Stage == Stopping || s.Next.Stage == Stopping || s.Old.Stage == Stopping || s.Old.Stage == Draining
	if s.Attempt.Gen == 0 && !stopping && !s.SweepArmed {
		x.fail("P2", "requests are parked (%s) and nothing is under way", w.slot.State)
	}
}

// mismatch: something else should run, and may.
func (s *State) mismatch() bool {
	return s.Cur.Stage == Serving && !s.Paused && s.Halt == HaltNone && s.Wanted().Rev != 0 &&
		(s.Cur.Rel.Rev != s.Wanted().Rev || s.Cur.Restart != s.Restarts)
}
