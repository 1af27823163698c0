package activator

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// OS is the Backend that starts real processes.
type OS struct {
	Tree   *cgroup.Tree    // nil: generations are held by their session, a weaker proof
	Forker *process.Forker // makes the processes
	BootID string
	// Mark is an environment entry that together with the generation number no
	// other program on the box carries.
	Mark string
}

// Level is the proof of empty that this machine offers.
func (o *OS) Level() string {
	if o.Tree != nil {
		return cgroup.LevelCgroup
	}
	return cgroup.LevelSession
}

// markName is the environment variable that carries OS.Mark.
const markName = "USHER_INSTANCE"

func (o *OS) marks(gen uint64) []string {
	return []string{
		process.GenerationVariable + "=" + strconv.FormatUint(gen, 10),
		markName + "=" + o.Mark,
	}
}

// Prepare is Backend.Prepare.
func (o *OS) Prepare(ctx context.Context, p Plan) (Waiting, error) {
	group, err := o.group(p)
	if err != nil {
		return nil, err
	}
	l := process.Launch{
		App: p.App, Generation: p.Generation, Dir: p.Dir, Path: p.Path, Args: p.Args,
		Env: append(p.Env, markName+"="+o.Mark), LogPath: p.LogPath, Group: group, NoNewPrivs: true, Yields: p.Yields,
	}
	if err := credentials(&l, p); err != nil {
		return nil, errors.Join(err, group.Remove())
	}
	if err := makeSocketDir(p.SocketDir, l); err != nil {
		return nil, errors.Join(err, group.Remove())
	}
	pending, err := o.Forker.Prepare(ctx, l)
	if err != nil {
		return nil, errors.Join(err, group.Remove())
	}
	return &osWaiting{pending: pending, group: group}, nil
}

func (o *OS) group(p Plan) (cgroup.Group, error) {
	if o.Tree == nil {
		return cgroup.NewSession(o.marks(p.Generation)), nil
	}
	if p.Alone {
		if err := o.Tree.Limit(p.App, p.Limits); err != nil {
			return nil, err
		}
	}
	return o.Tree.New(p.App, p.Generation, p.Limits)
}

// Enforces is Backend.Enforces.
func (o *OS) Enforces() error {
	if o.Tree == nil {
		return cgroup.ErrUnavailable
	}
	return o.Tree.Enforces()
}

// Limit is Backend.Limit.
func (o *OS) Limit(app string, l cgroup.Limits) error {
	if o.Tree == nil {
		return cgroup.ErrUnavailable
	}
	return o.Tree.Limit(app, l)
}

// Limits is Backend.Limits.
func (o *OS) Limits(app string) (cgroup.Limits, error) {
	if o.Tree == nil {
		return cgroup.Limits{}, fs.ErrNotExist
	}
	return o.Tree.Limits(app)
}

// credentials fills in the user of an app.
func credentials(l *process.Launch, p Plan) error {
	if p.User == "" {
		return nil
	}
	uid, gid, _, err := process.LookupUser(p.User)
	if err != nil {
		return err
	}
	if p.Group != "" {
		if gid, err = lookupGroup(p.Group); err != nil {
			return err
		}
	}
	l.UID, l.GID = &uid, &gid
	return nil
}

func lookupGroup(name string) (uint32, error) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, fmt.Errorf("look up group %q: %w; create it (groupadd --system %s) or give a number", name, err, name)
	}
	n, err := strconv.ParseUint(g.Gid, 10, 32)
	return uint32(n), err
}

// makeSocketDir makes the directory in which the app makes its socket. Only the
// app and usher can enter it.
func makeSocketDir(dir string, l process.Launch) error {
	if dir == "" {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("make room for the app's socket: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o711); err != nil {
		return fmt.Errorf("make a directory for sockets: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for the app's socket: %w", err)
	}
	if l.UID == nil || os.Geteuid() != 0 {
		return nil
	}
	if err := os.Chown(dir, int(*l.UID), int(*l.GID)); err != nil {
		return fmt.Errorf("give the app its socket directory: %w", err)
	}
	return nil
}

// Adopt is Backend.Adopt.
func (o *OS) Adopt(run store.Run) (Child, error) {
	group, err := o.openGroup(run)
	if errors.Is(err, fs.ErrNotExist) {
		return &osChild{group: cgroup.NewSession(nil), done: closedChan()}, nil // nothing of it is left
	}
	if err != nil {
		return nil, err
	}
	id := process.Identity{PID: run.PID, StartTime: run.StartTime, BootID: run.BootID, Cgroup: run.Cgroup}
	p, err := process.Adopt(id, run.Generation, group)
	if errors.Is(err, process.ErrNotOurs) || run.PID == 0 {
		return &osChild{group: group, done: closedChan()}, nil
	}
	if err != nil {
		return nil, err
	}
	return &osChild{p: p, group: group, done: p.Done()}, nil
}

// Strays is Backend.Strays.
func (o *OS) Strays() ([]store.Run, error) {
	found := map[uint64]*store.Run{}
	run := func(app string, gen uint64) *store.Run {
		if found[gen] == nil {
			found[gen] = &store.Run{App: app, Generation: gen, BootID: o.BootID, Phase: store.PhaseStopping}
		}
		return found[gen]
	}
	var errs []error
	if o.Tree != nil {
		entries, err := o.Tree.List()
		errs = append(errs, err)
		for _, e := range entries {
			run(e.App, e.Generation).Cgroup = e.Path
		}
	}
	marked, err := cgroup.FindMarked(markName+"="+o.Mark, appVariable, process.GenerationVariable)
	errs = append(errs, err)
	for _, m := range marked {
		gen, err := strconv.ParseUint(m.Values[1], 10, 64)
		if err != nil || m.Values[0] == "" {
			continue // not one that usher made
		}
		if r := run(m.Values[0], gen); r.PID == 0 || m.StartTime < r.StartTime { // the eldest leads the session
			r.PID, r.StartTime = m.PID, m.StartTime
		}
	}
	runs := make([]store.Run, 0, len(found))
	for _, r := range found {
		runs = append(runs, *r)
	}
	return runs, errors.Join(errs...)
}

// appVariable is the environment variable that names the app.
const appVariable = "USHER_APP"

func (o *OS) openGroup(run store.Run) (cgroup.Group, error) {
	switch {
	case run.Cgroup != "" && o.Tree != nil:
		return o.Tree.Open(run.Cgroup)
	case run.PID == 0 && o.Tree != nil: // it crashed before the pid was known
		path, err := o.Tree.Path(run.App, run.Generation)
		if err != nil {
			return nil, err
		}
		return o.Tree.Open(path)
	case run.PID == 0:
		return nil, fs.ErrNotExist // the waiting child ended with its channel
	}
	s := cgroup.OpenSession(run.PID, run.StartTime, o.marks(run.Generation))
	if run.Cgroup != "" { // cgroups were switched off meanwhile
		return leftGroup{s, run.Cgroup}, nil
	}
	return s, nil
}

// leftGroup is a generation in a cgroup that is not used any more.
type leftGroup struct {
	*cgroup.Session
	dir string
}

// Remove removes the directory as well, and that of the app, if it can: what is
// empty does no harm.
func (g leftGroup) Remove() error {
	_ = os.Remove(g.dir)
	_ = os.Remove(filepath.Dir(g.dir))
	return g.Session.Remove()
}

type osWaiting struct {
	pending *process.Pending
	group   cgroup.Group
}

func (w *osWaiting) Identity() Identity {
	id := w.pending.Identity()
	return Identity{PID: id.PID, StartTime: id.StartTime, Cgroup: id.Cgroup}
}

func (w *osWaiting) Go(ctx context.Context) (Child, error) {
	p, err := w.pending.Go(ctx)
	if err != nil {
		return nil, errors.Join(err, w.group.Remove())
	}
	return &osChild{p: p, group: w.group, done: p.Done()}, nil
}

func (w *osWaiting) Abort() error {
	if err := w.pending.Abort(); err != nil {
		return err
	}
	return w.group.Remove()
}

type osChild struct {
	p     *process.Process // nil: the main process is gone
	group cgroup.Group
	done  <-chan struct{}
}

func (c *osChild) Done() <-chan struct{} { return c.done }
func (c *osChild) Exited() bool          { return c.p == nil || c.p.Exited() }

func (c *osChild) Exit() Exit {
	if c.p == nil {
		return Exit{Unknown: true}
	}
	st := c.p.Exit()
	x := Exit{Code: st.Code, Unknown: !st.Known, OOM: st.OOM}
	if st.Signal != 0 {
		x.Signal = st.Signal.String()
	}
	return x
}

// OOM is Child.OOM.
func (c *osChild) OOM() cgroup.OOM { return c.group.OOM() }

// Stop is Child.Stop; with the proof of empty the group itself is removed.
func (c *osChild) Stop(ctx context.Context, grace time.Duration) (Stopped, error) {
	r := process.Stop(ctx, c.p, c.group, grace)
	out := Stopped{Killed: r.Killed}
	if !r.Empty {
		return out, fmt.Errorf("not proven empty, still there: %v: %w", r.Left, r.Err)
	}
	return out, c.group.Remove()
}

// Claim is Child.Claim.
func (c *osChild) Claim() error {
	if c.p == nil {
		return nil
	}
	return c.p.Claim()
}

// Release is Child.Release.
func (c *osChild) Release() {
	if c.p != nil {
		_ = c.p.Close() // the process goes on; a descriptor that does not close is lost with usher
	}
}

// Owns is Child.Owns.
func (c *osChild) Owns(network, address string) (bool, error) {
	if c.p == nil {
		return false, nil
	}
	pid := c.p.Identity().PID
	if network == "unix" {
		return process.OwnsUnix(c.group, pid, address)
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("read the address %q: %w", strings.TrimSpace(address), err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return false, fmt.Errorf("read the port of %q: %w", address, err)
	}
	return process.OwnsPort(c.group, pid, n)
}
