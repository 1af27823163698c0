package daemon

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/edge/engine"
	"github.com/usher-edge/usher/edge/upstream"
)

// engineOptions is what the file says, as the engine wants it.
func (d *daemon) engineOptions(loops, most int) engine.Options {
	s := d.file.Load().server
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

// Descriptors that are not for clients and their apps' connections.
const (
	// reservedDescriptors are for files, logs and pipes of apps, and for the admin API. A
	// small limit is shared half and half, but usher has some for itself, and needs more.
	reservedDescriptors = 256

	loopDescriptors    = 4 // of each loop: epoll, eventfd, a pipe
	appDescriptors     = 1 // of each that runs: its pidfd
	passingDescriptors = 8 // for starts of apps, the admin API, and whoever asks about certificates

	fewDescriptors = 48 // serve somebody, with one app; said where too few are left to count them
)

// shareDescriptors says how many clients may be connected, and how many connections to
// apps there should be, given the descriptors that this process may have and those that
// it has. Each client needs one for itself and one to the app: without the second,
// requests of clients that were let in would fail.
func (d *daemon) shareDescriptors(want, loops int) (clients int, share *upstream.Share, err error) {
	limit, err := descriptorLimit()
	if err != nil {
		return want, nil, nil // the acceptors notice by themselves
	}
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, nil, fmt.Errorf("count open descriptors: %w", err)
	}
	own := len(files) - 1 + loops*loopDescriptors + passingDescriptors // one was for the look
	if least := own + appDescriptors + 2; limit < least {
		return 0, nil, fmt.Errorf("usher needs %d descriptors to serve one client, and may open %d only: %s", least, limit, raise)
	}
	most := fitting(limit, own+len(d.file.Load().apps)*appDescriptors)
	clients = min(want, most)
	if clients < want {
		tell := d.warn
		if want == config.DefaultMaxConnections { // nobody asked for so many
			tell = func(text string) { d.log.Info(text) }
		}
		tell(fmt.Sprintf("max_connections is %d and not %d, because usher may open %d descriptors only: %s or lower max_connections",
			most, want, limit, raise))
	}
	return clients, upstream.NewShare(2*most - clients), nil
}

const raise = "raise the limit (LimitNOFILE= of systemd, ulimit -n)"

func descriptorLimit() (int, error) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return int(min(limit.Cur, math.MaxInt32)), err
}

// fitting is how many clients fit beside own descriptors.
func fitting(limit, own int) int {
	kept := max(min(reservedDescriptors, limit/2), own)
	return max(1, (limit-kept)/2)
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
