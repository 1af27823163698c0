package peers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/bench/stats"
)

// samples makes one per CPU value, from round 1 on.
func samples(cpu ...float64) (all []Sample) {
	for i, v := range cpu {
		all = append(all, Sample{Round: i + 1, Requests: 1000, PerSecond: 1000, CPUMicros: v, P50MS: 1, P99MS: v / 10, P999MS: 3})
	}
	return all
}

// sampleReport has a bar of each verdict.
func sampleReport() *Report {
	w := Work{ID: "w", Title: "small <GET>", Connections: 4, bars: []Bar{{Nginx, CPU, 1.0, 0.7}, {HAProxy, CPU, 0.85, 0}, {HAProxy, P99, 2, 0}}}
	r := &Report{
		StartedAt: time.Unix(1e9, 0), Machine: "Linux 6, 2 cores", Origin: "nginx", AccessLog: true, Rounds: 6, DurationMS: 1000,
		Peers: []PeerReport{
			{Name: Usher, Version: "usher devel", Files: []File{{"usher.toml", "[server]\n<script>"}}, Commands: []string{"usher serve"}},
			{Name: Nginx, Version: "nginx/1"},
			{Name: HAProxy, Version: "2.6", Note: "a note"},
			{Name: Caddy, Skipped: "caddy is not on PATH"},
		},
		Works: []WorkReport{{Work: w, Peers: []PeerResult{
			{Peer: Usher, Samples: samples(12, 11, 12, 13, 12, 12)},
			{Peer: Nginx, Samples: samples(10, 10, 10, 10, 10, 10)},
			{Peer: HAProxy, Samples: samples(11, 13, 13, 13, 15, 16)},
			{Peer: Varnish, Samples: []Sample{{Round: 1, Failures: 4}}, Problem: "it <ended>"},
		}}},
	}
	r.sum()
	return r
}

func TestEachRatioIsJudgedByItsOwnBar(t *testing.T) {
	r := sampleReport()
	got := map[string]stats.Verdict{}
	for _, q := range r.Works[0].Ratios {
		got[q.Peer+" "+string(q.Measure)] = q.Verdict
	}
	for key, want := range map[string]stats.Verdict{
		"nginx cpu": stats.Missed, "haproxy cpu": stats.Unclear, "haproxy p99": stats.Met, "nginx p99": "", "varnish cpu": "",
	} {
		if got[key] != want {
			t.Errorf("%s: %q, want %q", key, got[key], want)
		}
	}
	if r.Missed() != 1 {
		t.Errorf("%d missed", r.Missed())
	}
}

func TestRatiosAreOfRoundsThatBothHave(t *testing.T) {
	usher := append(samples(10, 20, 30), Sample{Round: 4, Failures: 1})
	peer := samples(5, 5, 5, 5)[1:]
	got := paired(usher, peer, CPU)
	if len(got) != 2 || got[0] != 4 || got[1] != 6 {
		t.Errorf("ratios %v, want those of rounds 2 and 3", got)
	}
}

func TestARoundWithoutAnswersHasNoFigures(t *testing.T) {
	p := PeerResult{Peer: Usher, Samples: append(samples(10), Sample{Round: 2, Failures: 7})}
	p.sum()
	if p.Figures[CPU].Of != 1 || p.Figures[CPU].Median != 10 || p.Failures != 7 {
		t.Errorf("%+v", p)
	}
}

func TestOnlyUshersFailuresCount(t *testing.T) {
	r := sampleReport()
	if r.Failures() != 0 {
		t.Errorf("%d failures", r.Failures())
	}
	r.Works[0].Peers[0].Failures = 3
	if r.Failures() != 3 {
		t.Errorf("%d failures", r.Failures())
	}
}

func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("lacks %q:\n%s", part, text)
		}
	}
}

func TestTheTextHasFiguresRatiosAndReasons(t *testing.T) {
	var b bytes.Buffer
	if err := sampleReport().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	contains(t, b.String(), "6 rounds of 1.00 s; origin: nginx; all write an access log", "haproxy: 2.6 (a note)",
		"caddy is left out: caddy is not on PATH", "small <GET>", "≤ 1.00   missed  0.70", "≤ 0.85  unclear", "varnish: it <ended>",
		"1.20  1.10–1.30 (97 %)", "3 bars: 1 met, 1 unclear, 1 missed; usher failed 0 requests")
}

func TestThePageStandsAloneAndEscapes(t *testing.T) {
	var b bytes.Buffer
	if err := sampleReport().WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	page := b.String()
	contains(t, page, "<!doctype html>", "small &lt;GET&gt;", "&lt;script&gt;", "it &lt;ended&gt;", "prefers-color-scheme:dark",
		"<svg ", `class="bar"`, "left out, caddy is not on PATH", "1.20 of 1.00: missed")
	if n := strings.Count(page, "<svg "); n != 3 {
		t.Errorf("%d pictures, want CPU ratios, p99 ratios and one work", n)
	}
	for _, bad := range []string{"<script", "src=", "<link", "@import", "url(", "NaN", "Inf", "ZgotmplZ", "%!"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q", bad)
		}
	}
	if n := strings.Count(page, "http://") - strings.Count(page, `xmlns="http://www.w3.org/2000/svg"`); n != 0 {
		t.Errorf("%d addresses in the page", n)
	}
}

func TestAReportWithoutFiguresIsWrittenToo(t *testing.T) {
	r := &Report{Cut: "context canceled", Works: []WorkReport{{Work: Work{Title: "w"}, Peers: []PeerResult{{Peer: Usher}}}}}
	r.sum()
	var page, text bytes.Buffer
	if err := r.WriteHTML(&page); err != nil {
		t.Error(err)
	}
	if err := r.WriteText(&text); err != nil {
		t.Error(err)
	}
	contains(t, text.String(), "ended early: context canceled")
	if strings.Contains(page.String(), "NaN") {
		t.Error("the page has NaN")
	}
}

func TestTheJSONHasEverythingInPlainNumbers(t *testing.T) {
	var b bytes.Buffer
	if err := sampleReport().WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Works []struct {
			ID    string
			Peers []struct {
				Figures map[string]struct{ Median float64 }
			}
			Ratios []struct {
				Against, Verdict  string
				Median, Low, High float64
				Bar               *struct{ Most float64 }
			}
		}
	}
	if err := json.Unmarshal(b.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	w := back.Works[0]
	if w.ID != "w" || fmt.Sprint(w.Peers[0].Figures["cpu"].Median) != "12" || w.Ratios[0].Against != Nginx ||
		w.Ratios[0].Bar.Most != 1 || w.Ratios[0].Verdict != "missed" || w.Ratios[0].Low <= 1 {
		t.Errorf("%+v", w)
	}
}
