package activator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"time"

	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// generation is the runner's side of one generation. It belongs to the mailbox.
// What runs beside it may read what never changes after the intent (rel, proc,
// external, address), and waiting, child and lost, which change only in the
// answer of what ran before (see beside).
type generation struct {
	run      store.Run
	rel      store.Release
	proc     Process
	external bool
	port     int

	verified bool // its bytes are what was staged

	waiting Waiting
	child   Child
	lost    bool // it could not be looked for: that no child is known proves nothing

	ctx    context.Context // ends when the generation is to be stopped
	cancel context.CancelFunc
	busy   chan struct{} // closed when the operation under way has ended
	drain  *drain        // under way; nil: none

	startedAt time.Time
	drainFrom time.Time
	probe     string     // how the health check ended
	probes    *probes    // of the health check; nil: it was not begun
	problem   string     // why it could not be started, for people
	oom       cgroup.OOM // that was told
	unproven  string     // why its end cannot be proven, as it was told
}

func closedChan() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// newGeneration makes the record of a generation that is about to be started. It
// is there with an error too, to keep what is wrong.
func (r *runner) newGeneration(e lifecycle.Effect) (*generation, error) {
	g := &generation{busy: closedChan()}
	g.ctx, g.cancel = context.WithCancel(r.act.life)
	g.run = store.Run{
		Generation: uint64(e.Gen), App: r.name, Revision: uint64(e.Rel.Rev),
		Mode: e.Mode.String(), Cause: e.Cause.String(), AttemptID: uint64(e.Gen), BootID: r.act.bootID,
	}
	if r.state.Next.ID == e.Gen {
		g.run.Restart = r.state.Next.Restart
	}
	r.keep(e.Gen, g)
	rel, err := r.release(uint64(e.Rel.Rev))
	if err != nil {
		return g, err
	}
	g.rel, g.external = *rel, rel.Kind == store.KindTarget
	g.run.Build, g.run.Digest = rel.Build, rel.Digest
	if g.proc, err = decodeProcess(rel.Spec); err != nil {
		return g, err
	}
	return g, r.provable(g)
}

func (r *runner) keep(gen lifecycle.GenID, g *generation) {
	if r.gens == nil {
		r.gens = map[lifecycle.GenID]*generation{}
	}
	r.gens[gen] = g
}

// provable refuses to start what must be the only one of its kind where nothing
// can prove that it is.
func (r *runner) provable(g *generation) error {
	if g.external || !g.proc.Hold && !g.rel.DemandHold {
		return nil
	}
	return r.singleWriter()
}

// singleWriter is an error where a hold cannot be proven.
func (r *runner) singleWriter() error {
	if r.spec.Policy.BestEffort || r.act.backend.Level() != cgroup.LevelSession {
		return nil
	}
	return errors.New("swap = \"hold\" needs proof that no earlier process is left, and without a cgroup there is only the weaker one of a session: " +
		"let usher write to a cgroup v2 tree, or set single_writer = \"best-effort\" for the app")
}

// letGo drops what is held of a generation without touching its process. One that
// still waits at its go-byte has not run and ends.
func (g *generation) letGo() {
	g.cancel()
	if g.waiting != nil {
		_ = g.waiting.Abort() // it ends with usher in any case
	}
	if g.child != nil {
		g.child.Release()
	}
	g.waiting, g.child = nil, nil
}

// healthProof is what its health check has come to, and how its process has ended
// if it has.
func (g *generation) healthProof() *store.HealthProof {
	if g == nil || g.probes == nil {
		return nil
	}
	exit := exitOf(g)
	h := g.probes.proof(exit != nil)
	if exit != nil {
		h.Exit = exit.String()
	}
	if ok := g.run.Healthy; ok != nil {
		h.Status, h.Passed = ok.Status, ok.At.Sub(g.startedAt)
	}
	return &h
}

// address chooses where the generation listens.
func (r *runner) address(g *generation) error {
	switch {
	case g.external:
		g.run.Network, g.run.Address = splitTarget(g.rel.Target)
	case g.proc.Listen == ListenSocket:
		g.run.Network = "unix"
		g.run.Address = filepath.Join(r.act.socketDir(g.run.Generation), "app.sock")
	case g.proc.Listen == ListenFixed:
		g.run.Network, g.run.Address = "tcp", "127.0.0.1:"+strconv.Itoa(g.proc.Port)
	default:
		port, err := r.act.ports.Take(r.act.now())
		if err != nil {
			return err
		}
		g.port = port
		g.run.Network, g.run.Address = "tcp", "127.0.0.1:"+strconv.Itoa(port)
	}
	return nil
}

// plan puts together what Backend.Prepare needs.
func (r *runner) plan(g *generation) (Plan, error) {
	b, err := r.act.depot.Lookup(g.rel.Digest)
	if err != nil {
		return Plan{}, fmt.Errorf("find build %s: %w", g.rel.Build, err)
	}
	p := Plan{
		App: r.name, Generation: g.run.Generation, Dir: b.Dir,
		User: g.proc.User, Group: g.proc.Group, LogPath: g.run.LogPath,
		Limits: r.limits(g.proc), Alone: r.state.Limit == lifecycle.LimitOne,
		Yields: r.yields(g),
	}
	if g.run.Network == "unix" {
		p.SocketDir = filepath.Dir(g.run.Address)
	}
	p.Path, p.Args, err = command(b, g.proc.Command)
	if err != nil {
		return Plan{}, err
	}
	p.Env = r.environment(g)
	return p, nil
}

// errNothingToRun: the release names nothing that could be executed here.
var errNothingToRun = errors.New("there is nothing to run")

// command says what to execute: the artifact itself, or the command with the
// build directory as its working directory.
func command(b artifact.Build, cmd []string) (path string, args []string, err error) {
	if len(cmd) == 0 {
		if b.Exec == "" {
			return "", nil, fmt.Errorf("%w: the artifact is a directory and the app has no command: set command in the config file", errNothingToRun)
		}
		return b.Exec, []string{b.Exec}, nil
	}
	path = cmd[0]
	switch {
	case filepath.IsAbs(path):
	case filepath.Base(path) == path: // a bare name is looked up as a shell would
		if path, err = lookPath(path); err != nil {
			return "", nil, err
		}
	case b.Kind == artifact.File: // "./hello" of a single file, whatever it was called when it was staged
		path = b.Path
	default:
		path = filepath.Join(b.Dir, path)
	}
	return path, cmd, nil
}

// appPath is the PATH of every app.
const appPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func lookPath(name string) (string, error) {
	for _, dir := range filepath.SplitList(appPath) {
		p := filepath.Join(dir, name)
		if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", fmt.Errorf("%w: command %q is not in %s: give its full path, or ./%s for a file of the build", errNothingToRun, name, appPath, name)
}

// environment is all that an app sees; nothing of usher's own is inherited.
func (r *runner) environment(g *generation) []string {
	env := map[string]string{
		"PATH": appPath, "HOME": "/", "LANG": "C.UTF-8", "TZ": r.act.timezone,
		appVariable: r.name, "USHER_GENERATION": strconv.FormatUint(g.run.Generation, 10), "USHER_BUILD": g.rel.Build,
	}
	if _, _, home, err := process.LookupUser(g.proc.User); g.proc.User != "" && err == nil && home != "" {
		env["HOME"] = home
	}
	if g.run.Network == "unix" {
		env["SOCKET"] = g.run.Address
	} else {
		env["PORT"] = g.run.Address[len("127.0.0.1:"):]
	}
	for k, v := range g.proc.Env {
		env[k] = v
	}
	out := make([]string, 0, len(env))
	for k, v := range env {
		out = append(out, k+"="+v)
	}
	sort.Strings(out)
	return out
}

// answer runs in the mailbox after something ran beside it: it takes over what
// came of it and says so to the core.
type answer func() lifecycle.Event

// beside runs f beside the mailbox, after the answer of the generation's earlier
// operation.
func (r *runner) beside(g *generation, f func(ctx context.Context) answer) {
	before := g.busy
	done := make(chan struct{})
	g.busy = done
	r.act.tasks.run(func() {
		<-before
		then := f(g.ctx)
		r.box.post(func() {
			e := then()
			close(done)
			if isClosed(r.act.closing) && g.busy == done {
				g.letGo()
			}
			r.step(e)
		})
	})
}

// splitTarget reads "host:port" or "unix:/path".
func splitTarget(t string) (network, address string) {
	const unix = "unix:"
	if len(t) > len(unix) && t[:len(unix)] == unix {
		return "unix", t[len(unix):]
	}
	return "tcp", t
}
