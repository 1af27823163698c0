package config

import "testing"

func TestWrongDocumentsAreRefusedWithTheirPlace(t *testing.T) {
	runBad(t, []badCase{
		{name: "empty file", text: mark, want: []string{`the [server] table is missing; add [server]`}},
		{name: "only apps", text: mark + "[apps.a]\nhosts=['a']\nuser='hello'\n", want: []string{"the [server] table is missing"}},
		{name: "unknown table", text: app + "[‸serverr]\nx=1\n", want: []string{"serverr: unknown key; did you mean server?"}},
		{name: "unknown key far from all", text: "‸colour = 1\n" + app, want: []string{"colour: unknown key; known here: apps, server"}},
		{name: "dotted unknown key", text: "server.‸admim = 'unix:/x'\nserver.listen = [':80']\n", want: []string{"server.admim: unknown key; did you mean admin?"}},
		{name: "swapped letters", text: app + "‸wake_tiemout = '1s'\n", want: []string{"did you mean wake_timeout?"}},
		{name: "hyphen and capitals", text: app + "‸Drain-Timeout = '1s'\n", want: []string{"did you mean drain_timeout?"}},
		{name: "quoted unknown key", text: app + "‸\"h\\u00f6sts\" = ['x']\n", want: []string{"did you mean hosts?"}},
		{name: "server is no table", text: "server = ‸3\n", want: []string{"server: is a whole number; write a table: [server]"}},
		{name: "apps is an array of tables", text: top + "‸[[apps]]\nhosts=['a']\n", want: []string{"apps: is an array; write a table: [apps]"}},
		{name: "app is no table", text: top + "[apps]\na = ‸1.5\n", want: []string{"apps.a: is a number with a fraction; write a table: [apps.a]"}},
		{name: "health is no table", text: app + "health = ‸'/up'\n", want: []string{"apps.a.health: is a string; write a table: [apps.a.health]"}},
		{name: "env is no table", text: app + "env = ‸['A=b']\n", want: []string{"apps.a.env: is an array; write a table: [apps.a.env]"}},
		{name: "after wide characters", text: app + "env = { A = 'größe 日本', B = ‸2 }\n", want: []string{"apps.a.env.B: is a whole number; write a string in quotes"}},
		{name: "CRLF lines", text: "[server]\r\nlisten = [':80']\r\nstate = ‸1\r\n", want: []string{"server.state: is a whole number"}},
	})
}

func TestTextThatIsNoTOMLIsRefusedWithItsPlace(t *testing.T) {
	runBad(t, []badCase{
		{name: "missing quote", text: "[server]\nlisten = [\"127.0.0.1:8080‸\n", want: []string{"is no TOML: strings cannot contain newlines"}},
		{name: "bare word", text: "[server]\nstate = ‸yes\n", want: []string{"is no TOML: expected value but found"}},
		{name: "same key twice", text: "[server]\nstate = '/a'\n‸state = '/b'\n", want: []string{"is no TOML: Key 'server.state' has already been defined"}},
		{name: "same table twice", text: "[server]\nlisten=[':80']\n[‸server]\n", want: []string{"is no TOML: Key 'server' has already been defined"}},
		{name: "after wide characters", text: "x = 'größe'‸ y\n", want: []string{"is no TOML: expected a top-level item to end"}},
	})
}

func TestWrongServerValuesAreRefusedWithTheirPlace(t *testing.T) {
	const l = "[server]\nlisten = [':8080']\n"
	runBad(t, []badCase{
		{name: "no listen", text: "‸[server]\n", want: []string{"server.listen: names no address; write where requests come in"}},
		{name: "empty listen", text: "[server]\nlisten = ‸[]\n", want: []string{"server.listen: names no address"}},
		{name: "listen is a string", text: "[server]\nlisten = ‸':80'\n", want: []string{"server.listen: is a string; write an array of strings"}},
		{name: "listen element is a number", text: "[server]\nlisten = [':80', ‸81]\n", want: []string{"server.listen: element 2 is a whole number"}},
		{name: "listen element holds NUL", text: "[server]\nlisten = [‸\"unix:/a\\u0000b\"]\n", want: []string{"server.listen: element 1 holds a NUL"}},
		{name: "listen bad forms", text: `[server]
listen = [‸"8080", ‸"127.0.0.1:http", ‸"127.0.0.1:70000", ‸"example.com:80", ‸"unix:", ‸"unix:@x",
  ‸"*:80", ‸"::1:80"]
`, want: []string{
			`"8080" is no address; write "host:port"`, `"http" is no port`, `"70000" is no port; write a number from 0 to 65535`,
			`"example.com" is no IP address; write one, such as "127.0.0.1:80", or ":80" for all interfaces`,
			`names no path`, `is an abstract socket`, `"*" is no IP address`, `"::1:80" is no address; write "host:port", "[ipv6]:port"`,
		}},
		{name: "socket path too long", text: "[server]\nlisten = [‸'unix:/" + long(107) + "']\n", want: []string{"has 108 bytes, and a socket path can have 107 at most"}},
		{name: "same listener twice", text: "[server]\nlisten = ['127.0.0.1:80', ‸'localhost:80']\n", want: []string{"server.listen: 127.0.0.1:80 overlaps 127.0.0.1:80 of server.listen in line 2"}},
		{name: "wildcard takes all", text: "[server]\nlisten = ['127.0.0.1:80',\n‸'0.0.0.0:80', '127.0.0.2:81', ‸'[::]:81']\n", want: []string{"0.0.0.0:80 overlaps 127.0.0.1:80 of server.listen in line 2", "[::]:81 overlaps 127.0.0.2:81"}},
		{name: "same socket twice", text: "[server]\nlisten = ['unix:/run/a', ‸'unix:/run/../run/a']\n", want: []string{"unix:/run/a overlaps unix:/run/a"}},
		{name: "admin overlaps listen", text: "[server]\nlisten = ['unix:/run/usher/admin.sock']\nadmin = ‸'unix:/run/usher/admin.sock'\n", want: []string{"server.admin: unix:/run/usher/admin.sock overlaps"}},
		{name: "admin on TCP without token", text: l + "admin = ‸'127.0.0.1:7000'\n", want: []string{"server.admin: is on TCP, where anyone who can connect could deploy; write admin_token_file too"}},
		{name: "admin is no address", text: l + "admin = ‸'/run/usher/admin.sock'\n", want: []string{`server.admin: "/run/usher/admin.sock" is no address`}},
		{name: "token for a socket", text: l + "admin_token_file = ‸'token'\n", want: []string{"server.admin_token_file: is used on TCP only; remove it"}},
		{name: "group for TCP", text: l + "admin = '127.0.0.1:7000'\nadmin_token_file = 'token'\nadmin_group = ‸'www'\n", want: []string{"server.admin_group: is used on a unix socket only"}},
		{name: "token file missing", text: l + "admin = '127.0.0.1:7000'\nadmin_token_file = ‸'gone'\n", want: []string{"/etc/usher/gone cannot be read (file does not exist); create it"}},
		{name: "token too short", text: l + "admin = '127.0.0.1:7000'\nadmin_token_file = ‸'short-token'\n", want: []string{"holds fewer than 16 characters"}},
		{name: "state is empty", text: l + "state = ‸''\n", want: []string{"server.state: is empty; write a value or remove the key"}},
		{name: "state holds NUL", text: l + "state = ‸\"/a\\u0000\"\n", want: []string{"server.state: holds a NUL character"}},
		{name: "state unknown", text: "‸[server]\nlisten=[':80']\n", want: []string{"server.state: has no default here"}, env: func() Env {
			e := testEnv()
			e.EUID = 5
			return e
		}},
		{name: "run is state", text: l + "state = '/srv/u'\nrun = ‸'/srv/u/'\n", want: []string{"server.run: is the state directory"}},
		{name: "default admin path too long", text: "‸[server]\nlisten=[':80']\nstate = '/" + long(100) + "'\n", want: []string{"server.admin: the default unix:/"}, env: func() Env {
			e := ordinary()
			e.XDGRuntimeDir = ""
			return e
		}},
		{name: "ask to the network", text: l + "ask_listen = ‸'0.0.0.0:9180'\n", want: []string{"server.ask_listen: answers who has which host"}},
		{name: "ask on a socket", text: l + "ask_listen = ‸'unix:/run/ask'\n", want: []string{"write a loopback address"}},
		{name: "ask is no address", text: l + "ask_listen = ‸'9180'\n", want: []string{`server.ask_listen: "9180" is no address`}},
		{name: "proxies", text: l + "trusted_proxies = [‸'10.0.0.1/8', ‸'10.0.0.0/33', ‸'proxy', ‸'::ffff:10.0.0.0/104', ‸'fe80::1%eth0']\n", want: []string{
			`"10.0.0.1/8" has bits set behind its mask; write "10.0.0.0/8"`, `"10.0.0.0/33" is no IP address or CIDR block`,
			`"proxy" is no IP address or CIDR block`, `maps IPv4 into IPv6`, `"fe80::1%eth0" is no IP address or CIDR block`,
		}},
		{name: "cgroup is relative", text: l + "cgroup = ‸'usher.slice'\n", want: []string{`server.cgroup: "usher.slice" is no absolute path; write "auto", "off"`}},
		{name: "cgroup cannot be used", text: l + "cgroup = ‸'/sys/fs/cgroup/none'\n", want: []string{"/sys/fs/cgroup/none cannot be used because it does not exist"}},
		{name: "ephemeral ports", text: l + "port_range = ‸'30000-40000'\n", want: []string{"30000-40000 overlaps 32768-60999, where the kernel takes ports for outgoing connections"}},
		{name: "port range is one number", text: l + "port_range = ‸'20000'\n", want: []string{`"20000" is no range of ports`}},
		{name: "port range is privileged", text: l + "port_range = ‸'80-90'\n", want: []string{"80 is a privileged port"}},
		{name: "port range is backwards", text: l + "port_range = ‸'30000-20000'\n", want: []string{"holds fewer than two ports"}},
		{name: "port range is too large", text: l + "port_range = ‸'30000-70000'\n", want: []string{"is no range of ports"}},
		{name: "log without directory", text: l + "access_log = ‸'/gone/access.log'\n", want: []string{"server.access_log: there is no directory /gone"}},
		{name: "log is a directory", text: l + "access_log = ‸'/var/log/usher'\n", want: []string{"/var/log/usher is a directory; name a file"}},
		{name: "event loops", text: l + "event_loops = ‸-1\n", want: []string{"server.event_loops: -1 is out of range; write a number from 0 to 256"}},
		{name: "cache size", text: l + "cache_bytes = ‸-1\n", want: []string{"server.cache_bytes: -1B is out of range; write a size from 0B to 1024GiB"}},
		{name: "cache size unit", text: l + "cache_bytes = ‸'1MB'\n", want: []string{`"1MB" is no size`}},
		{name: "cache size overflows", text: l + "cache_bytes = ‸'9999999999999GiB'\n", want: []string{`is no size`}},
		{name: "cache size type", text: l + "cache_bytes = ‸true\n", want: []string{"server.cache_bytes: is a boolean; write bytes as a number"}},
		{name: "max_connections", text: l + "max_connections = ‸0\n", want: []string{"server.max_connections: 0 is out of range; write a number from 1 to 10000000"}},
		{name: "max_connections type", text: l + "max_connections = ‸'10'\n", want: []string{"server.max_connections: is a string; write a whole number without quotes"}},
		{name: "duration without unit", text: l + "head_timeout = ‸'10'\n", want: []string{`server.head_timeout: "10" is no duration; write numbers with units`}},
		{name: "duration as number", text: l + "head_timeout = ‸10\n", want: []string{"server.head_timeout: is a whole number; write a duration as a string with a unit"}},
		{name: "duration as time", text: l + "head_timeout = ‸07:32:00\n", want: []string{"server.head_timeout: is a date or time"}},
		{name: "duration out of range", text: l + "head_timeout = ‸'1h'\n", want: []string{"server.head_timeout: 1h0m0s is out of range; write a duration from 10ms to 10m"}},
		{name: "duration negative", text: l + "idle_timeout = ‸'-1s'\n", want: []string{"server.idle_timeout: -1s is out of range"}},
		{name: "client limits", text: l + "body_timeout = ‸'0'\nwrite_timeout = ‸'2h'\nmin_body_rate = ‸'fast'\n", want: []string{"server.body_timeout: 0s is out of range", "server.write_timeout: 2h0m0s is out of range", `server.min_body_rate: "fast" is no size`}},
		{name: "log format", text: l + "access_log_format = ‸'xml'\n", want: []string{`server.access_log_format: "xml" is not known; write "json" or "combined"`}},
		{name: "rates and shares", text: l + "min_write_rate = ‸-1\nmax_connections_per_client = ‸-1\n", want: []string{"server.min_write_rate: -1B is out of range", "server.max_connections_per_client: -1 is out of range; write a number from 0 to 10000000"}},
		{name: "listener that is none", text: l + "[server.listeners]\n‸':8081' = {}\n‸'8082' = {}\n", want: []string{`server.listeners.":8081": is not in server.listen; add it there`, `server.listeners."8082": "8082" is no address`}},
		{name: "listener twice", text: "[server]\nlisten=['127.0.0.1:81']\n[server.listeners.'127.0.0.1:81']\n[server.listeners.‸'localhost:81']\n", want: []string{`server.listeners."localhost:81": has a table already, under another spelling`}},
		{name: "listener's values", text: "[server]\nlisten=[':80']\n[server.listeners.':80']\nhead_timeout = ‸'1h'\n‸limit = 3\ntrusted = ‸1\nmax_connections = ‸0\n", want: []string{
			`server.listeners.":80".head_timeout: 1h0m0s is out of range`, `server.listeners.":80".limit: unknown key`,
			`server.listeners.":80".trusted: is a whole number`, `server.listeners.":80".max_connections: 0 is out of range`,
		}},
		{name: "listener is no table", text: "[server]\nlisten=[':80']\nlisteners = { ':80' = ‸3 }\n", want: []string{"server.listeners.:80: is a whole number; write a table"}},
		{name: "listener on a socket", text: "[server]\nlisten=['unix:/run/u.sock']\n[server.listeners.'unix:/run/u.sock']\nmax_connections_per_client = ‸3\ntrusted = ‸true\n", want: []string{
			"peers of a unix socket have no address to tell them apart; write max_connections", "peers of a unix socket are trusted anyway; remove it",
		}},
		{name: "never where it cannot be", text: l + "idle_timeout = ‸'never'\n", want: []string{`server.idle_timeout: "never" is no duration`}},
	})
}

func long(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a'
	}
	return string(b)
}
