// Package proc reads from the kernel which processes descend from which, and
// the CPU time that they have used.
package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Tree is a set of processes with all that descend from them.
type Tree struct {
	Roots []int
	Known []int // of the last Look, roots first
}

// Stat is what one process says of itself.
type Stat struct {
	Parent  int
	Reaped  time.Duration // CPU time of children that it has waited for
	Started uint64        // in ticks since the machine started; tells a number used again
}

// tick is the unit of times in /proc, the same on all that Go runs on.
const tick = 10 * time.Millisecond

// Read reads /proc/PID/stat. The name may hold anything, blanks and
// parentheses included, so fields count from its last parenthesis.
func Read(pid int) (Stat, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return Stat{}, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const state = 3 // the number of the first of these, in proc(5)
	if len(fields) < 22-state+1 {
		return Stat{}, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	var s Stat
	var errs [4]error
	at := func(n int, err *error) int64 {
		var v int64
		v, *err = strconv.ParseInt(string(fields[n-state]), 10, 64)
		return v
	}
	s.Parent = int(at(4, &errs[0]))
	s.Reaped = time.Duration(at(16, &errs[1])+at(17, &errs[2])) * tick
	s.Started = uint64(at(22, &errs[3]))
	return s, errors.Join(errs[:]...)
}

// Look finds who belongs to the tree now.
func (t *Tree) Look() error {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return err
	}
	children := map[int][]int{}
	for _, name := range names {
		pid, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		if s, err := Read(pid); err == nil { // else it has just left
			children[s.Parent] = append(children[s.Parent], pid)
		}
	}
	t.Known = append(t.Known[:0], t.Roots...)
	for i := 0; i < len(t.Known); i++ {
		t.Known = append(t.Known, children[t.Known[i]]...)
	}
	return nil
}

// CPU is the CPU time that those known have used, with that of the children
// they have waited for. A process that ended since the last look is in its
// parent's sum; a root that ended is an error.
func (t *Tree) CPU() (time.Duration, error) {
	var sum time.Duration
	for i, pid := range t.Known {
		own, err := Time(pid)
		var s Stat
		if err == nil {
			s, err = Read(pid)
		}
		if err == nil {
			sum += own + s.Reaped
			continue
		}
		if i < len(t.Roots) {
			return 0, fmt.Errorf("process %d has ended", pid)
		}
	}
	return sum, nil
}

// Time is the CPU time of all threads of a process, ended ones included,
// to the nanosecond. The times in /proc/PID/stat are the same in ticks of 10 ms,
// too coarse for a second of light load.
func Time(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, clock_getcpuclockid(3)
	clock := int32(^pid)<<3 | scheduled
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("cpu time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// Meter takes the CPU time of a tree between two instants.
type Meter struct {
	Tree
	from, to time.Duration
	err      error
}

// Begin is called at the first instant, after Look.
func (m *Meter) Begin() { m.from, m.err = m.CPU() }

// End is called at the second.
func (m *Meter) End() {
	if m.err == nil {
		m.to, m.err = m.CPU()
	}
}

// Used is what was used between them, with what was born in
// between, all of whose time is from there.
func (m *Meter) Used() (time.Duration, error) {
	if m.err != nil {
		return 0, m.err
	}
	before := make(map[int]bool, len(m.Known))
	for _, pid := range m.Known {
		before[pid] = true
	}
	if err := m.Look(); err != nil {
		return 0, err
	}
	born := Tree{}
	for _, pid := range m.Known {
		if !before[pid] {
			born.Known = append(born.Known, pid)
		}
	}
	more, err := born.CPU()
	return m.to - m.from + more, err
}
