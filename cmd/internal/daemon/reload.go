package daemon

import (
	"context"
	"fmt"
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
	if err := d.edge.SetApps(edgeApps(union(old, f))); err != nil {
		return activator.Changes{}, err
	}
	ch, err := d.act.Apply(ctx, apps(f))
	if err != nil {
		_ = d.edge.SetApps(edgeApps(old)) // it was valid before
		return ch, err
	}
	for _, name := range ch.Removed {
		d.front.keep(name)
	}
	if err := d.edge.SetApps(edgeApps(f)); err != nil {
		return ch, err
	}
	d.file.Store(f)
	for _, w := range f.Warnings {
		d.log.Warn(w.String())
	}
	return ch, nil
}

// union is the new file, with the apps that it does not name any more.
func union(old, f *config.File) *config.File {
	u := *f
	u.Apps = append([]config.App{}, f.Apps...)
	taken := map[string]bool{}
	for _, a := range f.Apps {
		for _, h := range a.Hosts {
			taken[h] = true
		}
	}
	for _, a := range old.Apps {
		if _, stays := f.App(a.Name); stays {
			continue
		}
		free := a.Hosts[:0:0]
		for _, h := range a.Hosts {
			if !taken[h] {
				free = append(free, h)
			}
		}
		if a.Hosts = free; len(free) > 0 {
			u.Apps = append(u.Apps, a)
		}
	}
	return &u
}
