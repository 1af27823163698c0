package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// signalPIDs sends sig to each pid that still is a member once its pidfd is
// open. The order matters: an open pidfd keeps its process apart from any later
// one with the same number, so a pid that was recycled before is found to be no
// member, and one that is recycled after gets nothing.
func signalPIDs(pids []int, sig syscall.Signal, stillMembers func([]int) ([]int, error)) error {
	fds := make(map[int]int, len(pids))
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	var errs []error
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		switch {
		case err == nil:
			fds[pid] = fd
		case errors.Is(err, unix.ESRCH):
		default:
			errs = append(errs, fmt.Errorf("open pidfd of pid %d: %w", pid, err))
		}
	}
	members, err := stillMembers(pids)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for pid, fd := range fds {
		if !slices.Contains(members, pid) {
			continue
		}
		err := unix.PidfdSendSignal(fd, sig, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("send %v to pid %d: %w", sig, pid, err))
		}
	}
	return errors.Join(errs...)
}
