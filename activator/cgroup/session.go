package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"
)

// Session is a Group made of a process session and of marks in the environment.
//
// A process belongs to it if its session id is that of the leader, or if its
// environment holds all marks, or if its parent belongs to it, or if it was
// seen to belong before; always with a start time not before the leader's.
// The session id alone is trusted only while at least one process in that
// session is certain (the leader itself, a marked one, or one seen before): as
// long as such a process lives, the kernel cannot give the number to another
// session.
type Session struct {
	marks []string

	// mu guards the fields below. /proc is never read and nothing is signalled
	// under it.
	mu     sync.Mutex
	leader identity
	seen   map[identity]bool // certain members that were alive at the last scan
	killed bool
	empty  bool // seen empty once: nothing can join any more
}

type identity struct {
	pid   int
	start uint64
}

// NewSession returns the group of a generation whose leader is not known yet;
// until Bind it is empty. marks are whole environment entries such as
// "USHER_GENERATION=7" which together no other program on the box carries; with
// none, a daemon that leaves the session is not found.
func NewSession(marks []string) *Session {
	return &Session{marks: slices.Clone(marks), seen: map[identity]bool{}}
}

// OpenSession returns the group of a generation that an earlier run started.
// leader and start are the recorded pid and start time of its main process,
// which may be gone.
func OpenSession(leader int, start uint64, marks []string) *Session {
	s := NewSession(marks)
	s.leader = identity{leader, start}
	return s
}

// Bind implements Binder.
func (s *Session) Bind(leader int, start uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader.pid != 0 || s.killed {
		return fmt.Errorf("bind session to pid %d: %w", leader, ErrNotFresh)
	}
	s.leader = identity{leader, start}
	return nil
}

// Level implements Group.
func (s *Session) Level() string { return LevelSession }

// Path implements Group: a session has none.
func (s *Session) Path() string { return "" }

// FD implements Group: a session has none.
func (s *Session) FD() (*os.File, error) { return nil, nil }

// OOM implements Group: nothing counts for a session.
func (s *Session) OOM() OOM { return OOM{} }

// Populated implements Group. Processes that may or may not be strangers count.
func (s *Session) Populated() (bool, error) {
	found, err := s.scan()
	if err != nil {
		return false, err
	}
	if len(found.members)+len(found.doubtful) > 0 || found.unclear || !found.whole {
		return true, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leader.pid != 0 {
		s.empty = true
	}
	return false, nil
}

// Procs implements Group. Doubtful processes are not listed.
func (s *Session) Procs() ([]int, error) {
	found, err := s.scan()
	return found.pids(), err
}

// Signal implements Group.
func (s *Session) Signal(sig syscall.Signal) error {
	found, err := s.scan()
	if err != nil {
		return err
	}
	return signalPIDs(found.pids(), sig, found.same)
}

// killRounds bounds how often Kill looks for processes forked meanwhile.
const killRounds = 16

// Kill implements Group. A session has no atomic kill, so it repeats until no
// process turns up that has not been killed yet.
func (s *Session) Kill() error {
	s.mu.Lock()
	s.killed = true
	s.mu.Unlock()
	done := map[identity]bool{}
	for range killRounds {
		found, err := s.scan()
		if err != nil {
			return err
		}
		fresh := found.without(done)
		if len(fresh.members) == 0 && found.whole {
			return found.doubt()
		}
		if err := signalPIDs(fresh.pids(), syscall.SIGKILL, fresh.same); err != nil {
			return fmt.Errorf("kill session: %w", err)
		}
		for _, m := range fresh.members {
			done[m] = true
		}
	}
	return errors.New("kill session: it forks faster than it can be killed; try again, or use cgroups")
}

// The pauses between two looks of WaitEmpty.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// WaitEmpty implements Group. In a session that was killed it also kills what
// turns up late.
func (s *Session) WaitEmpty(ctx context.Context) error {
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		populated, err := s.Populated()
		if err != nil || !populated {
			return err
		}
		if s.wasKilled() {
			_ = s.Kill() // the next look tells what came of it
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("wait for session to empty: %w", context.Cause(ctx))
		}
	}
}

func (s *Session) wasKilled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed
}

// Remove implements Group. There is nothing to remove, only to check.
func (s *Session) Remove() error {
	populated, err := s.Populated()
	if err == nil && populated {
		err = fmt.Errorf("remove session: %w", ErrPopulated)
	}
	return err
}

// scan looks through /proc once and remembers who certainly belongs.
func (s *Session) scan() (findings, error) {
	s.mu.Lock()
	leader, empty, seen := s.leader, s.empty, maps.Clone(s.seen)
	s.mu.Unlock()
	if leader.pid == 0 || empty {
		return findings{whole: true}, nil
	}
	procs, whole, err := kernelProcs().snapshot(leader.start, s.marks)
	if err != nil {
		return findings{}, err
	}
	found := classify(procs, leader, seen)
	found.whole = whole
	s.mu.Lock()
	defer s.mu.Unlock()
	// Only live ones stay: an identity that is gone cannot come back.
	s.seen = make(map[identity]bool, len(found.members))
	for _, m := range found.members {
		s.seen[m] = true
	}
	return found, nil
}

// findings is the result of one scan.
type findings struct {
	members  []identity
	doubtful []identity
	// whole is false if members may have been forked behind the scan.
	whole bool
	// unclear is true if somebody could not be told from a member just now.
	unclear bool
}

// classify decides who belongs to the session of leader. It is pure.
func classify(procs []candidate, leader identity, seen map[identity]bool) findings {
	in := map[int]identity{}
	ours := false // whether the session number still is the leader's session
	for _, p := range procs {
		id := identity{p.PID, p.Start}
		if id == leader || seen[id] || p.marked {
			ours = ours || p.Session == leader.pid
			if !p.Dead {
				in[p.PID] = id
			}
		}
	}
	for _, p := range procs {
		if ours && p.Session == leader.pid && !p.Dead {
			in[p.PID] = identity{p.PID, p.Start}
		}
	}
	addChildren(procs, in)
	var found findings
	for _, p := range procs {
		if _, is := in[p.PID]; is || p.Dead {
			continue
		}
		found.unclear = found.unclear || p.unclear
		if p.Session == leader.pid && !recycled(procs, leader) {
			found.doubtful = append(found.doubtful, identity{p.PID, p.Start})
		}
	}
	found.members = slices.SortedFunc(maps.Values(in), func(a, b identity) int { return a.pid - b.pid })
	return found
}

// recycled reports whether the leader's pid belongs to another process now. The
// kernel frees a number only when no session uses it any more, so then the
// leader's session has ended and whoever is in one of that number is a stranger.
func recycled(procs []candidate, leader identity) bool {
	return slices.ContainsFunc(procs, func(p candidate) bool {
		return p.PID == leader.pid && p.Start != leader.start
	})
}

// addChildren adds the descendants of those that are in, wherever they moved.
func addChildren(procs []candidate, in map[int]identity) {
	for grown := true; grown; {
		grown = false
		for _, p := range procs {
			parent, ok := in[p.PPID]
			if _, already := in[p.PID]; already || !ok || p.Dead || p.Start < parent.start {
				continue
			}
			in[p.PID] = identity{p.PID, p.Start}
			grown = true
		}
	}
}

func (f findings) pids() []int {
	pids := make([]int, len(f.members))
	for i, m := range f.members {
		pids[i] = m.pid
	}
	return pids
}

func (f findings) without(done map[identity]bool) findings {
	f.members = slices.DeleteFunc(slices.Clone(f.members), func(m identity) bool { return done[m] })
	return f
}

// same lists the members that still are the processes they were at the scan.
func (f findings) same([]int) ([]int, error) {
	var pids []int
	var errs []error
	for _, m := range f.members {
		switch st, err := ReadStat(m.pid); {
		case err == nil && st.Start == m.start:
			pids = append(pids, m.pid)
		case err != nil && !Ended(err) && !errors.Is(err, fs.ErrPermission):
			errs = append(errs, err)
		}
	}
	return pids, errors.Join(errs...)
}

// doubt is the error that names processes which could be strangers.
func (f findings) doubt() error {
	if len(f.doubtful) == 0 {
		return nil
	}
	pids := make([]int, len(f.doubtful))
	for i, d := range f.doubtful {
		pids[i] = d.pid
	}
	return fmt.Errorf("kill session: pids %v may be left over from this generation or belong to somebody else; check them and end them by hand", pids)
}
