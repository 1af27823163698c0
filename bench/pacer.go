package bench

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// enough requests that are due and have no connection yet are work for napTime.
	enough  = 16
	napTime = time.Millisecond
)

// nap is how long to sleep if the next request is due in wait and so many of those
// before it have no connection yet. Who waits for a connection does not need to be
// told of more requests at once: while an app is stopped and started, all of them
// wait, and waking up for each would cost the machine that starts it as much as the
// load did.
func nap(wait time.Duration, backlog int) time.Duration {
	if wait > 0 && backlog >= enough {
		return max(wait, napTime)
	}
	return wait
}

// alarm sleeps to a microsecond's precision without holding a thread: runtime
// timers wake up to a millisecond late when the process is idle, which is more
// than a whole request takes. It is a timerfd, so the kernel's clock wakes the
// goroutine the way a socket would.
type alarm struct{ file *os.File }

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create timer: %w", err)
	}
	return &alarm{file: os.NewFile(uintptr(fd), "timerfd")}, nil
}

// sleep returns after d, or earlier if the alarm is closed.
func (a *alarm) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := raw.Control(func(fd uintptr) { set = unix.TimerfdSettime(int(fd), 0, &spec, nil) }); err != nil {
		return err
	}
	if set != nil {
		return fmt.Errorf("set timer: %w", set)
	}
	var ticks [8]byte
	_, err = a.file.Read(ticks[:])
	return err
}

// stop ends a sleep; it is safe to call twice.
func (a *alarm) stop() error {
	if err := a.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}
