package bench

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strconv"
	"strings"
)

// window shades the time of the swap, or of all windows that were compared.
func (p *picture) window() {
	shade := func(class string, fromMS, toMS float64) {
		from, to := p.x.at(fromMS), p.x.at(toMS)
		p.printf(`<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d"/>`,
			class, from, plotTop, max(to-from, 1), plotBottom-plotTop)
	}
	for _, w := range p.r.Windows {
		class := "window"
		if w.Kind == WindowBeside {
			class = "window beside"
		}
		shade(class, w.StartMS, w.EndMS)
	}
	if c := p.r.Change; c != nil && len(p.r.Windows) == 0 {
		shade("window", c.StartMS, c.EndMS)
	}
}

func (p *picture) grid() {
	for _, t := range p.y.logTicks() {
		class := "grid"
		y := p.y.at(t.value)
		if t.major {
			p.printf(`<text x="%d" y="%.1f" class="soft" text-anchor="end">%s</text>`, plotLeft-8, y+4, axisMS(t.value))
		} else {
			class = "grid minor"
		}
		p.printf(`<path class="%s" d="M%d %.1fH%d"/>`, class, plotLeft, y, plotRight)
	}
	for _, t := range p.x.linearTicks(10) {
		x := p.x.at(t.value)
		p.printf(`<path class="axis" d="M%.1f %dv5"/>`, x, plotBottom)
		p.printf(`<text x="%.1f" y="%d" class="soft" text-anchor="middle">%s s</text>`, x, plotBottom+19, number(round3(t.value/1000)))
	}
	p.printf(`<path class="axis" d="M%d %dH%d"/>`, plotLeft, plotBottom, plotRight)
}

// axisMS labels the latency axis in the unit that reads best.
func axisMS(v float64) string {
	switch {
	case v >= 1000:
		return number(round3(v/1000)) + " s"
	case v >= 1:
		return number(round3(v)) + " ms"
	default:
		return number(math.Round(v*1000)) + " µs"
	}
}

func round3(v float64) float64 { return math.Round(v*1000) / 1000 }

// dots draws single requests; a run of few gets larger ones.
func (p *picture) dots() {
	var path strings.Builder
	for _, d := range p.r.dots {
		if !d.failed {
			fmt.Fprintf(&path, "M%.1f %.1fh0", p.x.at(d.atMS), p.y.at(d.latencyMS))
		}
	}
	width := 3.0
	if len(p.r.dots) < 400 {
		width = 6
	}
	if path.Len() > 0 {
		p.printf(`<path class="dots" stroke-width="%.0f" d="%s"/>`, width, path.String())
	}
}

// lines draws p50 and p99 per bucket and the band between them, with a gap
// where nothing was sent.
func (p *picture) lines() {
	for _, stretch := range p.r.stretches() {
		var p50, p99 strings.Builder
		var back []string
		for i, b := range stretch {
			command := 'L'
			if i == 0 {
				command = 'M'
			}
			x := p.x.at(b.AtMS + p.r.BucketMS/2)
			fmt.Fprintf(&p50, "%c%.1f %.1f", command, x, p.y.at(b.P50MS))
			fmt.Fprintf(&p99, "%c%.1f %.1f", command, x, p.y.at(b.P99MS))
			back = append(back, fmt.Sprintf("L%.1f %.1f", x, p.y.at(b.P50MS)))
		}
		slices.Reverse(back)
		p.printf(`<path class="band" d="%s%sZ"/>`, p99.String(), strings.Join(back, ""))
		p.printf(`<path class="p99" d="%s"/><path class="p50" d="%s"/>`, p99.String(), p50.String())
	}
}

// stretches are runs of at least two neighbouring buckets with a latency.
func (r *Result) stretches() [][]Bucket {
	// Separate wakes are no line.
	if len(r.Rounds) > 0 {
		return nil
	}
	var out [][]Bucket
	var run []Bucket
	flush := func() {
		if len(run) > 1 {
			out = append(out, run)
		}
		run = nil
	}
	for _, b := range r.Series {
		if len(run) > 0 && b.AtMS-run[len(run)-1].AtMS > 2.5*r.BucketMS {
			flush()
		}
		if b.P50MS > 0 {
			run = append(run, b)
		}
	}
	flush()
	return out
}

func (p *picture) failures() {
	var path strings.Builder
	for _, d := range p.r.dots {
		if d.failed {
			path.WriteString(cross(p.x.at(d.atMS), p.y.at(d.latencyMS)))
		}
	}
	if path.Len() > 0 {
		p.printf(`<path class="fail" d="%s"/>`, path.String())
	}
}

// markLanes is how many rows of labels fit above the plot.
const markLanes = 2

// marks draws labelled lines. A label goes to the lowest row where it does not
// run into an earlier one; the start of a swap is labelled to its left, so that
// a short swap keeps both its labels in one row.
func (p *picture) marks() {
	var taken [markLanes]float64
	for i := range taken {
		taken[i] = math.Inf(-1)
	}
	for _, m := range p.r.Marks {
		x := p.x.at(m.AtMS)
		width := float64(len([]rune(m.Label)))*6.9 + 10
		left := x
		if p.r.Change != nil && m.AtMS <= p.r.Change.StartMS+1 || x+width > plotRight {
			left = x - width
		}
		lane := 0
		for lane < markLanes-1 && left < taken[lane] {
			lane++
		}
		taken[lane] = left + width
		y := float64(plotTop - 7 - 15*lane)
		p.printf(`<path class="edge" d="M%.1f %.1fV%d"/>`, x, y-10, plotBottom)
		p.text(left+5, y, "mark", m.Label)
	}
}

// generationStrip shows under the time axis who answered when.
func (p *picture) generationStrip() {
	if !p.r.namesGenerations() {
		return
	}
	p.printf(`<text x="%d" y="%d" class="soft" text-anchor="end">answered by</text>`, plotLeft-8, stripTop+stripHeight-4)
	for _, b := range p.r.Series {
		p.stripBucket(b)
	}
	for i, g := range p.r.Generations {
		from, to := p.x.at(g.FirstMS), p.x.at(g.LastMS)
		if i+1 < len(p.r.Generations) {
			to = min(to, p.x.at(p.r.Generations[i+1].FirstMS))
		}
		if to-from > 90 {
			p.printf(`<text x="%.1f" y="%d" class="on" text-anchor="middle">%s</text>`,
				(from+to)/2, stripTop+stripHeight-4, html.EscapeString(g.name()))
		}
	}
}

// stripBucket stacks one bucket's answers by generation.
func (p *picture) stripBucket(b Bucket) {
	total := 0
	for _, n := range b.Generations {
		total += n
	}
	x, width := p.x.at(b.AtMS), p.x.at(p.r.BucketMS)-p.x.at(0)
	top := float64(stripTop)
	for i, g := range p.r.Generations {
		n := b.Generations[g.Generation]
		if n == 0 {
			continue
		}
		height := stripHeight * float64(n) / float64(total)
		class := "g" + strconv.Itoa(i%4)
		if g.Generation == 0 {
			class = "gn"
		}
		p.printf(`<rect class="strip %s" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`,
			class, x, top, min(width+.2, plotRight-x), height)
		top += height
	}
}

// hover gives each bucket a text that appears under the pointer.
func (p *picture) hover() {
	width := p.x.at(p.r.BucketMS) - p.x.at(0)
	for _, b := range p.r.Series {
		x := p.x.at(b.AtMS)
		p.printf(`<rect class="hit" x="%.1f" y="%d" width="%.1f" height="%d"><title>%s s to %s s: %d requests, %d failed; p50 %s, p99 %s, max %s ms</title></rect>`,
			x, plotTop, min(width, plotRight-x), plotBottom-plotTop,
			seconds(b.AtMS), seconds(b.AtMS+p.r.BucketMS), b.Requests, b.Failed, ms(b.P50MS), ms(b.P99MS), ms(b.MaxMS))
	}
}
