package daemon

import (
	"fmt"
	"runtime"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/edge/engine"
)

// engineOptions is what the file says, as the engine wants it.
func (d *daemon) engineOptions() engine.Options {
	s := d.file.Load().server
	loops := eventLoops(s.EventLoops)
	most := d.connections(s.MaxConnections, loops)
	perClient := s.MaxPerClient
	if most < s.MaxConnections && perClient > 0 {
		perClient = min(perClient, max(1, most/config.ClientShare))
	}
	return engine.Options{
		Loops: loops,
		Edge:  d.edge, HeadTimeout: s.HeadTimeout, IdleTimeout: s.IdleTimeout, BodyTimeout: s.BodyTimeout, WriteTimeout: s.WriteTimeout,
		MinBodyRate: noneBelowZero(s.MinBodyRate), MinWriteRate: noneBelowZero(s.MinWriteRate),
		MaxConnections: most, MaxPerClient: perClient,
		TrustedProxies: s.TrustedProxies, Warn: func(msg string) { d.log.Warn(msg) }, Reserve: d.reserve,
	}
}

// eventLoops is how many loops the engine gets. A loop that waits keeps its processor
// of Go's for a moment, so there is one more of those than loops.
func eventLoops(want int) int {
	procs := runtime.GOMAXPROCS(0)
	if want == config.PerProcessor {
		want = min(procs, runtime.NumCPU()) // not the one more
	}
	if want > 0 {
		runtime.GOMAXPROCS(max(procs, want+1)) // and is not changed by Go any more
	}
	return want
}

// engineListener is what the file says about one listener.
func engineListener(l config.Listener) engine.Listener {
	return engine.Listener{
		HeadTimeout: l.HeadTimeout, IdleTimeout: l.IdleTimeout, BodyTimeout: l.BodyTimeout, WriteTimeout: l.WriteTimeout,
		MinBodyRate: l.MinBodyRate, MinWriteRate: l.MinWriteRate,
		MaxConnections: l.MaxConnections, MaxPerClient: l.MaxPerClient, Trusted: l.Trusted,
	}
}

func noneBelowZero(rate int64) int64 {
	if rate == 0 {
		return config.None
	}
	return rate
}

// reserved is how many descriptors are kept back (rawio.Reserve). To hand a connection
// over takes two for a moment; the others are for what is within accept(2) or connect(2)
// just then, and gets in between.
const reserved = 8

// Descriptors that are not for clients: files, logs and pipes of apps, the admin API. A
// small limit is shared half and half, but usher has some itself: 31 with two loops, and
// a few when it starts an app.
const (
	reservedDescriptors = 256
	ownDescriptors      = 24 + reserved
	loopDescriptors     = 2 // of each loop
)

// connections is how many clients may be connected, given the descriptors that
// this process may have: each needs one for itself and one to the app. Without
// the second, requests of clients that were let in would fail.
func (d *daemon) connections(want, loops int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return want // the acceptors notice by themselves
	}
	most := fitting(limit.Cur, loops)
	if uint64(want) <= most {
		return want
	}
	tell := d.warn
	if want == config.DefaultMaxConnections { // nobody asked for so many
		tell = func(text string) { d.log.Info(text) }
	}
	tell(fmt.Sprintf("max_connections is %d and not %d, because usher may open %d descriptors only: raise the limit (LimitNOFILE= of systemd, ulimit -n) or lower max_connections",
		most, want, limit.Cur))
	return int(most)
}

func fitting(descriptors uint64, loops int) uint64 {
	kept := max(min(reservedDescriptors, descriptors/2), ownDescriptors+loopDescriptors*uint64(loops))
	return max(1, (descriptors-min(kept, descriptors))/2)
}

// doorCollector tells of client connections.
type doorCollector struct {
	d *daemon

	open, accepted, refused, waits *prometheus.Desc
}

func newDoorCollector(d *daemon) *doorCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("usher_"+name, help, labels, nil)
	}
	return &doorCollector{
		d:        d,
		open:     desc("connections_open", "Client connections."),
		accepted: desc("connections_accepted_total", "Client connections that were let in."),
		refused:  desc("connections_refused_total", "Client connections that were turned away, by reason.", "reason"),
		waits:    desc("accept_waits_total", "How often a new connection had to wait, by what there was none left of.", "reason"),
	}
}

// Describe is prometheus.Collector.
func (c *doorCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect is prometheus.Collector.
func (c *doorCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.d.engine.Stats()
	ch <- prometheus.MustNewConstMetric(c.open, prometheus.GaugeValue, float64(s.Open))
	count := func(d *prometheus.Desc, n uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(n), labels...)
	}
	count(c.accepted, s.Accepted)
	count(c.refused, s.Refused, "client-connections")
	count(c.waits, s.AtCapacity, "max-connections")
	count(c.waits, s.OutOfDescriptors, "descriptors")
}
