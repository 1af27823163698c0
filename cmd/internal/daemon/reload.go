package daemon

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/edge"
)

func itoa(n uint64) string { return strconv.FormatUint(n, 10) }

// reload reads the file again. All of it takes effect or none: what a running
// usher cannot change ([server] keys) is an error, artifacts are staged before
// anything moves, and the route table is replaced in one step.
func (d *daemon) reload(ctx context.Context) (activator.Changes, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.file.Load()
	f, err := config.Load(d.opt.Config, Env())
	if err != nil {
		return activator.Changes{}, err
	}
	now := remember(f)
	if keys := config.ServerChanges(old.server, now.server); len(keys) > 0 {
		return activator.Changes{}, activator.Refuse(activator.ErrInvalid, "[server] %s cannot change while usher runs: undo the change, or restart usher (apps keep running)",
			strings.Join(keys, ", "))
	}
	// New apps must be known to the edge before the activator places them, and
	// removed ones until they have drained.
	before, after := d.placed(old), edgeApps(f)
	if err := d.edge.SetApps(between(before, after)); err != nil {
		return activator.Changes{}, err
	}
	ch, err := d.act.Apply(ctx, apps(f))
	if err != nil {
		_ = d.edge.SetApps(before) // it was valid before
		return ch, err
	}
	ch = recount(ch, old.apps, now.apps)
	d.front.forget(d.act.Names())
	for _, name := range ch.Removed {
		d.front.keep(name)
	}
	if err := d.edge.SetApps(after); err != nil {
		return ch, err
	}
	if d.cache != nil {
		for _, name := range ch.Removed {
			d.cache.Forget(name)
		}
	}
	d.file.Store(now)
	for _, w := range now.warnings {
		d.log.Warn(w.String())
	}
	return ch, nil
}

// logRefused says why a reload that nobody waits for did nothing: one record for
// each fault of the file, as for its warnings, and one for what that means.
func logRefused(log *slog.Logger, err error) {
	const stays = "reload: the old configuration stays"
	var problems config.Problems
	if !errors.As(err, &problems) {
		log.Error(stays, "error", err)
		return
	}
	for _, p := range problems {
		log.Error(p.String())
	}
	log.Error(stays, "problems", len(problems))
}

// recount counts apps as changed too of which the file now says something that
// touches no process, such as other hosts.
func recount(ch activator.Changes, old, now appFiles) activator.Changes {
	var same []string
	for _, name := range ch.Unchanged {
		was, _ := old.find(name)
		is, _ := now.find(name)
		if was.edge == is.edge {
			same = append(same, name)
		} else {
			ch.Changed = append(ch.Changed, name)
		}
	}
	slices.Sort(ch.Changed)
	ch.Unchanged = same
	return ch
}

// placed is what the edge goes by now, with hosts as the file spells them.
func (d *daemon) placed(f *file) []edge.AppConfig {
	all := make([]edge.AppConfig, 0, len(f.apps))
	for _, known := range f.apps {
		if a := d.edge.App(known.name); a != nil { // else it was removed meanwhile
			cfg := a.Config()
			cfg.Hosts = known.hosts
			all = append(all, cfg)
		}
	}
	return all
}

// between is the table while a reload is under way: the apps of both files. Each
// keeps what it routes until the new ones are placed, so a host that moves to a
// new app is answered at every moment; and an app that leaves stays known, with
// what is inside it, though its hosts may be another's already.
func between(old, now []edge.AppConfig) []edge.AppConfig {
	was, is := names(old), names(now)
	var both []edge.AppConfig
	taken := map[string]bool{} // by apps that stay
	for _, a := range now {
		if was[a.Name] {
			both = append(both, a)
			mark(taken, a.Hosts)
		}
	}
	held := map[string]bool{} // by apps that leave
	for _, a := range old {
		if !is[a.Name] {
			a.Hosts = without(a.Hosts, taken)
			both = append(both, a)
			mark(held, a.Hosts)
		}
	}
	for _, a := range now {
		if !was[a.Name] {
			a.Hosts = without(a.Hosts, held)
			both = append(both, a)
		}
	}
	return both
}

func names(apps []edge.AppConfig) map[string]bool {
	set := make(map[string]bool, len(apps))
	for _, a := range apps {
		set[a.Name] = true
	}
	return set
}

func mark(set map[string]bool, hosts []string) {
	for _, h := range hosts {
		set[h] = true
	}
}

func without(hosts []string, set map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return set[h] })
}
