package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// stage is the demo's own place: a directory, an address, a configuration.
type stage struct {
	dir    string
	usher  string // absolute path of the binary
	apps   string // absolute path of the builds
	listen string // free address
}

func newStage(o options) (_ *stage, err error) {
	s := &stage{}
	if s.usher, err = executable(o.usher); err != nil {
		return nil, err
	}
	if s.apps, err = filepath.Abs(o.apps); err != nil {
		return nil, err
	}
	for _, name := range []string{"hello", "hello-v2", "hello-v3"} {
		if _, err := executable(filepath.Join(s.apps, name)); err != nil {
			return nil, err
		}
	}
	if s.listen, err = freeAddress(o.listen); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "usher-demo-"); err != nil {
		return nil, err
	}
	// When usher is root its apps are not, and must get to what is theirs.
	err = os.Chmod(s.dir, 0o755)
	if err == nil && len(s.adminSocket()) > 100 {
		err = fmt.Errorf("%s is too long for a unix socket: set TMPDIR to a shorter path", s.dir)
	}
	if err == nil {
		err = os.WriteFile(s.config(), []byte(s.toml()), 0o644)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return s, nil
}

func executable(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return "", fmt.Errorf("%s is no program: build usher and the example apps first (make demo does)", path)
	}
	return path, nil
}

// freeAddress is address, or another port of its host if it is in use.
func freeAddress(address string) (string, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("address %q: want host:port: %w", address, err)
	}
	probe, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		probe, err = net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	if err != nil {
		return "", fmt.Errorf("find a free address: %w", err)
	}
	return probe.Addr().String(), probe.Close()
}

func (s *stage) config() string      { return filepath.Join(s.dir, "usher.toml") }
func (s *stage) adminSocket() string { return filepath.Join(s.dir, "admin.sock") }
func (s *stage) logFile() string     { return filepath.Join(s.dir, "usher.log") }

func (s *stage) url(app string) string {
	_, port, _ := net.SplitHostPort(s.listen)
	return "http://" + app + ".localhost:" + port + "/"
}

// idleTimeout is short, so that nobody has to wait for sleep.
const idleTimeout = "2s"

// toml is the configuration: hello, swapped by overlap, on a port, and notes,
// swapped by hold, on a unix socket.
func (s *stage) toml() string {
	user := ""
	if os.Geteuid() == 0 {
		user = "user = \"nobody\"\n"
	}
	artifact := strconv.Quote(filepath.Join(s.apps, "hello"))
	return fmt.Sprintf(`[server]
listen = [%q]
admin = %q
state = %q
run = %q

[apps.hello]
hosts = ["hello.localhost"]
artifact = %s
%slisten = "port"
swap = "overlap"
single_writer = "best-effort"
idle_timeout = %q
env = { GREETING = "hi" }

[apps.notes]
hosts = ["notes.localhost"]
artifact = %s
%slisten = "socket"
swap = "hold"
single_writer = "best-effort"
idle_timeout = %q
env = { GREETING = "notes" }
`, s.listen, "unix:"+s.adminSocket(), filepath.Join(s.dir, "state"), filepath.Join(s.dir, "run"),
		artifact, user, idleTimeout, artifact, user, idleTimeout)
}

// clear kills what still runs out of the directory, and removes it. usher stops
// its apps itself; this is for the day when it could not.
func (s *stage) clear() error {
	for _, pid := range s.leftovers() {
		// It may have left by itself meanwhile.
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return removeTree(s.dir)
}

// leftovers are the processes whose program or working directory is inside.
func (s *stage) leftovers() []int {
	var pids []int
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		for _, link := range []string{"exe", "cwd"} {
			path, err := os.Readlink(filepath.Join("/proc", e.Name(), link))
			if err == nil && strings.HasPrefix(path, s.dir+"/") {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// removeTree removes a directory that holds staged builds, which are read-only:
// an ordinary user must make their directories writable first.
func removeTree(dir string) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o700)
	})
	return errors.Join(err, os.RemoveAll(dir))
}
