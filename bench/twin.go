package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// OwnTimes are what an app's process takes by itself.
type OwnTimes struct {
	Start time.Duration // to its first answer below 500
	Stop  time.Duration // from SIGTERM to its end, with connections open
}

// Twin starts the process of an app once more, outside usher: the same program,
// arguments, directory, user and environment, with an address of its own. It
// works on the machine of the app only, and where we may read of its process.
type Twin struct {
	program string
	args    []string
	env     []string // without PORT, SOCKET and what marks a generation
	socket  bool     // it listens on a unix socket
	dir     string
	uid     uint32
	gid     uint32
	host    string
	path    string
}

// FindTwin reads of the process of a generation. ask says which host and path
// its answer is looked for at.
func FindTwin(pid int, generation uint64, ask Target) (*Twin, error) {
	root := filepath.Join("/proc", strconv.Itoa(pid))
	t := &Twin{host: ask.withDefaults().Host, path: ask.withDefaults().Path}
	environ, err := os.ReadFile(filepath.Join(root, "environ"))
	if err == nil {
		t.program, err = os.Readlink(filepath.Join(root, "exe"))
	}
	if err == nil {
		t.dir, err = os.Readlink(filepath.Join(root, "cwd"))
	}
	var cmdline, status []byte
	if err == nil {
		cmdline, err = os.ReadFile(filepath.Join(root, "cmdline"))
	}
	if err == nil {
		status, err = os.ReadFile(filepath.Join(root, "status"))
	}
	if err != nil {
		return nil, fmt.Errorf("read of the app's process (it must be on this machine, and ours to read): %w", err)
	}
	t.args = strings.Split(strings.TrimSuffix(string(cmdline), "\x00"), "\x00")
	t.uid, t.gid = ids(status)
	all := strings.Split(strings.TrimSuffix(string(environ), "\x00"), "\x00")
	if !slices.Contains(all, "USHER_GENERATION="+strconv.FormatUint(generation, 10)) {
		return nil, fmt.Errorf("process %d of this machine is not generation %d: the app runs elsewhere", pid, generation)
	}
	for _, v := range all {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "SOCKET":
			t.socket = true
		case "PORT", "LISTEN_PID", "USHER_GENERATION", "USHER_INSTANCE":
			// Without the last two, usher does not take it for one of its own.
		default:
			t.env = append(t.env, v)
		}
	}
	return t, nil
}

// ids are the real user and group of a process.
func ids(status []byte) (uid, gid uint32) {
	for line := range bytes.Lines(status) {
		fields := strings.Fields(string(line))
		if len(fields) < 2 {
			continue
		}
		n, err := strconv.ParseUint(fields[1], 10, 32)
		switch {
		case err != nil:
		case fields[0] == "Uid:":
			uid = uint32(n)
		case fields[0] == "Gid:":
			gid = uint32(n)
		}
	}
	return uid, gid
}

// Companion is a twin that runs.
type Companion struct {
	network string
	address string
	cmd     *exec.Cmd
	dir     string // of its socket
	ended   chan struct{}
	started time.Duration
	// executed is when its program was.
	executed time.Time
}

// twinLimit bounds its start and its stop.
const twinLimit = time.Minute

// Start starts the process and returns when it answers. It asks about as rarely as
// usher does of a successor: asking is work on the same machine, and in windows that
// are compared there shall be as much of it.
func (t *Twin) Start(ctx context.Context) (*Companion, error) { return t.start(ctx, leisurely) }

func (t *Twin) start(ctx context.Context, pace pace) (*Companion, error) {
	dir, err := os.MkdirTemp("", "usher-bench-")
	if err != nil {
		return nil, err
	}
	c := &Companion{dir: dir, ended: make(chan struct{})}
	network, address, variable, err := t.address(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	c.network, c.address = network, address
	c.cmd = exec.Command(t.program)
	c.cmd.Args, c.cmd.Dir = t.args, t.dir
	c.cmd.Env = append(slices.Clone(t.env), variable, "USHER_GENERATION=0")
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	if int(t.uid) != os.Geteuid() {
		c.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: t.uid, Gid: t.gid}
	}
	began := time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, errors.Join(fmt.Errorf("start the app's process once more: %w", err), os.RemoveAll(dir))
	}
	c.executed = time.Now()
	go func() { // ends with the process, which Stop sees to
		_ = c.cmd.Wait() // how it ended does not matter
		close(c.ended)
	}()
	if err := c.ready(ctx, pace, func() error { return t.answers(network, address) }); err != nil {
		_, stopErr := c.Stop()
		return nil, errors.Join(fmt.Errorf("start the app's process once more: %w", err), stopErr)
	}
	c.started = time.Since(began)
	return c, nil
}

// address is where the twin will listen, and the variable that tells it.
func (t *Twin) address(dir string) (network, address, variable string, err error) {
	if t.socket {
		path := filepath.Join(dir, "s")
		if err := errors.Join(os.Chmod(dir, 0o711), chown(dir, t.uid, t.gid)); err != nil {
			return "", "", "", err
		}
		return "unix", path, "SOCKET=" + path, nil
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", "", "", err
	}
	address = l.Addr().String()
	_, port, _ := net.SplitHostPort(address)
	return "tcp", address, "PORT=" + port, l.Close()
}

func chown(dir string, uid, gid uint32) error {
	if int(uid) == os.Geteuid() {
		return nil
	}
	return os.Chown(dir, int(uid), int(gid))
}

// answers tells whether the twin answers below 500.
func (t *Twin) answers(network, address string) error {
	conn, err := net.DialTimeout(network, address, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", t.path, t.host); err != nil {
		return err
	}
	line := make([]byte, len("HTTP/1.1 200"))
	if _, err := conn.Read(line); err != nil {
		return err
	}
	status, err := strconv.Atoi(string(bytes.TrimSpace(line[len("HTTP/1.1 "):])))
	if err != nil || status >= 500 {
		return fmt.Errorf("answered %q", line)
	}
	return nil
}

// pace is the pause after a question whether a process that starts is there, sofar
// after the first.
type pace func(sofar time.Duration) time.Duration

// eagerly is for taking the time of a start.
func eagerly(time.Duration) time.Duration { return 2 * time.Millisecond }

// leisurely is what docs/config.md says of health checks.
func leisurely(sofar time.Duration) time.Duration {
	return min(max(sofar/4, 10*time.Millisecond), 250*time.Millisecond)
}

// ready asks again and again.
func (c *Companion) ready(ctx context.Context, pace pace, ask func() error) error {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(ctx, twinLimit)
	defer cancel()
	for {
		err := ask()
		if err == nil {
			return nil
		}
		select {
		case <-c.ended:
			return fmt.Errorf("it ended: %s", c.cmd.ProcessState)
		default:
		}
		if pause(ctx, pace(time.Since(begun))) != nil {
			return fmt.Errorf("it does not answer: %w", err)
		}
	}
}

// Stop ends the process, by force if a minute does not do, and returns how long
// that took.
func (c *Companion) Stop() (time.Duration, error) {
	began := time.Now()
	// An error says that it has ended.
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(twinLimit)
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
	}
	took := time.Since(began)
	// Its session may hold children that outlived it.
	_ = syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
	<-c.ended
	return took, os.RemoveAll(c.dir)
}

// Own starts and stops the process once. When it is told to stop it has so many
// connections open and idle, each of which has had an answer, as it has in a swap under
// load. Nothing else of the app may run meanwhile if it bears only one.
func (t *Twin) Own(ctx context.Context, connections int) (OwnTimes, error) {
	c, err := t.start(ctx, eagerly)
	if err != nil {
		return OwnTimes{}, err
	}
	for range connections {
		conn, visitErr := t.visit(c)
		if err = visitErr; err != nil {
			err = fmt.Errorf("open a connection to the app's process: %w", err)
			break
		}
		defer conn.Close()
	}
	took, stopErr := c.Stop()
	return OwnTimes{Start: c.started, Stop: took}, errors.Join(err, stopErr)
}

// visit opens a connection and gets one answer on it.
func (t *Twin) visit(c *Companion) (net.Conn, error) {
	conn, err := net.DialTimeout(c.network, c.address, time.Second)
	if err != nil {
		return nil, err
	}
	err = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if err == nil {
		_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", t.path, t.host)
	}
	var answer fasthttp.Response
	if err == nil {
		err = answer.Read(bufio.NewReader(conn))
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}
