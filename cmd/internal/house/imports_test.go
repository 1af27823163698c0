package house

import (
	"slices"
	"strconv"
	"strings"
	"testing"
)

// room says what a package, or everything below it ("x/..."), may import of our
// own. The row for the package itself counts, else the longest that fits.
type room struct {
	path string
	may  []string // patterns; a package may always import itself (its tests do)
	why  string   // why nothing else
}

func rooms() []room {
	return []room{
		{"activator", []string{"activator/..."}, "the control plane knows no other room: cmd joins it to the edge and the admin API through interfaces"},
		{"activator/lifecycle", nil, "the core is pure decisions and is explored as it is, so it may not know what carries them out"},
		{"activator/cgroup", nil, "a leaf: it proves a process tree empty and knows nothing of apps"},
		{"activator/process", []string{"activator/cgroup", "activator/process/child"}, "it starts and stops processes; who wants that, and why, is the runner's business"},
		{"activator/process/child", nil, "every package below it is initialised in each child, before the app runs"},
		{"activator/store/...", []string{"activator/store/..."}, "a leaf: it keeps records and knows nothing of what they decide"},
		{"activator/artifact", nil, "a leaf: it stages bytes and knows nothing of apps; the CLI packs with it too"},
		{"cache", nil, "the cache knows no proxy: it gets bytes and gives bytes"},
		{"edge", []string{"edge/clients", "edge/http1", "edge/upstream"}, "the core of the edge decides and moves no bytes: engines stand before it, and other rooms come through its interfaces"},
		{"edge/clients", nil, "it counts, and knows nothing of what is counted"},
		{"edge/http1", nil, "a parser has no business with anything but bytes"},
		{"edge/rawio", nil, "a leaf: system calls on sockets that others own"},
		{"edge/upstream", []string{"edge/http1", "edge/rawio"}, "it keeps connections to one app; policy is the edge's"},
		{"edge/engine", []string{"edge", "edge/clients", "edge/http1", "edge/rawio", "edge/upstream"}, "an engine moves bytes for the edge's core; other rooms come through the core's interfaces"},
		{"admin/...", []string{"admin/..."}, "the admin API declares what it needs of a control plane, so that it can be tested and changed without one"},
		{"bench/...", []string{"bench/..."}, "the load tool measures from outside, over HTTP, and must run against any peer"},
		{"examples/...", nil, "an example is an app that anybody could have written: it has no use for our packages"},
		{"examples/demo", []string{"bench/...", "admin", "admin/client"}, "the demo is a client: it watches usher through its API and the load tool"},
		{"cmd/internal/config", nil, "the file is read before anything exists, and rooms do not know how it is written"},
		{"cmd/internal/house", nil, "the rules look at all packages and use none"},
		{"cmd/...", []string{"..."}, ""},
	}
}

// thirdParty says where a module may be imported. A module that has no row may
// be imported nowhere: it needs a reason first.
type thirdParty struct {
	path  string   // import path or a prefix of it up to a slash
	where []string // patterns of packages; empty: in tests only
	tests bool     // in tests of any package too
	why   string   // why nowhere else
}

func thirdParties() []thirdParty {
	return []thirdParty{
		{"github.com/valyala/fasthttp", []string{"edge/engine", "bench/..."}, true, "engines can be exchanged only while the rest knows no type of one, and the control plane knows no HTTP framework"},
		{"github.com/containerd/cgroups/v3", []string{"activator/cgroup"}, true, "everything about cgroups goes through the interface of activator/cgroup, behind which a session can stand"},
		{"github.com/hashicorp/golang-lru/v2/simplelru", []string{"cache"}, false, "one cache, with its own shards and its own count of bytes"},
		{"github.com/prometheus/client_golang", []string{"edge", "cmd/..."}, true, "rooms count by themselves; the edge and cmd give the counts to Prometheus"},
		{"github.com/spf13", []string{"cmd/usher"}, false, "the command line is cmd's alone"},
		{"github.com/BurntSushi/toml", []string{"cmd/internal/config"}, false, "the file is read in one place; rooms get plain values"},
		{"go.etcd.io/bbolt", []string{"activator/store"}, false, "the store is an interface; another one must be able to take its place"},
		{"github.com/HdrHistogram/hdrhistogram-go", []string{"bench/..."}, true, "it measures the load tool's latencies; the edge's metrics are Prometheus histograms"},
		{"github.com/coder/websocket", []string{"examples/..."}, true, "the edge moves upgraded bytes without reading them; only apps and tests speak WebSocket"},
		{"pgregory.net/rapid", nil, true, "it generates test cases"},
		{"go.uber.org/goleak", nil, true, "it finds leaks in tests"},
		{"golang.org/x/sys", []string{"activator/...", "edge/engine", "edge/rawio", "edge/upstream", "admin", "bench/...", "cmd/..."}, true, "system calls belong where processes, sockets and files are handled; the pure packages have none"},
	}
}

// ban takes packages of the standard library away from packages of ours.
type ban struct {
	from string
	std  []string // exact path, or "x/..." for x and all below
	why  string
}

func bans() []ban {
	impure := []string{"os/...", "net/...", "io/...", "syscall", "sync/...", "context", "log/...", "math/rand/...", "crypto/rand", "runtime/...", "unsafe"}
	return []ban{
		{"activator/lifecycle", append(impure, "time"), "the core has no clock, no I/O, no lock, no goroutine and no chance: all that comes in as events, or exploring it proves nothing"},
		{"edge/http1", append(impure, "time"), "the parser reads bytes that others read and write: no I/O, no clock, no waiting"},
		{"edge", []string{"net", "net/http/...", "os/...", "bufio", "syscall"}, "the core of the edge decides without moving a byte; connections are the engines'"},
		{"edge/...", []string{"net/http/..."}, "net/http would be a second, lenient reader of the same bytes, which is what request smuggling lives on"},
		{"cache", []string{"net/...", "os/...", "context"}, "the cache is memory: no connection, no file, nothing to wait for"},
		{"...", []string{"testing/..."}, "test code belongs into tests and into packages whose names end in test"},
		{"...", []string{"io/ioutil", "math/rand"}, "the standard library has better ones: io, os and math/rand/v2"},
	}
}

// fits reports whether an import path is pattern, or below it if the pattern
// ends in "/...". "..." fits everything.
func fits(pattern, p string) bool {
	if pattern == "..." {
		return true
	}
	base, below := strings.CutSuffix(pattern, "/...")
	return p == base || below && strings.HasPrefix(p, base+"/")
}

func fitsAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pat string) bool { return fits(pat, p) })
}

// roomOf returns the row for a package, and whether there is one.
func roomOf(dir string) (room, bool) {
	best := room{}
	for _, r := range rooms() {
		switch {
		case r.path == dir:
			return r, true
		case fits(r.path, dir) && len(r.path) > len(best.path):
			best = r
		}
	}
	return best, best.path != ""
}

// isTestPackage says that a package serves tests only, such as storetest.
func isTestPackage(dir string) bool { return strings.HasSuffix(dir, "test") }

func brokenImports(t *tree) []finding {
	var found []finding
	for _, s := range t.files {
		for _, spec := range s.ast.Imports {
			p, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				continue
			}
			if why := importProblem(s, p); why != "" {
				found = append(found, t.find(s, spec.Pos(), "%s", why))
			}
		}
	}
	return found
}

func importProblem(s source, p string) string {
	first, _, _ := strings.Cut(p, "/")
	switch {
	case p == module || strings.HasPrefix(p, module+"/"):
		return ownProblem(s, strings.TrimPrefix(strings.TrimPrefix(p, module), "/"))
	case strings.Contains(first, "."):
		return thirdPartyProblem(s, p)
	default:
		return stdProblem(s, p)
	}
}

func ownProblem(s source, p string) string {
	r, ok := roomOf(s.dir)
	switch {
	case !ok:
		return s.dir + " has no row in the table of rooms: add one that says what it may import and why nothing else"
	case p == s.dir || fitsAny(r.may, p):
		return ""
	case s.test && sameRoom(s.dir, p):
		return "" // a test may use its whole room
	case isTestPackage(s.dir) && sameRoom(s.dir, p):
		return ""
	}
	return s.dir + " may not import " + p + ": " + r.why
}

func sameRoom(a, b string) bool {
	roomA, _, _ := strings.Cut(a, "/")
	roomB, _, _ := strings.Cut(b, "/")
	return roomA == roomB
}

func thirdPartyProblem(s source, p string) string {
	for _, m := range thirdParties() {
		if p != m.path && !strings.HasPrefix(p, m.path+"/") {
			continue
		}
		if fitsAny(m.where, s.dir) || m.tests && (s.test || isTestPackage(s.dir)) {
			return ""
		}
		return s.dir + " may not import " + p + ": " + m.why
	}
	return p + " has no row in the table of modules: standing on it needs a reason and a place first"
}

func stdProblem(s source, p string) string {
	if s.test {
		return ""
	}
	for _, b := range bans() {
		if !fits(b.from, s.dir) || !fitsAny(b.std, p) {
			continue
		}
		if fits("testing/...", p) && isTestPackage(s.dir) {
			continue
		}
		return s.dir + " may not import " + p + ": " + b.why
	}
	return ""
}

func TestImportsStayInTheirRooms(t *testing.T) {
	report(t, brokenImports(wholeTree(t)))
}

func TestEveryBannedImportIsFound(t *testing.T) {
	file := func(imports ...string) string {
		text := "package x\n"
		for _, i := range imports {
			text += "import _ \"" + i + "\"\n"
		}
		return text
	}
	want(t, brokenImports(sample(t, map[string]string{
		"activator/a.go":             file(module+"/activator/store", module+"/edge", "os", "net/http", "github.com/valyala/fasthttp"),
		"activator/lifecycle/a.go":   file("time", "fmt", module+"/activator/store"),
		"activator/store/b.go":       file(module + "/activator/lifecycle"),
		"activator/x/storetest/a.go": file("testing", "pgregory.net/rapid", module+"/activator/store"),
		"admin/a.go":                 file(module+"/activator", module+"/admin/client", "github.com/unknown/thing"),
		"admin/a_test.go":            file(module+"/admin/admintest", module+"/cache", "testing", "go.uber.org/goleak"),
		"cache/a.go":                 file("github.com/hashicorp/golang-lru/v2/simplelru", "net/http"),
		"cache/b.go":                 file("github.com/hashicorp/golang-lru/v2"),
		"cmd/usher/a.go":             file(module+"/activator", module+"/edge", "github.com/spf13/cobra", "go.uber.org/goleak"),
		"edge/a.go":                  file("net", "net/netip"),
		"edge/engine/a.go":           file("net", "net/http", module+"/edge/http1", module+"/cache"),
		"newroom/a.go":               file(module + "/cache"),
	})),
		"activator/a.go:3: activator may not import edge: the control plane knows no other room",
		"activator/a.go:6: activator may not import github.com/valyala/fasthttp",
		"activator/lifecycle/a.go:2: activator/lifecycle may not import time: the core has no clock",
		"activator/lifecycle/a.go:4: activator/lifecycle may not import activator/store: the core is pure",
		"activator/store/b.go:2: activator/store may not import activator/lifecycle: a leaf",
		"activator/x/storetest/a.go:4",
		"admin/a.go:2: admin may not import activator: the admin API declares",
		"admin/a.go:4: github.com/unknown/thing has no row",
		"admin/a_test.go:3: admin may not import cache",
		"cache/a.go:3: cache may not import net/http",
		"cache/b.go:2: github.com/hashicorp/golang-lru/v2 has no row",
		"cmd/usher/a.go:5: cmd/usher may not import go.uber.org/goleak: it finds leaks in tests",
		"edge/a.go:2: edge may not import net: the core of the edge",
		"edge/engine/a.go:3: edge/engine may not import net/http: net/http would be a second",
		"edge/engine/a.go:5: edge/engine may not import cache",
		"newroom/a.go:2: newroom has no row",
	)
}

func TestTheRowOfThePackageItselfWinsOverTheRoom(t *testing.T) {
	for dir, want := range map[string]string{
		"examples/demo": "examples/demo", "examples/hello": "examples/...", "cmd/usher": "cmd/...",
		"cmd/internal/config": "cmd/internal/config", "admin/client": "admin/...",
		"activator/store": "activator/store/...", "activator/store/storetest": "activator/store/...",
	} {
		if r, _ := roomOf(dir); r.path != want {
			t.Errorf("%s is under the row %s, want %s", dir, r.path, want)
		}
	}
	for _, dir := range []string{"elsewhere", "activator/new"} {
		if r, ok := roomOf(dir); ok {
			t.Errorf("the new package %s is under the row %s", dir, r.path)
		}
	}
}
