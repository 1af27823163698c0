package cgroup

import (
	"errors"
	"slices"
	"syscall"
	"testing"
)

func TestSessionMembershipIsDecidedOnEvidence(t *testing.T) {
	const lead, start = 100, 1000
	leader := identity{lead, start}
	proc := func(pid, ppid, session int, start uint64) candidate {
		return candidate{Stat: Stat{PID: pid, PPID: ppid, Session: session, Start: start}}
	}
	marked := func(c candidate) candidate { c.marked = true; return c }
	dead := func(c candidate) candidate { c.Dead = true; return c }
	tests := []struct {
		name     string
		procs    []candidate
		seen     []identity
		members  []int
		doubtful []int
	}{
		{
			name:    "the live leader vouches for its session",
			procs:   []candidate{proc(100, 1, 100, 1000), proc(101, 1, 100, 1001), proc(200, 1, 200, 1002)},
			members: []int{100, 101},
		},
		{
			name:    "so does a leader that is a zombie, but it is no member",
			procs:   []candidate{dead(proc(100, 1, 100, 1000)), proc(101, 1, 100, 1001)},
			members: []int{101},
		},
		{
			name:    "so does one that was seen before",
			procs:   []candidate{proc(101, 1, 100, 1001), proc(102, 1, 100, 1002)},
			seen:    []identity{{101, 1001}},
			members: []int{101, 102},
		},
		{
			name:    "so does a marked one",
			procs:   []candidate{marked(proc(101, 1, 100, 1001)), proc(102, 1, 100, 1002)},
			members: []int{101, 102},
		},
		{
			name:     "with nobody to vouch they are in doubt",
			procs:    []candidate{proc(101, 1, 100, 1001), proc(102, 1, 100, 1002)},
			doubtful: []int{101, 102},
		},
		{
			name:     "a recycled pid is not the one that was seen",
			procs:    []candidate{proc(101, 1, 100, 5001)},
			seen:     []identity{{101, 1001}},
			doubtful: []int{101},
		},
		{
			name:  "the number belongs to another session by now",
			procs: []candidate{proc(100, 1, 100, 9000), proc(101, 100, 100, 9001)},
		},
		{
			name:    "a marked daemon is found wherever it went",
			procs:   []candidate{marked(proc(300, 1, 300, 1003)), proc(301, 1, 301, 1004)},
			members: []int{300},
		},
		{
			name:    "a child that left the session follows its parent, and so on",
			procs:   []candidate{proc(402, 401, 402, 1003), proc(401, 100, 401, 1002), proc(100, 1, 100, 1000)},
			members: []int{100, 401, 402},
		},
		{
			name:    "one that was seen and then left stays a member",
			procs:   []candidate{proc(500, 1, 500, 1003)},
			seen:    []identity{{500, 1003}},
			members: []int{500},
		},
		{
			name:  "the dead are no members",
			procs: []candidate{dead(proc(100, 1, 100, 1000)), dead(proc(101, 100, 100, 1001)), dead(proc(102, 101, 102, 1001))},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := map[identity]bool{}
			for _, id := range tt.seen {
				seen[id] = true
			}
			found := classify(tt.procs, leader, seen)
			var doubtful []int
			for _, d := range found.doubtful {
				doubtful = append(doubtful, d.pid)
			}
			if !slices.Equal(found.pids(), tt.members) || !slices.Equal(doubtful, tt.doubtful) {
				t.Errorf("members %v, doubtful %v; want %v, %v", found.pids(), doubtful, tt.members, tt.doubtful)
			}
		})
	}
}

func TestSessionKillsMarkedDaemonsWithTheRest(t *testing.T) {
	mark := "USHER_TEST_MARK=" + t.TempDir()
	s := NewSession([]string{mark})
	if populated, err := s.Populated(); err != nil || populated {
		t.Fatalf("an unbound session: populated %v, %v", populated, err)
	}
	file := temp(t, "pid")
	leader := shell(t, s, daemon(file), mark).Process.Pid
	stray := pidFrom(t, file)
	bystander := shell(t, nil, "exec sleep 600").Process.Pid
	pids, err := s.Procs()
	if err != nil || !slices.Contains(pids, leader) || !slices.Contains(pids, stray) || slices.Contains(pids, bystander) {
		t.Fatalf("got %v, %v; want %d and %d but not %d", pids, err, leader, stray, bystander)
	}
	if err := s.Remove(); !errors.Is(err, ErrPopulated) {
		t.Fatalf("remove while populated: %v", err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, s)
	if alive(leader) || alive(stray) || !alive(bystander) {
		t.Fatalf("alive: leader %v, daemon %v, bystander %v", alive(leader), alive(stray), alive(bystander))
	}
	if err := s.Remove(); err != nil {
		t.Fatal(err)
	}
}

func TestSessionFoundAgainAfterItsLeaderDied(t *testing.T) {
	mark := "USHER_TEST_MARK=" + t.TempDir()
	first := NewSession([]string{mark})
	file := temp(t, "pid")
	cmd := shell(t, first, daemon(file), mark)
	stray := pidFrom(t, file)
	st := statOf(t, cmd.Process.Pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()

	again := OpenSession(st.PID, st.Start, []string{mark})
	if populated, err := again.Populated(); err != nil || !populated {
		t.Fatalf("populated %v, %v", populated, err)
	}
	if err := again.Kill(); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, again)
	if alive(stray) {
		t.Fatal("the daemon outlived its session")
	}
}

func TestSessionInDoubtKillsNobodyAndClaimsNothing(t *testing.T) {
	// The orphan of a leader that is gone, unmarked and never seen before.
	file := temp(t, "pid")
	cmd := shell(t, nil, "sleep 600 & echo $! > "+file+"; wait")
	orphan := pidFrom(t, file)
	st := statOf(t, cmd.Process.Pid)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Cleanup(func() { _ = syscall.Kill(orphan, syscall.SIGKILL) })

	s := OpenSession(st.PID, st.Start, []string{"USHER_TEST_MARK=none"})
	if populated, err := s.Populated(); err != nil || !populated {
		t.Errorf("doubt must not pass for the proof of empty: populated %v, %v", populated, err)
	}
	if err := s.Signal(syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := s.Kill(); err == nil {
		t.Error("kill must say that it left somebody")
	}
	if !alive(orphan) {
		t.Error("a process that may be a stranger was killed")
	}
}

func TestSessionKeepsUpWithForks(t *testing.T) {
	s := NewSession(nil)
	leader := shell(t, s, "while :; do sleep 600 & sleep 0.001; done")
	eventually(t, "a few children", func() bool {
		pids, _ := s.Procs()
		return len(pids) > 20
	})
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	waitEmpty(t, s)
	_ = leader.Wait()
	if pids, err := s.Procs(); err != nil || len(pids) != 0 {
		t.Fatalf("left %v, %v", pids, err)
	}
}

func TestSessionIsBoundOnceAndNotAfterKill(t *testing.T) {
	s := NewSession(nil)
	if err := s.Bind(1<<22+1, 5); err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(1<<22+2, 6); !errors.Is(err, ErrNotFresh) {
		t.Errorf("second bind: %v", err)
	}
	killed := NewSession(nil)
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := killed.Bind(1<<22+1, 5); !errors.Is(err, ErrNotFresh) {
		t.Errorf("bind after kill: %v", err)
	}
}
