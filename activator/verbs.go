package activator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/usher-edge/usher/activator/artifact"
	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// The kinds of operation.
const (
	KindDeploy   = "deploy"
	KindRollback = "rollback"
	KindRestart  = "restart"
	KindWake     = "wake"
	KindSleep    = "sleep"
	KindPause    = "pause"
	KindResume   = "resume"
	KindRemove   = "remove"
)

// What a caller branches on.
var (
	ErrNotFound = errors.New("not found")
	ErrNoApp    = fmt.Errorf("app %w", ErrNotFound)
	ErrConflict = errors.New("conflict")
	ErrVersion  = errors.New("version mismatch")
	ErrInvalid  = errors.New("invalid request")
	ErrClosing  = errors.New("usher is shutting down")
)

// refusal is an error of a kind, in words of its own: whoever branches on it has no
// need to read the kind as well.
type refusal struct{ kind, words error }

func (e *refusal) Error() string   { return e.words.Error() }
func (e *refusal) Unwrap() []error { return []error{e.kind, e.words} }

// Refuse is fmt.Errorf for an error that is of a kind as well.
func Refuse(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Errorf(format, args...)}
}

// Change is what every request about an app carries.
type Change struct {
	App       string
	IfVersion uint64 // 0 = any
	RequestID string // a repeated one returns the first operation
}

// DeployRequest asks for a new revision: exactly one of Digest and Target is set.
type DeployRequest struct {
	Change
	Digest string
	Target string
	Mode   string // "", "overlap" or "hold"
	Canary bool
	By     string // who asked, for the record
}

// Deploy commits a new revision and starts moving the app to it.
func (a *Activator) Deploy(_ context.Context, req DeployRequest) (Operation, error) {
	rel, err := a.release(req)
	if err != nil {
		return Operation{}, err
	}
	return a.change(req.Change, KindDeploy, func(r *runner, o *operation) error {
		if req.Mode == "overlap" && r.spec.Process.Hold {
			return Refuse(ErrConflict, "app %s has swap = \"hold\" in the config file: two of it may never run at once; leave --mode out or change the file", r.name)
		}
		if !r.fits(rel) {
			return Refuse(ErrConflict, "in the config file app %s is %s: deploy %s", r.name, kindWord(r.spec.Target != ""), kindHint(r.spec.Target != ""))
		}
		rel.Spec = r.spec.Process.encode()
		return r.deploy(o, req.IfVersion, rel)
	})
}

// fits says that a release is of the kind that the file names: a process of usher's,
// or a target.
func (r *runner) fits(rel store.Release) bool {
	return (rel.Kind == store.KindTarget) == (r.spec.Target != "")
}

func kindWord(target bool) string {
	if target {
		return "a target whose process usher does not own"
	}
	return "a process that usher starts"
}

func kindHint(target bool) string {
	if target {
		return "it with --target ADDR"
	}
	return "an artifact, not a target"
}

func (a *Activator) release(req DeployRequest) (store.Release, error) {
	rel := store.Release{Cause: causeDeploy, By: req.By, DemandHold: req.Mode == "hold"}
	if req.Canary {
		rel.Cause = causeCanary
	}
	switch {
	case (req.Digest == "") == (req.Target == ""):
		return rel, Refuse(ErrInvalid, "a deploy needs either a build or a target")
	case req.Mode != "" && req.Mode != "overlap" && req.Mode != "hold":
		return rel, Refuse(ErrInvalid, "mode %q: use overlap or hold", req.Mode)
	case req.Target != "" && req.Mode == "hold":
		return rel, Refuse(ErrInvalid, "a target cannot be held: usher does not own its process; leave --mode out")
	case req.Target != "":
		if err := checkTarget(req.Target); err != nil {
			return rel, Refuse(ErrInvalid, "%w", err)
		}
		rel.Kind, rel.Target, rel.Build = store.KindTarget, req.Target, req.Target
		return rel, nil
	}
	b, err := a.depot.Lookup(req.Digest)
	switch {
	case errors.Is(err, artifact.ErrInvalid):
		return rel, Refuse(ErrInvalid, "%w", err)
	case errors.Is(err, artifact.ErrNotFound):
		return rel, Refuse(ErrNotFound, "usher has no build %s any more: deploy the artifact itself", artifact.Short(req.Digest))
	case err != nil:
		return rel, err
	}
	rel.Kind, rel.Digest, rel.Build, rel.ArtifactKind = store.KindArtifact, b.Digest, shortBuild(b.Digest), string(b.Kind)
	return rel, nil
}

// deploy runs in the mailbox.
func (r *runner) deploy(o *operation, ifVersion uint64, rel store.Release) error {
	if rel.DemandHold {
		if err := r.singleWriter(); err != nil {
			return Refuse(ErrConflict, "app %s cannot be held: %w", r.name, err)
		}
	}
	rel, err := r.commitRelease(ifVersion, rel, nil)
	if err != nil {
		return err
	}
	o.Revision, o.Digest = rel.Revision, rel.Digest
	if rel.Kind == store.KindArtifact {
		o.step(StepStaged, rel.Build, r.act.now())
	}
	o.step(StepCommitted, "revision "+itoa(int(rel.Revision)), r.act.now())
	r.tell(o, fmt.Sprintf("%s: committed revision %d (%s)", o.Kind, rel.Revision, rel.Build))
	r.step(lc.Event{Kind: lc.Committed, Release: r.coreRelease(rel)})
	return nil
}

// Rollback commits a new revision with the build of an older one: to, or the last
// one before what is desired now that has served. The spec is the file's.
func (a *Activator) Rollback(_ context.Context, c Change, to uint64, by string) (Operation, error) {
	return a.change(c, KindRollback, func(r *runner, o *operation) error {
		old, err := r.rollbackTo(to)
		if err != nil {
			return err
		}
		if old.Kind == store.KindArtifact {
			if _, err := a.depot.Lookup(old.Digest); err != nil {
				return Refuse(ErrConflict, "the build of revision %d is gone: deploy the artifact again", old.Revision)
			}
		}
		rel := old
		rel.Ran, rel.WasGood, rel.Restarts, rel.Cause, rel.By = false, false, 0, causeRollback, by
		if rel.Kind == store.KindArtifact {
			rel.Spec = r.spec.Process.encode()
		}
		return r.deploy(o, c.IfVersion, rel)
	})
}

func (r *runner) rollbackTo(to uint64) (store.Release, error) {
	rec, err := r.recorded()
	if err != nil {
		return store.Release{}, err
	}
	if to != 0 {
		rel, ok := rec.Release(to)
		switch {
		case !ok:
			return store.Release{}, Refuse(ErrNotFound, "revision %d of app %s is not in its history", to, r.name)
		case !r.fits(*rel):
			return store.Release{}, Refuse(ErrConflict, "revision %d is %s, and in the config file app %s is %s: change the file to go back to it",
				to, kindWord(rel.Kind == store.KindTarget), r.name, kindWord(r.spec.Target != ""))
		}
		return *rel, nil
	}
	rel, ok := earlier(rec)
	if !ok || !r.fits(rel) {
		return store.Release{}, Refuse(ErrConflict, "app %s has no older build to go back to", r.name)
	}
	return rel, nil
}

// earlier is the newest release before what is desired that is of its kind, has
// another build and was good; if none was, the newest that is not known to have failed.
func earlier(rec *store.App) (best store.Release, ok bool) {
	cur, _ := rec.Release(rec.Desired)
	if cur == nil {
		return best, false
	}
	for _, rel := range slices.Backward(rec.Releases) {
		other := rel.Kind == cur.Kind && (rel.Digest != cur.Digest || rel.Target != cur.Target)
		switch {
		case rel.Revision >= rec.Desired || !other:
		case rec.Failures[rel.Revision].HeldDown: // good or not, it fails now
		case rel.WasGood:
			return rel, true
		case !ok && !hasFailed(rec, rel.Revision):
			best, ok = rel, true
		}
	}
	return best, ok
}

// hasFailed says whether an attempt for that revision has failed, as far as they are
// remembered: a deploy lifts what the failure book has.
func hasFailed(rec *store.App, revision uint64) bool {
	return rec.Failures[revision].Count > 0 || slices.ContainsFunc(rec.Outcomes, func(o store.Outcome) bool {
		return o.Revision == revision && (o.Outcome == lc.Failed.String() || o.Outcome == lc.Down.String())
	})
}

// Restart asks for a fresh generation of the current release; retry also clears
// the failure book.
func (a *Activator) Restart(_ context.Context, c Change, retry bool) (Operation, error) {
	return a.change(c, KindRestart, func(r *runner, o *operation) error {
		rec, err := r.recorded()
		if err != nil {
			return err
		}
		if rec.Desired == 0 {
			return r.noRelease()
		}
		if s := r.state.Slot; !retry && s.State == lc.SlotDown {
			way := "restart it with --retry, or deploy another build"
			if s.Reason == lc.ReasonUnproven {
				way = "it goes on by itself once that process is gone; usher's log says why it is not"
			}
			return Refuse(ErrConflict, "app %s is down (%s): %s", r.name, r.downText(s), way)
		}
		if err := r.commitRestart(c.IfVersion, retry); err != nil {
			return err
		}
		o.Restart = r.record.Restarts
		o.step(StepCommitted, "restart "+itoa(int(o.Restart)), r.act.now())
		r.tell(o, "restart: committed")
		r.step(lc.Event{Kind: lc.RestartAsked, Retry: retry})
		return nil
	})
}

// close ends an operation that the mailbox can answer by itself.
func (r *runner) close(o *operation, st OpState, reason string) {
	o.end(st, reason, r.act.now())
	r.tell(o, o.Kind+": "+string(st)+because(reason))
}

func (r *runner) noRelease() error {
	return Refuse(ErrConflict, "app %s has no release yet: usher deploy %s ARTIFACT", r.name, r.name)
}

// Wake starts the app if it sleeps.
func (a *Activator) Wake(_ context.Context, c Change) (Operation, error) {
	return a.change(c, KindWake, func(r *runner, o *operation) error {
		switch r.state.Slot.State {
		case lc.SlotEmpty:
			return r.noRelease()
		case lc.SlotDown:
			return Refuse(ErrConflict, "app %s is down (%s): usher restart %s --retry", r.name, r.downText(r.state.Slot), r.name)
		case lc.SlotPaused, lc.SlotMaintenance:
			return Refuse(ErrConflict, "app %s is paused: usher resume %s", r.name, r.name)
		case lc.SlotServing:
			r.close(o, OpDone, "it is awake")
			return nil
		}
		r.step(lc.Event{Kind: lc.WakeAsked})
		return nil
	})
}

// Sleep stops the app if nothing is in flight; the next request wakes it.
func (a *Activator) Sleep(_ context.Context, c Change) (Operation, error) {
	return a.change(c, KindSleep, func(r *runner, o *operation) error {
		if r.spec.Target != "" {
			return Refuse(ErrConflict, "app %s is a target whose process usher does not own: it cannot be put to sleep", r.name)
		}
		if r.state.Cur.ID == 0 && r.state.Attempt.Gen == 0 {
			r.close(o, OpDone, "it is asleep")
			return nil
		}
		if r.state.Paused {
			return Refuse(ErrConflict, "app %s cannot sleep now: %s", r.name, r.keepsAwake())
		}
		r.step(lc.Event{Kind: lc.SleepAsked})
		if r.state.Cur.Stage == lc.Serving || r.state.Attempt.Gen != 0 {
			return Refuse(ErrConflict, "app %s cannot sleep now: %s", r.name, r.keepsAwake())
		}
		o.ended = func(s *lc.State) bool { return s.Cur.ID == 0 }
		return nil
	})
}

// keepsAwake says why the app was not put to sleep and what to do about it, in
// the order in which the core asks.
func (r *runner) keepsAwake() string {
	s := &r.state
	n := r.act.front.Activity(r.name)
	switch {
	case s.Paused:
		return "it is paused, and its process stays: usher resume " + r.name + " first"
	case s.Halt != lc.HaltNone:
		return "it is being stopped"
	case s.Attempt.Gen != 0 || s.Next.ID != 0:
		return "it moves to generation " + itoa(int(max(s.Attempt.Gen, s.Next.ID))) + ": try again when that has ended (usher events " + r.name + " -f)"
	case s.Old.ID != 0:
		return "generation " + itoa(int(s.Old.ID)) + ", its predecessor, is still on its way out: try again when it is gone, after drain_timeout and stop_timeout at the latest"
	case s.ReportOwed:
		return "its last release could not be recorded yet, so nothing could wake it: look at usher's log, for example for a full disk"
	case n.InFlight > 0:
		return fmt.Sprintf("%d in flight, open streams and WebSockets included: try again, or use usher pause", n.InFlight)
	}
	return fmt.Sprintf("a request came in between (%d parked, state %s): try again", n.Parked, r.stateName())
}

// Pause parks the app's requests, or answers them with the owner's page.
func (a *Activator) Pause(_ context.Context, c Change, maintenance bool) (Operation, error) {
	return a.change(c, KindPause, func(r *runner, o *operation) error {
		err := r.update(c.IfVersion, func(rec *store.App) error {
			rec.Paused, rec.Maintenance = true, maintenance
			return nil
		})
		if err != nil {
			return err
		}
		o.ended = func(s *lc.State) bool { return s.Next.ID == 0 }
		r.step(lc.Event{Kind: lc.PauseAsked, Maintenance: maintenance})
		return nil
	})
}

// Resume ends a pause. What was committed meanwhile and starts now, a release or a
// restart, is what the operation is about then, as if it had been asked for now.
func (a *Activator) Resume(_ context.Context, c Change) (Operation, error) {
	return a.change(c, KindResume, func(r *runner, o *operation) error {
		when := ""
		if r.state.Paused {
			when = ", during the pause"
		}
		err := r.update(c.IfVersion, func(rec *store.App) error {
			rec.Paused, rec.Maintenance = false, false
			return nil
		})
		if err != nil {
			return err
		}
		if rel, ok := r.record.Release(uint64(r.owed())); ok {
			o.Revision, o.Digest = rel.Revision, rel.Digest
			o.step(StepCommitted, "revision "+itoa(int(rel.Revision))+when, r.act.now())
			r.tell(o, fmt.Sprintf("resume: revision %d (%s) starts", rel.Revision, rel.Build))
		} else {
			o.ended = func(s *lc.State) bool { return !s.Paused }
		}
		r.step(lc.Event{Kind: lc.ResumeAsked})
		return nil
	})
}

// owed is the revision that a paused app moves to when it is resumed, though nobody
// asks for it then; 0: none.
func (r *runner) owed() lc.Revision {
	s := &r.state
	want := s.Wanted().Rev
	if s.Halt != lc.HaltNone || want == 0 {
		return 0
	}
	serves := s.Cur.Stage == lc.Serving
	if serves && (s.Cur.Rel.Rev != want || s.Cur.Restart != s.Restarts) || !serves && s.StartWanted {
		return want
	}
	return 0
}

// Remove drains and stops the app and forgets it.
func (a *Activator) Remove(_ context.Context, c Change) (Operation, error) {
	return a.change(c, KindRemove, func(r *runner, o *operation) error {
		err := r.update(c.IfVersion, func(rec *store.App) error { rec.Removed = true; return nil })
		if err != nil {
			return err
		}
		o.ended = func(s *lc.State) bool { return s.Gone }
		r.step(lc.Event{Kind: lc.HaltAsked, Halt: lc.HaltRemove})
		return nil
	})
}

// takes says why an operation cannot be begun now.
func (r *runner) takes(kind string) error {
	if err := r.act.Owned(); err != nil {
		return err
	}
	switch {
	case isClosed(r.act.stopping):
		return ErrClosing
	case r.state.Halt == lc.HaltRemove && kind != KindRemove:
		return Refuse(ErrConflict, "app %s is being removed: wait until it is gone, and add it again", r.name)
	}
	return nil
}

// change runs f in the app's mailbox with a fresh operation, or returns the one
// that the request id already made.
func (a *Activator) change(c Change, kind string, f func(*runner, *operation) error) (Operation, error) {
	r, err := a.runner(c.App)
	if err != nil {
		return Operation{}, err
	}
	var out Operation
	r.box.call(func() {
		if known, ok := a.ops.byRequest(c.App, c.RequestID); ok {
			if out = known; known.Kind != kind {
				err = Refuse(ErrConflict, "request id %q was used for a %s: use a new one", c.RequestID, known.Kind)
			}
			return
		}
		if err = r.takes(kind); err != nil {
			return
		}
		if c.IfVersion != 0 && c.IfVersion != r.version {
			err = Refuse(ErrVersion, "app %s is at version %d, not %d: look at it again", r.name, r.version, c.IfVersion)
			return
		}
		o := r.open(kind, c.RequestID)
		if err = f(r, o); err != nil {
			r.drop(o)
			return
		}
		if o.running() {
			r.act.ops.put(o.Operation)
		}
		r.settleOps()
		r.publish()
		out, _ = a.ops.get(o.ID)
	})
	return out, err
}
