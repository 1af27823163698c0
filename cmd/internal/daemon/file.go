package daemon

import (
	"slices"
	"strings"
	"time"

	"github.com/usher-edge/usher/cmd/internal/config"
)

// file is what the daemon itself remembers of the config file. What it says of
// apps is the activator's and the edge's, and is not kept once more: there may be
// a hundred thousand of them.
type file struct {
	path     string
	server   config.Server
	warnings []config.Problem
	apps     appFiles

	drain, drainAndStop time.Duration       // the longest of all apps
	largestObject       int64               // likewise
	users               map[uint32]struct{} // whom apps run as, if not as usher itself
}

// appFile is what nobody else keeps of an app.
type appFile struct {
	name      string
	hosts     []string // as the file spells them; the edge has the same list
	user      string
	own       bool // it runs as usher itself does
	maxObject int64
	edge      config.Fingerprint // of what takes effect without a new process
}

// appFiles are sorted by name.
type appFiles []appFile

func (all appFiles) find(name string) (appFile, bool) {
	i, found := slices.BinarySearchFunc(all, name, func(a appFile, name string) int { return strings.Compare(a.name, name) })
	if !found {
		return appFile{}, false
	}
	return all[i], true
}

func remember(f *config.File) *file {
	m := &file{
		path: f.Path, server: f.Server, warnings: f.Warnings,
		apps: make(appFiles, 0, len(f.Apps)), users: map[uint32]struct{}{},
	}
	for i := range f.Apps {
		a := &f.Apps[i]
		m.apps = append(m.apps, appFile{
			name: a.Name, hosts: a.Hosts, user: a.User.Name, own: a.User.Own,
			maxObject: a.Cache.MaxObject, edge: a.EdgeFingerprint(),
		})
		m.drain = max(m.drain, a.DrainTimeout)
		m.drainAndStop = max(m.drainAndStop, a.DrainTimeout+a.StopTimeout)
		m.largestObject = max(m.largestObject, a.Cache.MaxObject)
		if !a.External() && !a.User.Own {
			m.users[a.User.UID] = struct{}{}
		}
	}
	return m
}
