package edge

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// gather returns the values of counters and gauges, and the counts of
// histograms, by name and labels in the order of the labels' names.
func gather(t *testing.T, e *Edge) map[string]float64 {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(e.Collector()); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			key := f.GetName()
			for _, l := range m.GetLabel() {
				key += " " + l.GetName() + "=" + l.GetValue()
			}
			switch {
			case m.Counter != nil:
				got[key] = m.Counter.GetValue()
			case m.Gauge != nil:
				got[key] = m.Gauge.GetValue()
			default:
				got[key] = float64(m.Histogram.GetSampleCount())
			}
		}
	}
	return got
}

func TestMetricsTellWhatHappened(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	a.Place(serving(1))
	r, q := open(e), open(e)
	e.Decide(r)
	e.Finish(r, Result{Ending: Served, Status: 204, BytesIn: 5, BytesOut: 7})
	e.Decide(q)
	q.Upgraded()
	q.Streaming(func(Haste) {})
	a.Place(Placement{State: Down})
	begin(r)
	d := e.Decide(r)
	e.Finish(r, Result{Ending: Refused, Cause: d.Cause, Status: 503})
	r.Begin(time.Now())
	e.Finish(r, Result{Ending: Refused, Cause: CauseBadRequest, Status: 400})
	got := gather(t, e)
	for key, want := range map[string]float64{
		"usher_requests_total app=app code=2xx":                1,
		"usher_requests_total app=app code=5xx":                1,
		"usher_requests_total app=- code=4xx":                  1,
		"usher_request_endings_total app=app ending=served":    1,
		"usher_request_endings_total app=app ending=refused":   1,
		"usher_request_causes_total app=app cause=wake-failed": 1,
		"usher_request_causes_total app=- cause=bad-request":   1,
		"usher_request_duration_seconds app=app":               2,
		"usher_requests_in_flight app=app":                     1,
		"usher_streams_open app=app":                           1,
		"usher_requests_parked app=app":                        0,
		"usher_upgrades_total app=app":                         1,
		"usher_body_bytes_total app=app direction=in":          5,
		"usher_body_bytes_total app=app direction=out":         7,
		"usher_cache_requests_total app=app result=hit":        0,
		"usher_park_duration_seconds app=app":                  0,
	} {
		if v, there := got[key]; !there || v != want {
			t.Errorf("%s = %v (%v), want %v", key, v, there, want)
		}
	}
	end(e, q, Served)
}

func TestMetricsOfAnAppVanishWithIt(t *testing.T) {
	e, a := one(t, Options{}, AppConfig{})
	if _, there := gather(t, e)["usher_requests_in_flight app=app"]; there {
		t.Error("an app that no request has come to has series")
	}
	r := open(e)
	e.Decide(r)
	end(e, r, Refused)
	if _, there := gather(t, e)["usher_requests_in_flight app=app"]; !there {
		t.Fatal("no series for the app")
	}
	a.Remove()
	for key := range gather(t, e) {
		if got := "app=app"; len(key) > len(got) && key[len(key)-len(got):] == got {
			t.Errorf("%s is still there", key)
		}
	}
}

func TestHistogramsPutADurationIntoItsBucket(t *testing.T) {
	var h histogram
	h.observe(0)
	h.observe(500 * time.Microsecond)
	h.observe(501 * time.Microsecond)
	h.observe(time.Hour)
	if h.buckets[0].Load() != 2 || h.buckets[1].Load() != 1 || h.buckets[len(h.buckets)-1].Load() != 1 {
		t.Error("a duration is in the wrong bucket")
	}
}
