package store_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/usher-edge/usher/activator/store"
)

const (
	roleEnv = "USHER_STORE_TEST_ROLE"
	dirEnv  = "USHER_STORE_TEST_DIR"
)

// child is what the helper process does; its exit status says how it went.
func child(role string) int {
	dir := os.Getenv(dirEnv)
	var err error
	switch role {
	case "lock":
		err = childLock(dir)
	case "commit":
		err = childCommit(dir)
	case "full":
		err = childFull(dir)
	default:
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// childLock holds the lock until its stdin ends.
func childLock(dir string) error {
	l, err := store.Lock(dir)
	if err != nil {
		return err
	}
	fmt.Println("locked")
	_, _ = os.Stdin.Read(make([]byte, 1))
	return l.Unlock()
}

// childCommit counts Restarts up for ever and says each number when, and not
// before, it is committed; it is there to be killed.
func childCommit(dir string) error {
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	for {
		a, err := s.Update("web", 0, func(a *store.App) error { a.Restarts++; return nil })
		if err != nil {
			return err
		}
		s.AppendEvent(store.Event{Kind: "restart"})
		fmt.Println(a.Restarts)
	}
}

// childFull fills the disk (a limit on the size of files stands in for it)
// with commits until one fails, and checks that the store stays whole and
// goes on when there is room again.
func childFull(dir string) error {
	signal.Ignore(syscall.SIGXFSZ)
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		return err
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 96 << 10, Max: was.Max}); err != nil {
		return err
	}
	if err := fillUntilError(s); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		return err
	}
	if _, err := s.Update("after", 0, func(a *store.App) error { a.Paused = true; return nil }); err != nil {
		return fmt.Errorf("commit after there is room again: %w", err)
	}
	return errors.Join(s.Check(), s.Close())
}

// fillUntilError commits new apps until that fails, and checks that all that
// succeeded are there and the failed one is whole or absent.
func fillUntilError(s store.Commits) error {
	big := make([]byte, 4<<10)
	for i := range big {
		big[i] = 'x'
	}
	for i := range 1000 {
		name := fmt.Sprintf("app-%d", i)
		_, err := s.Update(name, 0, func(a *store.App) error { a.FileValue = string(big); return nil })
		s.AppendEvent(store.Event{Kind: "filled", App: name, Text: string(big)})
		if err == nil {
			continue
		}
		for j := range i {
			a, err := s.Get(fmt.Sprintf("app-%d", j))
			if err != nil || len(a.FileValue) != len(big) {
				return fmt.Errorf("app-%d after a failed commit: %w", j, err)
			}
		}
		if got := len(s.EventsSince(0, 0)); got != i+1 {
			return fmt.Errorf("%d events are readable after %d appends", got, i+1)
		}
		return nil
	}
	return errors.New("the disk never became full")
}

func childCmd(t *testing.T, role, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+role, dirEnv+"="+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

// lines starts the helper and returns its stdout, line by line.
func lines(t *testing.T, cmd *exec.Cmd) *bufio.Scanner {
	t.Helper()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	return bufio.NewScanner(out)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
