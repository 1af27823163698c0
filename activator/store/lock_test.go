package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/usher-edge/usher/activator/store"
)

func TestSecondProcessIsToldWhoHoldsTheState(t *testing.T) {
	dir := t.TempDir()
	cmd := childCmd(t, "lock", dir)
	stdin, err := cmd.StdinPipe()
	must(t, err)
	out := lines(t, cmd)
	if !out.Scan() || out.Text() != "locked" {
		t.Fatalf("helper said %q", out.Text())
	}
	_, err = store.Lock(dir)
	var locked store.ErrLocked
	if !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Errorf("error is %v, want the pid %d", err, cmd.Process.Pid)
	}
	if err != nil && !strings.Contains(err.Error(), "stop it first") {
		t.Errorf("message is %q", err)
	}
	must(t, stdin.Close())
	must(t, cmd.Wait())
	l, err := store.Lock(dir)
	must(t, err)
	must(t, l.Unlock())
}

func TestLockOfAKilledProcessIsFree(t *testing.T) {
	dir := t.TempDir()
	cmd := childCmd(t, "lock", dir)
	_, err := cmd.StdinPipe()
	must(t, err)
	out := lines(t, cmd)
	if !out.Scan() {
		t.Fatal("helper did not lock")
	}
	must(t, cmd.Process.Kill())
	_ = cmd.Wait() // killed
	l, err := store.Lock(dir)
	must(t, err)
	must(t, l.Unlock())
}

func TestLockExcludesTheSameProcessToo(t *testing.T) {
	dir := t.TempDir()
	l, err := store.Lock(dir)
	must(t, err)
	var locked store.ErrLocked
	if _, err := store.Lock(dir); !errors.As(err, &locked) {
		t.Errorf("error is %v", err)
	}
	must(t, l.Unlock())
	must(t, l.Unlock()) // idempotent
	l, err = store.Lock(dir)
	must(t, err)
	must(t, l.Unlock())
}
