package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// lab is what all tests share: the programs, and addresses that nobody else of
// this run has.
type lab struct {
	dir   string // 0711, so that apps of other users get to their builds
	root  string // of the module
	usher string
	ready string // directory of programs that were built elsewhere; empty: build them
	seats atomic.Int64

	mu     sync.Mutex // guards builds; programs are built outside it
	builds map[string]func() (string, error)
}

var theLab lab

func TestMain(m *testing.M) {
	os.Exit(theLab.run(m))
}

// atOnce is how many tests run side by side at least: most of them wait.
const atOnce = 5

func (l *lab) run(m *testing.M) int {
	err := l.open()
	defer os.RemoveAll(l.dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	flag.Parse()
	if err := flag.Set("test.parallel", strconv.Itoa(max(runtime.GOMAXPROCS(0), atOnce))); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

func (l *lab) open() (err error) {
	l.builds = map[string]func() (string, error){}
	if err = endAbandoned(os.TempDir()); err != nil {
		return fmt.Errorf("what an earlier run has left: %w", err)
	}
	if l.dir, err = runDir(os.TempDir(), os.Getpid()); err != nil {
		return err
	}
	if err = os.Mkdir(l.dir, 0o700); err != nil {
		return err
	}
	if err = os.Chmod(l.dir, 0o711); err != nil {
		return err
	}
	if err = os.Setenv(runMark, l.dir); err != nil {
		return err
	}
	if l.root, err = filepath.Abs("../../.."); err != nil {
		return err
	}
	if l.ready = os.Getenv("USHER_PROGRAMS"); l.ready != "" {
		l.usher = filepath.Join(l.ready, "usher")
		return nil
	}
	l.usher = filepath.Join(l.dir, "usher")
	args := []string{"build", "-o", l.usher}
	if underRace {
		args = append(args, "-race")
	}
	return l.goTool(append(args, "./cmd/usher"), "")
}

func (l *lab) goTool(args []string, env ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = l.root, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}

// hello returns the path of the example app with that version and behaviour
// (examples/hello/behaviour.go) built in. Each is built once.
func hello(t *testing.T, version string, behaviour ...string) string {
	t.Helper()
	name := "hello-" + strings.Join(append([]string{version}, behaviour...), "-")
	theLab.mu.Lock()
	build := theLab.builds[name]
	if build == nil {
		build = sync.OnceValues(func() (string, error) {
			file := strings.NewReplacer("/", "_", ",", "-", "=", "-").Replace(name)
			if theLab.ready != "" {
				path := filepath.Join(theLab.ready, file)
				_, err := os.Stat(path)
				return path, err
			}
			path := filepath.Join(theLab.dir, file)
			flags := fmt.Sprintf("-s -w -X main.version=%s -X main.behave=%s", version, strings.Join(behaviour, ","))
			return path, theLab.goTool([]string{"build", "-trimpath", "-ldflags", flags, "-o", path, "./examples/hello"}, "CGO_ENABLED=0")
		})
		theLab.builds[name] = build
	}
	theLab.mu.Unlock()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// long says whether the long loops are wanted.
func long() bool { return os.Getenv("USHER_E2E") == "long" }

// rounds is n, or the many that a report asks for.
func rounds(n, many int) int {
	if long() {
		return many
	}
	return n
}

// options of a usher. The zero value has one app.
type options struct {
	server []string // further lines of [server]
	apps   []app    // none: one app with all defaults
	args   []string // further arguments of serve

	descriptors int // that the process may open; 0: as many as this one
}

// app is one [apps.NAME] of the file.
type app struct {
	name     string // "" = hello; its host is NAME.localhost
	artifact string // "" = hello v1; "-" = none
	hold     bool   // swap = "hold", with or without a cgroup
	cache    bool   // cache enabled
	lines    []string
	health   []string // lines of [apps.NAME.health]
	env      map[string]string
}

// usher is one configuration with the processes that it has had.
type usher struct {
	t       *testing.T
	dir     string
	listen  string // host:port
	admin   string // path of the socket
	args    []string
	ports   string       // of its apps
	client  *http.Client // of requests to apps
	control *http.Client // of the admin API
	stdout  *os.File     // nil: the log file

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
	base   vitals        // before the first request

	descriptors int // see options

	external []string // files that the leak check leaves alone: see externalRuns

	// unchecked says why the test cannot end with a leak check; empty: it does.
	unchecked string

	mu      sync.Mutex // guards clients
	clients []*http.Client
}

// start starts a usher and ends the test with the leak check.
func start(t *testing.T, o options) *usher {
	t.Helper()
	u := prepare(t, o)
	u.begin()
	return u
}

// begin serves for the first time, and takes the vitals to come back to.
func (u *usher) begin() {
	u.t.Helper()
	u.serve()
	u.base = u.vitals()
}

// prepare writes the file and starts nothing. The leak check is still made.
func prepare(t *testing.T, o options) *usher {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real processes: run without -short")
	}
	u := &usher{t: t, dir: scratch(t), args: o.args, descriptors: o.descriptors}
	u.listen = freeAddress(t)
	ports := rounds(190, 1900) // a port rests for a minute before it is used again
	first := firstAppPort + int(theLab.seats.Add(1))%(appPorts/ports)*ports
	u.ports = fmt.Sprintf("%d-%d", first, first+ports-1)
	u.admin = filepath.Join(u.dir, "admin.sock")
	u.client = u.newClient()
	u.control = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		ExpectContinueTimeout: 10 * time.Second,
		DisableKeepAlives:     true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", u.admin)
		},
	}}
	u.configure(o)
	t.Cleanup(u.finish)
	return u
}

// scratch is a directory that apps of other users may pass through, with a path
// that is short enough for sockets.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp(theLab.dir, "t")
	if err == nil {
		err = os.Chmod(dir, 0o711)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// Ports that the kernel gives to nobody by itself: apps have the 20000s, ushers
// the 30000s.
const (
	firstAppPort, appPorts       = 20000, 9500
	firstListenPort, listenPorts = 30000, 2700
)

// freeAddress is an address that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	for range listenPorts {
		n := (theLab.seats.Add(1) + int64(os.Getpid())*37) % listenPorts
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(firstListenPort+int(n)))
		if probe, err := net.Listen("tcp", addr); err == nil {
			probe.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// configure writes the file; reload or serve applies it.
func (u *usher) configure(o options) {
	u.t.Helper()
	var b strings.Builder
	fmt.Fprintf(&b, "[server]\nlisten = [%q]\nadmin = %q\nstate = %q\nrun = %q\nport_range = %q\n",
		u.listen, "unix:"+u.admin, u.state(), u.run(), u.ports)
	for _, line := range o.server {
		fmt.Fprintln(&b, line)
	}
	if o.apps == nil {
		o.apps = []app{{}}
	}
	for _, a := range o.apps {
		a.write(u.t, &b)
	}
	u.writeConfig(b.String())
}

func (u *usher) writeConfig(text string) {
	u.t.Helper()
	if err := os.WriteFile(u.config(), []byte(text), 0o644); err != nil {
		u.t.Fatal(err)
	}
}

func (a app) write(t *testing.T, b *strings.Builder) {
	t.Helper()
	if a.name == "" {
		a.name = "hello"
	}
	fmt.Fprintf(b, "\n[apps.%s]\n", a.name)
	if !slices.ContainsFunc(a.lines, func(l string) bool { return strings.HasPrefix(l, "hosts ") }) {
		fmt.Fprintf(b, "hosts = [\"%s.localhost\"]\n", a.name)
	}
	if a.artifact == "" {
		a.artifact = hello(t, "v1")
	}
	if a.artifact != "-" {
		fmt.Fprintf(b, "artifact = %q\n", a.artifact)
	}
	if os.Geteuid() == 0 {
		fmt.Fprintln(b, `user = "nobody"`)
	}
	if a.hold {
		fmt.Fprintln(b, "swap = \"hold\"\nsingle_writer = \"best-effort\"")
	}
	for _, line := range a.lines {
		fmt.Fprintln(b, line)
	}
	var env []string
	for k, v := range a.env {
		env = append(env, fmt.Sprintf("%s = %q", k, v))
	}
	fmt.Fprintf(b, "env = { %s }\n", strings.Join(env, ", "))
	if len(a.health) > 0 {
		fmt.Fprintf(b, "[apps.%s.health]\n%s\n", a.name, strings.Join(a.health, "\n"))
	}
	if a.cache {
		fmt.Fprintf(b, "[apps.%s.cache]\nenabled = true\n", a.name)
	}
}

func (u *usher) config() string  { return filepath.Join(u.dir, "usher.toml") }
func (u *usher) state() string   { return filepath.Join(u.dir, "state") }
func (u *usher) run() string     { return filepath.Join(u.dir, "run") }
func (u *usher) logFile() string { return filepath.Join(u.dir, "usher.log") }

// launch starts the process and waits for nothing.
func (u *usher) launch() {
	u.t.Helper()
	log, err := os.OpenFile(u.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		u.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"serve", "--config", u.config()}, u.args...)
	cmd := exec.Command(theLab.usher, args...)
	if u.descriptors > 0 {
		limited := fmt.Sprintf(`ulimit -n %d && exec "$0" "$@"`, u.descriptors)
		cmd = exec.Command("sh", append([]string{"-c", limited, theLab.usher}, args...)...)
	}
	cmd.Stdout, cmd.Stderr = log, log
	if u.stdout != nil {
		cmd.Stdout = u.stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(exited)
	}()
	u.cmd, u.exited = cmd, exited
}

// serve starts the process and waits until it serves. A second call is a restart
// on the same state.
func (u *usher) serve() {
	u.t.Helper()
	u.launch()
	u.eventually(20*time.Second, "usher serves", func() error {
		if !u.running() {
			u.t.Fatalf("usher did not start:\n%s", u.logTail(20))
		}
		resp, err := u.control.Get("http://usher/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}

func (u *usher) running() bool {
	if u.cmd == nil {
		return false
	}
	select {
	case <-u.exited:
		return false
	default:
		return true
	}
}

// terminate asks usher to stop and waits; it returns the exit code.
func (u *usher) terminate(limit time.Duration) int {
	u.t.Helper()
	u.signal(syscall.SIGTERM)
	select {
	case <-u.exited:
	case <-time.After(patience * limit):
		u.t.Errorf("usher has not stopped %s after SIGTERM:\n%s", limit, u.logTail(20))
		u.kill()
	}
	return u.cmd.ProcessState.ExitCode()
}

// kill is kill -9: the apps run on.
func (u *usher) kill() {
	u.t.Helper()
	u.signal(syscall.SIGKILL)
	<-u.exited
}

func (u *usher) signal(sig syscall.Signal) {
	u.t.Helper()
	if err := u.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		u.t.Fatal(err)
	}
}

func (u *usher) logTail(n int) string {
	data, err := os.ReadFile(u.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// result is how a call of the command line ended.
type result struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// cli runs usher's command line.
func (u *usher) cli(args ...string) result {
	u.t.Helper()
	return <-u.cliAsync(args...)
}

// cliAsync runs it beside the test.
func (u *usher) cliAsync(args ...string) <-chan result {
	u.t.Helper()
	var out, complaint bytes.Buffer
	cmd := exec.Command(theLab.usher, append([]string{"--admin", "unix:" + u.admin}, args...)...)
	cmd.Stdout, cmd.Stderr = &out, &complaint
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		u.t.Fatal(err)
	}
	done := make(chan result, 1)
	go func() {
		_ = cmd.Wait() // the code says it
		done <- result{cmd.ProcessState.ExitCode(), out.String(), complaint.String(), time.Since(begun)}
	}()
	return done
}

// must runs the command line and expects exit code 0.
func (u *usher) must(args ...string) result {
	u.t.Helper()
	r := u.cli(args...)
	if r.code != 0 {
		u.t.Fatalf("usher %s: exit code %d\n%s%s", strings.Join(args, " "), r.code, r.stdout, r.stderr)
	}
	return r
}

// deploy deploys and expects success. What it returns is the status afterwards.
func (u *usher) deploy(name, artifact string, flags ...string) admin.AppStatus {
	u.t.Helper()
	u.must(append([]string{"deploy", name, artifact}, flags...)...)
	return u.status(name)
}

// getJSON reads a resource of the admin API.
func (u *usher) getJSON(path string, to any) error {
	resp, err := u.control.Get("http://usher" + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return json.Unmarshal(body, to)
}

// status is the app's status.
func (u *usher) status(name string) admin.AppStatus {
	u.t.Helper()
	var s admin.AppStatus
	if err := u.getJSON("/v1/apps/"+name, &s); err != nil {
		u.t.Fatalf("status of %s: %v", name, err)
	}
	return s
}

// awaitState waits until the app has that state and returns its status.
func (u *usher) awaitState(name string, want admin.AppState, limit time.Duration) admin.AppStatus {
	u.t.Helper()
	return u.awaitStatus(name, limit, string(want), func(s admin.AppStatus) bool { return s.State == want })
}

func (u *usher) awaitStatus(name string, limit time.Duration, what string, ok func(admin.AppStatus) bool) admin.AppStatus {
	u.t.Helper()
	var s admin.AppStatus
	u.eventually(limit, name+" is "+what, func() error {
		s = u.status(name)
		if !ok(s) {
			return fmt.Errorf("it is %s (%s), generation %d of revision %d, generations %+v", s.State, s.Reason, s.Generation, s.Revision, s.Generations)
		}
		return nil
	})
	return s
}

// eventually polls until check has nothing to say against it, or the test fails.
func (u *usher) eventually(limit time.Duration, what string, check func() error) {
	u.t.Helper()
	if err := poll(limit, check); err != nil {
		u.t.Fatalf("not within %s: %s: %v", limit, what, err)
	}
}

// patience multiplies every limit for something that ends by itself: limits are
// for a machine that has nothing else to do, and tests run on others.
const patience = 4

// poll calls check until it is content; the error is its last word.
func poll(limit time.Duration, check func() error) error {
	deadline := time.After(patience * limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-deadline:
			return err
		}
	}
}

// pass lets that much time go by, for a test of what must not happen meanwhile.
func pass(d time.Duration) { <-time.After(d) }
