package lifecycle

// Most worlds differ from others in something that nobody will ever read again.
// Here they are made one, so that the exploration visits each of them once.
// Every line says who would have read it. That nothing else is lost is a test of
// its own (same_check_test.go), which explores without any of this.

// answersNext says that nothing can come next but the answer of what was carried
// out at once: the mailbox takes nothing before it, and usher crashes only where
// something outside of it has changed.
func (x *explorer) answersNext(w *world) bool {
	fences := x.cfg.asks&askFence != 0 && !w.fenced()
	return w.nl > 0 && !fences && !(x.cfg.between && w.local[0].kind == SwitchDone)
}

// maxAnswers is the most that are taken as one: a wrong core may ask for more and
// more of them, and that is for L2 and L3 to find.
const maxAnswers = 12

// forget leaves out what makes no difference to anything that can still happen.
func (w *world) forget(c *config) {
	s := &w.s
	if w.gone && s.Halt.ends() { // nothing happens any more
		*w = world{up: true, gone: true, s: State{Gone: true, Halt: s.Halt}}
		return
	}
	if s.Cur.Stage != Serving || s.Paused || s.Halt != HaltNone { // nobody falls asleep
		w.disarm(TimerIdle)
	}
	if s.Halt != HaltNone {
		w.forgetWishes()
	}
	if s.Held != s.Desired.Rev { // the failure book is asked for what is desired
		s.Held = 0
	}
	w.forgetCauses(c)
	w.forgetCore()
	w.forgetGens(c)
	w.forgetFailures(c)
	w.forgetReleases()
	w.forgetHeld()
	if !c.cache { // nobody stores an answer
		w.g.key = CacheKey{}
	}
}

// forgetWishes: a halted app starts nothing, whatever anybody waits for or wishes.
func (w *world) forgetWishes() {
	s := &w.s
	s.Why, s.WakeWanted, s.StartWanted = CauseNone, false, false
	s.Backoff, s.Held, s.Deferred, s.Stalled = 0, 0, 0, false
	w.disarm(TimerBackoff)
	if s.Halt.ends() { // what serves does not for long
		s.ReportOwed = false
	}
}

// forgetCauses: some of the causes of an attempt are the same to the core, and
// where nobody restarts an app, why the next attempt will exist is asked only of
// whether somebody waits.
func (w *world) forgetCauses(c *config) {
	s := &w.s
	for _, why := range [...]*Cause{&s.Why, &s.Attempt.Cause} {
		if *why == CauseInstall || *why == CauseRetry || *why == CauseConfig {
			*why = CauseRelease
		}
	}
	if w.d.restarts == 0 && w.left.restarts == 0 {
		s.Why = CauseNone
	}
}

// forgetFailures: of the failures in a row the core asks whether there was one,
// when a process ends soon after its start. The rest is for L4.
func (w *world) forgetFailures(c *config) {
	if c.pauses {
		return
	}
	most := uint8(0)
	if w.left.app > 0 {
		most = 1
	}
	for i := range w.ng {
		if w.gens[i].untold {
			most = 1
		}
	}
	s := &w.s
	s.Backoff = min(s.Backoff, most)
	s.Slot.Level, w.slot.Level = min(s.Slot.Level, most), min(w.slot.Level, most)
}

// forgetCore: of a generation that is only to be ended the core asks how far that
// is, and of what was current last, what it demands of the one after it.
func (w *world) forgetCore() {
	s := &w.s
	s.Old = Gen{ID: s.Old.ID, Stage: s.Old.Stage, Hurried: s.Old.Hurried}
	if s.Next.Stage >= Stopping {
		s.Next = Gen{ID: s.Next.ID, Stage: s.Next.Stage}
	}
	if r := s.Cur.Rel; s.Cur.Stage >= Stopping {
		s.Cur = Gen{ID: s.Cur.ID, Stage: s.Cur.Stage, Rel: Release{Hold: r.Hold, External: r.External, Limited: r.Limited}}
	}
}

// forgetGens is the same for what exists of generations.
func (w *world) forgetGens(c *config) {
	for i := range w.ng {
		g := &w.gens[i]
		if !w.up || GenID(g.id) != w.s.Attempt.Gen { // asked of attempts
			g.ran = true
		}
		if g.adoptable() || w.up && !g.ended && GenID(g.id) != w.s.Old.ID {
			continue // it serves or starts, or would serve after a crash
		}
		g.restart = 0
		if g.proc != procRunning && g.op != GoDone && g.phase != phaseNone { // found or not is all that matters
			g.phase = phaseStopping
		}
		if !c.heads && !c.cache { // nobody asks who has answered
			g.rev = w.d.like(g.rev)
		}
		if w.up && !g.ended {
			continue // it drains
		}
		g.untold, g.cut, g.healthy = false, false, false
		if g.op == HealthDone && !c.late { // its answer is heard by nobody
			g.op = EventNone
		}
		told := g.phase >= phaseRetiring
		if told && g.op == EventNone && g.proc == procRunning { // the stop finds out
			g.proc, g.phase = procExited, phaseStopping
		}
	}
}

// adoptable: it is adopted if usher starts now.
func (g *worldGen) adoptable() bool {
	return g.proc == procRunning && g.healthy && (g.phase == phaseSwitching || g.phase == phaseSwitched)
}

// like is the newest revision that is to others as rev is.
func (d *durable) like(rev uint8) uint8 {
	const matters = relHold | relLimited | relExternal
	r := d.desired
	for d.rels[r]&matters != d.rels[rev]&matters {
		r--
	}
	return r
}

// forgetReleases: what is neither desired nor good, and of which nothing exists,
// never starts. That bytes were verified is asked of an attempt, or was before they
// first ran; that they are held, of what is desired.
func (w *world) forgetReleases() {
	d, s := &w.d, &w.s
	live := uint8(1)<<d.desired | 1<<d.good | 1<<s.Desired.Rev | 1<<s.Good.Rev
	verified := uint8(0)
	for i := range w.ng {
		g := &w.gens[i]
		live |= 1 << g.rev
		if w.up && GenID(g.id) == s.Attempt.Gen && g.op != VerifyDone {
			verified |= 1 << g.rev
		}
	}
	for r := range d.rels {
		if bit := uint8(1) << r; live&bit == 0 {
			d.rels[r], d.since[r] = 0, 0
		}
		if d.rels[r]&relRan != 0 {
			verified |= 1 << r
		}
	}
	d.verified &= verified
	d.held &= 1 << d.desired
}

// forgetHeld: whether it is held down, failed, or older than what has run in hold mode
// is asked of what is desired or good.
func (w *world) forgetHeld() {
	d, s := &w.d, &w.s
	low := d.good
	if w.up {
		low = min(low, uint8(s.Good.Rev))
	}
	if low > 0 {
		s.DownHeld, d.downHeld = max(s.DownHeld, Revision(low-1)), max(d.downHeld, low-1)
	}
	if d.touched <= low {
		d.touched = 0
	}
	if d.doubt < max(low, d.touched) {
		d.doubt = 0
	}
	if s.Halt != HaltNone && s.Attempt.Gen == 0 { // nothing is started or recorded any more
		s.DownHeld = Revision(d.downHeld)
	}
	d.failed &= 1<<d.desired | 1<<d.good | 1<<s.Good.Rev
}

// rename gives every generation the rank of its number, so that worlds that
// differ only in numbers are one.
func (w *world) rename() {
	var used uint32
	each := func(id *GenID) { used |= 1 << *id }
	small := func(id *uint8) { used |= 1 << *id }
	w.ids(each, small)
	used &^= 1
	if used&(used+2) == 0 {
		return // 1..n already
	}
	var rank [32]uint8
	n := uint8(0)
	for i := 1; i < 32; i++ {
		if used&(1<<i) != 0 {
			n++
			rank[i] = n
		}
	}
	w.ids(func(id *GenID) { *id = GenID(rank[*id]) }, func(id *uint8) { *id = rank[*id] })
}

func (w *world) ids(big func(*GenID), small func(*uint8)) {
	s := &w.s
	for _, id := range [...]*GenID{&s.Cur.ID, &s.Next.ID, &s.Old.ID, &s.Attempt.Gen, &s.Slot.Gen, &w.slot.Gen} {
		big(id)
	}
	for i := range w.ng {
		small(&w.gens[i].id)
	}
	for i := range w.nl {
		small(&w.local[i].gen)
	}
	small(&w.late.gen)
	small(&w.settle)
	small(&w.g.inside)
}
