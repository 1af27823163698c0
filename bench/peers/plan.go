package peers

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Plan says what to compare.
type Plan struct {
	// Usher is the path of its program.
	Usher string
	// Peers by name; empty: all that are found. Usher is always one.
	Peers []string
	// Works by ID; empty: all.
	Works []string
	// Rounds; 0 means 9, from which bounds of 95 % leave out the worst round at
	// either end.
	Rounds int
	// Duration of each measurement; 0 means 1 s. Each is preceded by a fifth of
	// it, at least 100 ms, that is not measured.
	Duration time.Duration
	// NoAccessLog lets nobody write an access log; else everybody does.
	NoAccessLog bool
	// Say tells of progress; nil tells nobody.
	Say func(format string, args ...any)

	hosts int // fewer in tests; 0 means manyHosts
	least int // requests that each measurement goes on for
}

func (p Plan) withDefaults() Plan {
	if p.Rounds == 0 {
		p.Rounds = 9
	}
	if p.Duration == 0 {
		p.Duration = time.Second
	}
	if p.hosts == 0 {
		p.hosts = manyHosts
	}
	if p.Say == nil {
		p.Say = func(string, ...any) {}
	}
	return p
}

// Check reports what is wrong with a plan.
func (p Plan) Check() error {
	p = p.withDefaults()
	var errs []error
	var ids []string
	for _, w := range Works() {
		ids = append(ids, w.ID)
	}
	for _, list := range []struct {
		what         string
		given, known []string
	}{{"peer", p.Peers, Names()}, {"work", p.Works, ids}} {
		for _, name := range list.given {
			if !slices.Contains(list.known, name) {
				errs = append(errs, fmt.Errorf("there is no %s %q; there are %s", list.what, name, strings.Join(list.known, ", ")))
			}
		}
	}
	if p.Rounds < 1 || p.Rounds > 1000 {
		errs = append(errs, fmt.Errorf("%d rounds: want 1 to 1000", p.Rounds))
	}
	if p.Duration < 50*time.Millisecond || p.Duration > time.Hour {
		errs = append(errs, fmt.Errorf("a duration of %s: want 50ms to 1h", p.Duration))
	}
	return errors.Join(errs...)
}

func (p Plan) works() []Work {
	return slices.DeleteFunc(Works(), func(w Work) bool { return len(p.Works) > 0 && !slices.Contains(p.Works, w.ID) })
}

func (p Plan) peers() []peer {
	return slices.DeleteFunc(kinds(), func(k peer) bool {
		return k.name != Usher && len(p.Peers) > 0 && !slices.Contains(p.Peers, k.name)
	})
}

// most is the largest number of connections at once.
func (p Plan) most() int {
	most := 1
	for _, w := range p.works() {
		most = max(most, w.Connections)
	}
	return most
}

func (p Plan) warm() time.Duration { return max(p.Duration/5, 100*time.Millisecond) }

// site fills in what a peer's configuration depends on, but for its program.
func (p Plan) site(dir string, o *origin) (site, error) {
	s := site{
		dir: dir, socket: o.socket, tcp: o.tcp,
		cores: runtime.GOMAXPROCS(0), most: p.most(), hosts: p.hosts, root: os.Geteuid() == 0, paced: paced(),
	}
	if !p.NoAccessLog {
		s.accessLog = dir + "/access.log"
	}
	var err error
	if s.port, err = freePort(); err == nil {
		s.spare, err = freePort()
	}
	return s, err
}

// paced says whether BBR is this machine's congestion control. If that is not to be
// had, none is known to be.
func paced() bool {
	name, _ := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	return bytes.HasPrefix(name, []byte("bbr"))
}

// Configurations says how each peer would be run, without running any.
func Configurations(plan Plan) ([]PeerReport, error) {
	plan = plan.withDefaults()
	if err := plan.Check(); err != nil {
		return nil, err
	}
	o := &origin{socket: "/DIR/origin.sock", tcp: "127.0.0.1:PORT"}
	var all []PeerReport
	for _, k := range plan.peers() {
		s, err := plan.site("/DIR/"+k.name, o)
		if err != nil {
			return nil, err
		}
		report, _ := k.report(plan.Usher, s)
		all = append(all, report)
	}
	return all, nil
}

// report is a peer with its configuration, and how it is run. One that is not
// here is marked as skipped.
func (p peer) report(usher string, s site) (PeerReport, setup) {
	r := PeerReport{Name: p.name, Note: p.note, Caches: p.caches}
	path, err := p.find(usher)
	if err != nil {
		r.Skipped = err.Error()
		return r, setup{}
	}
	r.Version = p.says(path)
	s.program = path
	set := p.plan(s)
	for _, f := range set.files {
		r.Files = append(r.Files, File{f.Name, brief(f.Text)})
	}
	for _, program := range append(slices.Clone(set.programs), set.after...) {
		r.Commands = append(r.Commands, program.line())
	}
	return r, set
}

// brief leaves out the middle of a configuration that goes on and on.
func brief(text string) string {
	all := strings.SplitAfter(text, "\n")
	const most, head, tail = 120, 16, 5
	if len(all) <= most {
		return text
	}
	return strings.Join(all[:head], "") + fmt.Sprintf("# … and so on: %d lines are left out here …\n", len(all)-head-tail) +
		strings.Join(all[len(all)-tail:], "")
}
