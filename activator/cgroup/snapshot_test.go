package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// roleVariable makes the test program something else than a test.
const roleVariable = "USHER_CGROUP_ROLE"

const nobody = 54321

// play is a process that does with its threads what a shell cannot.
func play(role string) {
	switch role {
	case "headless": // its main thread ends, and others go on
		runtime.LockOSThread() // of which main is the only goroutine, as it is in TestMain
		_, _, _ = syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0)
	case "headless-nobody": // as another user
		if err := errors.Join(syscall.Setuid(nobody), unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)); err != nil {
			panic(err)
		}
		play("headless")
	case "thread-exec": // a thread that is not the main one executes a program, for ever
		self, err := os.Executable()
		if err != nil {
			panic(err)
		}
		ready := make(chan error)
		go func() {
			runtime.LockOSThread()
			if unix.Gettid() != os.Getpid() {
				ready <- syscall.Exec(self, os.Args, os.Environ())
			}
			// The main thread: another one is made for the next goroutine.
			go func() {
				runtime.LockOSThread()
				ready <- syscall.Exec(self, os.Args, os.Environ())
			}()
			select {}
		}()
		panic(<-ready)
	case "small-space": // process 1 of a namespace of its own, with few numbers
		inSmallSpace()
	}
}

// actor starts the test program in a role, in a session of its own.
func actor(t *testing.T, role, mark string, change ...func(*exec.Cmd)) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "TMPDIR=" + t.TempDir(), testMark(), mark, roleVariable + "=" + role}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	for _, c := range change {
		c(cmd)
	}
	err = cmd.Start()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("needs more privileges: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// mustSee looks for a process that lives and belongs to the session of a leader, by
// its mark or by its session.
func mustSee(t *testing.T, looks int, leader Stat, mark string, pid int) {
	t.Helper()
	for i := range looks {
		s := OpenSession(leader.PID, leader.Start, []string{mark})
		found, err := s.Procs()
		if err != nil || !slices.Contains(found, pid) {
			t.Fatalf("look %d: got %v, %v; want %d in it", i, found, err, pid)
		}
	}
}

// A program in the middle of an exec has no environment that could be read, or one
// that looks empty: the longer it is, the longer it does. It belongs all the same.
func TestAProcessIsSeenWhileItExecs(t *testing.T) {
	mark := "USHER_TEST_MARK=" + t.TempDir()
	many := []string{mark}
	for i := range 5000 {
		many = append(many, fmt.Sprint("A", i, "="))
	}
	leader := statOf(t, shell(t, nil, "exec sleep 600", mark).Process.Pid)
	restless := scriptFile(t, `exec "$0"`)
	pid := shell(t, nil, "exec "+restless, many...).Process.Pid
	mustSee(t, 100, leader, mark, pid)
	marked, err := FindMarked(mark)
	if err != nil || !slices.ContainsFunc(marked, func(m Marked) bool { return m.PID == pid }) {
		t.Fatalf("marked %v, %v; want %d in it", marked, err, pid)
	}
}

// Nor has it one, for whoever does not ask its other threads, once its main thread
// has ended.
func TestAProcessIsSeenWhoseMainThreadHasEnded(t *testing.T) {
	mark := "USHER_TEST_MARK=" + t.TempDir()
	leader := actor(t, "headless", mark).Process.Pid
	var st Stat
	eventually(t, "the main thread has ended", func() bool {
		raw, err := readStatLine(procDir(leader))
		if err != nil {
			t.Fatal(err)
		}
		st = statOf(t, leader)
		return bytes.Contains(raw, []byte(") Z "))
	})
	if st.Dead || st.Ending() {
		t.Fatalf("it has more threads, and passes for dead: %+v", st)
	}
	stranger := statOf(t, shell(t, nil, "exec sleep 600", mark).Process.Pid)
	stranger.Start = st.Start
	for _, of := range []Stat{st, stranger} { // by its session, and by its mark
		mustSee(t, 1, of, mark, leader)
		if populated, err := OpenSession(of.PID, of.Start, []string{mark}).Populated(); err != nil || !populated {
			t.Errorf("populated %v, %v, and it lives", populated, err)
		}
	}
	marked, err := FindMarked(mark)
	if err != nil || !slices.ContainsFunc(marked, func(m Marked) bool { return m.PID == leader }) {
		t.Errorf("marked %v, %v; want %d in it", marked, err, leader)
	}
}

// The main thread may end between the look at it and that at the environment. What is
// left of it is root's, and not hidden from its own user.
func TestAnEnvironmentIsNotHiddenBecauseAThreadHasEnded(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	mark := "USHER_TEST_MARK=" + t.TempDir()
	pid := actor(t, "headless-nobody", mark).Process.Pid
	eventually(t, "the main thread has ended", func() bool {
		raw, err := readStatLine(procDir(pid))
		return err == nil && bytes.Contains(raw, []byte(") Z "))
	})
	before, _, err := lookInto(pid) // with the memory that its main thread had
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Setfsuid(nobody); err != nil {
		t.Fatal(err)
	}
	raw, err := environOf(before)
	if back := unix.Setfsuid(0); back != nil {
		t.Fatal(back)
	}
	if err != nil || !holdsAll(raw, []string{mark}) {
		t.Errorf("%q, %v", raw, err)
	}
}

// A thread that executes a program takes the place of the main thread.
func TestAProcessIsSeenWhileItsThreadsExec(t *testing.T) {
	mark := "USHER_TEST_MARK=" + t.TempDir()
	leader := statOf(t, actor(t, "thread-exec", mark).Process.Pid)
	mustSee(t, 300, leader, mark, leader.PID)
	for range 20_000 {
		if st, err := ReadStat(leader.PID); err != nil || st.Dead || st.Session != leader.PID || st.Start != leader.Start {
			t.Fatalf("%+v, %v; it lives, in its own session, since %d", st, err, leader.Start)
		}
	}
}

// A daemon that forks its successor and ends, again and again, is never where
// the last look has found it.
func TestNoProofOfEmptyWhileAProcessHops(t *testing.T) {
	mark := "USHER_TEST_MARK=" + t.TempDir()
	s := NewSession([]string{mark})
	shell(t, s, hopper(t), mark)
	for range 300 {
		again := OpenSession(s.leader.pid, s.leader.start, []string{mark})
		if populated, err := again.Populated(); err != nil || !populated {
			t.Fatalf("populated %v, %v, and something runs", populated, err)
		}
	}
	_ = s.Kill() // may say that it forks too fast
	waitEmpty(t, s)
}

// hopper is the file of a daemon that does so. A test that fails takes a file away,
// and with it the daemon.
func hopper(t *testing.T) string {
	on := temp(t, "on")
	if err := os.WriteFile(on, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	return scriptFile(t, `test -e "`+on+`" && setsid "$0" & exit 0`)
}

// script is a /proc in which every list is one round; after the last, it stays.
type script struct {
	last   int // the number given out last, before the first
	rounds []round
	at     int
}

type round struct {
	pids    []int
	last    int // the same, at its end
	gone    []int
	dead    []int
	marked  []int
	failing error // of every stat
}

func (s *script) procs() procfs {
	now := func() round { return s.rounds[min(max(s.at-1, 0), len(s.rounds)-1)] }
	return procfs{
		last: func() (int, error) {
			if s.at == 0 {
				return s.last, nil
			}
			return now().last, nil
		},
		pids: func() ([]int, error) { s.at++; return now().pids, nil },
		stat: func(pid int) (Stat, error) {
			r := now()
			if slices.Contains(r.gone, pid) {
				return Stat{}, unix.ESRCH
			}
			return Stat{PID: pid, Start: 5, Dead: slices.Contains(r.dead, pid), threads: 1, memory: memory{size: 1}}, r.failing
		},
		environ: func(st Stat) ([]byte, error) {
			if slices.Contains(now().marked, st.PID) {
				return []byte("M=1\x00"), nil
			}
			return nil, nil
		},
	}
}

func TestASnapshotIsWholeOnlyIfNobodyCanBeBehindIt(t *testing.T) {
	tests := []struct {
		name   string
		rounds []round
		lists  int // how often it looks
		marked []int
	}{
		{"all live", []round{{pids: []int{10, 20}, last: 91, marked: []int{20}}}, 1, []int{20}},
		{
			"one has ended, and its child is in the next list",
			[]round{{pids: []int{10, 20}, last: 91, gone: []int{20}}, {pids: []int{10, 30}, last: 92, marked: []int{30}}},
			2,
			[]int{30},
		},
		{
			"a dead one that nobody has waited for is looked at once",
			[]round{{pids: []int{10, 20}, last: 91, dead: []int{20}}, {pids: []int{10, 20, 30}, last: 92, dead: []int{20}, marked: []int{30}}},
			2,
			[]int{30},
		},
		{
			"one that seemed gone is there",
			[]round{{pids: []int{10, 20}, last: 91, gone: []int{20}}, {pids: []int{10, 20}, last: 91, marked: []int{20}}},
			2,
			[]int{20},
		},
		{
			"the numbers began again: one ahead of the walk has left a child behind it",
			[]round{{pids: []int{10, 20}, last: 11}, {pids: []int{10, 11, 20}, last: 12, marked: []int{11}}},
			2,
			[]int{11},
		},
		{
			"the numbers began again: another has the number of one that was seen",
			[]round{{pids: []int{10, 90}, last: 90, gone: []int{90}}, {pids: []int{10}, last: 10, marked: []int{10}}},
			3,
			[]int{10},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := &script{last: 90, rounds: tt.rounds}
			found, whole, err := s.procs().snapshot(0, []string{"M=1"})
			var marked []int
			for _, c := range found {
				if c.marked {
					marked = append(marked, c.PID)
				}
			}
			if err != nil || !whole || s.at != tt.lists || !slices.Equal(marked, tt.marked) {
				t.Errorf("marked %v, whole %v, %v after %d looks; want %v after %d", marked, whole, err, s.at, tt.marked, tt.lists)
			}
		})
	}
}

func TestASnapshotThatCannotLookIsAnError(t *testing.T) {
	s := &script{rounds: []round{{pids: []int{10}, failing: unix.EMFILE}}}
	if _, whole, err := s.procs().snapshot(0, []string{"M=1"}); !errors.Is(err, unix.EMFILE) || whole {
		t.Errorf("whole %v, %v; it has seen nothing", whole, err)
	}
}

// As an ordinary user, where /proc is mounted with hidepid.
func TestASnapshotPassesOverWhatIsHidden(t *testing.T) {
	s := &script{rounds: []round{{pids: []int{10}, failing: unix.EPERM}}}
	if found, whole, err := s.procs().snapshot(0, []string{"M=1"}); err != nil || !whole || len(found) != 0 {
		t.Errorf("found %v, whole %v, %v", found, whole, err)
	}
}

func TestASnapshotOfWhatIsNeverQuietIsNotWhole(t *testing.T) {
	s := &script{rounds: []round{{pids: []int{10}, gone: []int{10}}}}
	if found, whole, err := s.procs().snapshot(0, []string{"M=1"}); err != nil || whole || len(found) != 0 || s.at != snapshotRounds {
		t.Errorf("found %v, whole %v, %v after %d looks", found, whole, err, s.at)
	}
}
