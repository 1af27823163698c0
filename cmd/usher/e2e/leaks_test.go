package e2e

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/admin"
)

// vitals are what must come back to where it was.
type vitals struct {
	goroutines, descriptors int
}

// A scrape is itself served, and runtimes keep a little: this much more than
// before is no leak.
const (
	spareGoroutines  = 2
	spareDescriptors = 1
)

func (u *usher) vitals() vitals {
	u.t.Helper()
	m, err := u.metrics()
	if err != nil {
		u.t.Fatal(err)
	}
	return vitals{int(m.sum("go_goroutines")), int(m.sum("process_open_fds"))}
}

// metrics are the samples of one scrape by their full names, labels included.
type metrics map[string]float64

func (u *usher) metrics() (metrics, error) {
	resp, err := u.control.Get("http://usher/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New("metrics: " + resp.Status)
	}
	m := metrics{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		cut := strings.LastIndexByte(line, ' ')
		if strings.HasPrefix(line, "#") || cut < 0 {
			continue
		}
		if v, err := strconv.ParseFloat(line[cut+1:], 64); err == nil {
			m[line[:cut]] = v
		}
	}
	return m, lines.Err()
}

// sum adds up the samples of that name that have all the labels, each given as
// key="value".
func (m metrics) sum(name string, labels ...string) float64 {
	total := 0.0
next:
	for sample, v := range m {
		base, rest, _ := strings.Cut(sample, "{")
		if base != name {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue next
			}
		}
		total += v
	}
	return total
}

// finish is the end of every test: the leak check, then the end of usher.
func (u *usher) finish() {
	t := u.t
	defer u.dumpLog()
	defer u.removeGroups()
	defer u.killLeftovers()
	if u.cmd == nil {
		return
	}
	u.mu.Lock()
	for _, c := range u.clients {
		c.CloseIdleConnections()
	}
	u.mu.Unlock()
	if u.unchecked != "" {
		t.Logf("no leak check: %s", u.unchecked)
		if u.running() {
			u.kill()
		}
		return
	}
	if !u.running() {
		u.serve() // takes over what runs on, and ends it below
	}
	if err := poll(20*time.Second, u.asleep); err != nil {
		t.Errorf("apps do not come to rest: %v", err)
	}
	if err := poll(5*time.Second, u.accounts); err != nil {
		t.Errorf("requests: %v", err)
	}
	if err := poll(10*time.Second, u.leaks); err != nil {
		t.Errorf("leaked: %v", err)
	}
	if code := u.terminate(10 * time.Second); code != 0 {
		t.Errorf("usher ended with exit code %d", code)
	}
	if err := poll(5*time.Second, u.remains); err != nil {
		t.Errorf("after the end: %v", err)
	}
}

func (u *usher) dumpLog() {
	if !u.t.Failed() {
		return
	}
	u.t.Logf("the end of usher's log:\n%s", u.logTail(60))
	all := u.logTail(1 << 20)
	for _, mark := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: ", "SIGQUIT: ", "SIGABRT: ", "SIGSEGV: "} {
		if at := strings.Index(all, mark); at >= 0 {
			u.t.Logf("what ended it: %s", all[at:min(len(all), at+6000)])
			return
		}
	}
}

// asleep puts every app to sleep and says which are not at rest yet.
func (u *usher) asleep() error {
	var list struct {
		Apps []admin.AppStatus `json:"apps"`
	}
	if err := u.getJSON("/v1/apps", &list); err != nil {
		return err
	}
	var errs []error
	for _, a := range list.Apps {
		if len(a.Generations) == 0 || a.External {
			continue
		}
		errs = append(errs, fmt.Errorf("%s is %s with %+v", a.Name, a.State, a.Generations))
		if a.State == admin.Paused {
			u.post("/v1/apps/" + a.Name + "/resume")
		}
		u.post("/v1/apps/" + a.Name + "/sleep")
	}
	return errors.Join(errs...)
}

func (u *usher) post(path string) {
	resp, err := u.control.Post("http://usher"+path, "application/json", strings.NewReader("{}"))
	if err == nil { // else the poll that asks tells of it
		resp.Body.Close()
	}
}

// accounts says what is wrong with the sums of requests.
func (u *usher) accounts() error {
	m, err := u.metrics()
	if err != nil {
		return err
	}
	var errs []error
	for _, gauge := range []string{"usher_requests_in_flight", "usher_requests_parked", "usher_parked_bytes", "usher_streams_open"} {
		if v := m.sum(gauge); v != 0 {
			errs = append(errs, fmt.Errorf("%s is %g at rest", gauge, v))
		}
	}
	accepted, ended, coded := m.sum("usher_requests_accepted_total"), m.sum("usher_request_endings_total"), m.sum("usher_requests_total")
	if accepted != ended || ended != coded {
		errs = append(errs, fmt.Errorf("%g were accepted, %g ended, %g have a status class", accepted, ended, coded))
	}
	if n := m.sum("usher_receipt_mismatch_total"); n != 0 {
		errs = append(errs, fmt.Errorf("%g receipts do not add up", n))
	}
	return errors.Join(errs...)
}

// leaks says what usher still holds although everything is at rest.
func (u *usher) leaks() (err error) {
	var errs []error
	if left := u.processes(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("processes %v", left))
	}
	if z := zombies(u.cmd.Process.Pid); len(z) > 0 {
		errs = append(errs, fmt.Errorf("zombies %v", z))
	}
	for _, dir := range u.groups() {
		errs = append(errs, fmt.Errorf("control group %s", dir))
	}
	u.external, err = u.externalRuns()
	if err != nil {
		return err
	}
	errs = append(errs, u.files("admin.sock", "http.sock")...)
	now, err := u.metrics()
	if err != nil {
		return err
	}
	if g := int(now.sum("go_goroutines")); u.base.goroutines > 0 && g > u.base.goroutines+spareGoroutines {
		errs = append(errs, fmt.Errorf("%d goroutines, %d at the start", g, u.base.goroutines))
	}
	if fd := int(now.sum("process_open_fds")); u.base.descriptors > 0 && fd > u.base.descriptors+spareDescriptors {
		errs = append(errs, fmt.Errorf("%d descriptors, %d at the start: %v", fd, u.base.descriptors, descriptors(u.cmd.Process.Pid)))
	}
	return errors.Join(errs...)
}

// remains says what is left after usher's own end.
func (u *usher) remains() error {
	errs := u.files()
	if left := u.processes(); len(left) > 0 {
		errs = append(errs, fmt.Errorf("processes %v", left))
	}
	if _, err := os.Lstat(u.admin); err == nil {
		errs = append(errs, errors.New("the admin socket"))
	}
	return errors.Join(errs...)
}

// externalRuns names the records of targets that usher does not own. They never
// sleep, so their records stay.
func (u *usher) externalRuns() ([]string, error) {
	var list struct {
		Apps []admin.AppStatus `json:"apps"`
	}
	err := u.getJSON("/v1/apps", &list)
	var names []string
	for _, a := range list.Apps {
		for _, g := range a.Generations {
			if a.External {
				names = append(names, fmt.Sprintf("%d.json", g.Number))
			}
		}
	}
	return names, err
}

// files finds what should not lie in the run and state directories: sockets
// and their directories, records of runs, and builds that were never finished.
func (u *usher) files(but ...string) []error {
	var errs []error
	walk := func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it may vanish while we look
		}
		rel, _ := filepath.Rel(u.dir, path) // both are absolute
		if d.Name() == "lock" || slices.Contains(but, d.Name()) || slices.Contains(u.external, d.Name()) {
			return nil // who removes a lock file may remove another's lock
		}
		inRun := strings.HasPrefix(rel, "run/") && rel != "run/sock" && rel != "run/runs"
		unfinished := filepath.Dir(rel) == "state/builds" && !strings.HasPrefix(d.Name(), "sha256-")
		if d.Type() == fs.ModeSocket || inRun || unfinished {
			errs = append(errs, fmt.Errorf("file %s", rel))
		}
		return nil
	}
	for _, dir := range []string{u.run(), u.state()} {
		_ = filepath.WalkDir(dir, walk) // walk swallows what can go wrong
	}
	return errs
}

// processes are the pids of everything that this usher's apps have started.
func (u *usher) processes() []int {
	var pids []int
	for _, m := range u.marked() {
		pids = append(pids, m.PID)
	}
	return pids
}

// generationsOf are the live processes of one app by generation.
func (u *usher) generationsOf(name string) map[string][]int {
	found := map[string][]int{}
	for _, m := range u.marked() {
		if m.Values[0] == name {
			found[m.Values[1]] = append(found[m.Values[1]], m.PID)
		}
	}
	return found
}

// marked are the processes that carry the mark of this usher, each with its app
// and generation.
func (u *usher) marked() []cgroup.Marked {
	marked, err := cgroup.FindMarked("USHER_INSTANCE="+u.state(), "USHER_APP", "USHER_GENERATION")
	if err != nil {
		u.t.Error(err)
	}
	return marked
}

func eachProcess(f func(pid int)) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			f(pid)
		}
	}
}

// zombies are the dead children that parent has not waited for.
func zombies(parent int) []int {
	var pids []int
	eachProcess(func(pid int) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return
		}
		// pid (name) state ppid …, and the name may hold anything.
		fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(parent) {
			pids = append(pids, pid)
		}
	})
	return pids
}

func descriptors(pid int) []string {
	var names []string
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, _ := os.ReadDir(dir) // for a message only
	for _, e := range entries {
		if link, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil {
			names = append(names, link)
		}
	}
	return names
}

// alive says whether a process is there and no zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// treeName is what usher calls the directory of its control groups, after its
// state directory.
func (u *usher) treeName() string {
	sum := sha256.Sum256([]byte(u.state()))
	return "usher-" + hex.EncodeToString(sum[:5])
}

// tree is where usher keeps its control groups, empty if it uses none.
func (u *usher) tree() string {
	name := u.treeName()
	found := ""
	mounts, _ := os.ReadFile("/proc/self/mounts") // no mounts: no groups
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "cgroup2" && found == "" {
			_ = filepath.WalkDir(f[1], func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() && d.Name() == name {
					found = path
					return fs.SkipAll
				}
				return nil
			})
		}
	}
	return found
}

// groups are the control groups of generations, and after each those of apps.
func (u *usher) groups() []string {
	tree := u.tree()
	if tree == "" {
		return nil
	}
	return append(below(tree, "*", "*"), below(tree, "*")...)
}

func below(tree string, levels ...string) []string {
	found, _ := filepath.Glob(filepath.Join(append([]string{tree}, levels...)...)) // gone: none
	return slices.DeleteFunc(found, func(p string) bool {
		fi, err := os.Stat(p)
		return err != nil || !fi.IsDir()
	})
}

// removeGroups tidies up after a test; a group with processes stays.
func (u *usher) removeGroups() {
	for _, dir := range append(u.groups(), u.tree()) {
		if dir != "" {
			_ = syscall.Rmdir(dir) // what could not be removed was reported as a leak
		}
	}
}

// killLeftovers makes sure that a failed test leaves nothing running.
func (u *usher) killLeftovers() {
	if u.running() {
		u.kill()
	}
	for _, pid := range u.processes() {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have gone meanwhile
	}
}

func TestTheLeakCheckFindsWhatIsLeft(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	if err := u.leaks(); err == nil || !strings.Contains(err.Error(), "processes") {
		t.Errorf("an awake app is no leak? %v", err)
	}
	if v := u.vitals(); v.goroutines < 5 || v.descriptors < 5 || v.descriptors <= u.base.descriptors {
		t.Errorf("the numbers of usher cannot be true: %+v, before the app was awake %+v", v, u.base)
	}
	held := u.open("hello", "/sse")
	u.eventually(5*time.Second, "an open stream is in the accounts", func() error {
		if err := u.accounts(); err == nil || !strings.Contains(err.Error(), "in_flight is 1") {
			return fmt.Errorf("they say %v", err)
		}
		return nil
	})
	held.close()
}
