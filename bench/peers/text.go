package peers

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/usher-edge/usher/bench/stats"
)

// WriteText prints the report for a terminal.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "peers: %s\n%s\n", r.describe(), r.Machine)
	for _, p := range r.Peers {
		b.WriteString(p.describe() + "\n")
	}
	for i := range r.Works {
		b.WriteString("\n" + r.Works[i].Title + "\n")
		r.Works[i].figures(&b)
		r.Works[i].ratios(&b)
	}
	fmt.Fprintf(&b, "\n%s\n", r.Conclusion())
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) describe() string {
	logs := "none writes an access log"
	if r.AccessLog {
		logs = "all write an access log"
	}
	return fmt.Sprintf("%s of %s s; origin: %s; %s", rounds(r.Rounds), stats.Number(r.DurationMS/1000), r.Origin, logs)
}

func rounds(n int) string {
	if n == 1 {
		return "1 round"
	}
	return strconv.Itoa(n) + " rounds"
}

func (p PeerReport) describe() string {
	s := p.Name + ": " + p.Version
	if p.Skipped != "" {
		return p.Name + " is left out: " + p.Skipped
	}
	if p.Note != "" {
		s += " (" + p.Note + ")"
	}
	return s
}

// Conclusion is the last line: bars and failures.
func (r *Report) Conclusion() string {
	count := map[stats.Verdict]int{}
	bars := 0
	for _, w := range r.Works {
		for _, ratio := range w.Ratios {
			if ratio.Bar != nil {
				bars++
				count[ratio.Verdict]++
			}
		}
	}
	s := fmt.Sprintf("%d bars: %d met, %d unclear, %d missed; usher failed %d requests",
		bars, count[stats.Met], count[stats.Unclear], count[stats.Missed], r.Failures())
	if r.Cut != "" {
		s += "; ended early: " + r.Cut
	}
	return s
}

func (w *WorkReport) figures(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "  peer\trequests/s\tCPU µs/request\tspread\tp50 ms\tp99 ms\tp99.9 ms\tfailed\t")
	for _, p := range w.Peers {
		f := p.Figures
		if len(f) == 0 {
			fmt.Fprintf(t, "  %s\t-\t-\t-\t-\t-\t-\t%d\t\n", p.Peer, p.Failures)
			continue
		}
		fmt.Fprintf(t, "  %s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t\n", p.Peer, f[PerSecond].Median, stats.Number(f[CPU].Median),
			f[CPU].Range(), stats.Number(f[P50].Median), stats.Number(f[P99].Median), stats.Number(f[P999].Median), p.Failures)
	}
	_ = t.Flush() // the writer below is memory
	for _, p := range w.Peers {
		if p.Problem != "" {
			fmt.Fprintf(b, "  %s: %s\n", p.Peer, p.Problem)
		}
	}
}

func (w *WorkReport) ratios(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	if len(w.Ratios) > 0 {
		fmt.Fprintln(t, "  usher by\tof\tratio\tbounds\tspread\tbar\t\tnext\t")
	}
	for _, q := range w.Ratios {
		bar, next := "", ""
		if q.Bar != nil {
			bar = "≤ " + stats.Number(q.Bar.Most)
			if q.Bar.Next > 0 {
				next = stats.Number(q.Bar.Next)
			}
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", q.Peer, q.Measure.name(), stats.Number(q.Median),
			q.Bounds(), q.Range(), bar, q.Verdict, next)
	}
	_ = t.Flush()
}

func (m Measure) name() string {
	switch m {
	case CPU:
		return "CPU"
	case PerSecond:
		return "requests/s"
	}
	return string(m)
}
