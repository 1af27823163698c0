package e2e

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/bench"
)

// lines reads lines with a limit on the wait for each.
type lines struct {
	next chan string
	text string
}

func newLines(r io.Reader) *lines {
	l := &lines{next: make(chan string, 100)}
	go func() { // ends with r
		defer close(l.next)
		for s := bufio.NewScanner(r); s.Scan(); {
			l.next <- s.Text()
		}
	}()
	return l
}

// Scan waits for the next line, 10 s at most.
func (l *lines) Scan() (more bool) {
	select {
	case l.text, more = <-l.next:
		return more
	case <-time.After(10 * time.Second):
		return false
	}
}

// Text is the line that Scan has found.
func (l *lines) Text() string { return l.text }

// until reads on to a line that holds all the words.
func (l *lines) until(words ...string) bool {
next:
	for l.Scan() {
		for _, w := range words {
			if !strings.Contains(l.Text(), w) {
				continue next
			}
		}
		return true
	}
	return false
}

// rest reads to the end.
func (l *lines) rest() {
	for range l.next {
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// plain is a load of GETs at a moderate rate.
func plain(u *usher, name, path string) bench.Load {
	return bench.Load{
		Rate: 50, Duration: time.Minute, Connections: 16, NewConnections: 0.2, Seed: 1,
		Targets: []bench.Target{{Address: u.listen, Host: name + ".localhost", Path: path}},
	}
}

// wantOwner expects a process to run as that user, with no further groups.
func wantOwner(t *testing.T, pid int, name string) {
	t.Helper()
	account, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	status := readFile(t, fmt.Sprintf("/proc/%d/status", pid))
	for _, want := range []string{
		"Uid:\t" + strings.Repeat(account.Uid+"\t", 3) + account.Uid + "\n",
		"Gid:\t" + strings.Repeat(account.Gid+"\t", 3) + account.Gid + "\n",
	} {
		if !strings.Contains(status, want) {
			t.Errorf("pid %d: no %q in its status", pid, want)
		}
	}
	for line := range strings.Lines(status) {
		if groups, is := strings.CutPrefix(line, "Groups:"); is && strings.TrimSpace(groups) != "" {
			t.Errorf("pid %d is in groups %s", pid, groups)
		}
	}
}

// following runs the command line and gives its lines; it ends with the test.
func (u *usher) following(args ...string) *lines {
	u.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, theLab.usher, append([]string{"--admin", "unix:" + u.admin}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		u.t.Fatal(err)
	}
	l := newLines(out)
	u.t.Cleanup(func() {
		cancel()
		l.rest()
		_ = cmd.Wait() // it was interrupted
		if code := cmd.ProcessState.ExitCode(); code != 0 {
			u.t.Errorf("usher %s: exit code %d when interrupted", strings.Join(args, " "), code)
		}
	})
	return l
}
