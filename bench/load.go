package bench

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"
)

// Target is one address that requests go to.
type Target struct {
	// Network is "tcp" or "unix"; empty means tcp.
	Network string
	// Address is host:port, or the path of a unix socket.
	Address string
	// Host is the Host header; empty means Address ("localhost" for a unix
	// socket).
	Host string
	// Path is the request target, sent byte for byte; empty means "/".
	Path string
}

// ParseTarget reads "http://host:port/path", "host:port" or "unix:/socket".
// A name under .localhost is dialled on 127.0.0.1 (RFC 6761, section 6.3) and
// still sent as Host. host, if not empty, replaces the Host header.
func ParseTarget(address, host string) (Target, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path == "" {
			return Target{}, errors.New("parse target: unix: needs a socket path, as in unix:/run/usher/http.sock")
		}
		return Target{Network: "unix", Address: path, Host: host}, nil
	}
	if !strings.Contains(address, "://") {
		address = "http://" + address
	}
	u, err := url.Parse(address)
	if err != nil {
		return Target{}, fmt.Errorf("parse target: %w", err)
	}
	if u.Scheme != "http" || u.Hostname() == "" {
		return Target{}, fmt.Errorf("parse target %q: want http://host:port/path or unix:/socket", address)
	}
	if host == "" {
		host = u.Host
	}
	return Target{Network: "tcp", Address: dialAddress(u), Host: host, Path: u.RequestURI()}, nil
}

func dialAddress(u *url.URL) string {
	name, port := u.Hostname(), u.Port()
	if port == "" {
		port = "80"
	}
	if name == "localhost" || strings.HasSuffix(name, ".localhost") {
		name = "127.0.0.1"
	}
	return net.JoinHostPort(name, port)
}

// Arrivals says how requests are spread over time.
type Arrivals string

const (
	// Constant spaces requests evenly.
	Constant Arrivals = "constant"
	// Poisson draws exponential gaps, as independent clients would.
	Poisson Arrivals = "poisson"
)

// Load describes the requests of one run.
type Load struct {
	// Targets are chosen at random for each request; at least one.
	Targets []Target
	// Rate is requests per second.
	Rate float64
	// Duration is the length of the schedule.
	Duration time.Duration
	// Arrivals is Constant or Poisson; empty means Constant.
	Arrivals Arrivals
	// Connections is the most connections open at once; 0 means 64.
	Connections int
	// NewConnections is the share of requests, 0 to 1, that bring their own
	// connection and close it afterwards. The others reuse one.
	NewConnections float64
	// Posts is the share of requests, 0 to 1, that are a POST to PostPath. The
	// answer must be the same bytes again.
	Posts float64
	// PostPath is the target of a POST; empty means "/echo".
	PostPath string
	// BodyBytes is the size of a POST body; 0 means 1024, at least 8. A body is
	// written whole before the answer is read, so a server that echoes while it
	// reads, and waits when nobody takes that, is given small ones only.
	BodyBytes int
	// MaxAnswerBytes is the most body bytes of an answer; 0 means 64 MiB.
	MaxAnswerBytes int
	// Timeout is how long after its scheduled time a request may end; 0 means
	// 30 s.
	Timeout time.Duration
	// Check inspects each answer that is otherwise good; an error makes it a
	// failure of kind FailCheck. Nil accepts all. It is called from many
	// goroutines and may not keep the Answer.
	Check func(Answer) error
	// Phase names the phase in which the run begins; empty means PhaseSteady.
	Phase string
	// Seed fixes gaps, methods and targets; equal seeds make equal runs.
	Seed uint64

	// oldest is what Run.ExpectGeneration is told before the first request.
	oldest uint64
}

// Most requests of one run, a bound on memory (about 60 bytes each).
const maxRequests = 10_000_000

func (l Load) withDefaults() Load {
	if l.Arrivals == "" {
		l.Arrivals = Constant
	}
	if l.Phase == "" {
		l.Phase = PhaseSteady
	}
	if l.Connections == 0 {
		l.Connections = 64
	}
	if l.PostPath == "" {
		l.PostPath = "/echo"
	}
	if l.BodyBytes == 0 {
		l.BodyBytes = 1024
	}
	if l.MaxAnswerBytes == 0 {
		l.MaxAnswerBytes = 64 << 20
	}
	if l.Timeout == 0 {
		l.Timeout = 30 * time.Second
	}
	targets := make([]Target, len(l.Targets))
	for i, t := range l.Targets {
		targets[i] = t.withDefaults()
	}
	l.Targets = targets
	return l
}

func (t Target) withDefaults() Target {
	if t.Network == "" {
		t.Network = "tcp"
	}
	if t.Host == "" && t.Network == "tcp" {
		t.Host = t.Address
	}
	if t.Host == "" {
		t.Host = "localhost"
	}
	if t.Path == "" {
		t.Path = "/"
	}
	return t
}

// validate reports everything that is wrong with a defaulted load.
func (l Load) validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("load: "+format, args...))
		}
	}
	refuse(len(l.Targets) == 0, "no target: give at least one address")
	for _, t := range l.Targets {
		refuse(t.Network != "tcp" && t.Network != "unix", "network %q: want tcp or unix", t.Network)
		refuse(t.Address == "", "target without an address")
		refuse(strings.ContainsAny(t.Host+t.Path, " \t\r\n"), "blank in host or path of %s", t.Address)
		refuse(!strings.HasPrefix(t.Path, "/"), "path %q: must begin with /", t.Path)
	}
	refuse(!(l.Rate > 0 && l.Rate <= 1e6), "rate %g: want more than 0 and at most 1000000 requests/s", l.Rate)
	refuse(l.Duration <= 0, "duration %s: want more than 0", l.Duration)
	refuse(l.Rate*l.Duration.Seconds() > maxRequests, "%g/s for %s is more than %d requests: lower the rate or the duration",
		l.Rate, l.Duration, maxRequests)
	refuse(l.Arrivals != Constant && l.Arrivals != Poisson, "arrivals %q: want constant or poisson", l.Arrivals)
	refuse(l.Connections < 1 || l.Connections > 20000, "connections %d: want 1 to 20000", l.Connections)
	refuse(!share(l.NewConnections), "share of new connections %g: want 0 to 1", l.NewConnections)
	refuse(!share(l.Posts), "share of posts %g: want 0 to 1", l.Posts)
	refuse(!strings.HasPrefix(l.PostPath, "/"), "post path %q: must begin with /", l.PostPath)
	refuse(l.BodyBytes < 8, "body of %d bytes: want at least 8", l.BodyBytes)
	refuse(l.MaxAnswerBytes < 1, "answer limit of %d bytes: want more than 0", l.MaxAnswerBytes)
	refuse(l.Timeout <= 0, "timeout %s: want more than 0", l.Timeout)
	return errors.Join(errs...)
}

func share(v float64) bool { return v >= 0 && v <= 1 }
