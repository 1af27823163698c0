package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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

	kernel  bool // a thread of the kernel
	threads int
	memory  memory
}

// memory is what the stat line says of the address space of a process, or of one of
// its threads: nothing once that one has given it back.
type memory struct {
	size uint64
	// code is where the program lies: 0 from the moment an exec has given the process
	// its new memory until it has filled that in.
	code uint64
	// Where the environment lies: the end is 0 early in an exec, and of a process that
	// we may not look into.
	environStart, environEnd uint64
}

// Ending reports whether the process can do nothing any more: it is dead, or it
// has given its memory back and is about to be.
func (s Stat) Ending() bool { return s.Dead || s.memory.size == 0 && s.threads <= 1 }

// ReadStat reads the stat line of one process. The error of a process that is
// gone wraps fs.ErrNotExist or syscall.ESRCH.
func ReadStat(pid int) (Stat, error) {
	st, err := readStat(procDir(pid))
	if err != nil {
		return Stat{}, fmt.Errorf("read stat of pid %d: %w", pid, err)
	}
	return st, nil
}

func procDir(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// Ended reports whether err means that a process is not there any more: ENOENT for
// a new look-up, ESRCH through a file that was opened before.
func Ended(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// statTries bounds how often a stat line is read again that shows a task without
// threads; each time, the process must have changed its main thread meanwhile.
const statTries = 100

// readStat reads the stat line of a process or thread. When a thread that is not the
// main one executes a program, it takes the place of the main thread; who asked just
// before is shown that one, dead, alone and of no session. The process is another
// task by then, so it is asked for again.
func readStat(dir string) (st Stat, err error) {
	for range statTries {
		raw, err := readStatLine(dir)
		if err != nil {
			return Stat{}, err
		}
		if st, err = parseStat(raw); err != nil || st.threads > 0 {
			return st, err
		}
	}
	return Stat{}, fmt.Errorf("%s: its main thread changes all the while", dir)
}

// readStatLine reads the file in one go and without the runtime's poller: a
// session looks at every process of the machine, again and again.
func readStatLine(dir string) ([]byte, error) {
	fd, err := unix.Open(dir+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
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
	statCode    = 23
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
		threads: int(number(fields[statThreads])),
		memory: memory{
			size:         number(fields[statMemory]),
			code:         number(fields[statCode]),
			environStart: number(fields[statEnviron]),
			environEnd:   number(fields[statEnviron+1]),
		},
	}
	// A main thread that ended before its process is in state Z as well, but
	// then other threads are left and the process lives.
	state := fields[statState][0]
	s.Dead = (state == 'Z' || state == 'X') && s.threads <= 1
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

// lastPID returns the number that the kernel has given out last in our namespace of
// processes. Not every kernel has the first file, and a container may have been given
// another machine's for the second.
func lastPID() (int, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/ns_last_pid")
	if errors.Is(err, fs.ErrNotExist) {
		raw, err = os.ReadFile("/proc/loadavg")
	}
	if err != nil {
		return 0, fmt.Errorf("read the last process number: %w", err)
	}
	fields := strings.Fields(string(raw))
	if len(fields) == 0 {
		return 0, fmt.Errorf("read the last process number: %q has none", raw)
	}
	last, err := strconv.Atoi(fields[len(fields)-1])
	if err != nil {
		return 0, fmt.Errorf("read the last process number: %w", err)
	}
	return last, nil
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
