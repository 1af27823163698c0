package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"

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
	statThreads = 17
	statStart   = 19
)

func parseStat(raw []byte) (Stat, error) {
	open, end := bytes.IndexByte(raw, ' '), bytes.LastIndexByte(raw, ')')
	if open < 0 || end < open {
		return Stat{}, fmt.Errorf("parse stat: no command name in %q", raw)
	}
	fields := bytes.Fields(raw[end+1:])
	if len(fields) <= statStart {
		return Stat{}, fmt.Errorf("parse stat: only %d fields in %q", len(fields), raw)
	}
	var firstErr error
	number := func(text []byte) uint64 {
		n, err := strconv.ParseInt(string(text), 10, 64)
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
	}
	// A main thread that ended before its process is in state Z as well, but
	// then other threads are left and the process lives.
	state := fields[statState][0]
	s.Dead = (state == 'Z' || state == 'X') && number(fields[statThreads]) <= 1
	return s, firstErr
}

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

// environHas reports whether the environment of pid holds every one of the
// entries ("NAME=value") as a whole. An unreadable environment holds none.
func environHas(pid int, entries []string) bool {
	if len(entries) == 0 {
		return false
	}
	raw, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	return holdsAll(raw, entries)
}

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
// environment cannot be read are not found.
func FindMarked(mark string, variables ...string) ([]Marked, error) {
	pids, err := listPIDs()
	var found []Marked
	for _, pid := range pids {
		before, serr := ReadStat(pid)
		raw, rerr := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if serr != nil || rerr != nil || before.Dead || !holdsAll(raw, []string{mark}) {
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
