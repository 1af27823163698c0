package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// How the sessions of a machine share its CPUs (autogroups, sched(7)): as nice values
// do, for all processes of a session together. No program asks for that number, so an
// app does not notice, and it may go back to its start without any privilege.
const (
	yielding = "10" // 110 parts of the CPU, where another session has 1024
	claiming = "0"
)

// yield lets other sessions go before that of p at the CPU. A kernel that knows no
// autogroups does without, and where a cgroup shares out the CPU it has no effect
// (docs/benchmarks.md says why there is nothing in its place).
func (p *Process) yield() { p.yielded = p.autogroup(yielding) == nil }

// Claim ends Launch.Yields. It may be called again.
func (p *Process) Claim() error {
	if !p.yielded {
		return nil
	}
	// Without CAP_SYS_ADMIN the kernel takes one change in a tenth of a second.
	const patience = 2 * time.Second
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		err := p.autogroup(claiming)
		switch {
		case err == nil || p.Exited():
			return nil
		case !errors.Is(err, syscall.EAGAIN) || time.Now().After(end):
			return fmt.Errorf("give pid %d its share of the CPU back: %w; a restart of the app does so too", p.id.PID, err)
		}
	}
}

func (p *Process) autogroup(nice string) error {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(p.id.PID)+"/autogroup", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(nice)
	return errors.Join(err, f.Close())
}
