package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/cmd/internal/config"
)

// slowFront is a front in which the removal of one app takes as long as the test
// wants: its mailbox is inside meanwhile.
type slowFront struct {
	*front
	app     string
	entered chan struct{} // told when it is inside
	free    chan struct{} // closed: it may go on
}

func (f *slowFront) Place(app string, p activator.Placement) {
	if app == f.app && p.State == lifecycle.SlotRemoved {
		select {
		case f.entered <- struct{}{}:
		default:
		}
		<-f.free
	}
	f.front.Place(app, p)
}

// reloader is a daemon without listeners whose apps are targets.
type reloader struct {
	*daemon
	t   *testing.T
	dir string
}

func (r *reloader) write(apps ...string) {
	r.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "[server]\nlisten = [\"127.0.0.1:0\"]\nadmin = \"unix:%[1]s/admin.sock\"\nstate = \"%[1]s/state\"\nrun = \"%[1]s/run\"\ncgroup = \"off\"\naccess_log = \"off\"\n", r.dir)
	for i, name := range apps {
		fmt.Fprintf(&b, "[apps.%s]\nhosts = [\"%s.example\"]\ntarget = \"127.0.0.1:%d\"\n", name, name, 3000+i)
	}
	if err := os.WriteFile(r.opt.Config, []byte(b.String()), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

func newReloader(t *testing.T, slow string, first ...string) (*reloader, *slowFront) {
	t.Helper()
	dir := t.TempDir()
	d := &daemon{opt: Options{Config: filepath.Join(dir, "usher.toml")}, log: slog.New(slog.DiscardHandler), fail: make(chan error, 1)}
	r := &reloader{daemon: d, t: t, dir: dir}
	r.write(first...)
	f, err := config.Load(d.opt.Config, Env())
	if err != nil {
		t.Fatal(err)
	}
	d.file.Store(remember(f))
	t.Cleanup(func() {
		if t.Failed() {
			return // what waits for each other does not end
		}
		if err := d.close(); err != nil {
			t.Error(err)
		}
	})
	ctx := context.Background()
	if err := errors.Join(d.openState(ctx), d.openEdge(ctx)); err != nil {
		t.Fatal(err)
	}
	d.front = newFront(d.edge)
	s := &slowFront{front: d.front, app: slow, entered: make(chan struct{}, 1), free: make(chan struct{})}
	runs, err := store.OpenRuns(filepath.Join(dir, "run", "runs"), "boot")
	if err != nil {
		t.Fatal(err)
	}
	ports, err := process.NewPorts(process.PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	d.act, err = activator.New(activator.Options{
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), BootID: "boot", Timezone: "UTC",
		Commits: d.bolt, Runs: runs, Depot: d.depot, Ports: ports, Backend: &activator.OS{BootID: "boot", Mark: dir}, Front: s,
	})
	if err != nil {
		t.Fatal(err)
	}
	d.waker.act = d.act
	d.onClose(func() error { d.act.Close(); return nil })
	if err := d.edge.SetApps(edgeApps(f)); err != nil {
		t.Fatal(err)
	}
	if _, err := d.act.Apply(ctx, apps(f)); err != nil {
		t.Fatal(err)
	}
	return r, s
}

// reloaded reloads and fails the test if that does not end.
func (r *reloader) reloaded(apps ...string) activator.Changes {
	r.t.Helper()
	r.write(apps...)
	type result struct {
		ch  activator.Changes
		err error
	}
	done := make(chan result, 1)
	go func() {
		ch, err := r.reload(context.Background())
		done <- result{ch, err}
	}()
	select {
	case got := <-done:
		if got.err != nil {
			r.t.Fatal(got.err)
		}
		return got.ch
	case <-time.After(20 * time.Second):
		r.t.Fatal("the reload waits for an app that leaves, and whatever that app's mailbox wants of the front")
	}
	return activator.Changes{}
}

// A reload asks no app anything while it holds what an app's mailbox may want: an
// app that takes its time to leave holds up neither the next reload nor itself.
func TestAReloadDoesNotWaitForAnAppThatLeaves(t *testing.T) {
	r, slow := newReloader(t, "leaves", "leaves", "next", "stays")
	free := func() {
		select {
		case <-slow.free:
		default:
			close(slow.free)
		}
	}
	defer free()
	if ch := r.reloaded("next", "stays"); !slices.Equal(ch.Removed, []string{"leaves"}) {
		t.Fatalf("removed %v", ch.Removed)
	}
	<-slow.entered // its mailbox is inside, and stays there
	if ch := r.reloaded("stays"); !slices.Contains(ch.Removed, "next") {
		t.Fatalf("removed %v", ch.Removed)
	}
	free()
	for deadline := time.Now().Add(20 * time.Second); !slices.Equal(r.act.Names(), []string{"stays"}); {
		if time.Now().After(deadline) {
			t.Fatalf("they never leave: %v", r.act.Names())
		}
		<-time.After(time.Millisecond)
	}
	r.reloaded("stays")
	r.front.mu.Lock()
	defer r.front.mu.Unlock()
	if len(r.front.leaving) != 0 {
		t.Errorf("still remembered: %v", r.front.leaving)
	}
}
