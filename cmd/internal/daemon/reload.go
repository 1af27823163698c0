package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/cmd/internal/config"
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
	if keys := config.ServerChanges(old.Server, f.Server); len(keys) > 0 {
		return activator.Changes{}, fmt.Errorf("%w: [server] %s cannot change while usher runs: undo the change, or restart usher (apps keep running)",
			activator.ErrInvalid, strings.Join(keys, ", "))
	}
	// New apps must be known to the edge before the activator places them, and
	// removed ones until they have drained.
	if err := d.edge.SetApps(edgeApps(between(old, f))); err != nil {
		return activator.Changes{}, err
	}
	ch, err := d.act.Apply(ctx, apps(f))
	if err != nil {
		_ = d.edge.SetApps(edgeApps(old)) // it was valid before
		return ch, err
	}
	ch = recount(ch, old, f)
	d.front.forget(d.act.Names())
	for _, name := range ch.Removed {
		d.front.keep(name)
	}
	if err := d.edge.SetApps(edgeApps(f)); err != nil {
		return ch, err
	}
	if d.cache != nil {
		for _, name := range ch.Removed {
			d.cache.Forget(name)
		}
	}
	d.file.Store(f)
	for _, w := range f.Warnings {
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
func recount(ch activator.Changes, old, f *config.File) activator.Changes {
	var same []string
	for _, name := range ch.Unchanged {
		before, _ := old.App(name)
		now, _ := f.App(name)
		if before.EdgeFingerprint() == now.EdgeFingerprint() {
			same = append(same, name)
		} else {
			ch.Changed = append(ch.Changed, name)
		}
	}
	slices.Sort(ch.Changed)
	ch.Unchanged = same
	return ch
}

// between is the table while a reload is under way: the apps of both files. Each
// keeps what it routes until the new ones are placed, so a host that moves to a
// new app is answered at every moment; and an app that leaves stays known, with
// what is inside it, though its hosts may be another's already.
func between(old, f *config.File) *config.File {
	u := *f
	u.Apps = nil
	taken := map[string]bool{} // by apps that stay
	for _, a := range f.Apps {
		if _, stays := old.App(a.Name); stays {
			u.Apps = append(u.Apps, a)
			mark(taken, a.Hosts)
		}
	}
	held := map[string]bool{} // by apps that leave
	for _, a := range old.Apps {
		if _, stays := f.App(a.Name); !stays {
			a.Hosts = without(a.Hosts, taken)
			u.Apps = append(u.Apps, a)
			mark(held, a.Hosts)
		}
	}
	for _, a := range f.Apps {
		if _, stays := old.App(a.Name); !stays {
			a.Hosts = without(a.Hosts, held)
			u.Apps = append(u.Apps, a)
		}
	}
	return &u
}

func mark(set map[string]bool, hosts []string) {
	for _, h := range hosts {
		set[h] = true
	}
}

func without(hosts []string, set map[string]bool) []string {
	return slices.DeleteFunc(slices.Clone(hosts), func(h string) bool { return set[h] })
}
