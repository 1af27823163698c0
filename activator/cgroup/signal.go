package cgroup

import (
	"cmp"
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
	for _, pid := range oldestFirst(pids) {
		fd, open := fds[pid]
		if !open || !slices.Contains(members, pid) {
			continue
		}
		err := unix.PidfdSendSignal(fd, sig, nil, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("send %v to pid %d: %w", sig, pid, err))
		}
	}
	return errors.Join(errs...)
}

// oldestFirst sorts by start time, and by pid among those that started within
// one clock tick. Those that are gone come first.
func oldestFirst(pids []int) []int {
	start := make(map[int]uint64, len(pids))
	for _, pid := range pids {
		if st, err := ReadStat(pid); err == nil {
			start[pid] = st.Start
		}
	}
	return slices.SortedFunc(slices.Values(pids), func(a, b int) int {
		return cmp.Or(cmp.Compare(start[a], start[b]), cmp.Compare(a, b))
	})
}
