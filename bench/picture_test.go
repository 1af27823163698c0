package bench

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strings"
	"testing"
	"time"
)

// sampleAccount is a made-up swap of 400 requests: one failed, one was cut.
func sampleAccount() account {
	a := account{
		scenario: "swap", started: time.Unix(1_700_000_000, 0),
		load:    Load{Targets: []Target{{Address: "127.0.0.1:8080", Host: "a<b.localhost"}}, Rate: 100}.withDefaults(),
		phases:  []phaseStart{{PhaseBefore, 0}, {PhaseDuring, time.Second}, {PhaseAfter, 2 * time.Second}},
		marks:   []Mark{{1000, "swap starts"}, {1500, "odd & <mark>"}, {2000, "swap reported"}},
		samples: []FailureSample{{AtMS: 1500, LatencyMS: 400, Kind: "status_503", Detail: "status 503: <down>"}},
		elapsed: 4 * time.Second,
	}
	for i := range 400 {
		due := time.Duration(i) * 10 * time.Millisecond
		e := entry{due: due, record: record{free: due, taken: due, kind: Served, status: 200, generation: 1}}
		e.ended = due + time.Millisecond
		if i >= 100 && i < 200 {
			e.ended = due + 200*time.Millisecond
		}
		if i >= 150 {
			e.generation = 2
		}
		a.entries = append(a.entries, e)
	}
	a.entries[150].kind, a.entries[150].status = FailStatus, 503
	a.entries[399] = entry{due: a.entries[399].due}
	return a
}

func sampleResult() *Result {
	a := sampleAccount()
	r := a.result()
	r.Change = &Change{StartMS: 1000, EndMS: 2000, From: 1, To: 2, ParkedSeen: 12}
	return r
}

func TestAnAccountAddsUp(t *testing.T) {
	r := sampleResult()
	if s := r.Total; s.Requests != 400 || s.Served != 398 || s.Failed != 1 || s.Cut != 1 || s.Failures["status_503"] != 1 {
		t.Errorf("total %+v", s)
	}
	for i, want := range []int{100, 100, 200} {
		if got := r.Phases[i].Requests; got != want {
			t.Errorf("phase %s: %d requests, want %d", r.Phases[i].Name, got, want)
		}
	}
	l := r.Total.Latency
	if l.P50MS != 1 || math.Abs(l.P90MS-200) > 0.2 || math.Abs(l.MaxMS-200) > 0.2 {
		t.Errorf("latency %+v", l)
	}
	requests, failed := 0, 0
	for _, b := range r.Series {
		requests += b.Requests
		failed += b.Failed
	}
	if requests != 400 || failed != 1 || r.BucketMS != 50 || len(r.Series) != 80 {
		t.Errorf("series of %d buckets of %g ms: %d requests, %d failed", len(r.Series), r.BucketMS, requests, failed)
	}
	if b := r.Series[25]; b.AtMS != 1250 || b.P50MS != 200 || b.Generations[1] != 5 {
		t.Errorf("bucket %+v", b)
	}
	if g := r.Generations; len(g) != 2 || g[0].Answers != 150 || g[1].Answers != 249 {
		t.Errorf("generations %+v", g)
	}
}

func TestJSONComesBackAsItWasWritten(t *testing.T) {
	r := sampleResult()
	var b strings.Builder
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back Result
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil {
		t.Fatal(err)
	}
	if back.Total.Requests != 400 || back.Change.To != 2 || len(back.Series) != len(r.Series) || back.Phases[1].Name != PhaseDuring {
		t.Errorf("came back as %+v", back)
	}
	mustContain(t, "JSON", b.String(), `"p99_9_ms"`, `"rate_per_s"`, `"failure_samples"`, `"status_503": 1`, `"parked_seen": 12`)
	// A picture can be drawn from it later.
	if !strings.Contains(back.svg(), `class="p50"`) {
		t.Error("no lines in a picture from JSON")
	}
}

func TestThePictureIsWellFormedAndShowsWhatHappened(t *testing.T) {
	svg := sampleResult().svg()
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
	mustContain(t, "picture", svg, `class="window"`, `class="p50"`, `class="p99"`, `class="band"`, `class="fail"`, `class="dots"`,
		"swap starts", "swap reported", "odd &amp; &lt;mark&gt;", "1 of 400 requests failed: status_503 1",
		"generation 1", "generation 2", "prefers-color-scheme:dark", "a&lt;b.localhost")
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Error("a coordinate is no number")
	}
}

func TestAllThreePhasesOfASwapFitAboveThePicture(t *testing.T) {
	r := sampleResult()
	for i := range r.Phases {
		r.Phases[i].Requests, r.Phases[i].Latency = 54321, Latency{P50MS: 12.3, P99MS: 45.6, MaxMS: 78.9}
	}
	if svg := r.svg(); strings.Contains(svg, "…") || strings.Count(svg, "54321 requests, p50/p99/max 12.3/45.6/78.9 ms") != 3 {
		t.Error("the line of the phases is cut")
	}
}

func TestAPictureOfNothingIsStillAPicture(t *testing.T) {
	a := account{scenario: "wake", load: Load{}.withDefaults()}
	svg := a.result().svg()
	if err := xml.Unmarshal([]byte(svg), new(any)); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("not well-formed: %v", err)
	}
	if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Errorf("a coordinate is no number:\n%s", svg)
	}
}

func TestThePageHoldsThePictureAndTheTables(t *testing.T) {
	var b strings.Builder
	if err := sampleResult().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	mustContain(t, "page", b.String(), "<svg", "Latency through a swap", "<td>during</td>", "status 503: &lt;down&gt;", "1000 ms")
	if strings.Contains(b.String(), "<down>") || strings.Contains(b.String(), "src=") || strings.Contains(b.String(), "href=") {
		t.Error("text is not escaped, or the page needs another file")
	}
}

func TestTheTextReportNamesPhasesFailuresAndGenerations(t *testing.T) {
	var b strings.Builder
	if err := sampleResult().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	mustContain(t, "report", b.String(), "before       100       0", "during       100       1", "all       400       1",
		"swap took 1000 ms, generation 1 to 2, up to 12 requests parked", "failures: status_503 1",
		"generation 2: 249 answers", "1 requests were cut")
}

func TestScalesAreRoundAndHoldTheirValues(t *testing.T) {
	for _, c := range []struct{ low, high, from, to float64 }{
		{0.13, 4.2, 0.1, 5},
		{0.2, 0.3, 0.1, 1},
		{1, 1000, 1, 1000},
		{0, 0, 0.01, 0.1},
		{0.5, 5001, 0.5, 10000},
	} {
		s := latencyScale(c.low, c.high)
		if math.Abs(s.low/c.from-1) > 1e-6 || math.Abs(s.high/c.to-1) > 1e-6 {
			t.Errorf("%g to %g: axis from %g to %g, want %g to %g", c.low, c.high, s.low, s.high, c.from, c.to)
		}
	}
	s := scale{low: 1, high: 100, from: 0, to: 10, logarithms: true}
	if s.at(10) != 5 || s.at(0.1) != 0 {
		t.Errorf("10 is at %g, 0.1 at %g", s.at(10), s.at(0.1))
	}
	var values []float64
	for _, tick := range (scale{high: 4017}).linearTicks(10) {
		values = append(values, tick.value)
	}
	if len(values) != 9 || values[1] != 500 {
		t.Errorf("ticks %v", values)
	}
}

func TestAFullPictureKeepsFailuresAndSlowRequests(t *testing.T) {
	var entries []entry
	for i := range 100_000 {
		due := time.Duration(i) * time.Millisecond
		entries = append(entries, entry{due: due, record: record{kind: Served, ended: due + time.Millisecond}})
	}
	entries[5].kind = FailReset
	entries[77_777].ended += time.Second
	kept := dots(entries)
	failed, slow := 0, 0
	for _, d := range kept {
		if d.failed {
			failed++
		}
		if d.latencyMS > 1000 {
			slow++
		}
	}
	if failed != 1 || slow != 1 || len(kept) > 2*maxDots {
		t.Errorf("%d dots, %d failed, %d slow", len(kept), failed, slow)
	}
	if n := len(buckets(entries, bucketWidth(100*time.Second))); n > maxBuckets || n < maxBuckets/3 {
		t.Errorf("%d buckets", n)
	}
}
