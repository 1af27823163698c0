package peers

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// Names of peers. Usher is always one; the others are what is found.
const (
	Usher   = "usher"
	Nginx   = "nginx"
	HAProxy = "haproxy"
	Varnish = "varnish"
	Caddy   = "caddy"
	Kamal   = "kamal-proxy"
)

// Names are all that a plan may name, in the order of reports.
func Names() []string { return []string{Usher, Nginx, HAProxy, Varnish, Caddy, Kamal} }

// File is a piece of configuration.
type File struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// site is what a peer's configuration depends on.
type site struct {
	program   string // the one that was found
	dir       string // its own directory, which exists
	port      int    // on 127.0.0.1, for its listener
	spare     int    // another one, if it needs that
	socket    string // of the origin
	tcp       string // address of the origin, for a peer that knows no sockets
	cores     int
	most      int    // connections at once
	hosts     int    // that usher routes among
	accessLog string // path; empty: none is written
	root      bool   // we are root
	paced     bool   // this machine's TCP sets a timer between the pieces of what is large
}

// setup is how a peer is run.
type setup struct {
	files    []File
	programs []program // started in this order, stopped in the other
	after    []program // run to their end once the programs listen
}

// peer is one kind of proxy.
type peer struct {
	name    string
	program string   // on PATH
	version []string // arguments that make it say its version
	caches  bool
	// note says what a reader of the figures must know.
	note string
	plan func(site) setup
}

// kinds are the peers in the order of reports.
func kinds() []peer {
	return []peer{
		{name: Usher, version: []string{"version"}, caches: true, plan: planUsher},
		{name: Nginx, program: "nginx", version: []string{"-v"}, caches: true, plan: planNginx},
		{name: HAProxy, program: "haproxy", version: []string{"-v"}, caches: true, plan: planHAProxy},
		{name: Varnish, program: "varnishd", version: []string{"-V"}, caches: true, plan: planVarnish},
		{name: Caddy, program: "caddy", version: []string{"version"}, plan: planCaddy},
		{
			name: Kamal, program: "kamal-proxy", version: []string{"version"}, plan: planKamal,
			note: "reaches the origin over TCP, it knows no unix sockets; always writes its log, without an access log to nowhere",
		},
	}
}

// find is the path of a peer's program.
func (p peer) find(usher string) (string, error) {
	if p.name == Usher {
		return usher, nil
	}
	path, err := exec.LookPath(p.program)
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%s is not on PATH", p.program)
	}
	return path, err
}

// says is the first line of the version that a program tells of itself.
func (p peer) says(path string) string {
	out, err := exec.Command(path, p.version...).CombinedOutput()
	if err != nil {
		return "unknown version"
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	return first
}

// lines joins lines of a configuration; empty ones are those that do not apply.
func lines(all ...string) string {
	var b strings.Builder
	for _, l := range all {
		if l != "" {
			b.WriteString(l + "\n")
		}
	}
	return b.String()
}

// when is a line that applies only if so.
func when(so bool, format string, args ...any) string {
	if !so {
		return ""
	}
	return fmt.Sprintf(format, args...)
}
