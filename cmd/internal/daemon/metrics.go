package daemon

import "github.com/prometheus/client_golang/prometheus"

// swapCollector tells of the control plane: wakes, swaps and generations. Series
// of an app vanish with the app, because they are made at every scrape. One that
// has slept since usher began has none.
type swapCollector struct {
	d *daemon

	info, fenced, attempts, drain, wake, generations, receipts, mismatches, oomKills, cacheBytes, cacheObjects *prometheus.Desc
}

func newSwapCollector(d *daemon) *swapCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("usher_"+name, help, labels, nil)
	}
	return &swapCollector{
		d:            d,
		info:         desc("build_info", "The running usher.", "version", "commit", "go"),
		fenced:       desc("fenced", "1 if usher does not own its state any more and must be started again."),
		attempts:     desc("attempts_total", "Attempts at moving an app to a generation since usher started.", "app", "cause", "mode", "outcome"),
		drain:        desc("drain_seconds_total", "Time that retiring generations took to empty.", "app"),
		wake:         desc("wake_duration_seconds", "Time from the start of a generation to its first good health check.", "app"),
		generations:  desc("generations", "Generations that are not proven gone, by role.", "app", "role"),
		receipts:     desc("receipts_total", "Receipts of attempts since usher started.", "app"),
		mismatches:   desc("receipt_mismatch_total", "Receipts whose sums do not match: requests were lost or counted twice.", "app"),
		oomKills:     desc("oom_kills_total", "Processes of the app that the kernel has killed for want of memory since usher started.", "app"),
		cacheBytes:   desc("cache_bytes", "Bytes that the cache holds.", "app"),
		cacheObjects: desc("cache_objects", "Objects that the cache holds.", "app"),
	}
}

// Describe is prometheus.Collector.
func (c *swapCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect is prometheus.Collector.
func (c *swapCollector) Collect(ch chan<- prometheus.Metric) {
	v := c.d.opt.Version
	ch <- prometheus.MustNewConstMetric(c.info, prometheus.GaugeValue, 1, v.Version, v.Commit, v.Go)
	fenced := 0.0
	if c.d.act.Owned() != nil {
		fenced = 1
	}
	ch <- prometheus.MustNewConstMetric(c.fenced, prometheus.GaugeValue, fenced)
	for _, name := range c.d.act.Names() {
		t, err := c.d.act.Totals(name)
		if err != nil || len(t.Attempts) == 0 && len(t.Roles) == 0 && t.Receipts == 0 {
			continue // removed meanwhile, or asleep ever since
		}
		for k, n := range t.Attempts {
			ch <- prometheus.MustNewConstMetric(c.attempts, prometheus.CounterValue, float64(n), name, k.Cause, k.Mode, k.Outcome)
		}
		ch <- prometheus.MustNewConstMetric(c.drain, prometheus.CounterValue, t.Drain.Seconds(), name)
		ch <- prometheus.MustNewConstMetric(c.receipts, prometheus.CounterValue, float64(t.Receipts), name)
		ch <- prometheus.MustNewConstMetric(c.mismatches, prometheus.CounterValue, float64(t.Mismatches), name)
		ch <- prometheus.MustNewConstMetric(c.oomKills, prometheus.CounterValue, float64(t.OOMKills), name)
		if h, err := prometheus.NewConstHistogram(c.wake, uint64(t.Boots.Count), t.Boots.Sum, t.Boots.Buckets(), name); err == nil {
			ch <- h
		}
		for _, role := range []string{"incumbent", "successor", "retiring"} {
			ch <- prometheus.MustNewConstMetric(c.generations, prometheus.GaugeValue, float64(t.Roles[role]), name, role)
		}
	}
	if c.d.cache == nil {
		return
	}
	for name, u := range c.d.cache.Stats().Apps {
		ch <- prometheus.MustNewConstMetric(c.cacheBytes, prometheus.GaugeValue, float64(u.Bytes), name)
		ch <- prometheus.MustNewConstMetric(c.cacheObjects, prometheus.GaugeValue, float64(u.Objects), name)
	}
}
