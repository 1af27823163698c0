package config

import (
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
)

// Default sizes and counts of [apps.NAME].
const (
	defaultParkLimit = 1000
	defaultParkBytes = 16 << 20
	defaultMaxObject = 8 << 20
	defaultMaxBody   = 1 << 30
)

var (
	appName   = regexp.MustCompile(`^[a-z][a-z0-9-]{0,39}$`)
	fieldName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$") // RFC 9110 §5.6.2
)

// appRead is one [apps.NAME] table with the places that checks across apps name.
type appRead struct {
	App
	t            *table
	s            *serverRead
	hosts, paths []item // in the form of App.Hosts and App.Paths
}

func readApp(t *table, name string, s *serverRead) *appRead {
	a := &appRead{App: App{Name: name}, t: t, s: s}
	if !appName.MatchString(name) {
		t.r.errorf(t.node.key, "apps.%s: is no name for an app; use 1 to 40 small letters, digits and hyphens, beginning with a letter", name)
	}
	a.routes()
	a.process()
	a.modes()
	a.durations()
	a.sizes()
	a.limits()
	a.maintenance()
	a.health()
	a.cache()
	t.done()
	a.checkTimes()
	a.checkExternal()
	return a
}

// routes reads hosts and paths.
func (a *appRead) routes() {
	t := a.t
	hosts, ok := t.strs("hosts")
	if !t.has("hosts") || ok && len(t.node.child("hosts").elems) == 0 {
		t.errorf("hosts", `names no host; write which requests the app gets, such as hosts = ["example.com"], or ["*"] for all the rest`)
	}
	a.hosts = a.patterns("hosts", hosts, hostPattern)
	paths, _ := t.strs("paths")
	if t.has("paths") && len(t.node.child("paths").elems) == 0 {
		if _, isArray := t.vals["paths"].([]any); isArray {
			t.errorf("paths", `is empty; remove it or write paths = ["/"]`)
		}
	}
	a.paths = a.patterns("paths", paths, pathPrefix)
	for _, h := range a.hosts {
		a.Hosts = append(a.Hosts, h.text)
	}
	for _, p := range a.paths {
		a.Paths = append(a.Paths, p.text)
	}
	if !t.has("paths") {
		a.paths = []item{{"/", t.off("hosts")}}
		a.Paths = []string{"/"}
	}
	a.askable()
}

// patterns cleans the entries of hosts or paths; none may be there twice.
func (a *appRead) patterns(key string, in []item, clean func(string) (string, string)) []item {
	var out []item
	for _, it := range in {
		v, problem := clean(it.text)
		if problem == "" && slices.ContainsFunc(out, func(o item) bool { return o.text == v }) {
			problem = `"` + v + `" is here twice; remove one`
		}
		if problem != "" {
			a.t.r.errorf(it.off, "%s: %s", a.t.full(key), problem)
			continue
		}
		out = append(out, item{v, it.off})
	}
	return out
}

// askable reads tls_ask and says where it has no effect.
func (a *appRead) askable() {
	t := a.t
	a.TLSAsk = t.boolean("tls_ask", false)
	if !a.TLSAsk || len(a.hosts) == 0 {
		return
	}
	wildcard := slices.ContainsFunc(a.Hosts, func(h string) bool { return len(h) > 1 && h[0] == '*' })
	switch {
	case a.s.AskListen.IsZero() && !a.s.t.has("ask_listen"):
		t.warnf("tls_ask", "has no effect without server.ask_listen; write it, or remove tls_ask")
	case !wildcard && slices.Contains(a.Hosts, CatchAll):
		t.warnf("tls_ask", `has no effect: certificates are never granted for "*"; name the hosts or a wildcard such as "*.example.com"`)
	case !wildcard:
		t.warnf("tls_ask", "has no effect: exact hosts always get certificates, and there is no wildcard here; remove it")
	}
}

// modes reads how the app swaps and starts.
func (a *appRead) modes() {
	t := a.t
	fixed := a.Listen.Port != 0
	a.Swap = Swap(t.choice("swap", string(Overlap), string(Hold)))
	if fixed && !t.has("swap") {
		a.Swap = Hold
	}
	a.FallbackToGood = t.choice("fallback", "none", "previous") == "previous"
	a.BestEffort = t.choice("single_writer", "strict", "best-effort") == "best-effort"
	a.Eager = t.choice("start", "lazy", "eager") == "eager"
	if a.Swap == Overlap && fixed {
		t.errorf("swap", `two generations cannot listen on port %d at once; write swap = "hold", or listen = "port" without a number`, a.Listen.Port)
	}
	if a.Swap == Hold && !a.BestEffort && a.s.noCgroup != "" && !t.has("target") {
		key := "swap"
		if !t.has("swap") {
			key = "listen"
		}
		t.errorf(key, `hold needs a cgroup to prove that the old process and its children are gone, and there is none because %s; give usher a cgroup, or write single_writer = "best-effort" to accept a weaker proof`, a.s.noCgroup)
	}
}

// durationField binds a key to where its value goes and what it may be.
type durationField struct {
	key string
	to  *time.Duration
	span
}

func (a *appRead) durations() {
	const (
		ms  = time.Millisecond
		sec = time.Second
		day = 24 * time.Hour
	)
	for _, f := range []durationField{
		{"idle_timeout", &a.IdleTimeout, span{15 * time.Minute, 100 * ms, 365 * day, true}},
		{"wake_timeout", &a.WakeTimeout, span{30 * sec, 10 * ms, time.Hour, false}},
		{"park_timeout", &a.ParkTimeout, span{60 * sec, 10 * ms, time.Hour, false}},
		{"drain_timeout", &a.DrainTimeout, span{30 * sec, 0, day, false}},
		{"hold_drain", &a.HoldDrain, span{5 * sec, 0, time.Hour, false}},
		{"close_spread", &a.CloseSpread, span{5 * sec, 0, day, false}},
		{"stop_timeout", &a.StopTimeout, span{10 * sec, 0, time.Hour, false}},
		{"settle", &a.Settle, span{10 * sec, 0, time.Hour, false}},
		{"first_byte_timeout", &a.FirstByteTimeout, span{60 * sec, 10 * ms, day, true}},
	} {
		*f.to = a.t.duration(f.key, f.span)
	}
}

func (a *appRead) sizes() {
	t := a.t
	a.ParkLimit = t.integer("park_limit", defaultParkLimit, 1, 1_000_000)
	a.ParkBytes = t.size("park_bytes", defaultParkBytes, 1<<10, 64<<30)
	a.ParkPerClient = t.integer("park_limit_per_client", max(1, a.ParkLimit/2), 1, 1_000_000)
	a.ParkBytesClient = t.size("park_bytes_per_client", a.ParkBytes/2, 1<<9, 64<<30)
	a.MaxBody = t.size("max_body", defaultMaxBody, 0, 1<<50)
	a.MaxInFlight = t.integer("max_in_flight", 0, 0, 1_000_000)
	a.MaxInFlightClient = t.integer("max_in_flight_per_client", 0, 0, 1_000_000)
	a.checkShares()
	a.UpstreamConnections = t.integer("upstream_connections", 0, 0, 1_000_000)
	a.ExposeBuild = t.boolean("expose_build", false)
	a.KeepTrailers = t.boolean("keep_trailers", false)
}

// checkShares finds shares of one client that are more than what all have.
func (a *appRead) checkShares() {
	t := a.t
	if a.ParkPerClient > a.ParkLimit {
		t.errorf("park_limit_per_client", "%d is more than all requests that may wait (park_limit, %d); write that at most", a.ParkPerClient, a.ParkLimit)
	}
	if a.ParkBytesClient > a.ParkBytes {
		t.errorf("park_bytes_per_client", "%s is more than all requests that wait may hold (park_bytes, %s); write that at most",
			formatSize(a.ParkBytesClient), formatSize(a.ParkBytes))
	}
	if a.MaxInFlight > 0 && a.MaxInFlightClient > a.MaxInFlight {
		t.errorf("max_in_flight_per_client", "%d is more than all requests inside (max_in_flight, %d); write that at most", a.MaxInFlightClient, a.MaxInFlight)
	}
}

// What limits may be. A process of usher's own waits in the app's place before the
// app begins, so less would not even do for that.
const (
	leastMemory, mostMemory = 16 << 20, 1 << 50
	leastPIDs, mostPIDs     = 32, 4 << 20
)

func (a *appRead) limits() {
	l, ok := a.t.table("limits")
	if !ok {
		return
	}
	a.Limits.Memory = l.size("memory", 0, leastMemory, mostMemory)
	a.Limits.PIDs = l.integer("pids", 0, leastPIDs, mostPIDs)
	l.done()
	if a.s.noCgroup != "" && a.Limits != (Limits{}) {
		a.t.warnf("limits", "are not in effect: they need a cgroup, and there is none because %s", a.s.noCgroup)
	}
}

func (a *appRead) health() {
	h, _ := a.t.table("health")
	a.Health.Path = "/"
	if path, ok := h.str("path"); ok {
		if problem := targetProblem(path); problem != "" {
			h.errorf("path", "%s", problem)
		} else {
			a.Health.Path = path
		}
	}
	a.Health.Timeout = h.duration("timeout", span{def: 30 * time.Second, least: 10 * time.Millisecond, most: time.Hour})
	a.Health.Host = a.firstExactHost()
	if host, ok := h.str("host"); ok {
		name, problem := hostPattern(host)
		if problem == "" && name[0] == '*' {
			problem = "a Host header names one host; write an exact one"
		}
		if problem != "" {
			h.errorf("host", "%s", problem)
		} else {
			a.Health.Host = bracketed(name)
		}
	}
	a.Health.Headers = healthHeaders(h)
	h.done()
}

// healthHeaders reads further fields of the check. Values may be secrets: no
// message shows one.
func healthHeaders(h *table) map[string]string {
	t, ok := h.table("headers")
	if !ok {
		return nil
	}
	headers := make(map[string]string, len(t.vals))
	for _, name := range t.names() {
		v, isString := t.vals[name].(string)
		switch {
		case !fieldName.MatchString(name):
			t.r.errorf(t.keyOff(name), "%s: %q is no name of a header field; use letters, digits and hyphens", t.path, name)
		case writtenByUsher(name):
			t.r.errorf(t.keyOff(name), "%s: %s is written by usher; remove it (the host is health.host)", t.path, name)
		case !isString:
			t.wrongType(name, t.vals[name], "a string in quotes")
		case strings.ContainsFunc(v, unicode.IsControl):
			t.errorf(name, "holds a control character; remove it")
		default:
			headers[strings.Clone(name)] = strings.Clone(v)
		}
	}
	return headers
}

// writtenByUsher reports fields of a health check that must say what the
// connection really does.
func writtenByUsher(name string) bool {
	switch strings.ToLower(name) {
	case "host", "connection", "content-length", "transfer-encoding", "upgrade", "te", "trailer", "keep-alive", "expect":
		return true
	}
	return false
}

// firstExactHost is the host of health checks if the file names none.
func (a *appRead) firstExactHost() string {
	for _, h := range a.Hosts {
		if h[0] != '*' {
			return bracketed(h)
		}
	}
	return "localhost"
}

func (a *appRead) cache() {
	t, ok := a.t.table("cache")
	a.Cache.Enabled = t.boolean("enabled", false)
	a.Cache.MaxObject = t.size("max_object", defaultMaxObject, 1, 1<<40)
	t.done()
	total := a.s.CacheBytes
	switch {
	case !ok:
	case !t.has("enabled") && t.has("max_object"):
		t.warnf("max_object", "has no effect without enabled = true in the same table")
	case a.Cache.Enabled && total == 0:
		t.warnf("enabled", "has no effect: server.cache_bytes is 0")
	case a.Cache.Enabled && t.has("max_object") && a.Cache.MaxObject > total/4:
		t.warnf("max_object", "%s is more than a quarter of the cache (server.cache_bytes, %s): objects above that are not kept",
			formatSize(a.Cache.MaxObject), formatSize(total))
	}
}

// checkTimes compares durations with each other.
func (a *appRead) checkTimes() {
	t := a.t
	if a.CloseSpread > a.DrainTimeout {
		if t.has("close_spread") {
			t.errorf("close_spread", "%s is longer than drain_timeout (%s), of which it is the last part; shorten it or lengthen drain_timeout",
				short(a.CloseSpread), short(a.DrainTimeout))
		}
		a.CloseSpread = a.DrainTimeout
	}
	if t.has("target") {
		return
	}
	if held := a.HoldDrain + a.StopTimeout + a.Health.Timeout; held > a.ParkTimeout {
		t.warnf("park_timeout", "a hold swap may take %s (hold_drain %s, stop_timeout %s, health.timeout %s) but requests wait %s at most: the rest get 504; lengthen park_timeout or shorten the others",
			short(held), short(a.HoldDrain), short(a.StopTimeout), short(a.Health.Timeout), short(a.ParkTimeout))
	}
	if a.WakeTimeout > a.ParkTimeout {
		t.warnf("wake_timeout", "a wake may take %s but requests wait %s at most (park_timeout): they get 504 before it is over; lengthen park_timeout or shorten wake_timeout",
			short(a.WakeTimeout), short(a.ParkTimeout))
	}
}

// checkExternal refuses, for an app whose process usher does not own, all that
// is about a process.
func (a *appRead) checkExternal() {
	t := a.t
	if !t.has("target") {
		return
	}
	for _, key := range []string{
		"artifact", "command", "listen", "user", "group", "env", "limits", "fallback", "single_writer", "start",
		"idle_timeout", "wake_timeout", "hold_drain", "stop_timeout",
	} {
		if t.has(key) {
			t.r.errorf(t.keyOff(key), "%s: is about a process that usher starts, but target (%s) says that usher does not own it; remove one of the two",
				t.full(key), t.r.where(t.keyOff("target")))
		}
	}
	if t.has("swap") && a.Swap == Hold {
		t.errorf("swap", `hold stops the old process first, and usher does not own it (target, %s); write "overlap" or remove swap`,
			t.r.where(t.keyOff("target")))
	}
}

// bracketed writes an IPv6 address the way a Host header does.
func bracketed(host string) string {
	for i := range len(host) {
		if host[i] == ':' {
			return "[" + host + "]"
		}
	}
	return host
}
