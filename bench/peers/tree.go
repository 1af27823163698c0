package peers

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

// tree is a set of processes with all that descend from them.
type tree struct {
	roots []int
	known []int // of the last look, roots first
}

// stat is what one process says of itself.
type stat struct {
	parent  int
	reaped  time.Duration // CPU time of children that it has waited for
	started uint64        // in ticks since the machine started; tells a number used again
}

// tick is the unit of times in /proc, the same on all that Go runs on.
const tick = 10 * time.Millisecond

// readStat reads /proc/PID/stat. The name may hold anything, blanks and
// parentheses included, so fields count from its last parenthesis.
func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return stat{}, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	const state = 3 // the number of the first of these, in proc(5)
	if len(fields) < 22-state+1 {
		return stat{}, fmt.Errorf("read /proc/%d/stat: %d fields", pid, len(fields))
	}
	var s stat
	var errs [4]error
	at := func(n int, err *error) int64 {
		var v int64
		v, *err = strconv.ParseInt(string(fields[n-state]), 10, 64)
		return v
	}
	s.parent = int(at(4, &errs[0]))
	s.reaped = time.Duration(at(16, &errs[1])+at(17, &errs[2])) * tick
	s.started = uint64(at(22, &errs[3]))
	return s, errors.Join(errs[:]...)
}

// look finds who belongs to the tree now.
func (t *tree) look() error {
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
		if s, err := readStat(pid); err == nil { // else it has just left
			children[s.parent] = append(children[s.parent], pid)
		}
	}
	t.known = append(t.known[:0], t.roots...)
	for i := 0; i < len(t.known); i++ {
		t.known = append(t.known, children[t.known[i]]...)
	}
	return nil
}

// cpu is the CPU time that those known have used, with that of the children
// they have waited for. A process that ended since the last look is in its
// parent's sum; a root that ended is an error.
func (t *tree) cpu() (time.Duration, error) {
	var sum time.Duration
	for i, pid := range t.known {
		own, err := processTime(pid)
		var s stat
		if err == nil {
			s, err = readStat(pid)
		}
		if err == nil {
			sum += own + s.reaped
			continue
		}
		if i < len(t.roots) {
			return 0, fmt.Errorf("process %d has ended", pid)
		}
	}
	return sum, nil
}

// processTime is the CPU time of all threads of a process, ended ones included,
// to the nanosecond. The times in /proc/PID/stat are the same in ticks of 10 ms,
// too coarse for a second of light load.
func processTime(pid int) (time.Duration, error) {
	const scheduled = 2 // CPUCLOCK_SCHED, clock_getcpuclockid(3)
	clock := int32(^pid)<<3 | scheduled
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("cpu time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// meter takes the CPU time of a tree between two instants.
type meter struct {
	tree
	from, to time.Duration
	err      error
}

// begin is called at the first instant, after look.
func (m *meter) begin() { m.from, m.err = m.cpu() }

// end is called at the second.
func (m *meter) end() {
	if m.err == nil {
		m.to, m.err = m.cpu()
	}
}

// used adds what was born in between, which has all its time from there.
func (m *meter) used() (time.Duration, error) {
	if m.err != nil {
		return 0, m.err
	}
	before := make(map[int]bool, len(m.known))
	for _, pid := range m.known {
		before[pid] = true
	}
	if err := m.look(); err != nil {
		return 0, err
	}
	born := tree{}
	for _, pid := range m.known {
		if !before[pid] {
			born.known = append(born.known, pid)
		}
	}
	more, err := born.cpu()
	return m.to - m.from + more, err
}
