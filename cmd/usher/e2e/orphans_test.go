package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// runMark is in the environment of whatever a run starts; the apps of its ushers,
// which inherit nothing, have instanceMark instead. Both begin with the directory
// of the run.
const (
	runMark      = "USHER_E2E_RUN"
	instanceMark = "USHER_INSTANCE"
)

// runDir is the directory of the run whose tests that process executes. Its name
// proves, to every later run, whether that process still lives.
func runDir(temp string, pid int) (string, error) {
	begun, err := startTime(pid)
	return filepath.Join(temp, fmt.Sprintf("usher-e2e-%d-%d", pid, begun)), err
}

// abandoned says that the runner named by such a directory has ended.
func abandoned(dir string) bool {
	var pid int
	var begun uint64
	name := filepath.Base(dir)
	if n, err := fmt.Sscanf(name, "usher-e2e-%d-%d", &pid, &begun); n != 2 || err != nil || name != fmt.Sprintf("usher-e2e-%d-%d", pid, begun) {
		return false // nobody can say whose it is
	}
	now, err := startTime(pid)
	return errors.Is(err, fs.ErrNotExist) || err == nil && now != begun
}

// startTime is when a process began, in clock ticks since boot. A process that is
// gone, or a zombie, does not exist.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// pid (name) state …, and the name may hold anything; state is field 3 of 22.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat is %q", pid, stat)
	}
	if fields[0] == "Z" {
		return 0, fs.ErrNotExist
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// endAbandoned ends what earlier runs have left that were killed, and removes their
// control groups and directories. What it cannot prove to be of such a run it
// leaves alone: other runs may be under way, and whose pids are of another
// namespace cannot be told.
func endAbandoned(temp string) error {
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return err
	}
	err = poll(5*time.Second, func() error {
		var left []error
		eachProcess(func(pid int) {
			if dir := endIfAbandoned(temp, space, pid); dir != "" {
				left = append(left, fmt.Errorf("process %d of %s does not end", pid, dir))
			}
		})
		return errors.Join(left...)
	})
	dirs, _ := filepath.Glob(filepath.Join(temp, "usher-e2e-*")) // the pattern is right
	for _, dir := range dirs {
		if !abandoned(dir) {
			continue
		}
		states, _ := filepath.Glob(filepath.Join(dir, "t*", "state"))
		for _, state := range states {
			(&usher{dir: filepath.Dir(state)}).removeGroups()
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// endIfAbandoned kills a process that carries the mark of an abandoned run and
// returns the directory of that run; else "".
func endIfAbandoned(temp, space string, pid int) string {
	p, err := os.FindProcess(pid) // a handle: it is never another process
	if err != nil {
		return ""
	}
	defer p.Release()
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid)); err != nil || its != space {
		return ""
	}
	for entry := range strings.SplitSeq(string(env), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		rest, ours := strings.CutPrefix(value, temp+"/")
		if !ours || key != runMark && key != instanceMark {
			continue
		}
		name, _, _ := strings.Cut(rest, "/")
		if dir := filepath.Join(temp, name); abandoned(dir) {
			_ = p.Kill() // it may have gone meanwhile; who asks again learns it
			return dir
		}
	}
	return ""
}

func TestOnlyWhatAKilledRunHasLeftIsEnded(t *testing.T) {
	t.Parallel()
	temp := scratch(t)
	dirOf := func(pid int, later uint64) string {
		begun, err := startTime(pid)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(temp, fmt.Sprintf("usher-e2e-%d-%d", pid, begun+later))
		if err := os.MkdirAll(filepath.Join(dir, "t1", "state"), 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	ours, recycled := dirOf(os.Getpid(), 0), dirOf(os.Getpid(), 1)
	gone := exec.Command("sleep", "300")
	if err := gone.Start(); err != nil {
		t.Fatal(err)
	}
	dead := dirOf(gone.Process.Pid, 0)
	unnamed := filepath.Join(temp, "usher-e2e-12345")
	if err := os.Mkdir(unnamed, 0o700); err != nil {
		t.Fatal(err)
	}
	group := abandonedGroup(t, filepath.Join(dead, "t1"))

	ends := map[string]bool{
		instanceMark + "=" + dead + "/t1/state":      true,
		runMark + "=" + dead:                         true,
		runMark + "=" + recycled:                     true,
		instanceMark + "=" + ours + "/t1/state":      false,
		instanceMark + "=" + unnamed + "/t1/state":   false,
		"OTHER=" + dead:                              false,
		runMark + "=/elsewhere" + dead:               false,
		instanceMark + "=/var/lib/usher":             false,
		runMark + "=" + theLab.dir:                   false,
		runMark + "=" + temp + "/usher-e2e-1-2-rest": false,
	}
	exited := map[string]chan struct{}{}
	for mark := range ends {
		cmd := exec.Command("sleep", "300")
		cmd.Env = []string{mark}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		exited[mark] = done
		go func() {
			_ = cmd.Wait() // it was killed
			close(done)
		}()
		t.Cleanup(func() {
			_ = cmd.Process.Kill() // mostly it has ended
			<-done
		})
	}
	if err := endAbandoned(temp); err != nil {
		t.Error(err) // nobody's runner has ended yet, but for the recycled pid
	}
	select {
	case <-exited[runMark+"="+dead]:
		t.Error("a process was ended though its runner lives")
	default:
	}

	_ = gone.Process.Kill()
	_ = gone.Wait() // it was killed
	if err := endAbandoned(temp); err != nil {
		t.Error(err)
	}
	for mark, end := range ends {
		if end {
			select {
			case <-exited[mark]:
			case <-time.After(10 * time.Second):
				t.Errorf("%s: it was not ended", mark)
			}
			continue
		}
		select {
		case <-exited[mark]:
			t.Errorf("%s: it was ended", mark)
		default:
		}
	}
	for dir, stays := range map[string]bool{ours: true, unnamed: true, dead: false, recycled: false, group: false} {
		if _, err := os.Stat(dir); dir != "" && (err == nil) != stays {
			t.Errorf("%s: %v, and it should stay: %t", dir, err, stays)
		}
	}
}

// abandonedGroup makes the control group that a usher with that directory would
// have; "" where none can be made.
func abandonedGroup(t *testing.T, dir string) string {
	t.Helper()
	mounts, _ := os.ReadFile("/proc/self/mounts") // no mounts: no groups
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || f[2] != "cgroup2" {
			continue
		}
		tree := filepath.Join(f[1], (&usher{dir: dir}).treeName())
		if err := os.MkdirAll(filepath.Join(tree, "hello", "1"), 0o755); err != nil {
			t.Logf("control groups cannot be tried: %v", err)
			return ""
		}
		t.Cleanup(func() { (&usher{dir: dir}).removeGroups() })
		return tree
	}
	return ""
}
