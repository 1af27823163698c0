package activator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// Changes says what Apply did. Names are sorted.
type Changes struct {
	Added, Changed, Removed, Unchanged []string
}

// Apply makes the apps of the config file the apps of the box: new ones appear,
// missing ones are removed after their drain, a changed process spec or a changed
// artifact or target value commits a revision, a changed policy applies from
// here on. Artifacts are staged first; if one cannot be, nothing is applied.
//
// The first Apply also takes over what an earlier usher left running. When it
// returns, every slot is placed.
func (a *Activator) Apply(ctx context.Context, apps []App) (Changes, error) {
	a.applying.Lock()
	defer a.applying.Unlock()
	if isClosed(a.stopping) {
		return Changes{}, ErrClosing
	}
	for _, s := range apps {
		if err := a.awaitRemoved(ctx, s); err != nil {
			return Changes{}, err
		}
	}
	staged, err := a.stageAll(ctx, apps)
	if err != nil {
		return Changes{}, err
	}
	var ch Changes
	for _, s := range apps {
		r, isNew := a.ensure(s.Name)
		var changed bool
		r.box.call(func() { changed, err = r.configure(s, staged[s.Name], isNew) })
		if err != nil {
			if isNew {
				a.disown(r) // the next Apply begins with it again
			}
			return ch, fmt.Errorf("app %s: %w", s.Name, err)
		}
		switch {
		case isNew:
			ch.Added = append(ch.Added, s.Name)
		case changed:
			ch.Changed = append(ch.Changed, s.Name)
		default:
			ch.Unchanged = append(ch.Unchanged, s.Name)
		}
	}
	ch.Removed, err = a.removeOthers(apps)
	for _, names := range [][]string{ch.Added, ch.Changed, ch.Unchanged, ch.Removed} {
		slices.Sort(names)
	}
	a.collect()
	return ch, err
}

// stageAll stages the artifacts that the file names for the first time.
func (a *Activator) stageAll(ctx context.Context, apps []App) (map[string]artifact.Build, error) {
	out := map[string]artifact.Build{}
	for _, s := range apps {
		if s.Artifact == "" {
			continue
		}
		rec, err := a.commits.Get(s.Name)
		if err == nil && rec.FileValue == s.FileValue && rec.Desired != 0 {
			continue
		}
		b, err := a.depot.Stage(ctx, s.Artifact)
		if err != nil {
			return nil, fmt.Errorf("app %s: stage %s: %w", s.Name, s.Artifact, err)
		}
		out[s.Name] = b
	}
	return out, nil
}

// ensure finds the runner of an app or makes one.
func (a *Activator) ensure(name string) (r *runner, isNew bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r := a.apps[name]; r != nil {
		return r, false
	}
	r = newRunner(a, name)
	a.apps[name] = r
	return r, true
}

// awaitRemoved waits for an app of that name that is still being removed, with
// its drain cut short as for any newer attempt: what comes in its place is a new
// app. Requests park meanwhile.
func (a *Activator) awaitRemoved(ctx context.Context, s App) error {
	r, err := a.runner(s.Name)
	if err != nil {
		return nil // there is none
	}
	leaving, bound := false, time.Duration(0)
	r.box.call(func() {
		leaving, bound = r.state.Halt == lc.HaltRemove, hurriedTime+r.spec.Policy.StopTimeout+2*proofTime
		for gen := range r.gens {
			if leaving {
				r.hurry(gen)
			}
		}
	})
	if !leaving {
		return nil
	}
	a.front.Place(s.Name, Placement{State: lc.SlotWaking})
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	select {
	case <-r.gone:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: app %s is still being removed (%w): look with usher status %s, then reload again", ErrConflict, s.Name, context.Cause(ctx), s.Name)
	}
}

// configure applies what the file says of one app. It runs in the mailbox.
func (r *runner) configure(s App, b artifact.Build, isNew bool) (changed bool, err error) {
	oldPolicy := r.spec.Policy
	r.spec = s
	if isNew {
		if err := r.load(); err != nil {
			return false, err
		}
		if err := r.rebuild(); err != nil {
			return false, err
		}
	}
	rel, commit := r.fileRelease(b)
	if commit {
		rel, err = r.commitRelease(0, rel, func(rec *store.App) error {
			rec.FileValue, rec.Removed = s.FileValue, false
			return nil
		})
		if err != nil {
			return false, err
		}
		r.act.depot.Unpin(rel.Digest)
	}
	switch {
	case isNew:
		r.recover()
	case commit:
		r.step(lc.Event{Kind: lc.Committed, Release: r.coreRelease(rel)})
	}
	if s.Eager && isNew {
		r.step(lc.Event{Kind: lc.WakeAsked})
	}
	if r.state.Cur.Stage == lc.Serving && oldPolicy.IdleTimeout != r.spec.Policy.IdleTimeout {
		r.disarm(lc.TimerIdle)
		r.armIdle(r.spec.Policy.IdleTimeout)
	}
	r.publish()
	return commit || !samePolicy(oldPolicy, r.spec.Policy), nil
}

func samePolicy(a, b Policy) bool {
	if len(a.Health.Headers) != len(b.Health.Headers) {
		return false
	}
	for k, v := range a.Health.Headers {
		if b.Health.Headers[k] != v {
			return false
		}
	}
	a.Health.Headers, b.Health.Headers = nil, nil
	return a.BestEffort == b.BestEffort && a.Fallback == b.Fallback && a.IdleTimeout == b.IdleTimeout &&
		a.DrainTimeout == b.DrainTimeout && a.HoldDrain == b.HoldDrain && a.CloseSpread == b.CloseSpread &&
		a.StopTimeout == b.StopTimeout && a.Settle == b.Settle && a.WakeTimeout == b.WakeTimeout &&
		a.Health.Path == b.Health.Path && a.Health.Host == b.Health.Host && a.Health.Timeout == b.Health.Timeout
}

// fileRelease says whether the file asks for a new revision, and which: its
// artifact or target value is new, or the process spec of what is desired
// changed.
func (r *runner) fileRelease(b artifact.Build) (store.Release, bool) {
	rec := &r.record
	if r.spec.FileValue != "" && (rec.FileValue != r.spec.FileValue || rec.Desired == 0) {
		rel := store.Release{Cause: causeConfig}
		if r.spec.Target != "" {
			rel.Kind, rel.Target, rel.Build = store.KindTarget, r.spec.Target, r.spec.Target
			return rel, true
		}
		rel.Kind, rel.Digest, rel.Build, rel.ArtifactKind = store.KindArtifact, b.Digest, shortBuild(b.Digest), string(b.Kind)
		rel.Spec = r.spec.Process.encode()
		return rel, true
	}
	cur, ok := rec.Release(rec.Desired)
	if !ok || cur.Kind != store.KindArtifact || bytes.Equal(cur.Spec, r.spec.Process.encode()) {
		return store.Release{}, false
	}
	rel := *cur
	rel.Ran, rel.Cause, rel.Spec = false, causeConfig, r.spec.Process.encode()
	return rel, true
}

func shortBuild(digest string) string { return artifact.Short(digest) }

// removeOthers removes the apps that the file does not name.
func (a *Activator) removeOthers(apps []App) ([]string, error) {
	named := map[string]bool{}
	for _, s := range apps {
		named[s.Name] = true
	}
	stored, err := a.commits.Apps()
	if err != nil {
		return nil, fmt.Errorf("list apps: %w", err)
	}
	a.mu.RLock()
	for name := range a.found {
		stored = append(stored, name)
	}
	for name := range a.apps {
		stored = append(stored, name)
	}
	a.mu.RUnlock()
	slices.Sort(stored)
	var removed []string
	for _, name := range slices.Compact(stored) {
		if !named[name] {
			a.remove(name)
			removed = append(removed, name)
		}
	}
	return removed, nil
}

// remove drains and stops an app beside the caller, and then forgets it.
func (a *Activator) remove(name string) {
	r, isNew := a.ensure(name)
	r.box.post(func() {
		if isNew {
			r.spec.Policy = orphanPolicy
			if err := r.load(); err != nil {
				r.log().Error("cannot read the record of an app that is removed", "error", err)
			}
			r.recover()
		}
		r.step(lc.Event{Kind: lc.HaltAsked, Halt: lc.HaltRemove})
	})
}

// disown takes a runner out of the table of apps.
func (a *Activator) disown(r *runner) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.apps[r.name] == r {
		delete(a.apps, r.name)
	}
}

// forgetApp drops an app of which nothing is left.
func (a *Activator) forgetApp(r *runner) {
	a.disown(r)
	r.warn("remove the logs of a removed app", os.RemoveAll(a.logDir(r.name)))
	if err := a.commits.Delete(r.name, 0); err != nil {
		r.log().Warn("cannot delete the record of a removed app", "error", err)
	}
}

// keptBuilds is how many builds are kept beside those that a release needs.
const keptBuilds = 5

// collect removes builds that nothing refers to any more.
func (a *Activator) collect() {
	keep := map[string]bool{}
	names, err := a.commits.Apps()
	for _, name := range names {
		rec, gerr := a.commits.Get(name)
		if gerr != nil {
			err = gerr
			break
		}
		for _, rel := range rec.Releases {
			if rel.Revision == rec.Desired || rel.Revision == rec.Good || rel.Revision == rec.Reported {
				keep[rel.Digest] = true
			}
		}
	}
	if err == nil {
		err = a.depot.Collect(func(d string) bool { return keep[d] }, keptBuilds)
	}
	if err != nil {
		a.log.Warn("cannot remove old builds", "error", err)
	}
}
