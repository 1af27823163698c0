package edge

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// unknownApp is the label under which all requests for unknown hosts count.
const unknownApp = "-"

// collector turns the counters into metrics when it is asked, so that a request
// pays for nothing but atomic adds.
type collector struct {
	edge *Edge

	accepted, requests, endings, refused, duration, inFlight, streams *prometheus.Desc
	parked, parkedBytes, park, cache, retries, upgrades, raw          *prometheus.Desc
}

// Collector returns the edge's metrics. The series of an app are there from its
// first request on, as long as the app is; requests for unknown hosts share the
// app label "-".
func (e *Edge) Collector() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("usher_"+name, help, append([]string{"app"}, labels...), nil)
	}
	return &collector{
		edge:        e,
		accepted:    desc("requests_accepted_total", "Requests that came in, counted before it is known how they end."),
		requests:    desc("requests_total", "Requests by class of the status sent; none = no status was sent.", "code"),
		endings:     desc("request_endings_total", "Requests by the one way they ended.", "ending"),
		refused:     desc("request_causes_total", "Requests that did not end as they should, by cause.", "cause"),
		duration:    desc("request_duration_seconds", "Time from the request's head to the end of its answer."),
		inFlight:    desc("requests_in_flight", "Requests inside the app, streams included."),
		streams:     desc("streams_open", "Upgraded connections and event streams."),
		parked:      desc("requests_parked", "Requests that wait for the app."),
		parkedBytes: desc("parked_bytes", "Bytes that parked requests hold in buffers."),
		park:        desc("park_duration_seconds", "How long requests waited for the app."),
		cache:       desc("cache_requests_total", "Requests that asked the cache, by result.", "result"),
		retries:     desc("retries_total", "Requests sent once more because the first try delivered nothing."),
		upgrades:    desc("upgrades_total", "Connections that switched to another protocol."),
		raw:         desc("body_bytes_total", "Bytes of bodies: in = requests, out = answers.", "direction"),
	}
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.accepted, c.requests, c.endings, c.refused, c.duration, c.inFlight, c.streams,
		c.parked, c.parkedBytes, c.park, c.cache, c.retries, c.upgrades, c.raw,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.counts(ch, unknownApp, &c.edge.unknown)
	for _, a := range c.edge.Apps() {
		if a.slot.Load().State == Asleep {
			a.fold() // again, if a page of the cache was asked for since
		}
		if n := a.counted(); n != nil {
			c.counts(ch, a.name, n)
			c.gauges(ch, a)
		}
	}
}

func (c *collector) counts(ch chan<- prometheus.Metric, app string, n *counters) {
	count := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{app}, labels...)...)
	}
	// What has ended is read before what was accepted: see counters.stats.
	defer func() { count(c.accepted, n.everAccepted()) }()
	for class := range n.classes {
		code := "none"
		if class > 0 {
			code = strconv.Itoa(class) + "xx"
		}
		count(c.requests, n.classes[class].Load(), code)
	}
	for e := Ending(0); e < endingCount; e++ {
		count(c.endings, n.ended[e].Load(), e.String())
	}
	for k := CauseNone + 1; k < causeCount; k++ {
		if v := n.causes[k].Load(); v > 0 {
			count(c.refused, v, k.String())
		}
	}
	for r := CacheHit; r < cacheResultCount; r++ {
		count(c.cache, n.cache[r].Load(), r.String())
	}
	count(c.retries, n.retries.Load())
	count(c.upgrades, n.upgrades.Load())
	count(c.raw, n.bytesIn.Load(), "in")
	count(c.raw, n.bytesOut.Load(), "out")
	ch <- n.duration.metric(c.duration, app)
	ch <- n.park.metric(c.park, app)
}

func (c *collector) gauges(ch chan<- prometheus.Metric, a *App) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, a.name)
	}
	s := a.Stats()
	gauge(c.inFlight, float64(s.InFlight))
	gauge(c.streams, float64(s.Streams))
	gauge(c.parked, float64(s.Parked))
	gauge(c.parkedBytes, float64(s.ParkedBytes))
}

// metric is the histogram as client_golang wants it: cumulative.
func (h *histogram) metric(d *prometheus.Desc, app string) prometheus.Metric {
	cumulative := map[float64]uint64{}
	var n uint64
	for i, b := range bucketBounds() {
		n += h.buckets[i].Load()
		cumulative[b.Seconds()] = n
	}
	n += h.buckets[len(h.buckets)-1].Load()
	return prometheus.MustNewConstHistogram(d, n, float64(h.sum.Load())/1e9, cumulative, app)
}
