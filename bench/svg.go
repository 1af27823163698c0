package bench

import (
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
)

// The picture's frame, in SVG units.
const (
	frameWidth  = 1120
	frameHeight = 520
	plotLeft    = 100
	plotRight   = 1096
	plotTop     = 150
	plotBottom  = 444
	stripTop    = 478
	stripHeight = 16
)

// svgStyle colours by class, so that one picture serves light and dark pages.
// Plain rules without variables: converters to PNG know those.
const svgStyle = `
.ub{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;font-size:12px}
.ub .page{fill:#ffffff}.ub text{fill:#1f2430}.ub .soft{fill:#5d6675}.ub .title{font-size:19px;font-weight:600}
.ub .grid{stroke:#e6e9ee;stroke-width:1}.ub .grid.minor{stroke:#f2f4f7}.ub .axis{stroke:#b9c0cb;stroke-width:1}
.ub .window{fill:#f2a900;fill-opacity:.13}.ub .window.beside{fill:#5d6675;fill-opacity:.12}.ub .edge{stroke:#b97900;stroke-width:1.2;stroke-dasharray:4 3}
.ub text.mark{fill:#8a5a00;font-weight:600}.ub .dots{stroke:#3b7ddd;stroke-opacity:.34;stroke-linecap:round;fill:none}
.ub .band{fill:#3b7ddd;fill-opacity:.16}.ub .p99{stroke:#7a4fd0;stroke-width:1.6;fill:none;stroke-linejoin:round}
.ub .p50{stroke:#0f5fc4;stroke-width:2.2;fill:none;stroke-linejoin:round;stroke-linecap:round}
.ub .fail{stroke:#d4202a;stroke-width:2;stroke-linecap:round;fill:none}.ub text.bad{fill:#c4161f;font-weight:600}
.ub text.good{fill:#14804a;font-weight:600}.ub .hit{fill:#000;fill-opacity:0}.ub .hit:hover{fill-opacity:.06}
.ub .strip{shape-rendering:crispEdges}.ub .g0{fill:#2a9d8f}.ub .g1{fill:#e08e2b}.ub .g2{fill:#7b6fd0}.ub .g3{fill:#c8577e}.ub .gn{fill:#9aa3b0}
.ub text.on{fill:#ffffff;font-size:11px;font-weight:600}
@media (prefers-color-scheme:dark){
.ub .page{fill:#12161c}.ub text{fill:#e7eaf0}.ub .soft{fill:#9aa4b2}.ub .grid{stroke:#262d37}.ub .grid.minor{stroke:#1b212a}
.ub .axis{stroke:#4a5463}.ub .window{fill:#ffc34d;fill-opacity:.14}.ub .window.beside{fill:#9aa4b2}.ub .edge{stroke:#ffc34d}.ub text.mark{fill:#ffd27a}
.ub .dots{stroke:#6aa8ff;stroke-opacity:.38}.ub .band{fill:#6aa8ff;fill-opacity:.2}.ub .p99{stroke:#b79bff}.ub .p50{stroke:#7db4ff}
.ub .fail{stroke:#ff5d66}.ub text.bad{fill:#ff7a82}.ub text.good{fill:#57d195}.ub .hit{fill:#fff;fill-opacity:0}
.ub text.on{fill:#ffffff}}
`

// picture is a latency chart being drawn.
type picture struct {
	r    *Result
	x, y scale
	b    strings.Builder
}

// WriteSVG draws latency over time: single requests as dots, p50 and p99 per
// bucket, failures as red crosses, the swap as a window, and below it which
// generation answered. It needs no other file, and follows the reader's light
// or dark preference. After a trip through JSON the dots are missing.
func (r *Result) WriteSVG(w io.Writer) error {
	_, err := io.WriteString(w, r.svg())
	return err
}

func (r *Result) svg() string {
	p := &picture{r: r}
	low, high := r.latencyRange()
	p.y = latencyScale(low, high)
	p.y.from, p.y.to = plotBottom, plotTop
	p.x = scale{high: max(r.ElapsedMS, 1), from: plotLeft, to: plotRight}

	p.printf(`<svg xmlns="http://www.w3.org/2000/svg" class="ub" viewBox="0 0 %d %d" role="img" aria-label="%s">`,
		frameWidth, frameHeight, html.EscapeString(r.title()))
	p.printf("<style>%s</style>", svgStyle)
	p.printf(`<rect class="page" width="%d" height="%d" rx="8"/>`, frameWidth, frameHeight)
	p.header()
	p.legend()
	p.window()
	p.grid()
	p.dots()
	p.lines()
	p.failures()
	p.marks()
	p.generationStrip()
	p.hover()
	p.printf("</svg>\n")
	return p.b.String()
}

func (p *picture) printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

func (p *picture) text(x, y float64, class, s string) {
	p.printf(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

func (r *Result) title() string {
	switch r.Scenario {
	case "swap":
		if r.Pinned != nil && r.Pinned.Swaps > 1 {
			return fmt.Sprintf("Latency through %d swaps", r.Pinned.Swaps)
		}
		return "Latency through a swap"
	case PhaseWake:
		return "Latency of the requests that wake a sleeping app"
	default:
		return "Latency under steady load"
	}
}

// latencyRange is what the y axis must hold, in milliseconds.
func (r *Result) latencyRange() (low, high float64) {
	low, high = r.Total.Latency.P50MS, r.Total.Latency.MaxMS
	for _, b := range r.Series {
		if b.P50MS > 0 {
			low = min(low, b.P50MS)
		}
		high = max(high, b.MaxMS)
	}
	for _, d := range r.dots {
		if d.latencyMS > 0 {
			low = min(low, d.latencyMS)
		}
	}
	return low, high
}

// header says what was run and how it went, phase by phase.
func (p *picture) header() {
	p.text(24, 36, "title", p.r.title())
	p.text(24, 58, "soft", shorten(p.r.Load.describe(), 150))
	outcome, class := "no request failed", "good"
	if p.r.Total.Failed > 0 {
		outcome, class = fmt.Sprintf("%d of %d requests failed: %s", p.r.Total.Failed, p.r.Total.Requests,
			shorten(p.r.Total.failureList(), 80)), "bad"
	}
	p.text(24, 82, class, outcome)
	var parts []string
	for _, phase := range p.r.Phases {
		l := phase.Latency
		parts = append(parts, fmt.Sprintf("%s: %d requests, p50/p99/max %s/%s/%s ms",
			phase.Name, phase.Requests, ms(l.P50MS), ms(l.P99MS), ms(l.MaxMS)))
	}
	p.text(24, 104, "soft", shorten(strings.Join(parts, " · "), 170))
}

// legend explains the marks, at the top right.
func (p *picture) legend() {
	x := float64(plotRight)
	entry := func(label string, width float64, draw func(x, y float64)) {
		x -= width
		draw(x, 32)
		p.text(x+24, 36, "soft", label)
	}
	if p.r.Total.Failed > 0 {
		entry("failed", 68, func(x, y float64) { p.printf(`<path class="fail" d="%s"/>`, cross(x+11, y)) })
	}
	line := func(class string) func(x, y float64) {
		return func(x, y float64) { p.printf(`<path class="%s" d="M%.1f %.1fh18"/>`, class, x, y) }
	}
	if len(p.r.Rounds) == 0 {
		entry("p99", 58, line("p99"))
		entry("p50", 58, line("p50"))
	}
	if len(p.r.dots) > 0 {
		entry("one request", 114, func(x, y float64) {
			p.printf(`<path class="dots" stroke-width="5" d="M%.1f %.1fh0m7 -3h0m6 5h0"/>`, x+3, y)
		})
	}
	if slices.ContainsFunc(p.r.Windows, func(w Window) bool { return w.Kind == WindowBeside }) {
		entry("started beside", 122, func(x, y float64) {
			p.printf(`<rect class="window beside" x="%.1f" y="%.1f" width="18" height="14"/>`, x, y-7)
		})
	}
	if p.r.Change != nil {
		entry("swap", 66, func(x, y float64) {
			p.printf(`<rect class="window" x="%.1f" y="%.1f" width="18" height="14"/>`, x, y-7)
		})
	}
}

func cross(x, y float64) string {
	return fmt.Sprintf("M%.1f %.1fl7 7m0 -7l-7 7", x-3.5, y-3.5)
}

func shorten(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + "…"
}
