package activator

import (
	"fmt"
	"syscall"

	"github.com/usher-edge/usher/activator/cgroup"
	lc "github.com/usher-edge/usher/activator/lifecycle"
)

// Exit is how a process ended.
type Exit struct {
	Code    int
	Signal  string
	Unknown bool // it was adopted: nobody can know
	// OOM is what the kernel had killed of its generation for want of memory.
	OOM cgroup.OOM
}

// String is the wording of messages. Whom the kernel has killed is not on record, so
// one that ended by SIGKILL in a generation with such a kill is taken for it.
func (x Exit) String() string {
	if x.OOM.Kills > 0 && x.Signal == syscall.SIGKILL.String() {
		return "killed by the kernel: " + x.OOM.String()
	}
	s := "exit status " + itoa(x.Code)
	switch {
	case x.Unknown:
		s = "exit status unknown"
	case x.Signal != "":
		s = "signal: " + x.Signal
	}
	if x.OOM.Kills > 0 {
		s += "; " + killsText(x.OOM.Kills, x.OOM)
	}
	return s
}

// killsText tells of n processes that the kernel has killed.
func killsText(n uint64, o cgroup.OOM) string {
	who := "a process"
	if n > 1 {
		who = fmt.Sprintf("%d processes", n)
	}
	return "the kernel killed " + who + " of it: " + o.String()
}

func exitOf(g *generation) *Exit {
	if g.child == nil || !g.child.Exited() {
		return nil
	}
	<-g.child.Done()
	x := g.child.Exit()
	return &x
}

// tellOOM tells of what the kernel has killed of a generation since it was last
// told: when its main process or its health check ends.
func (r *runner) tellOOM(gen lc.GenID, g *generation, o cgroup.OOM) {
	if o.Kills <= g.oom.Kills {
		return
	}
	n := o.Kills - g.oom.Kills
	g.oom = o
	r.count(func(t *tally) { t.oomKills += uint32(n) })
	r.note("oom", gen, killsText(n, o))
}

// oomOf is zero for what is no process of usher's.
func oomOf(child Child) cgroup.OOM {
	if child == nil {
		return cgroup.OOM{}
	}
	return child.OOM()
}
