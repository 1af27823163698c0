package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/usher-edge/usher/bench/stats"
)

// WriteText prints the result for a terminal.
func (r *Result) WriteText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n\n", r.Scenario, r.Load.describe())
	r.phaseTable(&b)
	switch {
	case r.Pinned != nil:
		r.Pinned.lines(&b)
	case r.Change != nil:
		b.WriteString("\n" + r.Change.describe() + "\n")
	}
	r.roundLine(&b)
	r.generationLines(&b)
	r.failureLines(&b)
	if r.Lag.P99MS >= 1 {
		fmt.Fprintf(&b, "\nthe load tool itself was late: p99 %s ms, at most %s ms (a busy machine; lower the rate)\n",
			ms(r.Lag.P99MS), ms(r.Lag.MaxMS))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (l LoadSummary) describe() string {
	var s strings.Builder
	s.WriteString(strings.Join(l.Targets, ", "))
	if l.Burst > 0 {
		fmt.Fprintf(&s, "; %d at once to a sleeping app", l.Burst)
	} else {
		fmt.Fprintf(&s, "; %s requests/s %s, %d connections", number(l.Rate), l.Arrivals, l.Connections)
	}
	if l.NewConnections > 0 {
		fmt.Fprintf(&s, ", %s new", percent(l.NewConnections))
	}
	if l.Posts > 0 {
		fmt.Fprintf(&s, ", %s POST of %d bytes", percent(l.Posts), l.BodyBytes)
	}
	return s.String()
}

func (r *Result) phaseTable(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "phase\trequests\tfailed\tp50 ms\tp90 ms\tp99 ms\tp99.9 ms\tmax ms\t")
	row := func(name string, s Summary) {
		l := s.Latency
		fmt.Fprintf(t, "%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t\n", name, s.Requests, s.Failed,
			ms(l.P50MS), ms(l.P90MS), ms(l.P99MS), ms(l.P999MS), ms(l.MaxMS))
	}
	for _, p := range r.Phases {
		row(p.Name, p.Summary)
	}
	if len(r.Phases) != 1 {
		row("all", r.Total)
	}
	// The writer below is memory.
	_ = t.Flush()
}

// lines say how the swaps compare with their bars.
func (p *Pinned) lines(b *strings.Builder) {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	if p.P99 != nil || p.CPU != nil {
		fmt.Fprintf(b, "\n%s, each with a window beside it in which the same process was started and nothing switched\n", count(p.Swaps, "swap"))
		fmt.Fprintln(t, "\ttwo generations\tstarted beside\tratio\tbounds\tsingle pairs\tbar\t\t")
	}
	for _, row := range []struct {
		name string
		pin  *Pin
	}{{"p99 ms", p.P99}, {"CPU µs/request", p.CPU}, {"from the request: p99 ms", p.P99Asked}, {"CPU µs/request", p.CPUAsked}} {
		if pin := row.pin; pin != nil {
			bar := "none"
			if pin.Bar > 0 {
				bar = "≤ " + ms(pin.Bar)
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", row.name, ms(pin.Swap), ms(pin.Beside), ms(pin.Median),
				pin.Bounds(), pin.Range(), bar, pin.Verdict)
		}
	}
	_ = t.Flush() // the writer below is memory
	if lag := p.Lag; lag != nil {
		fmt.Fprintf(b, "of these latencies the load tool's own share was, at p99, %s ms and %s ms\n", ms(lag.Swap), ms(lag.Beside))
	}
	if price := p.SwapCPUMS; price != nil {
		fmt.Fprintf(b, "of its CPU time usher spent %s ms on a swap itself, bounds %s\n", ms(price.Median), price.Bounds())
	}
	if h := p.Hold; h != nil {
		fmt.Fprintf(b, "\n%s by hold, before each of which the app's process was stopped and started by itself\n", count(p.Swaps, "swap"))
		fmt.Fprintln(t, "\tmedian\tbounds\tspread\tbar\t\t")
		row := func(name string, s stats.Spread, verdict string) {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, ms(s.Median), s.Bounds(), s.Range(), verdict)
		}
		row("own stop ms", h.StopMS, "\t\t")
		row("own start ms", h.StartMS, "\t\t")
		row("parked p99 ms", h.PerSwap, "\t\t")
		row("beyond stop + start", h.BeyondMS, fmt.Sprintf("≤ %g\t%s\t", h.Bar, h.Verdict))
		_ = t.Flush() // the writer below is memory
	}
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

func (c *Change) describe() string {
	s := fmt.Sprintf("swap took %s ms", ms(c.EndMS-c.StartMS))
	if c.From != 0 || c.To != 0 {
		s += fmt.Sprintf(", generation %d to %d", c.From, c.To)
	}
	if c.ParkedSeen > 0 {
		s += fmt.Sprintf(", up to %d requests parked", c.ParkedSeen)
	}
	if c.Error != "" {
		s += "; it failed: " + c.Error
	}
	return s
}

func (r *Result) roundLine(b *strings.Builder) {
	parked := 0
	for _, round := range r.Rounds {
		parked = max(parked, round.ParkedSeen)
	}
	if len(r.Rounds) > 0 {
		fmt.Fprintf(b, "\n%d wakes, up to %d requests parked at once\n", len(r.Rounds), parked)
	}
}

// mostLines bounds what is printed of a list that has no bound of its own.
const mostLines = 8

func (r *Result) generationLines(b *strings.Builder) {
	if !r.namesGenerations() {
		return
	}
	b.WriteString("\n")
	for _, g := range r.Generations[:min(len(r.Generations), mostLines)] {
		fmt.Fprintf(b, "%s: %d answers, %s s to %s s\n", g.name(), g.Answers, seconds(g.FirstMS), seconds(g.LastMS))
	}
	if more := len(r.Generations) - mostLines; more > 0 {
		fmt.Fprintf(b, "and %d generations more\n", more)
	}
}

// namesGenerations tells whether it is worth saying who answered when: a server
// other than usher names nobody, and in a wake scenario the rounds say it.
func (r *Result) namesGenerations() bool {
	unnamed := len(r.Generations) == 1 && r.Generations[0].Generation == 0
	return len(r.Generations) > 0 && !unnamed && len(r.Rounds) == 0
}

func (g GenerationCount) name() string { return generationName(g.Generation) }

func generationName(n uint64) string {
	if n == 0 {
		return "no generation named"
	}
	return "generation " + strconv.FormatUint(n, 10)
}

func (r *Result) failureLines(b *strings.Builder) {
	if r.Total.Cut > 0 {
		fmt.Fprintf(b, "\n%d requests were cut: the run was ended before they did\n", r.Total.Cut)
	}
	if r.Total.Failed == 0 {
		return
	}
	b.WriteString("\nfailures: " + r.Total.failureList() + "\n")
	for _, s := range r.FailureSamples[:min(len(r.FailureSamples), mostLines)] {
		fmt.Fprintf(b, "  %s s  %s after %s ms: %s\n", seconds(s.AtMS), s.Kind, ms(s.LatencyMS), s.Detail)
	}
}

// failureList is "reset 2, status_503 1", in order of names.
func (s Summary) failureList() string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(s.Failures)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, s.Failures[kind]))
	}
	return strings.Join(parts, ", ")
}

// ms prints milliseconds with three significant digits or so.
func ms(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	default:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
}

func seconds(millis float64) string { return strconv.FormatFloat(millis/1000, 'f', 3, 64) }

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

func percent(share float64) string { return strconv.FormatFloat(share*100, 'f', -1, 64) + "%" }
