package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"slices"
)

// procfs is how processes are looked at; tests script it.
type procfs struct {
	pids    func() ([]int, error)
	last    func() (int, error) // the number that was given out last
	stat    func(pid int) (Stat, error)
	environ func(Stat) ([]byte, error)
}

func kernelProcs() procfs {
	return procfs{pids: listPIDs, last: lastPID, stat: ReadStat, environ: environOf}
}

// candidate is a process that started no earlier than the leader. A dead one is
// no member, but a zombie leader still vouches for its session.
type candidate struct {
	Stat
	marked  bool
	environ []byte // of a marked one
	// unclear is true if nobody can say now whether it is marked.
	unclear bool
	ending  bool // it can do nothing any more, fork neither
}

// snapshotRounds bounds how often a snapshot lists the processes again.
const snapshotRounds = 16

// snapshot looks at every process that started at since or later. The list of
// processes is not of one moment: the kernel walks through the numbers upwards. One
// that has ended between the list and the look at it may have forked another that is
// not in the list. Then the list is read again, until all that is new in it is seen
// alive. That is whole: the members in it are all that there are, and only they can
// fork more.
//
// It holds only while numbers grow: whoever has ended ahead of the walk has left its
// child further ahead, and a number that was looked at is nobody else's. After the
// highest number come the lowest again; then all is looked at anew.
//
// An error that says neither that a process is gone nor that it is hidden from us is
// one of the snapshot: nobody knows what is behind it.
func (p procfs) snapshot(since uint64, marks []string) (found []candidate, whole bool, err error) {
	last, err := p.last()
	if err != nil {
		return nil, false, err
	}
	looked := map[int]bool{os.Getpid(): true}
	for round := 0; !whole && round < snapshotRounds; round++ {
		fresh, quiet, err := p.lookRound(since, marks, looked)
		if err != nil {
			return nil, false, err
		}
		found = append(found, fresh...)
		now, err := p.last()
		if err != nil {
			return nil, false, err
		}
		whole = quiet && now >= last
		if now < last {
			found, looked = nil, map[int]bool{os.Getpid(): true}
		}
		last = now
	}
	return found, whole, nil
}

// lookRound looks at everything in the list that was not looked at before; quiet
// says that all of it lives.
func (p procfs) lookRound(since uint64, marks []string, looked map[int]bool) (fresh []candidate, quiet bool, err error) {
	pids, err := p.pids()
	if err != nil {
		return nil, false, err
	}
	quiet = true
	for _, pid := range slices.Backward(pids) { // the youngest end first
		if looked[pid] {
			continue
		}
		c, err := p.look(pid, since, marks)
		switch {
		case Ended(err): // or so it says: if it is in the list again, it is looked at again
			quiet = false
			continue
		case errors.Is(err, fs.ErrPermission): // hidden from us (hidepid), so none of ours
			looked[pid] = true
			continue
		case err != nil:
			return nil, false, err
		}
		looked[pid] = true
		if c.Start >= since && !c.kernel {
			quiet = quiet && !c.ending
			fresh = append(fresh, c)
		}
	}
	return fresh, quiet, nil
}

// look reads what is to be known of a process.
func (p procfs) look(pid int, since uint64, marks []string) (candidate, error) {
	st, err := p.stat(pid)
	c := candidate{Stat: st, ending: st.Ending()}
	if err != nil || st.Start < since || st.Dead || st.kernel || len(marks) == 0 {
		return c, err
	}
	environ, err := p.environ(st)
	switch {
	case err == nil:
		if c.marked = holdsAll(environ, marks); c.marked {
			c.environ = environ
		}
	case errors.Is(err, fs.ErrPermission): // hidden from us, so none of ours
	case errors.Is(err, ErrInExec):
		c.unclear = true
	case errors.Is(err, ErrEnding):
		c.unclear, c.ending = true, true
	default:
		return c, err
	}
	return c, nil
}
