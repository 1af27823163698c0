package bench

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// WriteHTML writes a page that stands alone: the picture, the phases, who
// answered, and the failures.
func (r *Result) WriteHTML(w io.Writer) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"ms": ms, "s": seconds, "name": generationName,
	}).Parse(reportPage)
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return page.Execute(w, reportData{
		Result: r, Title: r.title(), Picture: template.HTML(r.svg()),
		Load: r.Load.describe(), FailureList: r.Total.failureList(),
	})
}

type reportData struct {
	*Result
	Title       string
	Picture     template.HTML // our own drawing, escaped where it holds text
	Load        string
	FailureList string
}

// Table is the comparison as the terminal shows it.
func (p *Pinned) Table() string {
	var b strings.Builder
	p.lines(&b)
	return strings.Trim(b.String(), "\n")
}

// Took is the length of the change in milliseconds.
func (c *Change) Took() float64 { return c.EndMS - c.StartMS }

const reportPage = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Title}}</title>
<style>
:root{color-scheme:light dark;--bg:#f4f5f7;--card:#fff;--ink:#1f2430;--soft:#5d6675;--line:#e3e6eb;--bad:#c4161f;--good:#14804a}
@media (prefers-color-scheme:dark){:root{--bg:#0b0e12;--card:#12161c;--ink:#e7eaf0;--soft:#9aa4b2;--line:#262d37;--bad:#ff7a82;--good:#57d195}}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 16px 48px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px;margin:0 0 16px}
.tile,.card{background:var(--card);border:1px solid var(--line);border-radius:8px}
.tile{padding:12px 16px}.tile b{display:block;font-size:24px;font-weight:600;line-height:1.2;font-variant-numeric:tabular-nums}
.tile span{color:var(--soft);font-size:13px}.bad b{color:var(--bad)}.good b{color:var(--good)}
.card{margin:0 0 16px;overflow-x:auto}.card svg{display:block;width:100%;min-width:720px;height:auto}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{padding:8px 16px;text-align:right;border-top:1px solid var(--line);white-space:nowrap}
th:first-child,td:first-child,.left{text-align:left!important}
thead th{border-top:0;color:var(--soft);font-weight:500;font-size:13px}
td.wide{white-space:normal;text-align:left;overflow-wrap:anywhere}
pre{margin:0;padding:12px 16px;font-size:13px;overflow-x:auto}h2{font-size:15px;margin:0;padding:12px 16px 0}footer{color:var(--soft);font-size:13px}
</style>
<main>
<div class="tiles">
<div class="tile"><b>{{.Total.Requests}}</b><span>requests</span></div>
<div class="tile {{if .Total.Failed}}bad{{else}}good{{end}}"><b>{{.Total.Failed}}</b><span>failed</span></div>
<div class="tile"><b>{{ms .Total.Latency.P50MS}} ms</b><span>p50</span></div>
<div class="tile"><b>{{ms .Total.Latency.P99MS}} ms</b><span>p99</span></div>
<div class="tile"><b>{{ms .Total.Latency.MaxMS}} ms</b><span>slowest</span></div>
{{with .Change}}<div class="tile"><b>{{ms .Took}} ms</b><span>the swap took</span></div>{{end}}
</div>
<div class="card">{{.Picture}}</div>
<div class="card"><table>
<thead><tr><th>phase</th><th>requests</th><th>failed</th><th>p50 ms</th><th>p90 ms</th><th>p99 ms</th><th>p99.9 ms</th><th>max ms</th></tr></thead>
{{range .Phases}}<tr><td>{{.Name}}</td><td>{{.Requests}}</td><td>{{.Failed}}</td><td>{{ms .Latency.P50MS}}</td><td>{{ms .Latency.P90MS}}</td><td>{{ms .Latency.P99MS}}</td><td>{{ms .Latency.P999MS}}</td><td>{{ms .Latency.MaxMS}}</td></tr>
{{end}}</table></div>
{{with .Pinned}}{{with .Table}}<div class="card"><pre>{{.}}</pre></div>{{end}}{{end}}
{{with .Rounds}}<div class="card"><table>
<thead><tr><th>woken at</th><th>first answer ms</th><th>last answer ms</th><th>failed</th><th>parked seen</th><th>answered by</th></tr></thead>
{{range .}}<tr><td>{{s .AtMS}} s</td><td>{{ms .FirstMS}}</td><td>{{ms .SlowestMS}}</td><td>{{.Failed}}</td><td>{{.ParkedSeen}}</td><td>{{name .Generation}}</td></tr>
{{end}}</table></div>{{else}}<div class="card"><table>
<thead><tr><th>answered by</th><th>answers</th><th>first</th><th>last</th></tr></thead>
{{range .Generations}}<tr><td>{{name .Generation}}</td><td>{{.Answers}}</td><td>{{s .FirstMS}} s</td><td>{{s .LastMS}} s</td></tr>
{{end}}</table></div>{{end}}
{{if .Total.Failed}}<div class="card"><h2>Failures: {{.FailureList}}</h2><table>
<thead><tr><th>scheduled</th><th class="left">kind</th><th>after ms</th><th class="left">what happened</th></tr></thead>
{{range .FailureSamples}}<tr><td>{{s .AtMS}} s</td><td class="left">{{.Kind}}</td><td>{{ms .LatencyMS}}</td><td class="wide">{{.Detail}}</td></tr>
{{end}}</table></div>{{end}}
<footer>{{.Load}}. Latency counts from the scheduled time of each request; nothing is retried.
The load tool's own lateness: p99 {{ms .Lag.P99MS}} ms. Started {{.StartedAt.UTC.Format "2006-01-02 15:04:05"}} UTC.</footer>
</main>
</html>
`
