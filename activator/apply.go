package activator

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"reflect"
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
// here on. Artifacts are staged first, then all revisions are committed in one
// transaction; if either cannot be done, nothing is applied.
//
// The first Apply also takes over what an earlier usher left running. When it
// returns, every slot is placed.
func (a *Activator) Apply(ctx context.Context, apps []App) (Changes, error) {
	a.applying.Lock()
	defer a.applying.Unlock()
	if isClosed(a.stopping) {
		return Changes{}, ErrClosing
	}
	if err := a.Owned(); err != nil {
		return Changes{}, err
	}
	for _, s := range apps {
		if err := a.awaitRemoved(ctx, s); err != nil {
			return Changes{}, err
		}
	}
	var ch Changes
	open, settled := a.split(apps)
	ch.Unchanged = settled
	staged, err := a.stageAll(ctx, open)
	if err != nil {
		return Changes{}, err
	}
	pending, err := a.commitFile(open, staged)
	if err != nil {
		return Changes{}, err
	}
	for _, p := range pending {
		var changed bool
		p.r.box.call(func() { changed = p.r.configure(p) })
		switch {
		case p.isNew:
			ch.Added = append(ch.Added, p.spec.Name)
		case changed:
			ch.Changed = append(ch.Changed, p.spec.Name)
		default:
			ch.Unchanged = append(ch.Unchanged, p.spec.Name)
		}
	}
	ch.Removed, err = a.removeOthers(apps)
	for _, names := range [][]string{ch.Added, ch.Changed, ch.Unchanged, ch.Removed} {
		slices.Sort(names)
	}
	a.collect()
	return ch, err
}

// split tells the apps of which the file may ask for something from those of which
// it said the same before, and no record has changed since: a reload has nothing to
// do with them, however many there are.
func (a *Activator) split(apps []App) (open []App, settled []string) {
	for _, s := range apps {
		a.mu.RLock()
		r, same := a.apps[s.Name], false
		a.mu.RUnlock()
		if r != nil {
			r.box.call(func() { same = r.settled(s) })
		}
		if same {
			settled = append(settled, s.Name)
		} else {
			open = append(open, s)
		}
	}
	return open, settled
}

// settled says that the file asks for nothing: what it says was applied to the
// record as it is.
func (r *runner) settled(s App) bool {
	s.Artifact = "" // it is staged when the file's value is another
	return r.applied != 0 && r.applied == r.version && !r.unsure && reflect.DeepEqual(r.spec, s)
}

// stageAll stages the artifacts that the file names for the first time, each once
// however many apps it is of.
func (a *Activator) stageAll(ctx context.Context, apps []App) (map[string]artifact.Build, error) {
	out, byPath := map[string]artifact.Build{}, map[string]artifact.Build{}
	for _, s := range apps {
		if s.Artifact == "" {
			continue
		}
		rec, err := a.commits.Get(s.Name)
		if err == nil && rec.FileValue == s.FileValue && rec.Desired != 0 {
			continue
		}
		b, done := byPath[s.Artifact]
		if !done {
			if b, err = a.depot.Stage(ctx, s.Artifact); err != nil {
				return nil, fmt.Errorf("app %s: stage %s: %w", s.Name, s.Artifact, err)
			}
			byPath[s.Artifact] = b
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
	leaving, bound, gone := false, time.Duration(0), make(chan struct{})
	r.box.call(func() {
		leaving, bound = r.state.Halt == lc.HaltRemove, hurriedTime+r.spec.Policy.StopTimeout+2*proofTime
		for gen := range r.gens {
			if leaving {
				r.hurry(gen)
			}
		}
		if leaving {
			r.whenGone(func() { close(gone) })
		}
	})
	if !leaving {
		return nil
	}
	a.front.Place(s.Name, Placement{State: lc.SlotWaking})
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return Refuse(ErrConflict, "app %s is still being removed (%w): look with usher status %s, then reload again", s.Name, context.Cause(ctx), s.Name)
	}
}

// pending is what the file says of one app, on its way to its mailbox.
type pending struct {
	r         *runner
	isNew     bool
	spec      App
	build     artifact.Build
	rec       store.App // as committed
	committed bool      // a revision was
}

// commitFile commits what the file asks for, of all apps or of none.
func (a *Activator) commitFile(apps []App, staged map[string]artifact.Build) ([]*pending, error) {
	byName := map[string]*pending{}
	var all []*pending
	var names []string
	for _, s := range apps {
		s.Artifact = "" // staged by now
		p := &pending{spec: s, build: staged[s.Name]}
		p.r, p.isNew = a.ensure(s.Name)
		all, names, byName[s.Name] = append(all, p), append(names, s.Name), p
	}
	err := a.loadNew(all)
	if err == nil {
		var recs []store.App
		recs, err = a.commits.UpdateAll(names, func(rec *store.App) (bool, error) { return byName[rec.Name].update(rec, a.now()), nil })
		for i := range recs {
			all[i].rec = recs[i]
		}
	}
	if err == nil {
		return all, nil
	}
	for _, p := range all {
		if p.isNew {
			a.disown(p.r) // the next Apply begins with it again
		} else if !certain(err) {
			p.r.box.call(p.r.doubt)
		}
	}
	return nil, err
}

// loadNew reads the records of apps that are new to this usher.
func (a *Activator) loadNew(all []*pending) error {
	for _, p := range all {
		var err error
		if p.isNew {
			p.r.box.call(func() {
				p.r.spec = p.spec
				err = p.r.rebuild()
			})
		}
		if err != nil {
			return fmt.Errorf("app %s: %w", p.spec.Name, err)
		}
	}
	return nil
}

// update runs in the transaction, on the record of the app, and says whether it has
// changed that.
func (p *pending) update(rec *store.App, now time.Time) bool {
	rel, wanted := p.spec.release(rec, p.build)
	if p.committed = wanted; wanted {
		appendRelease(rec, &rel, p.r.floor, now)
		rec.FileValue, rec.Removed = p.spec.FileValue, false
	}
	return wanted
}

// configure applies what the file says of one app, which has been committed. It
// runs in the mailbox.
func (r *runner) configure(p *pending) (changed bool) {
	oldPolicy := r.spec.Policy
	r.spec = p.spec
	if p.rec.Version >= r.version { // else somebody has changed it since
		rec := p.rec
		r.record, r.version, r.applied = &rec, rec.Version, rec.Version
	}
	if p.committed {
		r.act.depot.Unpin(p.build.Digest)
	}
	if p.isNew {
		r.recover()
	} else {
		r.catchUp()
	}
	if r.spec.Eager && p.isNew {
		r.step(lc.Event{Kind: lc.WakeAsked})
	}
	if r.state.Cur.Stage == lc.Serving && oldPolicy.IdleTimeout != r.spec.Policy.IdleTimeout {
		r.disarm(lc.TimerIdle)
		r.armIdle(r.spec.Policy.IdleTimeout)
	}
	r.publish()
	return p.committed || !samePolicy(oldPolicy, r.spec.Policy)
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

// release says whether the file asks for a new revision, and which: its artifact
// or target value is new, or the process spec of what is desired changed.
func (s *App) release(rec *store.App, b artifact.Build) (store.Release, bool) {
	if s.FileValue != "" && (rec.FileValue != s.FileValue || rec.Desired == 0) {
		rel := store.Release{Cause: causeConfig}
		if s.Target != "" {
			rel.Kind, rel.Target, rel.Build = store.KindTarget, s.Target, s.Target
			return rel, true
		}
		rel.Kind, rel.Digest, rel.Build, rel.ArtifactKind = store.KindArtifact, b.Digest, shortBuild(b.Digest), string(b.Kind)
		rel.Spec = s.Process.encode()
		return rel, true
	}
	cur, ok := rec.Release(rec.Desired)
	if !ok || cur.Kind != store.KindArtifact || bytes.Equal(asked(rec, cur).Spec, s.Process.encode()) {
		return store.Release{}, false
	}
	rel := *cur
	rel.Ran, rel.Cause, rel.Spec = false, causeConfig, s.Process.encode()
	return rel, true
}

// asked is the newest release that somebody asked for, cur if that is not known any
// more. A fallback is usher's own: its spec is that of what it fell back to, and says
// nothing of the file.
func asked(rec *store.App, cur *store.Release) *store.Release {
	for i := len(rec.Releases) - 1; i >= 0; i-- {
		if rec.Releases[i].Cause != causeFallback {
			return &rec.Releases[i]
		}
	}
	return cur
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
		delete(a.differences, r.name)
	}
}

// forgetApp drops an app of which nothing is left.
func (a *Activator) forgetApp(r *runner) {
	a.disown(r)
	if a.Owned() == nil {
		r.warn("remove the logs of a removed app", os.RemoveAll(a.logDir(r.name)))
	}
	r.warn("delete the record of a removed app", a.commits.Delete(r.name, 0))
}

// keptBuilds is how many builds are kept beside those that a release needs, or a
// rollback would go back to.
const keptBuilds = 5

// collect removes builds that nothing refers to any more. It reads all records, if
// there are more builds than would be kept in any case.
func (a *Activator) collect() {
	if few, err := a.depot.Few(keptBuilds); err == nil && few {
		return
	}
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
		if rel, ok := earlier(&rec); ok {
			keep[rel.Digest] = true
		}
	}
	if err == nil {
		err = a.depot.Collect(func(d string) bool { return keep[d] }, keptBuilds)
	}
	if err != nil {
		a.log.Warn("cannot remove old builds", "error", err)
	}
}
