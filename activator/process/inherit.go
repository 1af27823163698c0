package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// inherited is what a process gets from its parent, not from a spec, and what
// somebody may change of a usher that runs: prlimit, choom, renice, taskset, a move
// to another cgroup. A child gets what usher has when it is made, so a forker that
// has something else is no use any more. (Signals, umask and the rest are the same
// for every child, and set by it.)
type inherited struct {
	limits, oom, cgroup string
	nice                int
	cpus                unix.CPUSet
}

func inheritance() (has inherited, err error) {
	for file, text := range map[string]*string{"limits": &has.limits, "oom_score_adj": &has.oom, "cgroup": &has.cgroup} {
		raw, err := os.ReadFile("/proc/self/" + file)
		if err != nil && !os.IsNotExist(err) { // no such thing in this kernel
			return has, fmt.Errorf("look at what a child inherits: %w", err)
		}
		*text = string(raw)
	}
	pid := os.Getpid()
	// What cannot be told does not change either.
	has.nice, _ = unix.Getpriority(unix.PRIO_PROCESS, pid)
	_ = unix.SchedGetaffinity(pid, &has.cpus)
	return has, nil
}
