package config

import "testing"

func TestWrongRoutesAreRefusedWithTheirPlace(t *testing.T) {
	const u = "user = \"hello\"\n"
	runBad(t, []badCase{
		{name: "no hosts", text: top + "‸[apps.a]\n" + u, want: []string{"apps.a.hosts: names no host; write which requests the app gets"}},
		{name: "empty hosts", text: top + "[apps.a]\n" + u + "hosts = ‸[]\n", want: []string{"apps.a.hosts: names no host"}},
		{name: "hosts is a string", text: top + "[apps.a]\n" + u + "hosts = ‸'a.example'\n", want: []string{"apps.a.hosts: is a string; write an array of strings"}},
		{name: "bad hosts", text: top + "[apps.a]\n" + u + `hosts = [
  ‸"",
  ‸"https://a.example",
  ‸"a.example:80",
  ‸"a.example/x",
  ‸"a.example.",
  ‸"a..example",
  ‸".example",
  ‸"-a.example",
  ‸"a-.example",
  ‸"bücher.example",
  ‸"a b.example",
  ‸"a!b.example",
  ‸"a.*.example",
  ‸"*a.example",
  ‸"*.",
  ‸"*.192.0.2.1",
  ‸"1.2.3",
  ‸"256.1.1.1",
  ‸"fe80::1%eth0",
  ‸"xn--.example",
  ‸"` + long(64) + `.example",
  ‸"` + long(63) + "." + long(63) + "." + long(63) + "." + long(63) + `",
]
`, want: []string{
			"a host name is empty", "is a URL; write only the host name", "holds a port; leave it out", "holds a path; write the host here",
			`"a.example." ends in a dot; leave it out`, "two dots follow each other", "or it starts with one", "begins or ends with a hyphen",
			"begins or ends with a hyphen", "it is not ASCII; write the form that browsers send, which begins with xn--", "' ' cannot be part of it", "'!' cannot be part of it",
			"has a * in the middle", "has a * in the middle", "a host name is empty", "is a wildcard below an IP address", `"1.2.3" ends like an IPv4 address but is none`,
			"ends like an IPv4 address", "names an interface", "nothing follows xn--", "longer than 63 characters", "longer than the 253 characters",
		}},
		{name: "host twice in one app", text: top + "[apps.a]\n" + u + "hosts = ['a.example', ‸'A.example', '::1', ‸'[::1]']\n", want: []string{`"a.example" is here twice`, `"::1" is here twice`}},
		{name: "host in two apps", text: app + "[apps.b]\n" + u + "hosts = ['b.example', ‸'A.EXAMPLE']\n", want: []string{"apps.b.hosts: host a.example belongs to apps.a already (line 4)"}},
		{name: "the later one is told, whatever its name", text: top + "[apps.z]\n" + u + "hosts=['x.example']\n[apps.a]\n" + u + "hosts=[‸'x.example']\n", want: []string{"apps.a.hosts: host x.example belongs to apps.z already (line 5)"}},
		{name: "wildcard in two apps", text: app + "[apps.b]\n" + u + "hosts = ['*.x.example']\n[apps.c]\n" + u + "hosts = [‸'*.X.example']\n", want: []string{"host *.x.example belongs to apps.b"}},
		{name: "catch-all in two apps", text: app + "[apps.b]\n" + u + "hosts = ['*']\n[apps.c]\n" + u + "hosts = [‸'*']\n", want: []string{"host * belongs to apps.b"}},
		{name: "host and path in two apps", text: app + "paths = ['/x', '/y']\n[apps.b]\n" + u + "paths = ['/y/', '/z']\nhosts = [‸'a.example']\n", want: []string{"host a.example with path /y belongs to apps.a already"}},
		{name: "bad paths", text: app + "paths = [‸'api', ‸'/a?b', ‸'/a*', ‸'/a//b', ‸'/a/../b', ‸'/a b', ‸'/é', ‸'/a#b', ‸'/a//', ‸'//']\n", want: []string{
			`"api" does not begin with a slash; write "/api"`, "holds a query", "holds a *", "has an empty segment", "has an empty segment or one that is a dot",
			"holds a blank", "not ASCII; percent-encode it", "holds a #", "has an empty segment", "has an empty segment",
		}},
		{name: "path twice", text: app + "paths = ['/a', ‸'/a/']\n", want: []string{`"/a" is here twice`}},
		{name: "no paths", text: app + "paths = ‸[]\n", want: []string{"apps.a.paths: is empty; remove it"}},
		{name: "paths is a string", text: app + "paths = ‸'/'\n", want: []string{"apps.a.paths: is a string"}},
		{name: "app names", text: top + "[apps.‸1a]\n" + u + "hosts=['a']\n[apps.‸a_b]\n" + u + "hosts=['b']\n[apps.‸\"\"]\n" + u + "hosts=['c']\n[apps.‸" + long(41) + "]\n" + u + "hosts=['d']\n", want: []string{
			"apps.1a: is no name for an app; use 1 to 40 small letters", "apps.a_b: is no name", "apps.: is no name", "is no name for an app",
		}},
	})
}

func TestWrongProcessFieldsAreRefusedWithTheirPlace(t *testing.T) {
	const bare = top + "[apps.a]\nhosts = ['a.example']\n"
	runBad(t, []badCase{
		{name: "root without user", text: top + "‸[apps.a]\nhosts = ['a.example']\n", want: []string{`apps.a: user is missing, and usher runs as root; write the account the app runs as, user = "a", or user = "root" if you mean root`}},
		{name: "unknown user", text: bare + "user = ‸'nobody-here'\n", want: []string{`there is no user "nobody-here"; create the account (useradd --system nobody-here)`}},
		{name: "user cannot be looked up", text: bare + "user = ‸'broken'\n", want: []string{`"broken" cannot be looked up: the directory service is away`}},
		{name: "root by number", text: bare + "user = ‸0\n", want: []string{`"0" is root under another name; write user = "root"`}},
		{name: "root by another name", text: bare + "user = ‸'toor'\n", want: []string{`"toor" is root under another name`}},
		{name: "user is a boolean", text: bare + "user = ‸true\n", want: []string{"apps.a.user: is a boolean; write a string in quotes"}},
		{name: "user out of range", text: bare + "user = ‸-1\n", want: []string{"apps.a.user: -1 is out of range"}},
		{name: "number without group", text: bare + "user = ‸4711\n", want: []string{"4711 has no account, so its group is not known; write group too"}},
		{name: "unknown group", text: app + "group = ‸'nogroup'\n", want: []string{`there is no group "nogroup"; create it`}},
		{name: "group cannot be looked up", text: app + "group = ‸'broken'\n", want: []string{`"broken" cannot be looked up`}},
		{name: "another user without root", text: bare + "user = ‸'hello'\n", env: ordinary, want: []string{"usher runs as me and cannot start the app as hello; start usher as root, or remove user"}},
		{name: "another group without root", text: bare + "group = ‸'www'\n", env: ordinary, want: []string{"usher is not root and cannot change the group to www"}},
		{name: "artifact is missing", text: app + "artifact = ‸'bin/gone'\n", want: []string{"apps.a.artifact: /etc/usher/bin/gone: file does not exist; build it first, paths are relative to the configuration file"}},
		{name: "artifact is not executable", text: app + "artifact = ‸'bin/plain'\n", want: []string{"/etc/usher/bin/plain is not executable; chmod +x it"}},
		{name: "directory without command", text: app + "artifact = ‸'site'\n", want: []string{"is a directory, which cannot run by itself"}},
		{name: "command not in the directory", text: app + "artifact = 'site'\ncommand = [‸'./gone']\n", want: []string{"apps.a.command: /etc/usher/site/gone: file does not exist"}},
		{name: "command in the directory cannot run", text: app + "artifact = 'site'\ncommand = [‸'./notes.txt']\n", want: []string{"/etc/usher/site/notes.txt is not executable"}},
		{name: "command is not the file", text: app + "artifact = 'bin/hello'\ncommand = [‸'./helo', 'x']\n", want: []string{`"./helo" is not in the build, which holds only hello; write "./hello"`}},
		{name: "absolute command missing", text: app + "command = [‸'/usr/bin/nodejs']\n", want: []string{"/usr/bin/nodejs: file does not exist"}},
		{name: "absolute command is a directory", text: app + "command = [‸'/usr/bin']\n", want: []string{"/usr/bin is no regular file"}},
		{name: "command is empty", text: app + "command = ‸[]\n", want: []string{"apps.a.command: is empty; remove it to run the artifact itself"}},
		{name: "command names nothing", text: app + "command = [‸'']\n", want: []string{"apps.a.command: names no program"}},
		{name: "command is a string", text: app + "command = ‸'./hello --x'\n", want: []string{"apps.a.command: is a string; write an array of strings"}},
		{name: "listen", text: app + "listen = ‸'3000'\n", want: []string{`apps.a.listen: "3000" is not known; write "port", "port:N" with a fixed N, or "socket"`}},
		{name: "listen port", text: app + "listen = ‸'port:0'\n", want: []string{`"0" is no port from 1 to 65535`}},
		{name: "listen socket with a path", text: app + "listen = ‸'socket:/x'\n", want: []string{`"socket:/x" is not known`}},
		{name: "socket below a long run directory", text: "[server]\nlisten=[':80']\nrun='/" + long(72) + "'\n[apps.a]\nuser='hello'\nhosts=['a']\nlisten = ‸'socket'\n", want: []string{"would be too long; choose a directory of 72 bytes at most"}},
		{name: "fixed port in the range", text: app + "listen = ‸'port:20001'\n", want: []string{"port 20001 lies in server.port_range 20000-29999"}},
		{name: "fixed port twice", text: app + "listen = 'port:3000'\n[apps.b]\nuser='hello'\nhosts=['b']\nlisten = ‸'port:3000'\n", want: []string{"apps.b.listen: port 3000 belongs to apps.a already (line 6)"}},
		{name: "fixed port is usher's", text: app + "listen = ‸'port:8080'\n", want: []string{"port 8080 is usher's own (server.listen, line 2)"}},
		{name: "fixed port cannot overlap", text: app + "listen = 'port:3000'\nswap = ‸'overlap'\n", want: []string{"two generations cannot listen on port 3000 at once"}},
		{name: "env", text: app + "[apps.a.env]\nGOOD = 'x'\n‸PORT = '1'\n‸SOCKET = '1'\n‸USHER_X = '1'\n‸LISTEN_FDS = '1'\n‸1A = 'x'\n‸\"A=B\" = 'x'\n‸\"\" = 'x'\nN = ‸1\nZ = ‸\"a\\u0000\"\n", want: []string{
			"PORT is set by usher; choose another name", "SOCKET is set by usher", "USHER_X is set by usher", "LISTEN_FDS is set by usher",
			`"1A" is no name of a variable`, `"A=B" is no name`, `"" is no name`, "apps.a.env.N: is a whole number; write a string in quotes", "apps.a.env.Z: holds a NUL",
		}},
	})
}

func TestWrongPolicyIsRefusedWithItsPlace(t *testing.T) {
	runBad(t, []badCase{
		{name: "swap", text: app + "swap = ‸'rolling'\n", want: []string{`apps.a.swap: "rolling" is not known; write "overlap" or "hold"`}},
		{name: "fallback", text: app + "fallback = ‸true\n", want: []string{"apps.a.fallback: is a boolean; write a string in quotes"}},
		{name: "single_writer", text: app + "single_writer = ‸'weak'\n", want: []string{`write "strict" or "best-effort"`}},
		{name: "start", text: app + "start = ‸'now'\n", want: []string{`write "lazy" or "eager"`}},
		{name: "hold without a cgroup", text: app + "swap = ‸'hold'\n", env: noCgroup, want: []string{`apps.a.swap: hold needs a cgroup to prove that the old process and its children are gone, and there is none because no cgroup v2 tree is writable; give usher a cgroup, or write single_writer = "best-effort"`}},
		{name: "hold with cgroups off", text: "[server]\nlisten=[':80']\ncgroup='off'\n[apps.a]\nuser='hello'\nhosts=['a']\nswap = ‸'hold'\n", want: []string{`there is none because cgroup is "off"`}},
		{name: "fixed port means hold", text: app + "listen = ‸'port:3000'\n", env: noCgroup, want: []string{"apps.a.listen: hold needs a cgroup"}},
		{name: "durations", text: app + `idle_timeout = ‸"50ms"
wake_timeout = ‸"0"
park_timeout = ‸"2h"
drain_timeout = ‸"-1s"
hold_drain = ‸"5"
close_spread = ‸"5 s"
stop_timeout = ‸10
settle = ‸""
first_byte_timeout = ‸"forever"
`, want: []string{
			`apps.a.idle_timeout: 50ms is out of range; write a duration from 100ms to 8760h, or "never"`, "apps.a.wake_timeout: 0s is out of range", "apps.a.park_timeout: 2h0m0s is out of range; write a duration from 10ms to 1h",
			"apps.a.drain_timeout: -1s is out of range", "apps.a.hold_drain: \"5\" is no duration", "apps.a.close_spread: \"5 s\" is no duration",
			"apps.a.stop_timeout: is a whole number", "apps.a.settle: \"\" is no duration", "apps.a.first_byte_timeout: \"forever\" is no duration",
		}},
		{name: "0 for never", text: app + "idle_timeout = ‸'0s'\nfirst_byte_timeout = ‸'0'\n", want: []string{
			`apps.a.idle_timeout: 0s is out of range; write a duration from 100ms to 8760h, or "never"`,
			`apps.a.first_byte_timeout: 0s is out of range; write a duration from 10ms to 24h, or "never"`,
		}},
		{name: "spread longer than the drain", text: app + "drain_timeout = '3s'\nclose_spread = ‸'4s'\n", want: []string{"apps.a.close_spread: 4s is longer than drain_timeout (3s), of which it is the last part"}},
		{name: "shares beyond the whole", text: app + "park_limit = 3\npark_limit_per_client = ‸4\npark_bytes = '1KiB'\npark_bytes_per_client = ‸'2KiB'\nmax_in_flight = 5\nmax_in_flight_per_client = ‸6\n", want: []string{
			"apps.a.park_limit_per_client: 4 is more than all requests that may wait (park_limit, 3)",
			"apps.a.park_bytes_per_client: 2KiB is more than all requests that wait may hold (park_bytes, 1KiB)",
			"apps.a.max_in_flight_per_client: 6 is more than all requests inside (max_in_flight, 5)",
		}},
		{name: "page that is none", text: app + "maintenance_page = ‸'bin/hello'\n", want: []string{`apps.a.maintenance_page: "bin/hello" is no page that is known; name a file that ends in .html, .htm, .txt or .json`}},
		{name: "page missing", text: app + "maintenance_page = ‸'gone.html'\n", want: []string{"apps.a.maintenance_page: /etc/usher/gone.html: file does not exist; paths are relative to the configuration file"}},
		{name: "page empty", text: app + "maintenance_page = ‸'empty.txt'\n", want: []string{"/etc/usher/empty.txt is empty; write what clients should read"}},
		{name: "page too large", text: app + "maintenance_page = ‸'large.html'\n", want: []string{"/etc/usher/large.html has 262145 bytes; a page may have 256KiB"}},
		{name: "page is a directory", text: app + "maintenance_page = ‸'/var/log/usher/dir.html'\n", want: []string{"/var/log/usher/dir.html is no regular file"}},
		{name: "sizes", text: app + "park_limit = ‸0\npark_bytes = ‸'1B'\nmax_body = ‸-1\nmax_in_flight = ‸-1\nupstream_connections = ‸1.5\n", want: []string{
			"apps.a.park_limit: 0 is out of range; write a number from 1 to 1000000", "apps.a.park_bytes: 1B is out of range; write a size from 1KiB to 64GiB",
			"apps.a.max_body: -1B is out of range", "apps.a.max_in_flight: -1 is out of range", "apps.a.upstream_connections: is a number with a fraction",
		}},
		{name: "switches", text: app + "expose_build = ‸'yes'\nkeep_trailers = ‸1\ntls_ask = ‸[]\n", want: []string{
			"apps.a.expose_build: is a string; write true or false", "apps.a.keep_trailers: is a whole number", "apps.a.tls_ask: is an array",
		}},
		{name: "health", text: app + "[apps.a.health]\npath = ‸'up'\ntimeout = ‸'0s'\nhost = ‸'*.a.example'\n‸interval = '1s'\n", want: []string{
			`apps.a.health.path: "up" does not begin with a slash; write "/up"`, "apps.a.health.timeout: 0s is out of range", "apps.a.health.host: a Host header names one host",
			"apps.a.health.interval: unknown key; known here: headers, host, path, timeout",
		}},
		{name: "health headers", text: app + "health.headers = { ‸\"A B\" = 'x', ‸Host = 'x', C = ‸1, D = ‸\"a\\nb\" }\n", want: []string{
			`apps.a.health.headers: "A B" is no name of a header field`, "Host is written by usher", "apps.a.health.headers.C: is a whole number", "apps.a.health.headers.D: holds a control character",
		}},
		{name: "health host", text: app + "health.host = ‸'a.example:80'\n", want: []string{"apps.a.health.host: \"a.example:80\" holds a port"}},
		{name: "limits", text: app + "[apps.a.limits]\nmemory = ‸'1MiB'\npids = ‸'many'\n‸cpu = 1\n", want: []string{
			"apps.a.limits.memory: 1MiB is out of range", "apps.a.limits.pids: is a string", "apps.a.limits.cpu: unknown key; known here: memory, pids",
		}},
		{name: "cache", text: app + "cache = { enabled = ‸1, max_object = ‸0, ‸ttl = 3 }\n", want: []string{
			"apps.a.cache.enabled: is a whole number; write true or false", "apps.a.cache.max_object: 0B is out of range", "apps.a.cache.ttl: unknown key",
		}},
	})
}

func TestAnAppWithATargetHasNoProcess(t *testing.T) {
	runBad(t, []badCase{
		{name: "process fields", text: ext + `target = "127.0.0.1:3000"
‸artifact = "bin/gone"
‸command = ["./x"]
‸listen = "port"
‸user = "gone"
‸group = "gone"
‸env = { A = "b" }
‸limits = { pids = 100 }
‸fallback = "none"
‸single_writer = "strict"
‸start = "lazy"
‸idle_timeout = "1m"
‸wake_timeout = "1m"
‸hold_drain = "1s"
‸stop_timeout = "1s"
swap = ‸"hold"
`, want: []string{
			"apps.a.artifact: is about a process that usher starts, but target (line 5) says that usher does not own it; remove one of the two",
			"apps.a.command: is about", "apps.a.listen: is about", "apps.a.user: is about", "apps.a.group: is about", "apps.a.env: is about",
			"apps.a.limits: is about", "apps.a.fallback: is about", "apps.a.single_writer: is about", "apps.a.start: is about", "apps.a.idle_timeout: is about",
			"apps.a.wake_timeout: is about", "apps.a.hold_drain: is about", "apps.a.stop_timeout: is about",
			"apps.a.swap: hold stops the old process first, and usher does not own it (target, line 5)",
		}},
		{name: "bad targets", text: top + `
[apps.a]
hosts = ["a"]
target = ‸"http://127.0.0.1:3000"
[apps.b]
hosts = ["b"]
target = ‸"127.0.0.1"
[apps.c]
hosts = ["c"]
target = ‸":3000"
[apps.d]
hosts = ["d"]
target = ‸"0.0.0.0:3000"
[apps.e]
hosts = ["e"]
target = ‸"127.0.0.1:0"
[apps.f]
hosts = ["f"]
target = ‸"a_b!:3000"
[apps.g]
hosts = ["g"]
target = ‸3000
[apps.h]
hosts = ["h"]
target = ‸"unix:"
`, want: []string{
			`is a URL; write only "host:port"`, `"127.0.0.1" is no address`, `names no host; write "127.0.0.1:3000"`, "0.0.0.0 cannot be dialled",
			"port 0 cannot be dialled", "'!' cannot be part of it", "is a whole number; write a string", "names no path",
		}},
		{name: "usher itself", text: "[server]\nlisten = [':8080', 'unix:/run/u.sock', '127.0.0.2:81']\n" + `
[apps.a]
hosts = ["a"]
target = ‸"localhost:8080"
[apps.b]
hosts = ["b"]
target = ‸"unix:/run/u.sock"
[apps.c]
hosts = ["c"]
target = ‸"127.0.0.2:81"
[apps.d]
hosts = ["d"]
target = "127.0.0.1:81"
[apps.e]
hosts = ["e"]
target = "192.0.2.1:8080"
`, want: []string{
			"localhost:8080 is usher's own server.listen (line 2), so requests would go round in a circle", "unix:/run/u.sock is usher's own", "127.0.0.2:81 is usher's own",
		}},
	})
}
