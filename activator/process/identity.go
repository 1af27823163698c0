package process

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/usher-edge/usher/activator/cgroup"
)

// Identity names one process for good, across restarts of usher. It is what a
// runtime record stores.
type Identity struct {
	PID int
	// StartTime is in clock ticks since boot (/proc/<pid>/stat, field 22).
	StartTime uint64
	// BootID is the kernel's random id of this boot; every other one means
	// that the process is gone.
	BootID string
	// Cgroup is the path of the process's group, empty for a session.
	Cgroup string
}

// ErrNotOurs means that a recorded identity does not name a process that this
// usher started: it is gone, or its pid belongs to somebody else now.
var ErrNotOurs = errors.New("process is not ours")

// BootID reads the id of this boot.
func BootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read boot id: %w", err)
	}
	return strings.TrimSpace(string(raw)), nil
}

// StartTime reads the start time of a process in clock ticks since boot.
func StartTime(pid int) (uint64, error) {
	st, err := cgroup.ReadStat(pid)
	return st.Start, err
}
