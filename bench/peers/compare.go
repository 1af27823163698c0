package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/bench/proc"
)

// Compare starts origin and peers, does all works in rounds, and ends what it
// started. An error means that there is nothing to report: no origin, or an
// usher that does not serve. If ctx ends, the report has the rounds that were
// finished and says that it was cut.
func Compare(ctx context.Context, plan Plan) (*Report, error) {
	plan = plan.withDefaults()
	if err := plan.Check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "usher-bench-")
	if err != nil {
		return nil, fmt.Errorf("compare: %w", err)
	}
	defer os.RemoveAll(dir)
	c := &comparison{Plan: plan, dir: dir, report: &Report{
		StartedAt: time.Now(), Machine: machine(), AccessLog: !plan.NoAccessLog,
		DurationMS: float64(plan.Duration.Microseconds()) / 1000,
	}}
	defer c.stop()
	if err := c.start(ctx); err != nil {
		return nil, err
	}
	c.prepare()
	for round := range plan.Rounds {
		if err := c.round(ctx, round); err != nil {
			c.report.Cut = err.Error()
			break
		}
		c.report.Rounds = round + 1
	}
	c.report.sum()
	return c.report, nil
}

// comparison is one under way.
type comparison struct {
	Plan
	dir      string
	origin   *origin
	standing []*standing
	report   *Report
}

func (c *comparison) start(ctx context.Context) (err error) {
	c.Say("origin starts")
	if c.origin, err = startOrigin(c.dir, runtime.GOMAXPROCS(0), c.most()); err != nil {
		return fmt.Errorf("start the origin: %w", err)
	}
	c.report.Origin, c.report.OriginConf = c.origin.what, c.origin.files
	if err := c.answers(ctx); err != nil {
		return fmt.Errorf("start the origin: %w", err)
	}
	c.Say("origin: %s", c.report.Origin)
	for _, k := range c.peers() {
		s, report, err := c.stand(ctx, k)
		if err != nil {
			report.Skipped = strings.Join(strings.Fields(err.Error()), " ")
		}
		c.report.Peers = append(c.report.Peers, report)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && k.name == Usher:
			return fmt.Errorf("start usher: %w", err)
		case err != nil:
			c.Say("%s is left out: %s", k.name, report.Skipped)
		default:
			c.Say("%s: %s", k.name, report.Version)
			c.standing = append(c.standing, s)
		}
	}
	return nil
}

// answers waits until the origin does.
func (c *comparison) answers(ctx context.Context) error {
	for _, w := range c.works() {
		if err := eventually(ctx, nil, func() error { return ask("unix", c.origin.socket, w) }); err != nil {
			return err
		}
	}
	return nil
}

// stop ends everything, whatever state it is in.
func (c *comparison) stop() {
	for _, s := range c.standing {
		s.stop()
	}
	if c.origin != nil && c.origin.stop != nil {
		c.origin.stop()
	}
}

// prepare makes room for the samples.
func (c *comparison) prepare() {
	for _, w := range c.works() {
		wr := WorkReport{Work: w}
		for _, s := range c.standing {
			if !w.Cached || s.kind.caches {
				wr.Peers = append(wr.Peers, PeerResult{Peer: s.kind.name, Samples: []Sample{}})
			}
		}
		c.report.Works = append(c.report.Works, wr)
	}
}

// round lets every peer do every work once. Who begins moves on from work to
// work and from round to round, so that nobody always follows the same one.
func (c *comparison) round(ctx context.Context, round int) error {
	for i := range c.report.Works {
		w := &c.report.Works[i]
		c.Say("round %d of %d: %s", round+1, c.Rounds, w.Title)
		for j := range w.Peers {
			p := &w.Peers[(j+round+i)%len(w.Peers)]
			sample, err := c.measure(ctx, c.standingOf(p.Peer), w.Work)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil && p.Problem == "" {
				p.Problem = strings.Join(strings.Fields(err.Error()), " ")
				c.Say("%s, %s: %s", p.Peer, w.Title, p.Problem)
			}
			if sample != nil {
				sample.Round = round + 1
				p.Samples = append(p.Samples, *sample)
			}
		}
	}
	return nil
}

func (c *comparison) standingOf(name string) *standing {
	return c.standing[slices.IndexFunc(c.standing, func(s *standing) bool { return s.kind.name == name })]
}

// measure fires one shot at one peer. A nil Sample means that there are no
// figures; with a Sample the error is the first failed request's.
func (c *comparison) measure(ctx context.Context, s *standing, w Work) (*Sample, error) {
	m := proc.Meter{Tree: proc.Tree{Roots: s.roots()}}
	if err := m.Look(); err != nil {
		return nil, err
	}
	t, err := shot{
		address: s.address, request: w.request(), length: w.length,
		connections: w.Connections, rate: w.Rate,
		warm: c.warm(), duration: c.Duration, least: c.least,
		open: m.Begin, shut: m.End,
	}.fire(ctx)
	if err != nil {
		return &Sample{Failures: 1}, s.blame(err)
	}
	used, err := m.Used()
	if err != nil {
		return nil, s.blame(err)
	}
	s.emptyLog()
	if t.requests == 0 {
		return &Sample{Failures: t.failures}, errors.Join(errors.New("no request was answered"), t.first)
	}
	at := func(q float64) float64 { return float64(t.latency.ValueAtQuantile(q)) / 1e6 }
	return &Sample{
		Requests: t.requests, Failures: t.failures,
		PerSecond: float64(t.requests) / t.elapsed.Seconds(),
		CPUMicros: float64(used.Nanoseconds()) / 1000 / float64(t.requests),
		P50MS:     at(50), P99MS: at(99), P999MS: at(99.9),
	}, t.first
}

// machine says what the figures were taken on.
func machine() string {
	var u unix.Utsname
	kernel := "unknown kernel"
	if unix.Uname(&u) == nil {
		kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	model := ""
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range bytes.Lines(text) {
			if name, value, ok := bytes.Cut(line, []byte(":")); ok && string(bytes.TrimSpace(name)) == "model name" {
				model = ", " + string(bytes.TrimSpace(value))
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores%s", kernel, runtime.GOMAXPROCS(0), model)
}

// standing is a peer that serves.
type standing struct {
	kind    peer
	address netip.AddrPort
	dir     string
	log     string
	running []*running
}

// stand starts a peer and sees that it answers right. On an error nothing of it
// is left.
func (c *comparison) stand(ctx context.Context, k peer) (*standing, PeerReport, error) {
	dir := filepath.Join(c.dir, k.name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, PeerReport{Name: k.name}, err
	}
	place, err := c.site(dir, c.origin)
	if err != nil {
		return nil, PeerReport{Name: k.name}, err
	}
	report, set := k.report(c.Usher, place)
	if report.Skipped != "" {
		return nil, report, errors.New(report.Skipped)
	}
	s := &standing{
		kind: k, dir: dir, log: place.accessLog,
		address: netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(place.port)),
	}
	if err := s.start(ctx, set, c.works()); err != nil {
		s.stop()
		return nil, report, err
	}
	return s, report, nil
}

func (s *standing) start(ctx context.Context, set setup, works []Work) error {
	for _, f := range set.files {
		if err := os.WriteFile(filepath.Join(s.dir, f.Name), []byte(f.Text), 0o644); err != nil {
			return err
		}
	}
	for _, p := range set.programs {
		r, err := p.start(s.dir)
		if err != nil {
			return err
		}
		s.running = append(s.running, r)
	}
	if err := eventually(ctx, s, func() error { return connects(s.address.String()) }); err != nil {
		return err
	}
	for _, p := range set.after {
		if err := p.run(ctx, s.dir); err != nil {
			return err
		}
	}
	for _, w := range works {
		if w.Cached && !s.kind.caches {
			continue
		}
		if err := eventually(ctx, s, func() error { return ask("tcp", s.address.String(), w) }); err != nil {
			return fmt.Errorf("%s: %w", w.Title, err)
		}
	}
	return nil
}

func (s *standing) roots() []int {
	var all []int
	for _, r := range s.running {
		all = append(all, r.cmd.Process.Pid)
	}
	return all
}

func (s *standing) stop() {
	for _, r := range slices.Backward(s.running) {
		r.stop()
	}
}

// lost is an error if one of the programs has ended.
func (s *standing) lost() error {
	for _, r := range s.running {
		if r.gone() {
			return r.says(filepath.Base(r.cmd.Path) + " ended: " + r.cmd.ProcessState.String())
		}
	}
	return nil
}

// blame explains an error by a program's end, where that is the reason.
func (s *standing) blame(err error) error {
	if lost := s.lost(); lost != nil {
		return lost
	}
	return err
}

// emptyLog keeps a minute of load from filling the disk.
func (s *standing) emptyLog() {
	if s.log != "" {
		_ = os.Truncate(s.log, 0) // it may not have written any yet
	}
}
