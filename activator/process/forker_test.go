package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/process/child"
)

// pidsOf are the forkers that are not reaped.
func pidsOf(f *Forker) []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	var pids []int
	for pid := range f.pids {
		pids = append(pids, pid)
	}
	return pids
}

// onePID is the forker in use, once those before it are reaped.
func onePID(t *testing.T, f *Forker) int {
	t.Helper()
	pid := 0
	eventually(t, "one forker", func() bool {
		pids := pidsOf(f)
		if len(pids) == 1 {
			pid = pids[0]
		}
		return len(pids) == 1
	})
	return pid
}

func comm(pid int) string {
	raw, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	return strings.TrimSpace(string(raw))
}

func TestAForkerIsMadeForTheFirstChildAndMakesAllOfThem(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		if left := cgroup.Children(os.Getpid()); len(left) != 0 {
			t.Fatalf("there are children before the first start: %+v", left)
		}
		leaky, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0) // not closed on exec
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(leaky)
		l := script(t, "exec sleep 600")
		mustStart(t, g, &l)
		pid := onePID(t, g.forker)
		second := script(t, "exec sleep 600")
		g.group(t, &second)
		p := mustPrepare(t, g, second)
		if again := onePID(t, g.forker); again != pid {
			t.Errorf("the second child was made by %d, the first by %d", again, pid)
		}
		if got := []string{comm(pid), comm(p.Identity().PID)}; got[0] != "usher-forker" || got[1] != "usher-child" {
			t.Errorf("forker and child are called %q", got)
		}
		st, err := cgroup.ReadStat(p.Identity().PID)
		if err != nil || st.PPID != os.Getpid() {
			t.Errorf("the child's parent is %d, want %d (%v)", st.PPID, os.Getpid(), err)
		}
		// It closes what it has handed on after the fork.
		eventually(t, "the forker holds its standard descriptors and its socket only", func() bool { return len(descriptorsOf(t, pid)) == 4 })
		if fds := descriptorsOf(t, p.Identity().PID); len(fds) != 4 {
			t.Errorf("the waiting child holds more than its standard descriptors and its channel: %v", fds)
		}
		if err := p.Abort(); err != nil {
			t.Error(err)
		}
	})
}

func descriptorsOf(t *testing.T, pid int) (found []string) {
	t.Helper()
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	names, err := readNames(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		to, _ := os.Readlink(dir + "/" + name)
		found = append(found, name+" "+to)
	}
	return found
}

func TestAForkerThatWasKilledIsReplacedAndItsChildrenGoOn(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := script(t, "echo ran; exec sleep 600")
		g.group(t, &l)
		waiting := mustPrepare(t, g, l)
		first := onePID(t, g.forker)
		if err := unix.Kill(first, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		// The next start comes at once, whether the end has been noticed or not.
		second := script(t, "echo ran; exec sleep 600")
		mustStart(t, g, &second)
		output(t, second, "ran")
		if pid := onePID(t, g.forker); pid == first {
			t.Error("the forker is the one that was killed")
		}
		p, err := waiting.Go(soon(t))
		if err != nil {
			t.Fatalf("the child that waited: %v", err)
		}
		output(t, l, "ran")
		mustStop(t, p, l.Group, 0)
	})
}

func TestAForkerThatHangsIsReplaced(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		g.forker.patience = 2 * time.Second
		l := script(t, "exec sleep 600")
		mustStart(t, g, &l)
		first := onePID(t, g.forker)
		if err := unix.Kill(first, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		second := script(t, "echo ran; exec sleep 600")
		mustStart(t, g, &second)
		output(t, second, "ran")
		if pid := onePID(t, g.forker); pid == first {
			t.Error("the forker is the one that hangs")
		}
		if alive(first) {
			t.Error("the forker that hangs is still there")
		}
	})
}

// A child that ends before it has said who it is, is known to nobody.
func TestAChildThatEndsUnheardIsReaped(t *testing.T) {
	g := onSessions(t)
	l := script(t, "exec sleep 600")
	mustStart(t, g, &l)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	// It cannot speak over a pipe.
	if err := g.forker.run.ask(soon(t), []*os.File{w, w}); err != nil {
		t.Fatal(err)
	}
	dead := func() (n int) {
		for _, st := range cgroup.Children(os.Getpid()) {
			if st.Dead {
				n++
			}
		}
		return n
	}
	eventually(t, "a zombie", func() bool { return dead() == 1 })
	if err := unix.Kill(onePID(t, g.forker), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "no zombie", func() bool { return dead() == 0 })
}

// A start that is called off while its child is being made knows that child all the
// same, and reaps it.
func TestAStartThatIsCalledOffInItsForkLeavesNoZombie(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		first := script(t, "exec sleep 600")
		mustStart(t, g, &first) // there is a forker
		var pids []int
		for i := range 60 {
			l := script(t, "exec sleep 600")
			g.group(t, &l)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*50*time.Microsecond)
			if p, err := g.forker.Prepare(ctx, l); err == nil {
				pids = append(pids, p.Identity().PID)
				if err := p.Abort(); err != nil {
					t.Error(err)
				}
			} else if left, _ := l.Group.Procs(); len(left) != 0 {
				t.Errorf("called off after %d µs, and %v are left: %v", i*50, left, err)
			}
			cancel()
		}
		if len(pids) == 60 {
			t.Skip("none was called off")
		}
		for _, st := range cgroup.Children(os.Getpid()) {
			if st.Dead {
				t.Errorf("pid %d is a zombie", st.PID)
			}
		}
	})
}

func TestAForkThatTheKernelRefusesIsTold(t *testing.T) {
	g := onSessions(t)
	l := script(t, "echo ran > ran")
	l.Group = noCgroup{cgroup.NewSession(nil), l.Dir}
	_, err := g.forker.Prepare(soon(t), l)
	if !errors.Is(err, unix.EBADF) || !errors.Is(err, ErrNotExecuted) || !strings.Contains(err.Error(), "fork a child") {
		t.Errorf("got %v", err)
	}
	first := onePID(t, g.forker)
	next := script(t, "exec sleep 600")
	mustStart(t, g, &next)
	if pid := onePID(t, g.forker); pid != first {
		t.Error("the forker was replaced for that")
	}
}

// noCgroup is a directory that is none.
type noCgroup struct {
	*cgroup.Session
	dir string
}

func (g noCgroup) FD() (*os.File, error) { return os.Open(g.dir) }

func TestAChildInheritsWhatUsherHasNow(t *testing.T) {
	g := onSessions(t)
	look := func() string {
		t.Helper()
		l := script(t, "ulimit -Sc; cat /proc/self/oom_score_adj; nice; echo done")
		mustStart(t, g, &l)
		return output(t, l, "done")
	}
	before := look()
	first := onePID(t, g.forker)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		t.Fatal(err)
	}
	changed := limit
	if changed.Cur = 4096; limit.Cur == changed.Cur {
		changed.Cur = 0
	}
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &changed); err != nil {
		t.Skipf("cannot change a limit: %v", err)
	}
	after := look()
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		t.Error(err)
	}
	if want := strconv.FormatUint(changed.Cur/512, 10) + "\n"; !strings.HasPrefix(after, want) {
		t.Errorf("a child of %q, before %q, want %q first", after, before, want)
	}
	if pid := onePID(t, g.forker); pid == first {
		t.Error("the forker is the one from before the change")
	}
	if got := look(); got != before {
		t.Errorf("after it was changed back: %q, want %q", got, before)
	}
	second := onePID(t, g.forker)
	if look(); onePID(t, g.forker) != second {
		t.Error("the forker was replaced without a change")
	}
}

func TestWhatAChildInheritsIsLookedAt(t *testing.T) {
	before, err := inheritance()
	if err != nil {
		t.Fatal(err)
	}
	if before.limits == "" || before.oom == "" || before.cpus.Count() == 0 {
		t.Fatalf("not everything was found: %+v", before)
	}
	if again, err := inheritance(); err != nil || again != before {
		t.Fatalf("it differs without a change: %+v, %+v, %v", before, again, err)
	}
	score, err := strconv.Atoi(strings.TrimSpace(before.oom))
	if err != nil || score == 1000 {
		t.Skipf("oom_score_adj is %q", before.oom)
	}
	// It can be raised by everybody, and put back to what it was.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(score+1)), 0); err != nil {
		t.Skip(err)
	}
	after, err := inheritance()
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(before.oom), 0); err != nil {
		t.Error(err)
	}
	if err != nil || after == before {
		t.Errorf("a change of oom_score_adj was not seen: %v", err)
	}
}

func TestOneAppsSecretsAreNotInTheMemoryOfAnother(t *testing.T) {
	g := onSessions(t)
	first, second := script(t, "exec sleep 600"), script(t, "exec sleep 600")
	// Not as one word anywhere in this program or in what it passes on.
	first.Env = append(first.Env, "TOKEN="+strings.Repeat("first-", 3))
	second.Env = append(second.Env, "TOKEN="+strings.Repeat("second-", 3))
	mustStart(t, g, &first)
	g.group(t, &second)
	p := mustPrepare(t, g, second)
	if pid := p.Identity().PID; !holds(t, pid, "TOKEN=second-second-second-") {
		t.Error("the child's own secret is not found: the search is of no use")
	} else if holds(t, pid, "TOKEN=first-first-first-") {
		t.Error("the waiting child has what was given to another")
	}
	if err := p.Abort(); err != nil {
		t.Error(err)
	}
	if pid := onePID(t, g.forker); holds(t, pid, "TOKEN=first-first-first-") || holds(t, pid, "TOKEN=second-second-second-") {
		t.Error("the forker has what was given to a child")
	}
}

// holds looks for a word in all that a process can write to.
func holds(t *testing.T, pid int, word string) bool {
	t.Helper()
	proc := "/proc/" + strconv.Itoa(pid)
	maps, err := os.ReadFile(proc + "/maps")
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(proc + "/mem")
	if err != nil {
		t.Skipf("needs to read the memory of a child: %v", err)
	}
	defer mem.Close()
	const most = 16 << 20 // what is larger is a race detector's
	part := make([]byte, most)
	for line := range strings.Lines(string(maps)) {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(mode, "rw") || to-from > most || to > 1<<63 {
			continue
		}
		n, _ := mem.ReadAt(part[:to-from], int64(from)) // what is not there is nothing
		if bytes.Contains(part[:n], []byte(word)) {
			return true
		}
	}
	return false
}

func TestManyStartsAtOnceShareAForker(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		var wg sync.WaitGroup
		for n := range 24 {
			l := script(t, fmt.Sprintf("echo %d of many; exec sleep 600", n))
			g.group(t, &l)
			wg.Go(func() {
				p, err := g.forker.Prepare(soon(t), l)
				if err != nil {
					t.Error(err)
					return
				}
				if n%3 == 0 {
					if err := p.Abort(); err != nil {
						t.Error(err)
					}
					return
				}
				proc, err := p.Go(soon(t))
				if err != nil {
					t.Error(err)
					return
				}
				output(t, l, fmt.Sprintf("%d of many", n))
				mustStop(t, proc, l.Group, 0)
			})
		}
		wg.Wait()
		onePID(t, g.forker)
	})
}

func TestACutOrderRunsNothing(t *testing.T) {
	g := onSessions(t)
	l := script(t, "echo ran > ran")
	g.group(t, &l)
	spec, err := l.spec()
	if err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if err := spec.Write(&whole); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 1, 8, 40, whole.Len() / 2, whole.Len() - 1} {
		g.group(t, &l)
		p, err := g.forker.fork(soon(t), l)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.channel.Write(whole.Bytes()[:cut]); err != nil {
			t.Fatal(err)
		}
		conn, err := p.channel.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(conn.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) }), err); err != nil {
			t.Fatal(err)
		}
		if reply, err := child.ReadReply(p.channel); !errors.Is(err, io.EOF) {
			t.Errorf("cut to %d bytes: it says %+v, %v", cut, reply, err)
		}
		if err := p.channel.Close(); err != nil {
			t.Fatal(err)
		}
		if exit := waitExit(t, p.proc); !exit.Known || exit.Code != 120 {
			t.Errorf("cut to %d bytes: %v", cut, exit)
		}
	}
	if _, err := os.Stat(filepath.Join(l.Dir, "ran")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the build ran: %v", err)
	}
}

func TestAClosedForkerStartsNothing(t *testing.T) {
	g := onSessions(t)
	l := script(t, "exec sleep 600")
	mustStart(t, g, &l)
	pid := onePID(t, g.forker)
	if err := g.forker.Close(); err != nil {
		t.Fatal(err)
	}
	if alive(pid) || g.forker.Owns(pid) {
		t.Error("the forker is still there")
	}
	g.group(t, &l)
	if _, err := g.forker.Prepare(soon(t), l); !errors.Is(err, ErrNotExecuted) {
		t.Errorf("got %v", err)
	}
}

// What a child shows of itself while it waits at the go-byte.
func TestAWaitingChildIsStillUshers(t *testing.T) {
	needRoot(t)
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t)
		uid, gid := uint32(54321), uint32(54322)
		l.UID, l.GID, l.Path, l.Args = &uid, &gid, "/bin/sh", []string{"sh", "-c", "exit 0"}
		g.group(t, &l)
		p := mustPrepare(t, g, l)
		status, err := os.ReadFile("/proc/" + strconv.Itoa(p.Identity().PID) + "/status")
		if err != nil || !strings.Contains(string(status), "\nUid:\t0\t0\t0\t0\n") {
			t.Errorf("%v:\n%s", err, status)
		}
		if err := p.Abort(); err != nil {
			t.Error(err)
		}
	})
}

// BenchmarkStart is a start of a process that does nothing, up to its exec, and
// beside it what only waits for its go-byte.
func BenchmarkStart(b *testing.B) {
	for _, goes := range []bool{true, false} {
		b.Run(fmt.Sprintf("exec=%v", goes), func(b *testing.B) {
			f := NewForker("")
			b.Cleanup(func() { _ = f.Close() })
			for n := 0; b.Loop(); n++ {
				l := Launch{App: "test", Generation: uint64(n), Dir: "/", Path: "/bin/true", Group: cgroup.NewSession([]string{"BENCH=" + strconv.Itoa(n)})}
				p, err := f.Prepare(b.Context(), l)
				if err != nil {
					b.Fatal(err)
				}
				if !goes {
					_ = p.channel.Close()
					<-p.proc.Done()
					continue
				}
				proc, err := p.Go(b.Context())
				if err != nil {
					b.Fatal(err)
				}
				<-proc.Done()
			}
		})
	}
}
