package activator

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/usher-edge/usher/activator/cgroup"
	lc "github.com/usher-edge/usher/activator/lifecycle"
)

// limits is what a generation with that spec is held to; none where the machine
// cannot hold anything to anything, which status shows.
func (r *runner) limits(p Process) cgroup.Limits {
	if p.Limits.None() || r.act.enforces() != nil {
		return cgroup.Limits{}
	}
	return p.Limits
}

// limitsOf is limits of a generation, none for one that is not there.
func (r *runner) limitsOf(gen lc.GenID) cgroup.Limits {
	g := r.gens[gen]
	if g == nil || g.external {
		return cgroup.Limits{}
	}
	return r.limits(g.proc)
}

// raiseLimit makes room for a successor beside the incumbent.
func (r *runner) raiseLimit(e lc.Effect) {
	sum := r.limitsOf(r.state.Cur.ID).Plus(r.limitsOf(e.Gen))
	r.raised = true
	r.answer(r.limited(lc.RaiseDone, e.Gen, r.act.backend.Limit(r.name, sum)))
}

// restoreLimit reads what the app is held to and, if it is not that of the one
// generation that is left, makes it so.
func (r *runner) restoreLimit(e lc.Effect) {
	want := r.limitsOf(e.Gen)
	is, err := r.act.backend.Limits(r.name)
	gone := errors.Is(err, fs.ErrNotExist) || r.gens[e.Gen] == nil
	if !gone && (err != nil || is != want) {
		err = r.act.backend.Limit(r.name, want)
		if err == nil && !r.raised {
			r.note("recovery", e.Gen, fmt.Sprintf("the app was left with the limits of two generations (%s): restored to %s", is, want))
		}
	}
	if gone {
		err = nil
	}
	r.raised = r.raised && err != nil
	r.answer(r.limited(lc.RestoreDone, e.Gen, err))
}

// limited answers a change of what the app is held to.
func (r *runner) limited(k lc.EventKind, gen lc.GenID, err error) lc.Event {
	e := r.result(k, gen, err)
	if err != nil {
		e.Reason = lc.ReasonNotLimited
	}
	return e
}
