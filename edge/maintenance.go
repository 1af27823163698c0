package edge

import (
	"bytes"
	"strings"
)

// Page is what an app in maintenance shows.
type Page struct {
	Type string // Content-Type, such as "text/html; charset=utf-8"
	Body []byte // must not be changed
}

// builtIn is the page of apps that have none.
const builtIn = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Down for maintenance</title>
<style>
body { margin: 0; min-height: 100vh; display: grid; place-items: center; color-scheme: light dark;
  font: 1.1rem/1.6 system-ui, sans-serif; }
main { max-width: 32rem; padding: 2rem; text-align: center; }
h1 { font-size: 1.6rem; margin: 0 0 .5rem; }
</style>
<main>
<h1>Down for maintenance</h1>
<p>This site is being worked on and will be back soon. Please try again in a moment.</p>
</main>
</html>
`

// Maintenance is the page that this request is answered with while its app is in
// maintenance. The app's own goes to everybody who accepts its type, the built-in
// one to those who ask for HTML by name, as browsers do. Nobody else gets one: a
// line of text is enough.
func (r *Request) Maintenance() (p Page, ok bool) {
	own := r.Config().MaintenancePage
	if own.Body == nil {
		const html = "text/html"
		return Page{Type: html + "; charset=utf-8", Body: []byte(builtIn)}, r.accepts(html) == acceptsName
	}
	kind, _, _ := strings.Cut(own.Type, ";")
	return own, r.accepts(strings.TrimSpace(kind)) != acceptsNot
}

// acceptance is what Accept says about a media type (RFC 9110 §12.5.1).
type acceptance uint8

const (
	acceptsNot   acceptance = iota
	acceptsRange            // by a range, or because nothing is said
	acceptsName
)

// accepts says what the request's Accept fields say about a type, given in lower
// case. The most specific range that fits counts.
func (r *Request) accepts(kind string) acceptance {
	if r.Header == nil {
		return acceptsRange
	}
	main, _, _ := strings.Cut(kind, "/")
	best, said := 0, false
	verdict := acceptsNot
	r.Header.Each("accept", func(value []byte) bool {
		for item := range bytes.SplitSeq(value, []byte(",")) {
			rng, params, _ := bytes.Cut(item, []byte(";"))
			name := strings.ToLower(string(bytes.TrimSpace(rng)))
			said = said || name != ""
			fit, means := 0, acceptsRange
			switch name {
			case kind:
				fit, means = 3, acceptsName
			case main + "/*":
				fit = 2
			case "*/*":
				fit = 1
			}
			if fit <= best {
				continue
			}
			best, verdict = fit, means
			if isZero(params) {
				verdict = acceptsNot
			}
		}
		return true
	})
	if !said {
		return acceptsRange
	}
	return verdict
}

// isZero says whether the parameters of a range have a weight of 0 (RFC 9110
// §12.4.2).
func isZero(params []byte) bool {
	for p := range bytes.SplitSeq(params, []byte(";")) {
		name, value, _ := bytes.Cut(bytes.TrimSpace(p), []byte("="))
		if string(bytes.ToLower(name)) == "q" {
			return len(value) > 0 && len(bytes.Trim(value, "0.")) == 0
		}
	}
	return false
}
