package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

func TestNothingRunsBeforeTheGoByte(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "echo ran > ran; exec sleep 600")
		// A library to preload is part of the build too.
		l.Env = append(l.Env, "LD_PRELOAD=/nonexistent/from-the-build.so")
		g.group(t, &l)
		p := mustPrepare(t, g, l)
		id := p.Identity()
		st, err := cgroup.ReadStat(id.PID)
		if err != nil || st.Start != id.StartTime || st.Session != id.PID || st.Dead {
			t.Fatalf("the waiting child: %+v, %v; identity %+v", st, err, id)
		}
		if boot, err := BootID(); err != nil || id.BootID != boot || id.Cgroup != l.Group.Path() {
			t.Fatalf("identity %+v, boot id %s %v", id, boot, err)
		}
		environ, err := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/environ")
		if err != nil || string(environ) != strings.Join(forkerEnv(), "\x00")+"\x00" {
			t.Fatalf("the waiting child has an environment of usher's or the build's: %q, %v", environ, err)
		}
		if pids, err := l.Group.Procs(); err != nil || len(pids) != 1 || pids[0] != id.PID {
			t.Fatalf("the group holds %v, %v", pids, err)
		}
		if err := p.Abort(); err != nil {
			t.Fatal(err)
		}
		if err := p.Abort(); err != nil {
			t.Fatalf("abort again: %v", err)
		}
		if _, err := os.Stat(filepath.Join(l.Dir, "ran")); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("the build ran: %v", err)
		}
		if _, err := cgroup.ReadStat(id.PID); err == nil {
			t.Fatal("the child was not reaped")
		}
	})
}

func TestGoRunsTheBuildInTheSameProcess(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "echo pid $$ done; exit 7")
		g.group(t, &l)
		pending := mustPrepare(t, g, l)
		p, err := pending.Go(soon(t))
		if err != nil {
			t.Fatal(err)
		}
		exit := waitExit(t, p)
		if !exit.Known || exit.Code != 7 || exit.Signal != 0 || exit.Time.IsZero() || p.Adopted() {
			t.Errorf("exit %+v", exit)
		}
		if want := fmt.Sprintf("pid %d done", pending.Identity().PID); !strings.Contains(output(t, l, "done"), want) {
			t.Errorf("want %q", want)
		}
		if !p.Exited() || p.Identity() != pending.Identity() {
			t.Errorf("exited %v, identity %+v", p.Exited(), p.Identity())
		}
		if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("signal after exit: %v", err)
		}
	})
}

func TestCancelledStartIsProvenNotToHaveRun(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "echo ran > ran; exec sleep 600")
		g.group(t, &l)
		ctx, cancel := context.WithCancel(context.Background())
		p := mustPrepare(t, g, l)
		cancel()
		_, err := p.Go(ctx)
		if !errors.Is(err, ErrNotExecuted) || !errors.Is(err, context.Canceled) {
			t.Errorf("go: %v", err)
		}
		g.group(t, &l)
		_, err = g.forker.Prepare(ctx, l)
		if !errors.Is(err, ErrNotExecuted) || !errors.Is(err, context.Canceled) {
			t.Errorf("prepare: %v", err)
		}
		if _, err := os.Stat(filepath.Join(l.Dir, "ran")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the build ran: %v", err)
		}
	})
}

func TestChildEndedBeforeTheGoByteIsProvenNotToHaveRun(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "echo ran > ran")
		g.group(t, &l)
		p := mustPrepare(t, g, l)
		if err := unix.Kill(p.Identity().PID, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		waitExit(t, p.proc)
		if _, err := p.Go(soon(t)); !errors.Is(err, ErrNotExecuted) {
			t.Errorf("got %v", err)
		}
	})
}

// elsewhere is a cgroup that children never come to.
type elsewhere struct{ *cgroup.Session }

func (elsewhere) Level() string         { return cgroup.LevelCgroup }
func (elsewhere) Path() string          { return "/chosen" }
func (elsewhere) Procs() ([]int, error) { return nil, nil }

func TestAChildThatIsNotInItsCgroupIsEnded(t *testing.T) {
	g := onSessions(t)
	l := script(t, "echo ran > ran")
	l.Group = elsewhere{cgroup.NewSession(nil)}
	_, err := g.forker.Prepare(soon(t), l)
	if !errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), "/chosen and is not in it") {
		t.Errorf("prepare: %v", err)
	}
	if populated, err := l.Group.Populated(); err != nil || populated {
		t.Errorf("populated %v, %v", populated, err)
	}
}

// The go-byte lies in the channel and the child dies without having read it:
// the kernel tells, so even then it is known that nothing ran.
func TestUnreadGoByteIsProvenNotToHaveRun(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "echo ran > ran")
		g.group(t, &l)
		p := mustPrepare(t, g, l)
		pid := p.Identity().PID
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the child is stopped", func() bool {
			raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
			return strings.Contains(string(raw), ") T ")
		})
		done := make(chan error, 1)
		go func() {
			_, err := p.Go(soon(t))
			done <- err
		}()
		eventually(t, "the go-byte is in the channel", func() bool { return unread(t, p) })
		if err := unix.Kill(pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrNotExecuted) {
			t.Errorf("got %v", err)
		}
	})
}

// unread reports whether what was sent has not been read by the other side.
func unread(t *testing.T, p *Pending) bool {
	t.Helper()
	conn, err := p.channel.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	_ = conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
	return n > 0
}

func TestContextThatEndsAfterTheGoByteProvesNothing(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "exec sleep 600")
		g.group(t, &l)
		p := mustPrepare(t, g, l)
		if err := unix.Kill(p.Identity().PID, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		_, err := p.Go(ctx)
		if errors.Is(err, ErrNotExecuted) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if populated, err := l.Group.Populated(); err != nil || populated {
			t.Errorf("populated %v, %v", populated, err)
		}
	})
}

func TestChildOfAKilledUsherExitsByItself(t *testing.T) {
	for _, until := range []string{"fork", "prepare"} {
		t.Run(until, func(t *testing.T) {
			checkLeaks(t)
			dir := t.TempDir()
			id := killedParent(t, until, dir)
			eventually(t, "the child has gone", func() bool { return !alive(id.PID) })
			if _, err := os.Stat(filepath.Join(dir, "ran")); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("the build ran: %v", err)
			}
		})
	}
}

func TestExecErrorsSayWhatToDo(t *testing.T) {
	write := func(name, text string, mode os.FileMode) func(t *testing.T, l *Launch) {
		return func(t *testing.T, l *Launch) {
			if err := os.WriteFile(filepath.Join(l.Dir, name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(l.Dir, name), mode); err != nil {
				t.Fatal(err)
			}
			l.Path = name
		}
	}
	foreign := "\x7fELF\x02\x01\x01" + strings.Repeat("\x00", 9) + "\x02\x00\xf3\x00\x01\x00\x00\x00" + strings.Repeat("\x00", 28) + "\x40\x00\x38\x00\x00\x00\x40\x00\x00\x00\x00\x00"
	tests := []struct {
		name   string
		set    func(t *testing.T, l *Launch)
		errno  syscall.Errno
		advice string
		early  bool // refused before the go-byte
		box    bool // no fault of the build
	}{
		{name: "not found", set: func(_ *testing.T, l *Launch) { l.Path = "server" }, errno: unix.ENOENT, advice: "check `command`", early: true},
		{name: "working directory not found", set: func(_ *testing.T, l *Launch) { l.Dir += "/gone" }, errno: unix.ENOENT, advice: "working directory", early: true, box: true},
		{name: "not executable", set: write("server", "#!/bin/sh\n", 0o644), errno: unix.EACCES, advice: "chmod +x", early: true},
		{name: "a directory", set: func(_ *testing.T, l *Launch) { l.Path = "/usr" }, errno: unix.EACCES, advice: "it is a directory", early: true},
		{name: "a device", set: func(_ *testing.T, l *Launch) { l.Path = "/dev/null" }, errno: unix.EACCES, advice: "not a regular file", early: true},
		{name: "path through a file", set: func(_ *testing.T, l *Launch) { l.Path = "/bin/sh/x" }, errno: unix.ENOTDIR, advice: "not a directory", early: true},
		{name: "wrong format", set: write("server", "echo hi\n", 0o755), errno: unix.ENOEXEC, advice: "#! line"},
		{name: "empty", set: write("server", "", 0o755), errno: unix.ENOEXEC, advice: "empty"},
		{name: "other machine", set: write("server", foreign, 0o755), errno: unix.ENOEXEC, advice: "program for RISCV"},
		{name: "missing interpreter", set: write("server", "#! /opt/none/node --x\n", 0o755), errno: unix.ENOENT, advice: "interpreter /opt/none/node is missing"},
		{name: "CR LF", set: write("server", "#!/bin/sh\r\necho\r\n", 0o755), errno: unix.ENOENT, advice: "CR LF"},
		{name: "too much environment", set: func(_ *testing.T, l *Launch) { l.Env = append(l.Env, "A="+strings.Repeat("x", 1<<20)) }, errno: unix.E2BIG, advice: "smaller"},
		{name: "limit", set: func(_ *testing.T, l *Launch) {
			l.Rlimits = []Rlimit{{Resource: unix.RLIMIT_CORE, Soft: 2, Hard: 1}}
		}, errno: unix.EINVAL, advice: "soft must not exceed hard", box: true},
	}
	onEachGround(t, func(t *testing.T, g *ground) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				l := script(t, "exit 0")
				g.group(t, &l)
				tt.set(t, &l)
				p, err := g.forker.Prepare(soon(t), l)
				if early := err != nil; early != tt.early {
					t.Fatalf("refused before the go-byte: %v, error %v", early, err)
				}
				if err == nil {
					_, err = p.Go(soon(t))
				}
				var exec *ExecError
				if !errors.As(err, &exec) || exec.Errno != tt.errno || !errors.Is(err, tt.errno) {
					t.Fatalf("got %v, want an ExecError with %v", err, tt.errno)
				}
				if exec.OfBuild() == tt.box {
					t.Errorf("%q: the build's fault: %v", err, exec.OfBuild())
				}
				if !errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), tt.advice) {
					t.Errorf("got %q, want it to prove that nothing ran and to say %q", err, tt.advice)
				}
				if populated, err := l.Group.Populated(); err != nil || populated {
					t.Errorf("populated %v, %v", populated, err)
				}
			})
		}
	})
}

func TestMissingLoaderIsNamed(t *testing.T) {
	g := onSessions(t)
	raw, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Skipf("needs /bin/sh: %v", err)
	}
	at := strings.Index(string(raw), "/lib64/ld-linux")
	if at < 0 {
		t.Skip("needs a dynamically linked /bin/sh of glibc on amd64")
	}
	copy(raw[at:], "/nil64/ld-linux")
	l := script(t, "exit 0")
	l.Group, l.Path = cgroup.NewSession(nil), "server"
	if err := os.WriteFile(filepath.Join(l.Dir, "server"), raw, 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = mustPrepare(t, g, l).Go(soon(t))
	if !errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), "loader /nil64/ld-linux") {
		t.Fatalf("got %v", err)
	}
}

func TestLaunchThatMakesNoSenseIsRefused(t *testing.T) {
	uid := uint32(1)
	for name, spoil := range map[string]func(g *ground, l *Launch){
		"no group":             func(_ *ground, l *Launch) { l.Group = nil },
		"no path":              func(_ *ground, l *Launch) { l.Path = "" },
		"relative directory":   func(_ *ground, l *Launch) { l.Dir = "." },
		"uid without gid":      func(_ *ground, l *Launch) { l.UID = &uid },
		"NUL in the env":       func(_ *ground, l *Launch) { l.Env = []string{"A=\x00"} },
		"log is a directory":   func(_ *ground, l *Launch) { l.LogPath = l.Dir },
		"usher is not there":   func(g *ground, _ *Launch) { g.forker.self = "/nonexistent" },
		"usher is not usher":   func(g *ground, _ *Launch) { g.forker.self = "/bin/true" },
		"too much environment": func(_ *ground, l *Launch) { l.Env = []string{"A=" + strings.Repeat("x", 9<<20)} },
	} {
		t.Run(name, func(t *testing.T) {
			g := onSessions(t)
			l := script(t, "exit 0")
			l.Group = cgroup.NewSession(nil)
			spoil(g, &l)
			if _, err := g.forker.Prepare(soon(t), l); !errors.Is(err, ErrNotExecuted) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestUsedGroupIsRefused(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "exec sleep 600")
		g.group(t, &l)
		if err := mustPrepare(t, g, l).Abort(); err != nil {
			t.Fatal(err)
		}
		if _, err := g.forker.Prepare(soon(t), l); !errors.Is(err, cgroup.ErrNotFresh) || !errors.Is(err, ErrNotExecuted) {
			t.Fatalf("got %v", err)
		}
	})
}
