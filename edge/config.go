package edge

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// AppConfig is everything about an app that the edge needs and that can change
// without touching a process.
type AppConfig struct {
	// Name identifies the app in every call, log line and metric.
	Name string
	// Hosts are exact names, IP addresses, "*.name" (any depth below, not the
	// name itself), or "*" (any host). Case, a final dot and ports do not matter.
	Hosts []string
	// Paths are prefixes that match whole segments of the raw path: "/api"
	// matches "/api", "/api/" and "/api/x", not "/apix". None means "/".
	Paths []string

	// ParkLimit bounds the requests that wait for the app. 0 means 1000.
	ParkLimit int
	// ParkBytes bounds the bytes those requests have in usher's buffers. 0 means
	// 16 MiB.
	ParkBytes int64
	// ParkPerClient and ParkBytesPerClient bound what one client (clients.Of its
	// address) has of these, so that others find room. 0 means half of them. Its
	// first request gets in however large it is, and requests of which the client
	// is not known are bound by the lot alone.
	ParkPerClient      int
	ParkBytesPerClient int64
	// ParkTimeout bounds how long one request waits, all its waits together. 0
	// means 60 s.
	ParkTimeout time.Duration

	// FirstByteTimeout bounds the time from the request having been sent to the
	// first byte of the answer. 0 means none.
	FirstByteTimeout time.Duration
	// MaxBody bounds the body of a request in bytes, streams included. 0 means
	// no bound.
	MaxBody int64
	// MaxInFlight bounds the requests inside the app at once. 0 means no bound;
	// one more is refused with 503, but for one that was parked or is tried again,
	// which waits.
	MaxInFlight int
	// MaxInFlightPerClient bounds those of one client; one more is refused with 429,
	// but for one that was parked or is tried again. 0 means no bound.
	MaxInFlightPerClient int

	// MaintenancePage is shown in state Maintenance. The zero value means the one
	// that is built in.
	MaintenancePage Page

	// CacheEnabled lets answers of this app be stored and served from the cache.
	CacheEnabled bool
	// ExposeBuild adds Usher-Build to the answers.
	ExposeBuild bool
	// TLSAsk lets a "*.name" host answer yes to Ask.
	TLSAsk bool
	// KeepTrailers passes trailers of a request on to the app.
	KeepTrailers bool
}

const (
	defaultParkLimit   = 1000
	defaultParkBytes   = 16 << 20
	defaultParkTimeout = 60 * time.Second
)

// complete returns a copy with the defaults filled in and hosts and paths in the
// form that routing compares.
func (c AppConfig) complete() (*AppConfig, error) {
	var errs []error
	if c.Name == "" {
		errs = append(errs, errors.New("an app without a name"))
	}
	c.Hosts, errs = mapEach(c.Name, c.Hosts, cleanHost, errs)
	c.Paths, errs = mapEach(c.Name, c.Paths, cleanPath, errs)
	if len(c.Paths) == 0 {
		c.Paths = []string{"/"}
	}
	if c.ParkLimit == 0 {
		c.ParkLimit = defaultParkLimit
	}
	if c.ParkBytes == 0 {
		c.ParkBytes = defaultParkBytes
	}
	if c.ParkPerClient == 0 {
		c.ParkPerClient = max(1, c.ParkLimit/2)
	}
	if c.ParkBytesPerClient == 0 {
		c.ParkBytesPerClient = c.ParkBytes / 2
	}
	if c.ParkTimeout == 0 {
		c.ParkTimeout = defaultParkTimeout
	}
	if c.ParkLimit < 0 || c.ParkBytes < 0 || c.ParkPerClient < 0 || c.ParkBytesPerClient < 0 || c.ParkTimeout < 0 ||
		c.FirstByteTimeout < 0 || c.MaxBody < 0 || c.MaxInFlight < 0 || c.MaxInFlightPerClient < 0 {
		errs = append(errs, fmt.Errorf("app %s: limits and timeouts must not be negative", c.Name))
	}
	return &c, errors.Join(errs...)
}

// mapEach cleans every one of them. A list that is clean already is kept.
func mapEach(app string, in []string, clean func(string) (string, error), errs []error) ([]string, []error) {
	out := in
	for i, s := range in {
		v, err := clean(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("app %s: %w", app, err))
			continue
		}
		if v != s && &out[0] == &in[0] {
			out = slices.Clone(in)
		}
		out[i] = v
	}
	return out, errs
}

// cleanHost brings a configured host into the form of a routing key.
func cleanHost(s string) (string, error) {
	host := strings.TrimSuffix(strings.ToLower(s), ".")
	if host == "*" {
		return host, nil
	}
	if a, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		if a.Is6() {
			return "[" + a.String() + "]", nil
		}
		return a.String(), nil
	}
	name := strings.TrimPrefix(host, "*.")
	if name == "" || len(name) > maxHost || strings.ContainsAny(name, "*:/@[] \t") || strings.Contains(name, "..") {
		return "", fmt.Errorf("host %q is not a name, an address, \"*.name\" or \"*\" (and has no port)", s)
	}
	return host, nil
}

// cleanPath brings a configured prefix into the form of a routing key.
func cleanPath(s string) (string, error) {
	if !strings.HasPrefix(s, "/") || strings.ContainsAny(s, "?# \t") {
		return "", fmt.Errorf("path %q must begin with / and hold no blank, ? or #", s)
	}
	if len(s) > 1 {
		s = strings.TrimRight(s, "/")
	}
	if s == "" {
		s = "/"
	}
	return s, nil
}
