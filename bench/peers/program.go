package peers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/usher-edge/usher/bench/proc"
)

// program is one command of a peer.
type program struct {
	path string
	args []string
	env  []string // in place of ours; nil keeps it
	// stdout is the file that its standard output is appended to; empty: that
	// of its standard error.
	stdout string
}

// line is the command as one would type it.
func (p program) line() string {
	return strings.Join(append([]string{p.path}, p.args...), " ")
}

// running is a program that was started.
type running struct {
	cmd    *exec.Cmd
	errors string        // the file of its standard error
	ended  chan struct{} // closed when it has ended and was waited for
}

const (
	stopLimit   = 5 * time.Second // from the signal to the kill
	mostMessage = 400             // bytes of a program's own words
)

// start runs a program in a directory of its own.
func (p program) start(dir string) (*running, error) {
	r := &running{errors: filepath.Join(dir, filepath.Base(p.path)+".stderr"), ended: make(chan struct{})}
	own, err := openLog(r.errors)
	if err != nil {
		return nil, err
	}
	defer own.Close()
	r.cmd = exec.Command(p.path, p.args...)
	r.cmd.Dir, r.cmd.Env = dir, p.env
	r.cmd.Stderr, r.cmd.Stdout = own, own
	if p.stdout != "" {
		out, err := openLog(p.stdout)
		if err != nil {
			return nil, err
		}
		defer out.Close()
		r.cmd.Stdout = out
	}
	// Its own group: an interrupt from the terminal is for us, and we end it in
	// our order. It ends with us even if we are killed.
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	go func() { // ends with the process, which stop sees to
		_ = r.cmd.Wait() // how it ended is in ProcessState
		close(r.ended)
	}()
	return r, nil
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// run runs a program to its end.
func (p program) run(ctx context.Context, dir string) error {
	r, err := p.start(dir)
	if err != nil {
		return err
	}
	defer r.stop()
	select {
	case <-r.ended:
	case <-ctx.Done():
		return ctx.Err()
	}
	if !r.cmd.ProcessState.Success() {
		return r.says(r.cmd.ProcessState.String())
	}
	return nil
}

// gone tells whether it has ended.
func (r *running) gone() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// says is an error with the end of what the program wrote, on one line.
func (r *running) says(what string) error {
	text, err := os.ReadFile(r.errors)
	if err != nil {
		return errors.New(what)
	}
	own := strings.Join(strings.Fields(string(text)), " ")
	if len(own) > mostMessage {
		own = "…" + strings.ToValidUTF8(own[len(own)-mostMessage:], "")
	}
	if own == "" {
		return fmt.Errorf("%s, and it wrote nothing", what)
	}
	return fmt.Errorf("%s: %s", what, own)
}

// stop ends the program and all that descend from it, and waits for it.
func (r *running) stop() {
	t := proc.Tree{Roots: []int{r.cmd.Process.Pid}}
	_ = t.Look() // without /proc there is only the root to end
	born := map[int]uint64{}
	for _, pid := range t.Known[1:] {
		if s, err := proc.Read(pid); err == nil {
			born[pid] = s.Started
		}
	}
	// Errors below say that it is gone already, which is what is wanted.
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(stopLimit)
	defer timer.Stop()
	select {
	case <-r.ended:
	case <-timer.C:
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	for pid, started := range born {
		if s, err := proc.Read(pid); err == nil && s.Started == started {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL) // its group: what was born after the look
}
