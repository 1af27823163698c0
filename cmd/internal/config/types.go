package config

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// File is a valid configuration with all defaults filled in.
type File struct {
	Path     string    // absolute path of the file
	Server   Server    // the [server] table
	Apps     []App     // the [apps.NAME] tables, sorted by name
	Warnings []Problem // what is allowed but probably not meant, in file order
}

// App returns the app of that name.
func (f *File) App(name string) (App, bool) {
	i, found := slices.BinarySearchFunc(f.Apps, name, func(a App, name string) int { return strings.Compare(a.Name, name) })
	if !found {
		return App{}, false
	}
	return f.Apps[i], true
}

// Addr is where something listens or can be dialled. The zero value means
// "none".
type Addr struct {
	Network string // "tcp" or "unix"
	Address string // "ip:port" or "name:port" for tcp, an absolute path for unix
}

// IsZero reports that the address was not given.
func (a Addr) IsZero() bool { return a == Addr{} }

// String returns the address as the file spells it: "host:port" or "unix:/path".
func (a Addr) String() string {
	if a.Network == "unix" {
		return "unix:" + a.Address
	}
	return a.Address
}

// PortRange is an inclusive range of TCP ports.
type PortRange struct{ First, Last uint16 }

// String returns the range as the file spells it, "20000-29999".
func (r PortRange) String() string {
	return strconv.Itoa(int(r.First)) + "-" + strconv.Itoa(int(r.Last))
}

// Contains reports whether port lies in the range.
func (r PortRange) Contains(port uint16) bool { return port >= r.First && port <= r.Last }

// Group is a group of the system. The zero value means "none".
type Group struct {
	Name string // as written; empty: none
	GID  uint32
}

// Account is who an app runs as.
type Account struct {
	Name string // as written, or usher's own account when usher is not root
	UID  uint32
	GID  uint32 // of `group`, else the account's primary group
	Home string // home directory; empty when a number has no account
	// Own says that the app runs as usher itself does: nothing is switched,
	// and status shows `isolation: none`.
	Own bool
}

// Values of Server.Cgroup and Server.AccessLog that are not paths.
const (
	CgroupAuto = "auto" // find a writable cgroup v2 tree through the mount table
	CgroupOff  = "off"  // never use cgroups
	LogOff     = "off"
	LogStdout  = "stdout"
)

// Values of Server.LogFormat.
const (
	LogJSON     = "json"
	LogCombined = "combined"
)

// Server is the [server] table.
type Server struct {
	Listen      []Addr // at least one
	ListenGroup Group  // may connect to unix listeners (mode 0660); none: mode 0600

	Admin          Addr
	AdminTokenFile string // set iff Admin is tcp
	AdminGroup     Group  // may connect to the admin socket (mode 0660); none: mode 0600

	State string // durable state; commits, builds, logs
	Run   string // runtime records and sockets; may be lost with the machine

	TrustedProxies []netip.Prefix // masked; peers whose X-Forwarded-* are kept
	AskListen      Addr           // loopback tcp; zero: off

	Cgroup    string    // CgroupAuto, CgroupOff or the path of a delegated cgroup
	PortRange PortRange // zero: usher chooses, 20000-29999 unless the kernel uses that
	AccessLog string    // LogOff, LogStdout or a path
	LogFormat string    // of the access log: LogJSON or LogCombined

	CacheBytes     int64 // 0: no cache at all
	EventLoops     int   // 0: none; PerProcessor
	MaxConnections int   // client connections at once over all listeners
	MaxPerClient   int   // of one client, over all listeners; 0: no bound
	HeadTimeout    time.Duration
	IdleTimeout    time.Duration // keep-alive connections without a request
	BodyTimeout    time.Duration // without a byte of a request's body
	WriteTimeout   time.Duration // without the client taking a byte of the answer
	MinBodyRate    int64         // bytes a second a request's body must come with; 0: none
	MinWriteRate   int64         // bytes a second a client must take of an answer; 0: none

	Listeners []Listener // those of Listen with a [server.listeners."ADDR"] table
}

// Listener is what one listener does otherwise than [server] says. Zero fields
// say nothing; None means 0 in the file.
type Listener struct {
	Addr           Addr
	MaxConnections int // of this listener alone
	MaxPerClient   int
	HeadTimeout    time.Duration
	IdleTimeout    time.Duration
	BodyTimeout    time.Duration
	WriteTimeout   time.Duration
	MinBodyRate    int64
	MinWriteRate   int64
	Trusted        bool // every peer is a trusted proxy
}

// None is a limit of a Listener that is lifted.
const None = -1

// Listener returns what is special about that address, or nothing.
func (s *Server) Listener(a Addr) Listener {
	for _, l := range s.Listeners {
		if l.Addr == a {
			return l
		}
	}
	return Listener{Addr: a}
}

// Swap is how an app moves to a new generation.
type Swap string

// The two swap modes.
const (
	Overlap Swap = "overlap" // the successor starts beside the incumbent
	Hold    Swap = "hold"    // requests park while the incumbent stops first
)

// Listen kinds of an app.
const (
	ListenPort   = "port"   // a TCP port in PORT
	ListenSocket = "socket" // a unix socket path in SOCKET
)

// Listen is how the process of an app is reached.
type Listen struct {
	Kind string // ListenPort or ListenSocket
	Port uint16 // fixed port; 0: one of usher's range per generation
}

// String returns the value as the file spells it.
func (l Listen) String() string {
	if l.Port != 0 {
		return l.Kind + ":" + strconv.Itoa(int(l.Port))
	}
	return l.Kind
}

// Limits bound what the processes of an app may use together. Zero is no limit.
type Limits struct {
	Memory int64 `json:"memory,omitempty"` // bytes
	PIDs   int   `json:"pids,omitempty"`   // processes and threads
}

// App is one [apps.NAME] table.
type App struct {
	Name  string
	Hosts []string // at least one: exact names, "*.example.com" (any depth below), "*", IPs
	Paths []string // at least one; whole-segment prefixes, "/" or without a final slash

	// Artifact is the absolute path of the first release, empty when the app
	// waits for a deploy or has a Target. ArtifactValue is the text in the file.
	Artifact, ArtifactValue string
	// Target is the address of a process that usher does not own. An app with a
	// target uses none of the process fields below.
	Target Addr

	// Process fields: a change commits a revision.
	Command []string // empty: the artifact itself
	Env     map[string]string
	User    Account
	Listen  Listen
	Swap    Swap // a release that demands hold binds every attempt to it or from it
	Limits  Limits

	// Edge fields: a change is one slot store (EdgeFingerprint).
	FallbackToGood bool // fallback = "previous": a failed hold starts the previous good build
	BestEffort     bool // single_writer = "best-effort": hold without a cgroup is allowed
	Eager          bool // start = "eager": start with usher instead of at the first request

	IdleTimeout      time.Duration // 0: never sleeps
	WakeTimeout      time.Duration
	ParkTimeout      time.Duration
	ParkLimit        int   // requests
	ParkBytes        int64 // bytes already buffered of parked requests
	ParkPerClient    int   // of these, requests of one client
	ParkBytesClient  int64 // of these, bytes of one client
	DrainTimeout     time.Duration
	HoldDrain        time.Duration
	CloseSpread      time.Duration // never longer than DrainTimeout
	StopTimeout      time.Duration
	Settle           time.Duration
	FirstByteTimeout time.Duration // 0: none

	MaxBody             int64 // bytes of a request body; 0: no limit
	MaxInFlight         int   // requests inside the app at once; 0: no limit
	MaxInFlightClient   int   // of these, requests of one client; 0: no limit
	UpstreamConnections int   // connections to one generation; 0: no limit
	ExposeBuild         bool  // stamp answers with Usher-Build
	KeepTrailers        bool  // pass trailers of requests on
	TLSAsk              bool  // on-demand certificates for names below a wildcard

	MaintenancePage Page // zero: the one that is built in

	Health Health
	Cache  Cache
}

// Page is a file that is shown as it is.
type Page struct {
	Path string // absolute
	Type string // Content-Type, by the end of the name
	Body []byte
}

// External reports that usher does not own the app's process.
func (a *App) External() bool { return !a.Target.IsZero() }

// Health is [apps.NAME.health].
type Health struct {
	Path    string // path and query of the GET
	Host    string // Host header; default the first exact host, else "localhost"
	Headers map[string]string
	Timeout time.Duration
}

// Cache is [apps.NAME.cache].
type Cache struct {
	Enabled   bool
	MaxObject int64 // bytes of the largest response kept
}
