package peers

import (
	"fmt"
	"html/template"
	"io"

	"github.com/usher-edge/usher/bench/stats"
)

// WriteHTML writes a page that stands alone: the ratios with their bars, what
// each request cost, all figures, and each peer's configuration.
func (r *Report) WriteHTML(w io.Writer) error {
	page, err := template.New("peers").Funcs(template.FuncMap{
		"n": stats.Number, "cost": func(w WorkReport) template.HTML { return template.HTML(w.costPicture()) },
		"figure": func(p PeerResult, m string) string {
			f, ok := p.Figures[Measure(m)]
			if !ok {
				return "–"
			}
			if Measure(m) == PerSecond {
				return fmt.Sprintf("%.0f", f.Median)
			}
			return stats.Number(f.Median)
		},
		"name": func(m Measure) string { return m.name() },
	}).Parse(peersPage)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return page.Execute(w, pageData{
		Report: r, About: r.describe(),
		CPU: template.HTML(r.ratioPicture(CPU)), P99: template.HTML(r.ratioPicture(P99)),
		Style: template.CSS(pictureStyle),
	})
}

type pageData struct {
	*Report
	About    string
	CPU, P99 template.HTML // our own drawings, escaped where they hold text
	Style    template.CSS
}

const peersPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>usher beside its peers</title>
<style>
:root{color-scheme:light dark;--bg:#f4f5f7;--card:#fff;--ink:#1f2430;--soft:#5d6675;--line:#e3e6eb;--bad:#c4161f;--good:#14804a;--so:#b97900}
@media (prefers-color-scheme:dark){:root{--bg:#0b0e12;--card:#12161c;--ink:#e7eaf0;--soft:#9aa4b2;--line:#262d37;--bad:#ff7a82;--good:#57d195;--so:#ffc34d}}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:22px;margin:0 0 4px}h2{font-size:16px;margin:0;padding:14px 16px 2px}p{margin:0 0 12px;color:var(--soft)}h2+p{padding:0 16px}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;margin:0 0 16px;overflow-x:auto}
.card svg{display:block;width:100%;min-width:760px;height:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums;font-size:14px}
th,td{padding:6px 16px;text-align:right;border-top:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child{text-align:left}thead th{color:var(--soft);font-weight:500;font-size:13px}
.met{color:var(--good)}.missed{color:var(--bad)}.unclear{color:var(--so)}.wide{white-space:normal;text-align:left}
details{padding:8px 16px}summary{cursor:pointer}pre{overflow-x:auto;font-size:12.5px;line-height:1.4;margin:8px 0}
footer{color:var(--soft);font-size:13px}
{{.Style}}
</style>
<main>
<h1>usher beside its peers</h1>
<p>{{.About}}. {{.Machine}}. {{.StartedAt.UTC.Format "2006-01-02 15:04"}} UTC.<br>{{.Conclusion}}</p>
{{if .CPU}}<div class="card"><h2>CPU per request: usher by each peer</h2>
<p>Dot: median of the rounds. Thick: confidence bounds. Thin: all rounds. Upright line: the bar; dashed: the next one. A bar is missed only if the lower bound is beyond it.</p>
{{.CPU}}</div>{{end}}
{{if .P99}}<div class="card"><h2>p99 of latency: usher by each peer</h2><p>With a client that sends as fast as it gets answers, p99 says little; it does where the rate is fixed.</p>{{.P99}}</div>{{end}}
{{range .Works}}<div class="card"><h2>{{.Title}}: CPU µs per request</h2>
{{cost .}}
<table><thead><tr><th>peer</th><th>requests/s</th><th>CPU µs/request</th><th>p50 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>failed</th></tr></thead>
{{range .Peers}}<tr><td>{{.Peer}}</td><td>{{figure . "per_second"}}</td><td>{{figure . "cpu"}}</td><td>{{figure . "p50"}}</td><td>{{figure . "p99"}}</td><td>{{figure . "p99.9"}}</td><td{{if .Failures}} class="missed"{{end}}>{{.Failures}}</td></tr>
{{if .Problem}}<tr><td class="wide missed" colspan="7">{{.Peer}}: {{.Problem}}</td></tr>
{{end}}{{end}}</table>
{{if .Ratios}}<table><thead><tr><th>usher by</th><th>of</th><th>ratio</th><th>bounds</th><th>all rounds</th><th>bar</th><th>next</th></tr></thead>
{{range .Ratios}}<tr><td>{{.Peer}}</td><td>{{name .Measure}}</td><td>{{n .Median}}</td><td>{{.Bounds}}</td><td>{{.Range}}</td>{{with .Bar}}<td>≤ {{n .Most}}{{else}}<td>{{end}} <span class="{{.Verdict}}">{{.Verdict}}</span></td><td>{{with .Bar}}{{if .Next}}{{n .Next}}{{end}}{{end}}</td></tr>
{{end}}</table>{{end}}</div>
{{end}}
<div class="card"><h2>How each was run</h2>
{{range .Peers}}<details><summary>{{.Name}}{{if .Skipped}}: left out, {{.Skipped}}{{else}}: {{.Version}}{{end}}</summary>
{{with .Note}}<p>{{.}}</p>{{end}}{{range .Commands}}<pre>{{.}}</pre>{{end}}{{range .Files}}<pre># {{.Name}}
{{.Text}}</pre>{{end}}</details>
{{end}}<details><summary>origin: {{.Origin}}</summary>{{range .OriginConf}}<pre># {{.Name}}
{{.Text}}</pre>{{end}}</details></div>
<footer>CPU is that of a peer's whole process tree; the client's and the origin's are not in it. Ratios are taken within a round. Figures of two runs, or of two machines, do not compare.</footer>
</main>
</html>
`
