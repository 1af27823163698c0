package config

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

// testEnv is a machine with root, a few accounts and a few files under /etc/usher.
func testEnv() Env {
	files := fstest.MapFS{
		"etc/usher/bin/hello":      {Mode: 0o755, Data: []byte("#!")},
		"etc/usher/bin/plain":      {Mode: 0o644, Data: []byte("#!")},
		"etc/usher/site/server":    {Mode: 0o755, Data: []byte("#!")},
		"etc/usher/site/notes.txt": {Mode: 0o644, Data: []byte("x")},
		"etc/usher/soon.HTML":      {Mode: 0o644, Data: []byte("<p>soon")},
		"etc/usher/soon.json":      {Mode: 0o644, Data: []byte("{}")},
		"etc/usher/empty.txt":      {Mode: 0o644},
		"etc/usher/large.html":     {Mode: 0o644, Data: make([]byte, maxPage+1)},
		"etc/usher/token":          {Mode: 0o600, Data: []byte("0123456789abcdef\n")},
		"etc/usher/open-token":     {Mode: 0o644, Data: []byte("0123456789abcdef\n")},
		"etc/usher/short-token":    {Mode: 0o600, Data: []byte("secret\n")},
		"usr/bin/node":             {Mode: 0o755, Data: []byte("x")},
		"var/log/usher/dir.html":   {Mode: fs.ModeDir | 0o755},
		"var/log/usher/dir.log":    {Mode: fs.ModeDir | 0o755},
	}
	users := map[string]Account{
		"root":  {UID: 0, GID: 0, Home: "/root"},
		"toor":  {UID: 0, GID: 0, Home: "/root"},
		"0":     {UID: 0, GID: 0, Home: "/root"},
		"hello": {UID: 1001, GID: 1001, Home: "/home/hello"},
		"me":    {UID: 500, GID: 500, Home: "/home/me"},
		"500":   {Name: "me", UID: 500, GID: 500, Home: "/home/me"},
		"4711":  {UID: 4711, GID: NoID},
	}
	groups := map[string]Group{"www": {GID: 33}, "me": {GID: 500}, "4711": {GID: 4711}}
	return Env{
		WorkDir:        "/etc/usher",
		EphemeralPorts: PortRange{32768, 60999},
		Stat:           func(p string) (fs.FileInfo, error) { return files.Stat(strings.TrimPrefix(p, "/")) },
		ReadFile:       func(p string) ([]byte, error) { return files.ReadFile(strings.TrimPrefix(p, "/")) },
		LookupUser:     lookup(users),
		LookupGroup:    lookup(groups),
		CgroupProblem: func(setting, state string) string {
			if setting == "/sys/fs/cgroup/none" {
				return "it does not exist"
			}
			return ""
		},
	}
}

func lookup[V any](m map[string]V) func(string) (V, error) {
	return func(name string) (V, error) {
		if name == "broken" {
			var none V
			return none, errors.New("the directory service is away")
		}
		v, ok := m[name]
		if !ok {
			return v, fmt.Errorf("lookup %s: %w", name, fs.ErrNotExist)
		}
		return v, nil
	}
}

// ordinary is testEnv for the user "me".
func ordinary() Env {
	env := testEnv()
	env.EUID, env.EGID, env.Home, env.XDGRuntimeDir = 500, 500, "/home/me", "/run/user/500"
	return env
}

// noCgroup is testEnv on a machine without a usable cgroup tree.
func noCgroup() Env {
	env := testEnv()
	env.CgroupProblem = func(string, string) string { return "no cgroup v2 tree is writable" }
	return env
}

func mustParse(t *testing.T, text string, env Env) *File {
	t.Helper()
	f, err := Parse("usher.toml", []byte(text), env)
	if err != nil {
		t.Fatalf("a valid file was refused:\n%v", err)
	}
	return f
}

const minimal = `[server]
listen = ["127.0.0.1:8080"]
[apps.hello]
hosts = ["hello.localhost"]
user = "hello"
`

func TestEveryDefaultIsFilledIn(t *testing.T) {
	f := mustParse(t, minimal, testEnv())
	wantServer := Server{
		Listen:         []Addr{{"tcp", "127.0.0.1:8080"}},
		Admin:          Addr{"unix", "/run/usher/admin.sock"},
		State:          "/var/lib/usher",
		Run:            "/run/usher",
		Cgroup:         "auto",
		AccessLog:      "off",
		LogFormat:      "json",
		CacheBytes:     64 << 20,
		EventLoops:     PerProcessor,
		MaxConnections: 10000,
		MaxPerClient:   2500,
		HeadTimeout:    10 * time.Second,
		IdleTimeout:    75 * time.Second,
		BodyTimeout:    30 * time.Second,
		WriteTimeout:   60 * time.Second,
		MinBodyRate:    256,
		MinWriteRate:   256,
	}
	if !reflect.DeepEqual(f.Server, wantServer) {
		t.Errorf("server\n got %+v\nwant %+v", f.Server, wantServer)
	}
	wantApp := App{
		Name:             "hello",
		Hosts:            []string{"hello.localhost"},
		Paths:            []string{"/"},
		User:             Account{Name: "hello", UID: 1001, GID: 1001, Home: "/home/hello"},
		Listen:           Listen{Kind: "port"},
		Swap:             Overlap,
		IdleTimeout:      15 * time.Minute,
		WakeTimeout:      30 * time.Second,
		ParkTimeout:      60 * time.Second,
		ParkLimit:        1000,
		ParkBytes:        16 << 20,
		ParkPerClient:    500,
		ParkBytesClient:  8 << 20,
		MaxBody:          1 << 30,
		DrainTimeout:     30 * time.Second,
		HoldDrain:        5 * time.Second,
		CloseSpread:      5 * time.Second,
		StopTimeout:      10 * time.Second,
		Settle:           10 * time.Second,
		FirstByteTimeout: 60 * time.Second,
		Health:           Health{Path: "/", Host: "hello.localhost", Timeout: 30 * time.Second},
		Cache:            Cache{MaxObject: 8 << 20},
	}
	if len(f.Apps) != 1 || !reflect.DeepEqual(f.Apps[0], wantApp) {
		t.Errorf("app\n got %+v\nwant %+v", f.Apps, wantApp)
	}
	if f.Path != "/etc/usher/usher.toml" {
		t.Errorf("path = %q", f.Path)
	}
	if len(f.Warnings) != 0 {
		t.Errorf("warnings for a plain file: %v", f.Warnings)
	}
}

func TestEveryKeyTakesItsValue(t *testing.T) {
	env := testEnv()
	f := mustParse(t, `
[server]
listen = [":80", "[2001:DB8::1]:8443", "unix:http.sock", "localhost:0"]
listen_group = "www"
admin = "127.0.0.1:7000"
admin_token_file = "token"
state = "../state"
run = "/run/elsewhere"
trusted_proxies = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32"]
ask_listen = "[::1]:9180"
cgroup = "/sys/fs/cgroup/usher.slice"
port_range = "21000-21099"
access_log = "../../var/log/usher/access.log"
access_log_format = "combined"
cache_bytes = "1GiB"
event_loops = 3
max_connections = 20
max_connections_per_client = 3
head_timeout = "1s"
idle_timeout = "2m"
body_timeout = "5s"
write_timeout = "6s"
min_body_rate = "1KiB"
min_write_rate = 0

[server.listeners.":80"]
max_connections = 7
max_connections_per_client = 0
head_timeout = "2s"
idle_timeout = "3s"
body_timeout = "4s"
write_timeout = "5s"
min_body_rate = 0
min_write_rate = "2KiB"
trusted = true

[server.listeners."[2001:db8:0::1]:8443"]
max_connections_per_client = 9

[apps.hello]
hosts = ["Hello.Localhost", "*.hello.localhost", "*", "[2001:DB8::2]", "192.0.2.1", "xn--bcher-kva.example"]
paths = ["/api/", "/b/c"]
artifact = "site"
command = ["./server", "--flag", ""]
listen = "socket"
user = "hello"
group = "www"
swap = "hold"
fallback = "previous"
single_writer = "best-effort"
start = "eager"
idle_timeout = "never"
wake_timeout = "1s"
park_timeout = "2m"
park_limit = 5
park_bytes = 65536
park_limit_per_client = 4
park_bytes_per_client = "1KiB"
drain_timeout = "20s"
hold_drain = "0s"
close_spread = "2s"
stop_timeout = "3s"
settle = "4s"
first_byte_timeout = "never"
max_body = "10 MiB"
max_in_flight = 6
max_in_flight_per_client = 2
maintenance_page = "soon.HTML"
upstream_connections = 7
expose_build = true
keep_trailers = true
tls_ask = true
env = { GREETING = "hi", EMPTY = "" }
health = { path = "/up?x=1", timeout = "5s", host = "2001:db8::3", headers = { X-Probe = "usher" } }
cache = { enabled = true, max_object = "2KiB" }
limits = { memory = "256MiB", pids = 200 }

[apps.api]
hosts = ["api.localhost"]
target = "Backend.Internal:03000"

[apps.sock]
hosts = ["sock.localhost"]
target = "unix:api.sock"
`, env)
	wantServer := Server{
		Listen:      []Addr{{"tcp", ":80"}, {"tcp", "[2001:db8::1]:8443"}, {"unix", "/etc/usher/http.sock"}, {"tcp", "127.0.0.1:0"}},
		ListenGroup: Group{"www", 33},
		Admin:       Addr{"tcp", "127.0.0.1:7000"}, AdminTokenFile: "/etc/usher/token",
		State: "/etc/state", Run: "/run/elsewhere",
		TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("192.0.2.7/32"), netip.MustParsePrefix("2001:db8::/32")},
		AskListen:      Addr{"tcp", "[::1]:9180"},
		Cgroup:         "/sys/fs/cgroup/usher.slice",
		PortRange:      PortRange{21000, 21099},
		AccessLog:      "/var/log/usher/access.log", LogFormat: "combined", MaxPerClient: 3,
		Listeners: []Listener{
			{
				Addr: Addr{"tcp", ":80"}, MaxConnections: 7, MaxPerClient: None, HeadTimeout: 2 * time.Second, IdleTimeout: 3 * time.Second,
				BodyTimeout: 4 * time.Second, WriteTimeout: 5 * time.Second, MinBodyRate: None, MinWriteRate: 2048, Trusted: true,
			},
			{Addr: Addr{"tcp", "[2001:db8::1]:8443"}, MaxPerClient: 9},
		},
		CacheBytes: 1 << 30, EventLoops: 3, MaxConnections: 20, HeadTimeout: time.Second, IdleTimeout: 2 * time.Minute, BodyTimeout: 5 * time.Second, WriteTimeout: 6 * time.Second, MinBodyRate: 1024,
	}
	if !reflect.DeepEqual(f.Server, wantServer) {
		t.Errorf("server\n got %+v\nwant %+v", f.Server, wantServer)
	}
	wantHello := App{
		Name:  "hello",
		Hosts: []string{"hello.localhost", "*.hello.localhost", "*", "2001:db8::2", "192.0.2.1", "xn--bcher-kva.example"},
		Paths: []string{"/api", "/b/c"}, Artifact: "/etc/usher/site", ArtifactValue: "site",
		Command: []string{"./server", "--flag", ""}, Env: map[string]string{"GREETING": "hi", "EMPTY": ""},
		User:   Account{Name: "hello", UID: 1001, GID: 33, Home: "/home/hello"},
		Listen: Listen{Kind: "socket"},
		Limits: Limits{Memory: 256 << 20, PIDs: 200},
		Swap:   Hold, FallbackToGood: true, BestEffort: true, Eager: true,
		WakeTimeout: time.Second, ParkTimeout: 2 * time.Minute, ParkLimit: 5, ParkBytes: 65536, ParkPerClient: 4, ParkBytesClient: 1024, MaxInFlightClient: 2,
		MaintenancePage: Page{Path: "/etc/usher/soon.HTML", Type: "text/html; charset=utf-8", Body: []byte("<p>soon")},
		DrainTimeout:    20 * time.Second, CloseSpread: 2 * time.Second, StopTimeout: 3 * time.Second, Settle: 4 * time.Second,
		MaxBody: 10 << 20, MaxInFlight: 6, UpstreamConnections: 7, ExposeBuild: true, KeepTrailers: true, TLSAsk: true,
		Health: Health{Path: "/up?x=1", Host: "[2001:db8::3]", Timeout: 5 * time.Second, Headers: map[string]string{"X-Probe": "usher"}},
		Cache:  Cache{Enabled: true, MaxObject: 2 << 10},
	}
	if got := f.Server.Listener(Addr{"unix", "/etc/usher/http.sock"}); got != (Listener{Addr: Addr{"unix", "/etc/usher/http.sock"}}) {
		t.Errorf("a listener without a table: %+v", got)
	}
	if got, _ := f.App("hello"); !reflect.DeepEqual(got, wantHello) {
		t.Errorf("hello\n got %+v\nwant %+v", got, wantHello)
	}
	api, ok := f.App("api")
	if want := (Addr{"tcp", "backend.internal:3000"}); !ok || !api.External() || api.Target != want {
		t.Errorf("api target = %v, want %v", api.Target, want)
	}
	if sock, _ := f.App("sock"); sock.Target != (Addr{"unix", "/etc/usher/api.sock"}) {
		t.Errorf("sock target = %v", sock.Target)
	}
	if _, ok := f.App("nobody"); ok {
		t.Error("an app was found that the file does not have")
	}
	if names := []string{f.Apps[0].Name, f.Apps[1].Name, f.Apps[2].Name}; !reflect.DeepEqual(names, []string{"api", "hello", "sock"}) {
		t.Errorf("apps are not sorted by name: %v", names)
	}
}

func TestTheFirstExampleOfTheReadmeIsValid(t *testing.T) {
	f := mustParse(t, `
[server]
listen = ["127.0.0.1:8080"]          # also "unix:/run/usher/http.sock"
admin  = "unix:/run/usher/admin.sock"
state  = "/var/lib/usher"            # default when not root: $XDG_STATE_HOME/usher
trusted_proxies = []                 # default; a unix listener is trusted

[apps.hello]
hosts        = ["hello.localhost", "*.hello.localhost"]
artifact     = "bin/hello"
command      = ["./hello"]
listen       = "port"
user         = "hello"
swap         = "overlap"
idle_timeout = "15m"
env          = { GREETING = "hi" }
[apps.hello.health]
path = "/"
[apps.hello.cache]
enabled = true

[apps.api]
hosts  = ["api.localhost"]
target = "127.0.0.1:3000"
`, testEnv())
	hello, _ := f.App("hello")
	if hello.Artifact != "/etc/usher/bin/hello" || !hello.Cache.Enabled || hello.Env["GREETING"] != "hi" {
		t.Errorf("hello = %+v", hello)
	}
	if len(f.Warnings) != 0 {
		t.Errorf("warnings: %v", f.Warnings)
	}
}

func TestDefaultDirectoriesFollowTheUser(t *testing.T) {
	for _, c := range []struct {
		name              string
		env               Env
		state, run, admin string
	}{
		{"root", Env{EUID: 0, Home: "/root", XDGRuntimeDir: "/run/user/0"}, "/var/lib/usher", "/run/usher", "unix:/run/usher/admin.sock"},
		{"full desktop", Env{EUID: 5, Home: "/h", XDGStateHome: "/s", XDGRuntimeDir: "/r"}, "/s/usher", "/r/usher", "unix:/r/usher/admin.sock"},
		{"no runtime dir", Env{EUID: 5, Home: "/h", XDGStateHome: "/s"}, "/s/usher", "/s/usher/run", "unix:/s/usher/admin.sock"},
		{"only home", Env{EUID: 5, Home: "/h"}, "/h/.local/state/usher", "/h/.local/state/usher/run", "unix:/h/.local/state/usher/admin.sock"},
		{"relative XDG is ignored", Env{EUID: 5, Home: "/h", XDGStateHome: "s", XDGRuntimeDir: "r"}, "/h/.local/state/usher", "/h/.local/state/usher/run", "unix:/h/.local/state/usher/admin.sock"},
	} {
		env := testEnv()
		env.EUID, env.Home, env.XDGStateHome, env.XDGRuntimeDir = c.env.EUID, c.env.Home, c.env.XDGStateHome, c.env.XDGRuntimeDir
		s := mustParse(t, "[server]\nlisten=[':80']", env).Server
		if s.State != c.state || s.Run != c.run || s.Admin.String() != c.admin {
			t.Errorf("%s: state %s, run %s, admin %s", c.name, s.State, s.Run, s.Admin)
		}
		if got := DefaultAdmin(env); got != s.Admin {
			t.Errorf("%s: the CLI looks at %s, the server listens at %s", c.name, got, s.Admin)
		}
	}
	if got := DefaultAdmin(Env{EUID: 5}); !got.IsZero() {
		t.Errorf("without any directory the default is %s, want none", got)
	}
}

func TestAnOrdinaryUserRunsAppsAsItself(t *testing.T) {
	f := mustParse(t, `
[server]
listen = [":8080"]
[apps.a]
hosts = ["a"]
[apps.b]
hosts = ["b"]
user = "me"
group = "me"
`, ordinary())
	want := Account{Name: "me", UID: 500, GID: 500, Home: "/home/me", Own: true}
	for _, a := range f.Apps {
		if a.User != want {
			t.Errorf("%s runs as %+v, want %+v", a.Name, a.User, want)
		}
	}
}

func TestRootAndNumbersCanBeSaid(t *testing.T) {
	f := mustParse(t, `
[server]
listen = [":8080"]
[apps.a]
hosts = ["a"]
user = "root"
[apps.b]
hosts = ["b"]
user = 4711
group = "4711"
`, testEnv())
	if a := f.Apps[0].User; a.UID != 0 || !a.Own {
		t.Errorf("a runs as %+v", a)
	}
	if b := f.Apps[1].User; b != (Account{Name: "4711", UID: 4711, GID: 4711}) {
		t.Errorf("b runs as %+v", b)
	}
}

func TestAFixedPortSwapsByHold(t *testing.T) {
	f := mustParse(t, minimal+"listen = \"port:3000\"\n", testEnv())
	if a := f.Apps[0]; a.Swap != Hold || a.Listen != (Listen{"port", 3000}) || a.Listen.String() != "port:3000" {
		t.Errorf("listen %v, swap %s", a.Listen, a.Swap)
	}
}

func TestHoldWithoutCgroupMustBeAllowed(t *testing.T) {
	const hold = minimal + "swap = \"hold\"\n"
	if _, err := Parse("usher.toml", []byte(hold), noCgroup()); err == nil {
		t.Error("hold was accepted without a cgroup")
	}
	mustParse(t, hold, testEnv())
	mustParse(t, hold+"single_writer = \"best-effort\"\n", noCgroup())
	mustParse(t, minimal, noCgroup())
	unknown := testEnv()
	unknown.CgroupProblem = nil
	mustParse(t, hold, unknown)
}

func TestDifferentPathsShareAHost(t *testing.T) {
	mustParse(t, minimal+`
[apps.api]
hosts = ["hello.localhost"]
paths = ["/api"]
target = "127.0.0.1:3000"
`, testEnv())
}

func TestHealthHostIsTheFirstExactOne(t *testing.T) {
	for hosts, want := range map[string]string{
		`["*.a.example", "b.example", "c.example"]`: "b.example",
		`["*"]`:                          "localhost",
		`["*.a.example", "2001:db8::1"]`: "[2001:db8::1]",
	} {
		f := mustParse(t, "[server]\nlisten=[':80']\n[apps.a]\nuser='hello'\nhosts="+hosts, testEnv())
		if got := f.Apps[0].Health.Host; got != want {
			t.Errorf("hosts %s: health asks for %q, want %q", hosts, got, want)
		}
	}
}

func TestCloseSpreadFollowsAShorterDrain(t *testing.T) {
	f := mustParse(t, minimal+"drain_timeout = \"1s\"\n", testEnv())
	if got := f.Apps[0].CloseSpread; got != time.Second {
		t.Errorf("close_spread = %s, want no more than the drain of 1s", got)
	}
}
