package peers

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/usher-edge/usher/bench/stats"
)

// pictureStyle colours by class, so that one picture serves light and dark pages.
const pictureStyle = `
.up{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12.5px}
.up text{fill:#1f2430}.up .soft{fill:#5d6675}.up .head{font-weight:600;font-size:13.5px}.up .end{text-anchor:end}.up .mid{text-anchor:middle}
.up .grid{stroke:#e6e9ee}.up .one{stroke:#8b94a3;stroke-width:1.4}.up .rule{stroke:#e3e6eb}
.up .us{fill:#0f5fc4}.up .other{fill:#b9c0cb}.up .dot{fill:#1f2430;fill-opacity:.38}.up .whisk{stroke:#1f2430;stroke-opacity:.75;stroke-width:1.3;fill:none}
.up .met{fill:#14804a;stroke:#14804a}.up .unclear{fill:#b97900;stroke:#b97900}.up .missed{fill:#c4161f;stroke:#c4161f}.up .plain{fill:#5d6675;stroke:#5d6675}
.up .range{stroke-width:4;stroke-linecap:round;stroke-opacity:.45;fill:none}.up .far{stroke-width:1.2;fill:none}.up .bar{stroke:#1f2430;stroke-width:2.4}.up .next{stroke:#1f2430;stroke-width:1.6;stroke-dasharray:3 2}
.up text{stroke:none}.up text.met,.up text.unclear,.up text.missed{stroke:none;font-weight:600}.up text.plain{stroke:none}
@media (prefers-color-scheme:dark){
.up text{fill:#e7eaf0}.up .soft{fill:#9aa4b2}.up .grid{stroke:#262d37}.up .one{stroke:#6b7686}.up .rule{stroke:#262d37}
.up .us{fill:#5b9dff}.up .other{fill:#465060}.up .dot{fill:#e7eaf0;fill-opacity:.4}.up .whisk{stroke:#e7eaf0}
.up .met{fill:#57d195;stroke:#57d195}.up .unclear{fill:#ffc34d;stroke:#ffc34d}.up .missed{fill:#ff7a82;stroke:#ff7a82}.up .plain{fill:#9aa4b2;stroke:#9aa4b2}
.up .bar,.up .next{stroke:#e7eaf0}.up text.met{fill:#57d195}.up text.unclear{fill:#ffc34d}.up text.missed{fill:#ff7a82}}
`

// canvas is a picture being drawn.
type canvas struct{ strings.Builder }

func (c *canvas) printf(format string, args ...any) { fmt.Fprintf(c, format, args...) }

func (c *canvas) text(x, y float64, class, s string) {
	c.printf(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

func (c *canvas) open(width, height float64, label string) {
	c.printf(`<svg xmlns="http://www.w3.org/2000/svg" class="up" viewBox="0 0 %.0f %.0f" role="img" aria-label="%s">`,
		width, height, html.EscapeString(label))
}

// Measures of the two pictures.
const (
	wide  = 1100.0
	left  = 220.0 // of the plot of ratios
	right = 920.0
	row   = 21.0
)

// ratioPicture shows all ratios of one measure on one logarithmic axis, each
// with its bounds, its spread and its bar.
func (r *Report) ratioPicture(m Measure) string {
	low, high, rows := 0.5, 1.6, 0
	for _, w := range r.Works {
		for _, q := range w.Ratios {
			if q.Measure == m && q.Median > 0 {
				low, high = min(low, q.Least), max(high, q.Most)
				rows++
			}
		}
	}
	if rows == 0 {
		return ""
	}
	low, high = max(low*0.9, 0.02), min(high*1.1, 20)
	at := func(v float64) float64 {
		v = min(max(v, low), high)
		return left + math.Log(v/low)/math.Log(high/low)*(right-left)
	}
	height := 54 + row*float64(rows) + 30*float64(len(r.Works))
	c := &canvas{}
	c.open(wide, height, "usher by each peer: "+m.name())
	c.text(right, 16, "soft end", "dearer than the peer →")
	c.text(left, 16, "soft", "← cheaper than the peer")
	for _, v := range []float64{0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1, 1.4, 2, 3, 5, 10, 20} {
		if v < low || v > high {
			continue
		}
		class := "grid"
		if v == 1 {
			class = "one"
		}
		c.printf(`<path class="%s" d="M%.1f 40V%.1f"/>`, class, at(v), height-4)
		c.text(at(v), 34, "soft mid", stats.Number(v))
	}
	y := 48.0
	for _, w := range r.Works {
		c.printf(`<path class="rule" d="M12 %.1fH%.0f"/>`, y, wide-12)
		y += 20
		c.text(12, y, "head", w.Title)
		y += 10
		for _, q := range w.Ratios {
			if q.Measure == m && q.Median > 0 {
				c.ratioRow(q, y+8, at)
				y += row
			}
		}
	}
	c.WriteString("</svg>\n")
	return c.String()
}

func (c *canvas) ratioRow(q Ratio, y float64, at func(float64) float64) {
	class := string(q.Verdict)
	if class == "" {
		class = "plain"
	}
	c.text(left-24, y+4, "end", q.Peer)
	c.printf(`<g class="%s"><title>%s: median %s, bounds %s, spread %s</title>`, class, html.EscapeString(q.Peer),
		stats.Number(q.Median), q.Bounds(), q.Range())
	c.printf(`<path class="far" d="M%.1f %.1fH%.1f"/>`, at(q.Least), y, at(q.Most))
	c.printf(`<path class="range" d="M%.1f %.1fH%.1f"/>`, at(q.Low), y, max(at(q.High), at(q.Low)+.1))
	c.printf(`<circle cx="%.1f" cy="%.1f" r="4.2"/></g>`, at(q.Median), y)
	words := stats.Number(q.Median)
	if q.Bar != nil {
		c.printf(`<path class="bar" d="M%.1f %.1fv14"/>`, at(q.Bar.Most), y-7)
		if q.Bar.Next > 0 {
			c.printf(`<path class="next" d="M%.1f %.1fv14"/>`, at(q.Bar.Next), y-7)
		}
		words += " of " + stats.Number(q.Bar.Most) + ": " + string(q.Verdict)
	}
	c.text(right+12, y+4, class, words)
}

// costPicture shows what a request of one work costs each peer, with every
// round as a dot.
func (w *WorkReport) costPicture() string {
	const from, to, step = 110.0, 920.0, 26.0
	most := 0.0
	for _, p := range w.Peers {
		most = max(most, p.Figures[CPU].Median*1.15)
	}
	if most == 0 {
		return ""
	}
	for _, p := range w.Peers {
		// One wild round may not squeeze all others.
		most = max(most, min(p.Figures[CPU].Most, 1.6*p.Figures[CPU].Median))
	}
	at := func(v float64) float64 { return from + min(v/most, 1)*(to-from) }
	c := &canvas{}
	c.open(wide, 12+step*float64(len(w.Peers)), "CPU per request: "+w.Title)
	for i, p := range w.Peers {
		y := 8 + step*float64(i)
		class := "other"
		if p.Peer == Usher {
			class = "us"
		}
		f, ok := p.Figures[CPU]
		c.text(from-10, y+14, "end", p.Peer)
		if !ok {
			c.text(from+4, y+14, "soft", "no figures: "+p.Problem)
			continue
		}
		c.printf(`<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="18" rx="2"/>`, class, from, y, at(f.Median)-from)
		for _, s := range p.Samples {
			if s.Requests > 0 {
				c.printf(`<circle class="dot" cx="%.1f" cy="%.1f" r="2.6"/>`, at(s.CPUMicros), y+9)
			}
		}
		c.printf(`<path class="whisk" d="M%.1f %.1fv8m0 -4H%.1fm0 -4v8"/>`, at(f.Low), y+5, at(f.High))
		c.text(to+14, y+14, "", stats.Number(f.Median)+" µs")
	}
	c.WriteString("</svg>\n")
	return c.String()
}
