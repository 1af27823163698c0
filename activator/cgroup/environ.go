package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

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
// nothing, or only the beginning of the old one; so it is read again until the
// process has the same settled memory before and after, and as much in it as was
// read. The error is ErrInExec if it never has. It is ErrEnding for a process that
// ends, and wraps fs.ErrNotExist or syscall.ESRCH for one that is gone.
func Environ(pid int) ([]byte, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return nil, err
	}
	return environOf(st)
}

// environOf is Environ for the very process that has that stat.
func environOf(first Stat) (raw []byte, err error) {
	before, dir := first, procDir(first.PID)
	for try := 0; try < environTries; try++ {
		if try > 0 {
			time.Sleep(environPause)
		}
		var rerr error
		if before.memory.size != 0 {
			raw, rerr = os.ReadFile(dir + "/environ")
		}
		// Who has just lost its memory has no environment, and what it shows instead is
		// root's: the stat tells why.
		hidden := errors.Is(rerr, fs.ErrPermission)
		if rerr != nil && !hidden && !Ended(rerr) {
			return nil, fmt.Errorf("read environment of pid %d: %w", first.PID, rerr)
		}
		after, from, err := lookInto(first.PID)
		switch {
		case err == nil && (after.Dead || after.Start != first.Start):
			err = unix.ESRCH
		case err == nil && after.memory.size == 0:
			err = ErrEnding
		case err == nil && hidden && from == dir:
			err = rerr
		}
		if err != nil {
			return nil, fmt.Errorf("read environment of pid %d: %w", first.PID, err)
		}
		if rerr == nil && after.memory.holds(raw) && after.memory.where() == before.memory.where() {
			return raw, nil
		}
		before, dir = after, from
	}
	return nil, fmt.Errorf("read environment of pid %d: %w", first.PID, ErrInExec)
}

// holds says that the environment is as long as raw and that no exec is under way.
// The kernel writes down where the environment begins, then counts it, and then
// where the program lies: without the latter, an environment can look empty.
func (m memory) holds(raw []byte) bool {
	return m.code != 0 && m.environEnd != 0 && m.environEnd-m.environStart == uint64(len(raw))
}

func (m memory) where() [2]uint64 { return [2]uint64{m.environStart, m.environEnd} }

// lookInto reads the stat of a process and, if its main thread has ended and others
// go on, what one of those knows of the memory; dir is where to ask that thread.
func lookInto(pid int) (st Stat, dir string, err error) {
	dir = procDir(pid)
	st, err = ReadStat(pid)
	if err != nil || st.Dead || st.memory.size != 0 {
		return st, dir, err
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return st, dir, err
	}
	for _, thread := range threads {
		task := dir + "/task/" + thread.Name()
		if own, err := readStat(task); err == nil && own.memory.size != 0 {
			st.memory = own.memory
			return st, task, nil
		}
	}
	return st, dir, nil
}

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
// environment may not be read are not found. That one was in an exec all the while
// (ErrInExec), or that more may have been forked behind the look, is an error beside
// what was found.
func FindMarked(mark string, variables ...string) ([]Marked, error) {
	procs, whole, err := kernelProcs().snapshot(0, []string{mark})
	if err == nil && !whole {
		err = errors.New("look for marked processes: they come and go too fast to see them all")
	}
	var found []Marked
	for _, p := range procs {
		if p.unclear && !p.ending {
			err = errors.Join(err, fmt.Errorf("read environment of pid %d: %w", p.PID, ErrInExec))
		}
		if p.marked {
			found = append(found, Marked{PID: p.PID, StartTime: p.Start, Values: valuesOf(p.environ, variables)})
		}
	}
	return found, err
}

func valuesOf(environ []byte, variables []string) []string {
	values := make([]string, len(variables))
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		for i, name := range variables {
			if value, ok := strings.CutPrefix(string(entry), name+"="); ok {
				values[i] = value
			}
		}
	}
	return values
}
