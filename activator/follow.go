package activator

import (
	"slices"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// open starts an operation of the app.
func (r *runner) open(kind, requestID string) *operation {
	o := &operation{Operation: Operation{
		ID: newID(), App: r.name, Kind: kind, RequestID: requestID,
		State: OpRunning, StartedAt: r.act.now(),
	}}
	r.ops = append(r.ops, o)
	return o
}

// tell makes a change of o visible to those who follow it.
func (r *runner) tell(o *operation, text string) {
	r.act.ops.put(o.Operation)
	r.act.operationEvent(o.Operation, text)
}

// concerns says whether an operation is about the attempt that runs or ran.
func (o *operation) concerns(rel lc.Release, restart uint32) bool {
	if o.fallback != 0 {
		return o.fallback == uint64(rel.Rev)
	}
	switch o.Kind {
	case KindDeploy, KindRollback, KindResume:
		return o.Revision == uint64(rel.Rev)
	case KindRestart:
		return uint64(restart) >= o.Restart
	case KindWake:
		return true
	}
	return false
}

// opStep notes a step on every operation that the attempt under way is about.
func (r *runner) opStep(name, detail string) {
	a := r.state.Attempt
	g := r.state.Next
	if g.ID != a.Gen {
		g = r.state.Cur
	}
	if a.Gen == 0 {
		return
	}
	for _, o := range r.ops {
		if o.running() && o.ended == nil && o.concerns(g.Rel, g.Restart) {
			if o.fallback == 0 {
				o.Generation = uint64(a.Gen)
			}
			o.step(name, detail, r.act.now())
			r.tell(o, name+": "+detail)
		}
	}
}

// placed notes the steps that a slot stored outside a switch means.
func (r *runner) placed(s lc.Slot) {
	if s.State == lc.SlotHolding {
		r.opStep(StepParked, "requests wait while the incumbent stops")
	}
}

// finish ends the operations that the attempt was about.
func (r *runner) finish(e lc.Effect, last *lastAttempt) {
	for _, o := range r.ops {
		if !o.running() || o.ended != nil || !o.concerns(e.Rel, e.Restart) {
			continue
		}
		if e.Reason == lc.ReasonSuperseded && (o.Revision == 0 || o.Revision == uint64(r.state.Desired.Rev)) {
			continue // the next attempt is about it too
		}
		o.Outcome = e.Outcome.String()
		if o.fallback == 0 { // else what the build that was asked for has left says more
			o.Generation, o.Exit, o.LogTail, o.Reason = uint64(e.Gen), last.exit, last.tail, last.Reason
		}
		last.operation = o.ID
		if e.Fallback {
			o.falling = true
			continue
		}
		st := stateOf(e)
		if st == OpRestored && o.fallback == 0 { // it has asked for what serves now, not for what failed
			st = OpDone
		}
		if st == OpDone {
			if e.Mode == lc.Hold {
				o.step(StepReleased, "parked requests go on", r.act.now())
			}
			o.Draining = r.state.Old.ID != 0
		}
		if st == OpSuperseded {
			o.Reason = replaced
		}
		r.close(o, st, o.Reason)
	}
}

// fallsBack: the good build is committed again in place of one that failed; or,
// rev 0, it could not be.
func (r *runner) fallsBack(rev uint64) {
	for _, o := range r.ops {
		if !o.falling {
			continue
		}
		o.falling, o.fallback = false, rev
		if rev == 0 {
			r.close(o, OpDown, o.Reason)
			continue
		}
		o.step(StepCommitted, "revision "+itoa(int(rev))+", with the build of before", r.act.now())
		r.tell(o, o.Kind+": failed"+because(o.Reason)+"; the build of before is committed again as revision "+itoa(int(rev)))
	}
}

// replaced is why an operation is superseded.
const replaced = "a newer release took its place"

func stateOf(e lc.Effect) OpState {
	switch e.Outcome {
	case lc.Done:
		switch e.Reason {
		case lc.ReasonNotReported:
			return OpAbandoned // it serves, but nobody may be told so yet
		case lc.ReasonSuperseded:
			return OpSuperseded // it serves, and a newer release is to
		}
		return OpDone
	case lc.Restored:
		return OpRestored
	case lc.Failed:
		return OpFailed
	case lc.Down:
		return OpDown
	}
	if e.Reason == lc.ReasonSuperseded {
		return OpSuperseded
	}
	return OpAbandoned
}

// retired: a generation is proven gone.
func (r *runner) retired(gen lc.GenID) {
	for _, o := range r.ops {
		switch {
		case o.Draining && o.Generation != uint64(gen) && r.state.Old.ID == 0:
			o.Draining = false
			o.step(StepRetired, "generation "+itoa(int(gen))+" is gone", r.act.now())
			r.tell(o, StepRetired)
		case o.running() && o.ended == nil && r.state.Attempt.Stopped && gen != r.state.Attempt.Gen:
			o.step(StepStopped, "generation "+itoa(int(gen))+" is proven gone", r.act.now())
			r.tell(o, StepStopped)
		}
	}
}

// settleOps ends the operations that the state itself answers, and forgets those
// about which nothing more can be said.
func (r *runner) settleOps() {
	now := r.act.now()
	for _, o := range r.ops {
		if !o.running() {
			continue
		}
		switch {
		case o.ended != nil && o.ended(&r.state):
			o.end(OpDone, "", now)
			r.tell(o, o.Kind+": done")
		case o.ended == nil && o.superseded(uint64(r.state.Desired.Rev), uint64(r.attempted())):
			r.close(o, OpSuperseded, replaced)
		case o.ended == nil && r.state.Paused && r.state.Attempt.Gen == 0:
			r.close(o, OpCommitted, "not started, because the app is paused: usher resume "+r.name+" starts it")
		case o.ended == nil && r.quiet():
			r.closeQuiet(o)
		}
	}
	r.ops = slices.DeleteFunc(r.ops, func(o *operation) bool { return !o.running() && !o.Draining })
}

// superseded says that another revision is desired than the one that o waits for.
func (o *operation) superseded(desired, attempted uint64) bool {
	rev := max(o.Revision, o.fallback)
	return o.Revision != 0 && rev < desired && rev != attempted
}

// quiet says that nothing runs and nothing is going to be started.
func (r *runner) quiet() bool {
	s := &r.state
	return s.Attempt.Gen == 0 && s.Cur.ID == 0 && s.Next.ID == 0 && !s.WakeWanted && !s.StartWanted
}

// closeQuiet ends an operation that no attempt will end.
func (r *runner) closeQuiet(o *operation) {
	switch {
	case r.state.Slot.State == lc.SlotDown:
		r.close(o, OpDown, r.downText(r.state.Slot))
	case o.Kind == KindResume:
		r.close(o, OpDone, "")
	case o.Kind == KindRestart:
		r.close(o, OpDone, "nothing was running; a new cache generation was opened")
	default:
		r.close(o, OpCommitted, "not started: the next request starts it")
	}
}

// abandonOps ends the operations that a halted app will not finish.
func (r *runner) abandonOps() {
	for _, o := range r.ops {
		switch {
		case o.Draining && r.fenced():
			o.Draining = false
			r.tell(o, o.Kind+": "+store.ErrFenced.Error()+": the generation before is left to the next start")
		case !o.running() || o.ended != nil && o.ended(&r.state):
		case r.state.Halt == lc.HaltRemove:
			r.close(o, OpAbandoned, "the app was removed")
		case r.fenced():
			r.close(o, OpAbandoned, r.act.Owned().Error())
		default:
			r.close(o, OpAbandoned, "usher shuts down; what was committed is taken up at its next start")
		}
	}
}

// attempted is the revision of the attempt under way.
func (r *runner) attempted() lc.Revision {
	switch a := r.state.Attempt; {
	case a.Gen == 0:
		return 0
	case r.state.Next.ID == a.Gen:
		return r.state.Next.Rel.Rev
	}
	return r.state.Cur.Rel.Rev
}

// drop forgets an operation that was refused before it changed anything.
func (r *runner) drop(o *operation) {
	r.ops = slices.DeleteFunc(r.ops, func(x *operation) bool { return x == o })
}
