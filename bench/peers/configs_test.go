package peers

import (
	"strings"
	"testing"
)

func testSite() site {
	return site{
		program: "/bin/x", dir: "/d", port: 8001, spare: 8002, socket: "/d/o.sock", tcp: "127.0.0.1:8003",
		cores: 3, most: 512, hosts: manyHosts, accessLog: "/d/access.log", root: true,
	}
}

// whole is all that a peer is told.
func (s setup) whole() string {
	var b strings.Builder
	for _, f := range s.files {
		b.WriteString(f.Text)
	}
	for _, p := range append(s.programs, s.after...) {
		b.WriteString(p.line() + " > " + p.stdout + "\n")
	}
	return b.String()
}

func TestEachPeerGetsWhatIsBestForIt(t *testing.T) {
	for name, want := range map[string][]string{
		Usher:   {`listen = ["127.0.0.1:8001"]`, `target = "unix:/d/o.sock"`, "[apps.app999]", "cache.enabled = true", `access_log = "/d/access.log"`, `access_log_format = "combined"`},
		Nginx:   {"worker_processes 3;", "listen 127.0.0.1:8001 reuseport", "server unix:/d/o.sock; keepalive 512;", "proxy_cache kept", "proxy_buffering off; proxy_buffer_size 60k", "access_log /d/access.log combined buffer=", "user root;"},
		HAProxy: {"nbthread 3", "bind 127.0.0.1:8001 shards by-thread", "unix@/d/o.sock pool-max-conn 512", "http-reuse always", "cache-use kept", "log global", "> /d/access.log"},
		Varnish: {`.path = "/d/o.sock"`, "-a 127.0.0.1:8001", "thread_pools=3", "varnishncsa -n /d/work -a -w /d/access.log"},
		Caddy:   {"http://:8001", "unix//d/o.sock", "keepalive_idle_conns_per_host 512", "output file /d/access.log"},
		Kamal:   {"run --http-port 8001 --https-port 8002 > /d/access.log", "deploy bench --target 127.0.0.1:8003 --health-check-path /small"},
	} {
		for _, k := range kinds() {
			if k.name != name {
				continue
			}
			text := k.plan(testSite()).whole()
			for _, part := range want {
				if !strings.Contains(text, part) {
					t.Errorf("%s lacks %q:\n%.3000s", name, part, text)
				}
			}
		}
	}
}

func TestHAProxySplicesWhereNothingIsPaced(t *testing.T) {
	s := testSite()
	for _, s.paced = range []bool{false, true} {
		if text := planHAProxy(s).whole(); strings.Contains(text, "splice-response") == s.paced {
			t.Errorf("paced: %v\n%s", s.paced, text)
		}
	}
}

func TestWithoutAnAccessLogNobodyWritesOne(t *testing.T) {
	s := testSite()
	s.accessLog = ""
	for _, k := range kinds() {
		text := k.plan(s).whole()
		if strings.Contains(text, "access.log") || strings.Contains(text, "varnishncsa") || strings.Contains(text, "log global") {
			t.Errorf("%s writes one:\n%.2000s", k.name, text)
		}
	}
	if text := planKamal(s).whole(); !strings.Contains(text, "> /dev/null") {
		t.Errorf("kamal-proxy cannot be kept from writing, so its lines must go nowhere:\n%s", text)
	}
}

func TestALongConfigurationIsShownInPart(t *testing.T) {
	text := planUsher(testSite()).files[0].Text
	short := brief(text)
	if n := strings.Count(short, "\n"); n > 40 || !strings.Contains(short, "lines are left out here") ||
		!strings.HasPrefix(short, "[server]\n") || !strings.HasSuffix(short, "cache.enabled = true\n") {
		t.Errorf("%d lines:\n%s", n, short)
	}
	if brief("a\nb\n") != "a\nb\n" {
		t.Error("a short one is not shown as it is")
	}
}

func TestWorksAreToldApartAndTheirRequestsAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Works() {
		head, body, ok := strings.Cut(string(w.request()), "\r\n\r\n")
		if !ok || len(body) != w.upload || !strings.Contains(head, "\r\nHost: "+w.host()+"\r\n") || seen[w.ID] || len(w.bars) < 2 {
			t.Errorf("%s: head %q, %d bytes of body", w.ID, head, len(body))
		}
		seen[w.ID] = true
		for _, b := range w.bars {
			if b.Next >= b.Most {
				t.Errorf("%s: the next bar %g is not below %g", w.ID, b.Next, b.Most)
			}
		}
	}
}

func TestAPlanThatMakesNoSenseIsRefused(t *testing.T) {
	err := Plan{Peers: []string{"iis"}, Works: []string{"big"}, Rounds: -1, Duration: 1}.Check()
	for _, part := range []string{`there is no peer "iis"; there are usher, nginx,`, `there is no work "big"; there are small-64,`, "-1 rounds", "a duration of 1ns"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v lacks %q", err, part)
		}
	}
	if err := (Plan{}).Check(); err != nil {
		t.Error(err)
	}
}
