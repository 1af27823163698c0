package peers

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
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
	return fmt.Sprintf("%s of %s s; origin: %s; %s", rounds(r.Rounds), number3(r.DurationMS/1000), r.Origin, logs)
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
	count := map[Verdict]int{}
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
		bars, count[Met], count[Unclear], count[Missed], r.Failures())
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
		fmt.Fprintf(t, "  %s\t%.0f\t%s\t%s\t%s\t%s\t%s\t%d\t\n", p.Peer, f[PerSecond].Median, number3(f[CPU].Median),
			f[CPU].outer(), number3(f[P50].Median), number3(f[P99].Median), number3(f[P999].Median), p.Failures)
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
			bar = "≤ " + number3(q.Bar.Most)
			if q.Bar.Next > 0 {
				next = number3(q.Bar.Next)
			}
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", q.Against, q.Measure.name(), number3(q.Median),
			q.bounds(), q.outer(), bar, q.Verdict, next)
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

// bounds are the confidence bounds with what they are worth.
func (s Spread) bounds() string {
	if s.Of < 2 {
		return "-"
	}
	return fmt.Sprintf("%s–%s (%.0f %%)", number3(s.Low), number3(s.High), s.Confidence*100)
}

// outer is the smallest and the largest value.
func (s Spread) outer() string { return number3(s.Least) + "–" + number3(s.Most) }

// number3 prints three significant digits or so.
func number3(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}
