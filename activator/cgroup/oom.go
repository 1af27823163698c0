package cgroup

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// OOM tells of the processes of a group that the kernel has killed because memory
// ran out (memory.events, cgroup-v2.rst). The zero value says that it has killed
// none, or that nothing counts it here: there is no memory controller.
type OOM struct {
	// Kills is how many, nested cgroups included, since the group was made.
	Kills uint64
	// Limit is the limit that was reached, in bytes: that of the group, or else the
	// one that all generations of its app share. 0: neither, so it was the memory
	// of the machine, or a limit that is not of usher's making.
	Limit uint64
}

// String says what was short, for messages: "out of memory (limit 64 MiB)".
func (o OOM) String() string {
	if o.Limit == 0 {
		return "out of memory (not for a limit of the app)"
	}
	return "out of memory (limit " + bytesText(o.Limit) + ")"
}

// bytesText is a number of bytes in the largest unit in which it is a whole number.
func bytesText(n uint64) string {
	units := [...]string{"bytes", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for ; n%1024 == 0 && n > 0 && i < len(units)-1; i++ {
		n /= 1024
	}
	return fmt.Sprintf("%d %s", n, units[i])
}

// OOM is Group.OOM. Who was killed and whose limit was reached are counted apart:
// oom_kill where the process was, whatever the cause, and oom where the limit is.
// With the same limit at two levels, as an app has it with one generation, either
// may be reached first: what an earlier generation has left in a tmpfs counts for
// the app alone.
func (g *v2Group) OOM() OOM {
	o := OOM{Kills: memoryEvent(g.path, "memory.events", "oom_kill")}
	if o.Kills == 0 {
		return o
	}
	for _, dir := range []string{g.path, filepath.Dir(g.path)} {
		if memoryEvent(dir, "memory.events.local", "oom") > 0 {
			l, _ := readLimits(dir) // what cannot be read is not told
			o.Limit = l.Memory
			break
		}
	}
	return o
}

// memoryEvent reads one of the kernel's counts. What cannot be read counts nothing:
// it is evidence for people, and nothing is decided by it.
func memoryEvent(dir, file, key string) uint64 {
	raw, _ := os.ReadFile(filepath.Join(dir, file))
	for line := range bytes.Lines(raw) {
		if f := bytes.Fields(line); len(f) == 2 && string(f[0]) == key {
			n, _ := strconv.ParseUint(string(f[1]), 10, 64)
			return n
		}
	}
	return 0
}
