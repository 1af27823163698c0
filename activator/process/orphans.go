package process

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

// ReapOrphans collects the exit statuses of processes that became usher's
// children because their own parents ended, which happens when usher is process
// 1 of a container. It returns when ctx is done. main says whether a pid is one
// that this package reaps, that is the main process of a generation; only
// children outside usher's own session are looked at, so commands that usher
// itself runs are safe too.
func ReapOrphans(ctx context.Context, main func(pid int) bool) {
	exits := make(chan os.Signal, 1)
	signal.Notify(exits, syscall.SIGCHLD)
	defer signal.Stop(exits)
	for {
		reapOrphans(main)
		select {
		case <-exits:
		case <-ctx.Done():
			return
		}
	}
}

func reapOrphans(main func(pid int) bool) {
	self, err := cgroup.ReadStat(os.Getpid())
	if err != nil {
		return
	}
	for _, st := range cgroup.Children(self.PID) {
		if st.Dead && st.Session != self.Session && !main(st.PID) {
			// Nobody asked for the status, and a failure means it is gone.
			_, _ = unix.Wait4(st.PID, nil, unix.WNOHANG, nil)
		}
	}
}
