package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/process/child"
)

// facts starts the app that prints what it was given, and returns that.
func facts(t *testing.T, g *ground, l *Launch) string {
	t.Helper()
	l.Args = []string{"test-app", "app", "facts", "\xff not UTF-8"}
	p := mustStart(t, g, l)
	if exit := waitExit(t, p); exit.Code != 0 || exit.Signal != 0 {
		raw, _ := os.ReadFile(l.LogPath)
		t.Fatalf("%v: %s", exit, raw)
	}
	raw, err := os.ReadFile(l.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestAppIsGivenWhatWasAskedForAndNothingElse(t *testing.T) {
	t.Setenv("USHER_SECRET", "not for apps")
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t)
		l.Env = []string{"A=b c", "EMPTY="}
		l.NoNewPrivs = true
		l.ListenPID = true
		l.Rlimits = []Rlimit{{Resource: unix.RLIMIT_CORE, Soft: 0, Hard: 0}}
		got := facts(t, g, &l)
		for _, want := range []string{
			fmt.Sprintf("args=%q", []string{"test-app", "app", "facts", "\xff not UTF-8"}),
			"env=" + fmt.Sprintf("%q", l.Env)[:10],
			"umask=0022 cwd=" + l.Dir + " core=0/0 leader=true",
			"told its own pid: true", "NoNewPrivs:\t1", "SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000", "CapAmb:\t0000000000000000",
		} {
			if !strings.Contains(got, want) {
				t.Errorf("want %q in\n%s", want, got)
			}
		}
		if strings.Contains(got, "USHER_SECRET") {
			t.Errorf("the environment is not what was asked for:\n%s", got)
		}
		info, err := os.Stat(l.LogPath)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("log: %v, %v", info.Mode(), err)
		}
	})
}

func TestAppSeesOnlyItsOwnDescriptors(t *testing.T) {
	// A descriptor that somebody forgot to close on exec.
	leaky, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leaky)
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "ls -l /proc/$$/fd; readlink /proc/$$/fd/0; echo done")
		mustStart(t, g, &l)
		got := output(t, l, "done")
		links := strings.Count(got, " -> ")
		if links != 3 || !strings.Contains(got, "0 -> /dev/null") || strings.Count(got, "-> "+l.LogPath) != 2 {
			t.Errorf("got %d descriptors:\n%s", links, got)
		}
	})
}

func TestLogIsAppendedTo(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "echo out; echo err >&2")
		if err := os.WriteFile(l.LogPath, []byte("before\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		waitExit(t, mustStart(t, g, &l))
		raw, err := os.ReadFile(l.LogPath)
		if err != nil || string(raw) != "before\nout\nerr\n" {
			t.Errorf("got %q, %v", raw, err)
		}
	})
}

func TestIgnoredAndBlockedSignalsAreNotInherited(t *testing.T) {
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1)
	defer signal.Reset(syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1)
	onEachGround(t, func(t *testing.T, g *ground) {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		var set, old unix.Sigset_t
		set.Val[0] = 1<<(unix.SIGUSR2-1) | 1<<(unix.SIGWINCH-1)
		if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old); err != nil {
			t.Fatal(err)
		}
		l := app(t)
		got := facts(t, g, &l)
		if err := unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"SigBlk:\t0000000000000000", "SigIgn:\t0000000000000000"} {
			if !strings.Contains(got, want) {
				t.Errorf("want %q in\n%s", want, got)
			}
		}
	})
}

func TestAppDoesNotGetUshersRaisedDescriptorLimit(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "ulimit -Sn; echo done")
		l.Rlimits = []Rlimit{{Resource: unix.RLIMIT_NOFILE, Soft: 123, Hard: 456}}
		mustStart(t, g, &l)
		if got := output(t, l, "done"); got != "123\ndone\n" {
			t.Errorf("with a limit: got %q", got)
		}
		inherited := script(t, "ulimit -Sn; echo done")
		mustStart(t, g, &inherited)
		// What the runtime saw before it raised the limit is what a child of
		// the plain kind gets.
		want, err := exec.Command("/bin/sh", "-c", "ulimit -Sn; echo done").Output()
		if err != nil {
			t.Fatal(err)
		}
		if got := output(t, inherited, "done"); got != string(want) {
			t.Errorf("without one: got %q, want %q", got, want)
		}
	})
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to change the user")
	}
}

func TestUserGetsTheBuildButNotTheDirectoriesAboveIt(t *testing.T) {
	needRoot(t)
	groups, err := syscall.Getgroups()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setgroups([]int{54323}); err != nil { // usher's own, not for the app
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Setgroups(groups); err != nil {
			t.Error(err)
		}
	})
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t)
		uid, gid := uint32(54321), uint32(54322)
		l.UID, l.GID = &uid, &gid
		closed := t.TempDir()
		l.Dir = filepath.Join(closed, "build")
		if err := os.Mkdir(l.Dir, 0o755); err != nil {
			t.Fatal(err)
		}
		copySelf(t, l.Dir, "server")
		if err := os.Chmod(closed, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{"server", "./server", filepath.Join(l.Dir, "server")} {
			l.Path = path
			got := facts(t, g, &l)
			if !strings.Contains(got, "uid=54321 gid=54322 groups=[] ") {
				t.Errorf("%s: got\n%s", path, got)
			}
			if err := os.Truncate(l.LogPath, 0); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestUserThatMayNotRunTheFileIsToldBeforeTheGoByte(t *testing.T) {
	needRoot(t)
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t)
		uid, gid := uint32(54321), uint32(54322)
		l.UID, l.GID = &uid, &gid
		copySelf(t, l.Dir, "server")
		l.Path = "server"
		if err := os.Chmod(filepath.Join(l.Dir, "server"), 0o700); err != nil {
			t.Fatal(err)
		}
		g.group(t, &l)
		_, err := g.forker.Prepare(soon(t), l)
		if err == nil || !strings.Contains(err.Error(), "uid 54321 gid 54322 may not run it") {
			t.Errorf("got %v", err)
		}
	})
}

func TestOnlyRootCanChooseAnotherUser(t *testing.T) {
	euid, egid := uint32(os.Geteuid()), uint32(os.Getegid())
	if euid == 0 {
		t.Skip("needs to run as an ordinary user")
	}
	other := euid + 1
	g := onSessions(t)
	l := script(t, "exit 0")
	l.Group = cgroup.NewSession(nil)
	l.UID, l.GID = &other, &egid
	if _, err := g.forker.Prepare(soon(t), l); !errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), "start usher as root") {
		t.Errorf("another user: %v", err)
	}
	l.UID = &euid
	p, err := mustPrepare(t, g, l).Go(soon(t))
	if err != nil {
		t.Fatalf("usher's own user: %v", err)
	}
	mustStop(t, p, l.Group, 0)
}

func TestFileThatIsStillBusyIsTriedAgain(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t, "exit", "3")
		copySelf(t, l.Dir, "server")
		l.Path = "server"
		writer, err := os.OpenFile(filepath.Join(l.Dir, "server"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		g.group(t, &l)
		pending := mustPrepare(t, g, l)
		closed := make(chan error, 1)
		go func() {
			// Closed only when the child has met the busy file and sleeps.
			for unread(t, pending) {
				runtime.Gosched()
			}
			closed <- writer.Close()
		}()
		p, err := pending.Go(soon(t))
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if exit := waitExit(t, p); exit.Code != 3 {
			t.Errorf("%v", exit)
		}
		mustStop(t, p, l.Group, 0)
	})
}

// A child that initialised what the server is made of would take several times
// as long, at each start of each app.
func TestAChildInitialisesNothingButWhatItNeeds(t *testing.T) {
	cmd := exec.Command(os.Args[0], child.Verb) // without its channel it ends at once
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	var exit *exec.ExitError
	out, err := cmd.CombinedOutput()
	if !errors.As(err, &exit) || exit.ExitCode() <= 0 {
		t.Fatalf("a child without a channel: %v", err)
	}
	began := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 2 || fields[0] != "init" {
			continue
		}
		began++
		if strings.Contains(fields[1], ".") || fields[1] == "net" || fields[1] == "testing" {
			t.Errorf("%s is initialised before the child", fields[1])
		}
	}
	if began == 0 {
		t.Errorf("no package was initialised, not even the runtime:\n%s", out)
	}
}
