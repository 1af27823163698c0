package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

// GenerationVariable is the environment variable that marks every process of a
// generation with its number.
const GenerationVariable = "USHER_GENERATION"

// Adopt takes over a process that an earlier run of usher started. It opens the
// pidfd first and then checks that what it holds is the recorded process: boot
// id, start time, and membership in the group (level cgroup) or the mark
// USHER_GENERATION in its environment (level session). Anything else is
// ErrNotOurs, and nothing is signalled.
func Adopt(id Identity, generation uint64, group cgroup.Group) (*Process, error) {
	p, err := adopt(id, generation, group)
	if err != nil {
		return nil, fmt.Errorf("adopt pid %d as generation %d: %w", id.PID, generation, err)
	}
	return p, nil
}

func adopt(id Identity, generation uint64, group cgroup.Group) (*Process, error) {
	if id.PID <= 0 || group == nil {
		return nil, errors.New("no pid or no group given")
	}
	pidfd, err := unix.PidfdOpen(id.PID, 0)
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		// EINVAL, since Linux 6.9 ENOENT: the number is that of a thread.
		return nil, fmt.Errorf("%w: no process has that pid", ErrNotOurs)
	}
	if err != nil {
		return nil, fmt.Errorf("open pidfd: %w", err)
	}
	err = verify(id, generation, group)
	if err == nil && readable(pidfd) {
		// Checked last: had it exited before, the checks could have been
		// answered by the next owner of the number.
		err = fmt.Errorf("%w: it has exited", ErrNotOurs)
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(pidfd))
	}
	p := &Process{id: id, adopted: true, group: group}
	if err := p.start(pidfd); err != nil {
		return nil, err
	}
	return p, nil
}

func verify(id Identity, generation uint64, group cgroup.Group) error {
	boot, err := BootID()
	if err != nil {
		return err
	}
	if boot != id.BootID {
		return fmt.Errorf("%w: it was started before the last boot", ErrNotOurs)
	}
	start, err := StartTime(id.PID)
	if err != nil {
		return unseen(err)
	}
	if start != id.StartTime {
		return fmt.Errorf("%w: it started at tick %d, recorded is %d", ErrNotOurs, start, id.StartTime)
	}
	if group.Level() != cgroup.LevelCgroup {
		return verifyMark(id.PID, generation)
	}
	members, err := group.Procs()
	if err != nil {
		return err
	}
	if !slices.Contains(members, id.PID) {
		return fmt.Errorf("%w: it is not in %s", ErrNotOurs, group.Path())
	}
	return nil
}

// environLooks is how often the environment is read of a process that is in an exec all
// the while: most of a second, all in all.
const environLooks = 4

func verifyMark(pid int, generation uint64) error {
	environ, err := cgroup.Environ(pid)
	for look := 1; look < environLooks && errors.Is(err, cgroup.ErrInExec); look++ {
		environ, err = cgroup.Environ(pid)
	}
	if err != nil {
		return unseen(err)
	}
	want := []byte(GenerationVariable + "=" + strconv.FormatUint(generation, 10))
	for entry := range bytes.SplitSeq(environ, []byte{0}) {
		if bytes.Equal(entry, want) {
			return nil
		}
	}
	return fmt.Errorf("%w: its environment does not hold %s", ErrNotOurs, want)
}

// unseen is ErrNotOurs if err, of a look at a process, says that it has ended, or that
// it is somebody else's, into whose processes we may not look, or that there is nothing
// to be seen: one that has given away the memory of its environment looks like in an
// exec for good, and would be looked for, for good. Any other error, such as having no
// descriptor left, says nothing about it.
func unseen(err error) error {
	if errors.Is(err, cgroup.ErrEnding) || cgroup.Ended(err) || errors.Is(err, fs.ErrPermission) || errors.Is(err, cgroup.ErrInExec) {
		return fmt.Errorf("%w: %w", ErrNotOurs, err)
	}
	return err
}
