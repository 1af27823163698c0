package config

import "testing"

func TestDoubtfulFilesAreAcceptedWithWarnings(t *testing.T) {
	for _, c := range []badCase{
		{name: "hold longer than parking", text: app + "hold_drain = '20s'\npark_timeout = ‸'50s'\n", want: []string{"apps.a.park_timeout: a hold swap may take 1m (hold_drain 20s, stop_timeout 10s, health.timeout 30s) but requests wait 50s at most"}},
		{name: "hold longer than the default parking", text: "[server]\nlisten=[':80']\n‸[apps.a]\nuser='hello'\nhosts=['a']\nhealth.timeout='1h'\n", want: []string{"a hold swap may take 1h0m15s"}},
		{name: "wake longer than parking", text: app + "wake_timeout = ‸'90s'\n", want: []string{"apps.a.wake_timeout: a wake may take 1m30s but requests wait 1m at most"}},
		{name: "no such groups", text: "[server]\nlisten = ['unix:/run/u.sock']\nlisten_group = ‸'gone'\nadmin_group = ‸'gone'\n", want: []string{
			`server.listen_group: there is no group "gone": unix listeners stay closed to others; create it (groupadd gone)`, `server.admin_group: there is no group "gone": the admin socket stays open to usher's own user only`,
		}},
		{name: "listen group without socket", text: "[server]\nlisten = [':80']\nlisten_group = ‸'www'\n", want: []string{"has no effect: no listener is a unix socket"}},
		{name: "listener in the port range", text: "[server]\nlisten = [‸':20080']\n", want: []string{"server.listen: port 20080 lies in port_range 20000-29999"}},
		{name: "client beyond all", text: top + "max_connections = 5\nmax_connections_per_client = ‸6\n", want: []string{"server.max_connections_per_client: has no effect: there are 5 connections at most"}},
		{name: "listener beyond all", text: "[server]\nlisten = [':80']\nmax_connections = 5\n[server.listeners.':80']\nmax_connections = ‸6\n", want: []string{`server.listeners.":80".max_connections: has no effect: all listeners together have 5 at most`}},
		{name: "listener that trusts everybody", text: "[server]\nlisten = [':80', '127.0.0.1:81']\n[server.listeners.':80']\ntrusted = ‸true\n[server.listeners.'127.0.0.1:81']\ntrusted = true\n", want: []string{`server.listeners.":80".trusted: whoever can connect to :80 can choose the address that apps see`}},
		{name: "trust everybody", text: top + "trusted_proxies = ['10.0.0.0/8', ‸'::/0']\n", want: []string{"::/0 trusts everybody"}},
		{name: "admin on the network", text: top + "admin = ‸':7000'\nadmin_token_file = 'token'\n", want: []string{"server.admin: the token crosses the network in plain text"}},
		{name: "token open to others", text: top + "admin = '127.0.0.1:7000'\nadmin_token_file = ‸'open-token'\n", want: []string{"can be read by others (mode 0644); chmod 600 it"}},
		{name: "tls_ask without ask_listen", text: app + "tls_ask = ‸true\n", want: []string{"apps.a.tls_ask: has no effect without server.ask_listen"}},
		{name: "tls_ask without wildcard", text: "[server]\nlisten=[':80']\nask_listen='127.0.0.1:9180'\n[apps.a]\nuser='hello'\nhosts=['a.example']\ntls_ask=‸true\n", want: []string{"exact hosts always get certificates"}},
		{name: "tls_ask for the catch-all", text: "[server]\nlisten=[':80']\nask_listen='127.0.0.1:9180'\n[apps.a]\nuser='hello'\nhosts=['*']\ntls_ask=‸true\n", want: []string{`certificates are never granted for "*"`}},
		{name: "a variable that no shell reads", text: app + "command = ['python3', '-m', 'http.server', ‸'$PORT', '--bind=${SOCKET}']\n", want: []string{`apps.a.command: "$PORT" reaches the program as it stands, as no shell reads it; write ["sh", "-c", "exec python3 …"]`}},
		{name: "cache of nothing", text: "[server]\nlisten=[':80']\ncache_bytes=0\n[apps.a]\nuser='hello'\nhosts=['a.example']\ncache.enabled=‸true\n", want: []string{"apps.a.cache.enabled: has no effect: server.cache_bytes is 0"}},
		{name: "object larger than the cache", text: app + "cache = { enabled = true, max_object = ‸'17MiB' }\n", want: []string{"17MiB is more than a quarter of the cache (server.cache_bytes, 64MiB)"}},
		{name: "object size without cache", text: app + "cache.max_object = ‸'1MiB'\n", want: []string{"has no effect without enabled = true"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			text, places := unmark(c.text)
			f := mustParse(t, text, testEnv())
			checkProblems(t, f.Warnings, places, c.want)
		})
	}
}
