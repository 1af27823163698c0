package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Stat is the part of /proc/<pid>/stat that tells processes apart
// (proc_pid_stat(5)).
type Stat struct {
	PID     int
	PPID    int
	Session int
	// Start is field 22: clock ticks since boot. With the pid and the boot id
	// it names a process for good.
	Start uint64
	// Dead is true for a zombie: every thread has exited, only the exit status
	// is left.
	Dead bool

	kernel bool   // a thread of the kernel
	memory uint64 // bytes of address space, none once the process is ending
	// Where the environment lies: the end is 0 during an exec, and of a process
	// that we may not look into.
	environStart, environEnd uint64
}

// ReadStat reads the stat line of one process. The error of a process that is
// gone wraps fs.ErrNotExist or syscall.ESRCH.
func ReadStat(pid int) (Stat, error) {
	raw, err := readStatLine(pid)
	if err != nil {
		return Stat{}, fmt.Errorf("read stat of pid %d: %w", pid, err)
	}
	return parseStat(raw)
}

// readStatLine reads the file in one go and without the runtime's poller: a
// session looks at every process of the machine, again and again.
func readStatLine(pid int) ([]byte, error) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	// 52 numbers and a name of at most 64 bytes; the kernel gives it whole.
	buf := make([]byte, 2048)
	n, err := unix.Read(fd, buf)
	return buf[:max(n, 0)], err
}

// Positions after the command name, which is the only field that may hold
// blanks and brackets; the first of them is field 3 of the manual page.
const (
	statState   = 0
	statPPID    = 1
	statSession = 3
	statFlags   = 6
	statThreads = 17
	statStart   = 19
	statMemory  = 20
	statEnviron = 47 // and 48: since Linux 3.5
)

func parseStat(raw []byte) (Stat, error) {
	open, end := bytes.IndexByte(raw, ' '), bytes.LastIndexByte(raw, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("parse stat: no command name in %q", raw)
	}
	fields := bytes.Fields(raw[end+1:])
	if len(fields) <= statEnviron+1 {
		return Stat{}, fmt.Errorf("parse stat: only %d fields in %q", len(fields), raw)
	}
	var firstErr error
	number := func(text []byte) uint64 {
		n, err := strconv.ParseInt(string(text), 10, 64) // a session can be -1
		if err != nil && firstErr == nil {
			firstErr = fmt.Errorf("parse stat %q: %w", raw, err)
		}
		return uint64(n)
	}
	s := Stat{
		PID:     int(number(raw[:open])),
		PPID:    int(number(fields[statPPID])),
		Session: int(number(fields[statSession])),
		Start:   number(fields[statStart]),
		kernel:  number(fields[statFlags])&kernelThread != 0,
		memory:  number(fields[statMemory]),

		environStart: number(fields[statEnviron]),
		environEnd:   number(fields[statEnviron+1]),
	}
	// A main thread that ended before its process is in state Z as well, but
	// then other threads are left and the process lives.
	state := fields[statState][0]
	s.Dead = (state == 'Z' || state == 'X') && number(fields[statThreads]) <= 1
	return s, firstErr
}

// kernelThread is the bit PF_KTHREAD of a task's flags (include/linux/sched.h).
const kernelThread = 0x00200000

// listPIDs returns every pid in /proc in the order the kernel gives them.
func listPIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

var (
	// ErrInExec means that a process was executing a program all the while, so
	// that its environment could not be read.
	ErrInExec = errors.New("it is in the middle of an exec")
	// ErrEnding means that a process is about to be dead: it can do nothing any
	// more, but still holds its files.
	ErrEnding = errors.New("it is ending")
)

// An exec takes far less than all these tries, unless its disk hangs.
const (
	environTries = 200
	environPause = time.Millisecond
)

// Environ reads the environment that a process was given: entries
// "NAME=value", each with a NUL at its end. During an exec the kernel shows
// nothing, or only the beginning of the old one; so it is read again until it is
// as long as the stat line says, and the error is ErrInExec if it never is. It is
// ErrEnding for a process that ends, and wraps fs.ErrNotExist or syscall.ESRCH for
// one that is dead.
func Environ(pid int) ([]byte, error) {
	for try := 0; try < environTries; try++ {
		if try > 0 {
			time.Sleep(environPause)
		}
		raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil {
			return nil, fmt.Errorf("read environment of pid %d: %w", pid, err)
		}
		st, err := ReadStat(pid)
		if err != nil {
			return nil, err
		}
		switch {
		case st.Dead:
			return nil, fmt.Errorf("read environment of pid %d: %w", pid, unix.ESRCH)
		case st.Ending():
			return nil, fmt.Errorf("read environment of pid %d: %w", pid, ErrEnding)
		}
		if st.environEnd != 0 && uint64(len(raw)) == st.environEnd-st.environStart {
			return raw, nil
		}
	}
	return nil, fmt.Errorf("read environment of pid %d: %w", pid, ErrInExec)
}

// Ending reports whether the process can do nothing any more: it is dead, or it
// has given its memory back and is about to be.
func (s Stat) Ending() bool { return s.Dead || s.memory == 0 }

// holdsAll reports whether the environment holds every one of the entries
// ("NAME=value") as a whole.
func holdsAll(environ []byte, entries []string) bool {
	left := make(map[string]bool, len(entries))
	for _, e := range entries {
		left[e] = true
	}
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		delete(left, string(entry))
	}
	return len(left) == 0
}

// Marked is a process that carries a mark in its environment.
type Marked struct {
	PID       int
	StartTime uint64
	Values    []string // of the variables that were asked for
}

// FindMarked returns every process that is alive and whose environment holds mark
// ("NAME=value") as a whole, with the values there of the variables. Those whose
// environment may not be read are not found; one that is in an exec all the while
// is an error (ErrInExec) beside what was found.
func FindMarked(mark string, variables ...string) ([]Marked, error) {
	pids, err := listPIDs()
	var found []Marked
	for _, pid := range pids {
		before, serr := ReadStat(pid)
		raw, rerr := Environ(pid)
		if errors.Is(rerr, ErrInExec) {
			err = errors.Join(err, rerr)
		}
		if serr != nil || rerr != nil || !holdsAll(raw, []string{mark}) {
			continue
		}
		// The environment may be that of the number's next owner.
		if after, serr := ReadStat(pid); serr != nil || after.Start != before.Start {
			continue
		}
		m := Marked{PID: pid, StartTime: before.Start, Values: make([]string, len(variables))}
		for entry := range bytes.SplitSeq(raw, []byte{0}) {
			for i, name := range variables {
				if value, ok := strings.CutPrefix(string(entry), name+"="); ok {
					m.Values[i] = value
				}
			}
		}
		found = append(found, m)
	}
	return found, err
}

// Children returns the stats of the processes whose parent is pid, zombies
// included.
func Children(pid int) []Stat {
	pids, err := listPIDs()
	if err != nil {
		return nil
	}
	var found []Stat
	for _, p := range pids {
		if st, err := ReadStat(p); err == nil && st.PPID == pid {
			found = append(found, st)
		}
	}
	return found
}
