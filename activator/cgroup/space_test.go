package cgroup

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// In a space of few process numbers they begin again at the lowest all the time, as
// they do now and then everywhere. A daemon that hops is then behind whoever walks
// through them upwards.
func TestNoProofOfEmptyWhileAProcessHopsOverTheHighestNumber(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it makes a namespace of processes")
	}
	var out strings.Builder
	cmd := actor(t, "small-space", "USHER_TEST_MARK="+t.TempDir(), func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID | syscall.CLONE_NEWNS
		cmd.Stdout, cmd.Stderr = &out, &out
	})
	err := cmd.Wait()
	if strings.Contains(out.String(), noSmallSpace) {
		t.Skip(strings.TrimSpace(out.String()))
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
}

const (
	noSmallSpace = "needs a namespace with a /proc and a highest number of its own"
	// The lowest 300 are not used again.
	highestNumber = 300 + 30
)

// inSmallSpace is process 1 there, and never returns.
func inSmallSpace() {
	signal.Ignore(syscall.SIGCHLD) // so that no zombie takes a number
	if err := makeSmallSpace(); err != nil {
		fmt.Printf("%s: %v\n", noSmallSpace, err)
		os.Exit(1)
	}
	mark := ""
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "USHER_TEST_MARK=") {
			mark = entry
		}
	}
	if fork() == 0 {
		hop()
	}
	looks, begun := 0, time.Now()
	for ; time.Since(begun) < 4*time.Second; looks++ {
		s := OpenSession(1<<20, 1, []string{mark})
		if populated, err := s.Populated(); err != nil || !populated {
			fmt.Printf("look %d: populated %v, %v, and something runs\n", looks, populated, err)
			os.Exit(1)
		}
	}
	os.Exit(0) // with process 1 all others end
}

func makeSmallSpace() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	// Before Linux 6.14 the highest number is that of the whole machine.
	var name unix.Utsname
	var major, minor int
	if err := unix.Uname(&name); err != nil {
		return err
	}
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor); n < 2 || major < 6 || major == 6 && minor < 14 {
		return errors.New("the highest number is the same for all")
	}
	return os.WriteFile("/proc/sys/kernel/pid_max", []byte(fmt.Sprint(highestNumber)), 0)
}

// fork returns 0 in the child. That is a copy of one thread of a Go program, so it may
// make system calls and nothing else.
//
//go:nosplit
func fork() int {
	pid, _, _ := syscall.RawSyscall(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0)
	return int(pid)
}

// hop forks and ends, and so does the child, for ever.
//
//go:nosplit
func hop() {
	for {
		if fork() > 0 {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
		}
	}
}
