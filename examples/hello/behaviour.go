package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// behaviour is what the app does wrong, from a list such as
// "slow-start=2s,ignore-term". The zero value does everything right.
type behaviour struct {
	neverHealthy bool          // never-healthy: answers 503 to everything
	hang         bool          // hang: never listens, never exits
	crash        bool          // crash, crash=1s: exits 1 after so long
	crashAfter   time.Duration //
	crashOnce    string        // crash-once=/file: exits 1 on the first start, which makes the file
	ignoreTerm   bool          // ignore-term: a SIGTERM does nothing
	closeOnTerm  bool          // close-on-term: drops what is in flight on SIGTERM
	linger       time.Duration // linger=1s: serves on for so long after SIGTERM
	slowStart    time.Duration // slow-start=1s: listens so late
	boot503      time.Duration // boot503=1s: answers 503 for so long
	delay        time.Duration // delay=1s: every answer takes so long
	fork         int           // fork=2: has so many children that ignore SIGTERM
	daemon       int           // daemon=2: the same, each in a session of its own
	spam         int           // spam, spam=1000: writes so many lines to stdout each second
	allocate     int           // allocate=100: holds so many MiB
}

func parseBehaviour(lists ...string) (behaviour, error) {
	var b behaviour
	var errs []error
	for _, item := range strings.Split(strings.Join(lists, ","), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(item), "=")
		if err := b.set(name, value); err != nil {
			errs = append(errs, fmt.Errorf("behaviour %q: %w", item, err))
		}
	}
	return b, errors.Join(errs...)
}

func (b *behaviour) set(name, value string) (err error) {
	switch name {
	case "", "normal":
	case "never-healthy":
		b.neverHealthy = true
	case "hang":
		b.hang = true
	case "crash":
		b.crash = true
		if value != "" {
			b.crashAfter, err = time.ParseDuration(value)
		}
	case "crash-once":
		b.crashOnce = value
		if value == "" {
			err = errors.New("needs the path of a file that remembers it")
		}
	case "ignore-term":
		b.ignoreTerm = true
	case "close-on-term":
		b.closeOnTerm = true
	case "linger":
		b.linger, err = time.ParseDuration(value)
	case "slow-start":
		b.slowStart, err = time.ParseDuration(value)
	case "boot503":
		b.boot503, err = time.ParseDuration(value)
	case "delay":
		b.delay, err = time.ParseDuration(value)
	case "fork":
		b.fork, err = strconv.Atoi(value)
	case "daemon":
		b.daemon, err = strconv.Atoi(value)
	case "spam":
		b.spam = 1000
		if value != "" {
			b.spam, err = strconv.Atoi(value)
		}
	case "allocate":
		b.allocate, err = strconv.Atoi(value)
	default:
		err = errors.New("is not known; see behaviour.go")
	}
	return err
}

// beforeListening does what happens, or goes wrong, before the app can be
// reached. It never returns for an app that hangs.
func (b *behaviour) beforeListening(term <-chan os.Signal) error {
	if b.crashOnce != "" {
		mark, err := os.OpenFile(b.crashOnce, os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			mark.Close()
			return errors.New("crashes this once, as it was told to")
		}
		if !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	if b.crash {
		time.AfterFunc(b.crashAfter, func() {
			fmt.Fprintf(os.Stderr, "hello %s: crashes after %s, as it was told to\n", version, b.crashAfter)
			os.Exit(1)
		})
	}
	if err := b.startChildren(); err != nil {
		return err
	}
	if b.spam > 0 {
		go b.writeSpam()
	}
	var start <-chan time.Time
	if !b.hang {
		start = time.After(b.slowStart)
	}
	select {
	case <-start:
		return nil
	case <-term:
		os.Exit(0)
		return nil
	}
}

// grandchild is the argument that makes this program a child of itself.
const grandchild = "grandchild"

func (b *behaviour) startChildren() error {
	for i := range b.fork + b.daemon {
		if err := startChild(i >= b.fork); err != nil {
			return fmt.Errorf("start child: %w", err)
		}
	}
	return nil
}

// startChild: its own path is looked up by the kernel, so a build that was moved or
// removed still starts.
func startChild(session bool) error {
	child := exec.Command("/proc/self/exe", grandchild)
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: session}
	if err := child.Start(); err != nil {
		return err
	}
	fmt.Printf("hello %s has child %d\n", version, child.Process.Pid)
	go child.Wait()
	return nil
}

func (b *behaviour) writeSpam() {
	line := []byte(strings.Repeat("spam ", 20) + "\n")
	const ticks = 100
	for range time.Tick(time.Second / ticks) {
		for range (b.spam + ticks - 1) / ticks {
			_, _ = os.Stdout.Write(line)
		}
	}
}
