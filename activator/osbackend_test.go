package activator

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/process"
	"github.com/usher-edge/usher/activator/store"
)

// realBackend starts real processes; the test binary stands in for usher's own.
func realBackend(t *testing.T) (*OS, func(path string, args ...string) Plan) {
	t.Helper()
	boot, err := process.BootID()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	gen := uint64(os.Getpid()) << 16
	forker := process.NewForker("")
	t.Cleanup(func() { _ = forker.Close() })
	return &OS{Forker: forker, BootID: boot, Mark: dir}, func(path string, args ...string) Plan {
		gen++
		mark := process.GenerationVariable + "=" + itoa(int(gen))
		return Plan{
			App: "hello", Generation: gen, Dir: dir, Path: path, Args: append([]string{path}, args...),
			Env: []string{"PATH=" + appPath, mark}, LogPath: filepath.Join(dir, itoa(int(gen))+logSuffix),
		}
	}
}

func TestARefusedExecLeavesNothingAndProvesIt(t *testing.T) {
	o, plan := realBackend(t)
	path := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(path, []byte("\x00\x01 no program"), 0o755); err != nil {
		t.Fatal(err)
	}
	w, err := o.Prepare(context.Background(), plan(path))
	if err != nil {
		t.Fatal(err)
	}
	var refused *process.ExecError
	if _, err := w.Go(context.Background()); !errors.As(err, &refused) {
		t.Fatalf("go: %v, want the kernel's refusal", err)
	}
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Errorf("abort after a failed go: %v", err)
		}
	}
}

func TestAStartThatIsCancelledHasNotRun(t *testing.T) {
	o, plan := realBackend(t)
	w, err := o.Prepare(context.Background(), plan("/bin/sleep", "60"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := w.Go(ctx); !errors.Is(err, process.ErrNotExecuted) {
		t.Errorf("go: %v, want the proof that nothing ran", err)
	}
	if err := w.Abort(); err != nil {
		t.Errorf("abort: %v", err)
	}
}

func TestARunningProcessIsAdoptedAndStopped(t *testing.T) {
	o, plan := realBackend(t)
	p := plan("/bin/sleep", "60")
	w, err := o.Prepare(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	id := w.Identity()
	started, err := w.Go(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	adopted, err := o.Adopt(store.Run{
		Generation: p.Generation, App: p.App, PID: id.PID, StartTime: id.StartTime, BootID: o.BootID,
	})
	if err != nil {
		t.Fatal(err)
	}
	if adopted.Exited() {
		t.Error("it runs, and the adopted child says that it has exited")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if st, err := adopted.Stop(ctx, 5*time.Second); err != nil || st.Killed {
		t.Errorf("stop: %+v, %v", st, err)
	}
	<-adopted.Done()
	<-started.Done()
	if x := started.Exit(); x.Signal != "terminated" {
		t.Errorf("exit %+v", x)
	}
	if x := adopted.Exit(); !x.Unknown {
		t.Errorf("the exit status of an adopted process is %+v, and nobody can know it", x)
	}
	adopted.Release()
	started.Release()
}

func TestAProcessThatIsGoneIsAdoptedAsExited(t *testing.T) {
	o, _ := realBackend(t)
	c, err := o.Adopt(store.Run{Generation: 1, App: "hello", PID: os.Getpid(), StartTime: 1, BootID: o.BootID})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Exited() {
		t.Error("a process with another start time was adopted")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if _, err := c.Stop(ctx, 0); err != nil {
		t.Errorf("stop: %v", err)
	}
}

func TestWhatRunsIsFoundByItsMarksAlone(t *testing.T) {
	o, plan := realBackend(t)
	p := plan("/bin/sleep", "60")
	p.Env = append(p.Env, appVariable+"="+p.App)
	w, err := o.Prepare(context.Background(), p)
	if err != nil {
		t.Fatal(err)
	}
	started, err := w.Go(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer started.Release()
	runs, err := o.Strays()
	if err != nil || len(runs) != 1 || runs[0].App != p.App || runs[0].Generation != p.Generation || runs[0].PID != w.Identity().PID {
		t.Fatalf("found %+v (%v), want generation %d with pid %d", runs, err, p.Generation, w.Identity().PID)
	}
	adopted, err := o.Adopt(runs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer adopted.Release()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := adopted.Stop(ctx, 10*time.Second); err != nil {
		t.Errorf("stop: %v", err)
	}
	<-started.Done()
	if runs, err := o.Strays(); err != nil || len(runs) != 0 {
		t.Errorf("found %+v (%v) after the end", runs, err)
	}
}
