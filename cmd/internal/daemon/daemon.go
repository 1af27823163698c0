package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/cache"
	"github.com/usher-edge/usher/cmd/internal/accesslog"
	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/engine"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// Options of Run.
type Options struct {
	Config   string // path of usher.toml
	StopApps bool   // stop the apps when usher stops
	Version  admin.VersionInfo
	Log      *slog.Logger
	// Reload asks for the file to be read again, Reopen for a fresh access log.
	Reload, Reopen <-chan os.Signal
	// Started is called once requests are let in; nil: nobody is told.
	Started func(s config.Server, apps int)
}

// daemon is a running usher.
type daemon struct {
	opt     Options
	log     *slog.Logger
	started time.Time

	mu   sync.Mutex // makes reloads one at a time
	file atomic.Pointer[file]

	bolt    *store.Bolt
	depot   *artifact.Depot
	backend *activator.OS
	cache   *cache.Cache
	edge    *edge.Edge
	waker   waker
	front   *front
	engine  *engine.Server
	reserve *rawio.Reserve
	act     *activator.Activator
	access  *accesslog.Log // nil: none
	admin   *admin.Server
	metrics *prometheus.Registry

	warnings []string
	state    atomic.Value  // string: starting, serving, stopping
	up       chan struct{} // closed when every app has its place

	edgeListeners []net.Listener
	adminListener net.Listener
	askListener   net.Listener

	closers []func() error
	fail    chan error
	wg      sync.WaitGroup
}

// Run runs usher until ctx ends.
func Run(ctx context.Context, o Options) error {
	f, err := config.Load(o.Config, Env())
	if err != nil {
		return err
	}
	d := &daemon{opt: o, log: o.Log, started: time.Now(), fail: make(chan error, 1), up: make(chan struct{})}
	d.file.Store(remember(f))
	d.state.Store("starting")
	for _, w := range f.Warnings {
		d.warn(w.String())
	}
	err = d.start(ctx, f)
	if err == nil {
		err = d.serve(ctx)
	}
	return errors.Join(err, d.close())
}

func (d *daemon) warn(text string) {
	d.warnings = append(d.warnings, text)
	d.log.Warn(text)
}

// start opens everything in an order that fails before it changes anything of an
// app, and ends with every slot placed.
func (d *daemon) start(ctx context.Context, f *config.File) error {
	for _, step := range []func(context.Context) error{
		d.openState, d.openListeners, d.openEdge, d.openActivator, d.openAdmin,
	} {
		switch err := step(ctx); {
		case errors.Is(err, syscall.EMFILE):
			return fmt.Errorf("%w: usher needs some %d descriptors: %s", err, fewDescriptors, raise)
		case err != nil:
			return err
		}
	}
	if err := d.edge.SetApps(edgeApps(f)); err != nil {
		return err
	}
	if _, err := d.act.Apply(ctx, apps(f)); err != nil {
		return err
	}
	debug.FreeOSMemory() // reading a large file takes several times what is kept of it
	return nil
}

// serve lets requests in and stays until ctx ends or a listener fails.
func (d *daemon) serve(ctx context.Context) error {
	for i, ln := range d.edgeListeners {
		l := d.file.Load().server.Listener(d.file.Load().server.Listen[i])
		d.run(func() error { return d.engine.ServeListener(ln, engineListener(l)) })
	}
	if d.askListener != nil {
		askCtx, stop := context.WithCancel(context.Background())
		defer stop()
		d.run(func() error { return engine.ServeAsk(askCtx, d.askListener, d.edge.Ask) })
	}
	d.state.Store("serving")
	close(d.up)
	if d.opt.Started != nil {
		d.opt.Started(d.file.Load().server, len(d.file.Load().apps))
	}
	for {
		select {
		case <-ctx.Done():
			return d.stop()
		case err := <-d.fail:
			return errors.Join(err, d.stop())
		case <-d.opt.Reload:
			if _, err := d.reload(ctx); err != nil {
				logRefused(d.log, err)
			}
		case <-d.opt.Reopen:
			d.reopen()
		}
	}
}

func (d *daemon) reopen() {
	if d.access == nil {
		return
	}
	if err := d.access.Reopen(); err != nil {
		d.log.Error("reopen the access log", "error", err)
	}
}

// run runs f beside the others; an error of it ends usher.
func (d *daemon) run(f func() error) {
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		err := f()
		if err == nil || errors.Is(err, net.ErrClosed) || errors.Is(err, engine.ErrClosed) {
			return
		}
		select {
		case d.fail <- err:
		default: // usher ends already
		}
	}()
}

// stopTime bounds the end of usher beyond the longest drain of an app.
const (
	stopTime  = 15 * time.Second
	adminStop = 2 * time.Second // for answers of the admin API under way
)

// stop ends usher in order: not ready, attempts abandoned, parked refused,
// in-flight requests finished, apps left running.
func (d *daemon) stop() error {
	d.state.Store("stopping")
	stopApps := d.opt.StopApps && d.act.Owned() == nil // else they may be another's
	d.log.Info("shutting down: in-flight requests finish", "apps", map[bool]string{true: "stop", false: "keep running"}[stopApps])
	limit := d.file.Load().drain
	if stopApps {
		limit = d.file.Load().drainAndStop
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit+stopTime)
	defer cancel()
	edgeCtx, edgeCancel := context.WithTimeout(ctx, limit)
	defer edgeCancel()
	served := make(chan error, 1)
	go func() { served <- d.engine.Shutdown(edgeCtx) }()
	err := d.act.Shutdown(ctx, stopApps)
	if e := <-served; e != nil && !errors.Is(e, context.DeadlineExceeded) {
		err = errors.Join(err, e)
	}
	return err
}

// close lets go of what start opened, in the opposite order.
func (d *daemon) close() error {
	var errs []error
	for i := len(d.closers) - 1; i >= 0; i-- {
		errs = append(errs, d.closers[i]())
	}
	d.wg.Wait()
	return errors.Join(errs...)
}

func (d *daemon) onClose(f func() error) { d.closers = append(d.closers, f) }

// openState makes the directories, takes the lock and opens what is durable.
func (d *daemon) openState(context.Context) error {
	s := d.file.Load().server
	// Apps may run as other users: they must be able to pass through, not to look.
	const pass = 0o711
	for _, dir := range []string{s.State, s.Run} {
		if err := os.MkdirAll(dir, pass); err != nil {
			return fmt.Errorf("make directory: %w; set `state` and `run` in the config file to directories that usher may write", err)
		}
	}
	// Two ushers on one run directory would take over each other's apps.
	var locks []*store.StateLock
	for _, dir := range []string{s.State, s.Run} {
		lock, err := store.Lock(dir)
		if err != nil {
			return err
		}
		locks = append(locks, lock)
		d.onClose(lock.Unlock)
	}
	var err error
	if d.bolt, err = store.Open(s.State, store.Options{Lock: locks[0]}); err != nil {
		return fmt.Errorf("open state: %w", err)
	}
	d.onClose(d.bolt.Close)
	if damage := d.bolt.Damage(); damage != nil {
		d.warn(damage.Error())
	}
	d.depot, err = artifact.Open(s.State + "/builds")
	return err
}

func (d *daemon) openEdge(context.Context) error {
	s := d.file.Load().server
	var err error
	if d.reserve, err = rawio.NewReserve(reserved); err != nil {
		return fmt.Errorf("keep descriptors back: %w", err)
	}
	d.onClose(func() error { d.reserve.Close(); return nil })
	o := edge.Options{Waker: &d.waker}
	if s.CacheBytes > 0 {
		d.cache = cache.New(cache.Config{MaxBytes: s.CacheBytes, MaxObjectBytes: d.file.Load().largestObject, Unkeyed: rewritten()})
		o.Cache = &pages{cache: d.cache, limit: d.objectLimit}
	}
	if s.AccessLog != config.LogOff {
		path := s.AccessLog
		if path == config.LogStdout {
			path = "/dev/stdout"
		}
		log, err := accesslog.Open(path, accesslog.Options{Log: d.log, Format: accesslog.Format(s.LogFormat)})
		if err != nil {
			return fmt.Errorf("open the access log: %w", err)
		}
		d.access = log
		d.onClose(log.Close)
		o.Log = log.Write
	}
	loops := eventLoops(s.EventLoops)
	clients, share, err := d.shareDescriptors(s.MaxConnections, loops)
	if err != nil {
		return err
	}
	stock := upstream.NewBuffers(0)
	o.NewPool = func(o upstream.Options) *upstream.Pool {
		o.Buffers, o.Reserve, o.Share = stock, d.reserve, share
		return upstream.NewPool(o)
	}
	d.edge = edge.New(o)
	d.onClose(func() error { d.edge.Close(); return nil })
	d.engine, err = engine.New(d.engineOptions(loops, clients))
	return err
}

// rewritten are the request fields that the edge sets itself, so that a cache
// must not keep answers apart by what the client sent.
func rewritten() []string {
	return []string{"X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "Forwarded", "X-Real-Ip", "X-Request-Id", "X-Request-Start", "Via"}
}

func (d *daemon) objectLimit(app string) int64 {
	a, _ := d.file.Load().apps.find(app)
	return a.maxObject
}

func (d *daemon) openActivator(context.Context) error {
	s := d.file.Load().server
	d.front = newFront(d.edge)
	boot, err := process.BootID()
	if err != nil {
		return err
	}
	runs, err := store.OpenRuns(s.Run+"/runs", boot)
	if err != nil {
		return fmt.Errorf("open the run directory: %w", err)
	}
	tree, err := discover(s.Cgroup, s.State)
	if err != nil {
		d.warn("generations are held by their sessions, a weaker proof than a cgroup: " + err.Error())
	}
	ports, err := process.NewPorts(process.PortRange{First: int(s.PortRange.First), Last: int(s.PortRange.Last)})
	if err != nil {
		return err
	}
	if os.Getpid() == 1 {
		d.warn("usher is process 1: when it ends, all apps end with it and there is nothing to adopt at the next start")
	}
	d.backend = &activator.OS{Tree: tree, Forker: process.NewForker(""), BootID: boot, Mark: s.State}
	d.onClose(d.backend.Forker.Close)
	if tree != nil {
		d.onClose(func() error {
			_ = tree.Remove() // it stays while apps run in it
			return nil
		})
	}
	d.act, err = activator.New(activator.Options{
		StateDir: s.State, RunDir: s.Run, BootID: boot, Timezone: timezone(),
		Commits: d.bolt, Runs: runs, Depot: d.depot, Ports: ports, Backend: d.backend,
		Front: d.front, Log: d.log,
	})
	if err != nil {
		return err
	}
	d.waker.act = d.act
	d.onClose(func() error { d.act.Close(); return nil })
	if os.Getpid() == 1 {
		d.reapOrphans()
	}
	return nil
}

// reapOrphans collects what the init of a container has to collect.
func (d *daemon) reapOrphans() {
	ctx, stop := context.WithCancel(context.Background())
	d.onClose(func() error { stop(); return nil })
	d.wg.Add(1)
	go func() {
		defer d.wg.Done()
		process.ReapOrphans(ctx, func(pid int) bool { return d.act.Owns(pid) || d.backend.Forker.Owns(pid) })
	}()
}

func timezone() string {
	if tz := os.Getenv("TZ"); tz != "" {
		return tz
	}
	if link, err := os.Readlink("/etc/localtime"); err == nil {
		if _, zone, ok := strings.Cut(link, "zoneinfo/"); ok {
			return zone
		}
	}
	return "UTC"
}
