package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// daemon is the running usher, and its command line.
type daemon struct {
	stage  *stage
	log    *os.File
	cmd    *exec.Cmd
	exited chan struct{} // closed when it has left
}

func startDaemon(s *stage) (*daemon, error) {
	log, err := os.Create(s.logFile())
	if err != nil {
		return nil, err
	}
	d := &daemon{stage: s, log: log, exited: make(chan struct{})}
	d.cmd = exec.Command(s.usher, "serve", "--config", s.config(), "--stop-apps")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	// A Ctrl-C is for the demo, which then stops usher; if the demo is killed,
	// the kernel tells usher.
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := d.cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("start usher: %w", err)
	}
	go func() {
		// How it ended is told by its log.
		_ = d.cmd.Wait()
		close(d.exited)
	}()
	return d, nil
}

// Longest waits for usher itself.
const (
	startLimit = 30 * time.Second
	stopLimit  = 30 * time.Second
)

// ready waits until usher answers.
func (d *daemon) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		_, err := d.status(ctx, "hello")
		if err == nil {
			return nil
		}
		select {
		case <-d.exited:
			return errors.New("usher did not start")
		case <-ctx.Done():
			return fmt.Errorf("usher is not ready: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// close stops usher and waits for it.
func (d *daemon) close() error {
	// An error means that it is gone already.
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	var err error
	select {
	case <-d.exited:
	case <-time.After(stopLimit):
		_ = d.cmd.Process.Kill()
		<-d.exited
		err = fmt.Errorf("usher did not stop within %s and was killed", stopLimit)
	}
	return errors.Join(err, d.log.Close())
}

// logTail is the end of what usher wrote.
func (d *daemon) logTail() string {
	const most = 30
	data, err := os.ReadFile(d.stage.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return "  | " + strings.Join(lines[max(0, len(lines)-most):], "\n  | ")
}

// command is one call of the command line.
func (d *daemon) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.stage.usher, append([]string{"--admin", "unix:" + d.stage.adminSocket()}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// status is what the demo reads of `usher status APP --json`.
type status struct {
	State      string `json:"state"`
	Revision   uint64 `json:"revision"`
	Generation uint64 `json:"generation"`
	PID        int    `json:"pid"`
}

func (d *daemon) status(ctx context.Context, app string) (status, error) {
	var s status
	var complaint bytes.Buffer
	cmd := d.command(ctx, "status", app, "--json")
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		return s, fmt.Errorf("usher status %s: %w: %s", app, err, bytes.TrimSpace(complaint.Bytes()))
	}
	return s, nil
}

// receipts shows what usher itself has counted of the swaps.
func (t *story) receipts(ctx context.Context) error {
	out, err := t.command(ctx, "receipts", "hello").Output()
	if err != nil {
		return fmt.Errorf("usher receipts hello: %w", err)
	}
	t.say("usher's own account of the two swaps, by usher receipts hello:\n\n%s", bytes.TrimRight(out, "\n"))
	if bytes.Contains(out, []byte("DOES NOT ADD UP")) {
		return errors.New("a receipt does not add up")
	}
	return nil
}

// deploy runs `usher deploy` and shows its progress while it happens.
func (d *daemon) deploy(ctx context.Context, show io.Writer, app, build, mode string) error {
	cmd := d.command(ctx, "deploy", app, build, "--mode", mode)
	progress, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("usher deploy: %w", err)
	}
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		fmt.Fprintf(show, "    %s\n", lines.Text())
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("usher deploy %s --mode %s: %w", app, mode, err)
	}
	return nil
}
