package peers

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// Each peer gets what is best for it: connections to the origin that stay open,
// a listener for each thread, as many threads as there are cores, no limit that
// closes a connection after so many requests. Values that differ from a
// program's default were better in trials, or are needed for one of those.

// forever is a number of requests that no connection reaches.
const forever = 1_000_000_000

func planNginx(s site) setup {
	log := "access_log off;"
	if s.accessLog != "" {
		log = "access_log " + s.accessLog + " combined buffer=64k flush=1s;"
	}
	text := lines(
		when(s.root, "user root;"),
		"daemon off;",
		"pid nginx.pid;",
		"error_log stderr error;",
		fmt.Sprintf("worker_processes %d;", s.cores),
		"worker_rlimit_nofile 16384;",
		fmt.Sprintf("events { worker_connections %d; }", 4*s.most+64),
		"http {",
		"  "+log,
		"  sendfile on;",
		"  tcp_nodelay on;",
		"  server_tokens off;",
		"  keepalive_timeout 300s;",
		fmt.Sprintf("  keepalive_requests %d;", forever),
		"  client_max_body_size 16m;",
		"  client_body_buffer_size 128k;",
		nginxTemp("  "),
		fmt.Sprintf("  upstream origin { server unix:%s; keepalive %d; keepalive_requests %d; keepalive_timeout 300s; }", s.socket, s.most, forever),
		"  proxy_cache_path cache keys_zone=kept:16m max_size=64m inactive=1h use_temp_path=off;",
		"  open_file_cache max=1024 inactive=1h;",
		"  open_file_cache_valid 1h;",
		"  proxy_http_version 1.1;",
		`  proxy_set_header Connection "";`,
		"  proxy_set_header Host $host;",
		"  proxy_set_header X-Forwarded-For $remote_addr;",
		"  proxy_set_header X-Forwarded-Proto $scheme;",
		"  proxy_set_header X-Forwarded-Host $host;",
		"  proxy_max_temp_file_size 0;",
		"  server {",
		fmt.Sprintf("    listen 127.0.0.1:%d reuseport backlog=4096;", s.port),
		"    location / { proxy_pass http://origin; }",
		// As usher does it: what is read is sent on, in large pieces, each of which fits
		// into one segment of the loopback device. Of 64k a few bytes would be left over.
		"    location "+pathLarge+" { proxy_pass http://origin; proxy_buffering off; proxy_buffer_size 60k; proxy_buffers 4 60k; proxy_busy_buffers_size 60k; }",
		"    location "+pathCached+" { proxy_pass http://origin; proxy_cache kept; proxy_cache_valid 200 1h; }",
		"  }",
		"}",
	)
	return setup{
		files:    []File{{"nginx.conf", text}},
		programs: []program{{path: s.program, args: []string{"-p", s.dir, "-c", filepath.Join(s.dir, "nginx.conf"), "-e", "stderr"}}},
	}
}

// nginxTemp keeps all temporary files in the directory of the run.
func nginxTemp(indent string) string {
	var all []string
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		all = append(all, indent+kind+"_temp_path temp_"+kind+";")
	}
	return strings.Join(all, "\n")
}

func planHAProxy(s site) setup {
	text := lines(
		"global",
		fmt.Sprintf("  nbthread %d", s.cores),
		fmt.Sprintf("  maxconn %d", 2*s.most+64),
		// By default it closes idle connections to the origin, and dials them again, once
		// it uses a quarter of its descriptors.
		"  tune.pool-low-fd-ratio 100",
		"  tune.pool-high-fd-ratio 100",
		// Splicing costs less than copying, but for a socket that BBR paces.
		when(!s.paced, "  tune.pipesize %d", 256<<10),
		when(s.accessLog != "", "  log stdout format raw local0 info"),
		"defaults",
		"  mode http",
		when(s.accessLog != "", "  log global"),
		when(s.accessLog != "", "  option httplog"),
		"  option forwardfor",
		"  http-reuse always",
		"  timeout connect 5s",
		"  timeout client 300s",
		"  timeout server 300s",
		"  timeout http-keep-alive 300s",
		"cache kept",
		"  total-max-size 64",
		"  max-object-size 1048576",
		"  max-age 3600",
		"frontend front",
		fmt.Sprintf("  bind 127.0.0.1:%d shards by-thread backlog 4096", s.port),
		"  http-request set-header X-Forwarded-Proto http",
		"  http-request set-header X-Forwarded-Host %[req.hdr(host)]",
		"  use_backend cached if { path "+pathCached+" }",
		when(!s.paced, "  use_backend large if { path %s }", pathLarge),
		"  default_backend origin",
		when(!s.paced, "backend large\n  option splice-response\n  server origin unix@%s pool-max-conn %d pool-purge-delay 300s", s.socket, s.most),
		"backend origin",
		fmt.Sprintf("  server origin unix@%s pool-max-conn %d pool-purge-delay 300s", s.socket, s.most),
		"backend cached",
		"  http-request cache-use kept",
		"  http-response cache-store kept",
		fmt.Sprintf("  server origin unix@%s pool-max-conn %d pool-purge-delay 300s", s.socket, s.most),
	)
	return setup{
		files:    []File{{"haproxy.cfg", text}},
		programs: []program{{path: s.program, args: []string{"-db", "-f", filepath.Join(s.dir, "haproxy.cfg")}, stdout: s.accessLog}},
	}
}

func planVarnish(s site) setup {
	text := lines(
		"vcl 4.1;",
		fmt.Sprintf("backend origin { .path = %q; }", s.socket),
		"sub vcl_recv {",
		"  set req.http.X-Forwarded-Proto = \"http\";",
		"  set req.http.X-Forwarded-Host = req.http.Host;",
		fmt.Sprintf("  if (req.url == %q) { return (hash); }", pathCached),
		"  return (pass);",
		"}",
	)
	work := filepath.Join(s.dir, "work")
	daemon := program{path: s.program, args: []string{
		"-F", "-n", work, "-f", filepath.Join(s.dir, "varnish.vcl"),
		"-a", "127.0.0.1:" + strconv.Itoa(s.port), "-s", "default,64m", "-j", "none",
		"-p", "thread_pools=" + strconv.Itoa(s.cores),
		"-p", "thread_pool_min=" + strconv.Itoa(max(100, s.most/s.cores+10)),
		"-p", "thread_pool_max=2000", "-p", "timeout_idle=300", "-p", "backend_idle_timeout=300",
		"-p", "listen_depth=4096",
	}}
	set := setup{files: []File{{"varnish.vcl", text}}, programs: []program{daemon}}
	if s.accessLog != "" {
		// Varnish logs to memory; this one, which belongs to it, writes the lines.
		set.programs = append(set.programs, program{path: "varnishncsa", args: []string{"-n", work, "-a", "-w", s.accessLog, "-t", "30"}})
	}
	return set
}

func planCaddy(s site) setup {
	text := lines(
		"{",
		"  admin off",
		"  auto_https off",
		"  log {",
		"    output stderr",
		"    level ERROR",
		"  }",
		"}",
		fmt.Sprintf("http://:%d {", s.port),
		"  bind 127.0.0.1",
		when(s.accessLog != "", "  log {\n    output file %s {\n      roll_disabled\n    }\n    level INFO\n  }", s.accessLog),
		fmt.Sprintf("  reverse_proxy unix/%s {", s.socket),
		"    transport http {",
		"      keepalive 300s",
		fmt.Sprintf("      keepalive_idle_conns %d", s.most),
		fmt.Sprintf("      keepalive_idle_conns_per_host %d", s.most),
		"      compression off",
		"    }",
		"  }",
		"}",
	)
	return setup{
		files: []File{{"Caddyfile", text}},
		programs: []program{{
			path: s.program, args: []string{"run", "--adapter", "caddyfile", "--config", filepath.Join(s.dir, "Caddyfile")},
			env: homeless(s.dir),
		}},
	}
}

func planKamal(s site) setup {
	env := homeless(s.dir)
	out := s.accessLog
	if out == "" {
		out = "/dev/null"
	}
	return setup{
		programs: []program{{
			path: s.program, env: env, stdout: out,
			args: []string{"run", "--http-port", strconv.Itoa(s.port), "--https-port", strconv.Itoa(s.spare)},
		}},
		after: []program{{
			path: s.program, env: env,
			args: []string{"deploy", "bench", "--target", s.tcp, "--health-check-path", pathSmall, "--forward-headers"},
		}},
	}
}

// homeless is an environment in which a program keeps all it has in dir.
func homeless(dir string) []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + dir,
		"XDG_CONFIG_HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_RUNTIME_DIR=" + dir,
	}
}

// manyHosts is among how many usher has to route.
const manyHosts = 1000

// planUsher has everything on: an app for each of the hosts, forwarded fields,
// metrics, and one app whose answers are cached. Its log has the lines of nginx's.
func planUsher(s site) setup {
	log := "off"
	if s.accessLog != "" {
		log = s.accessLog
	}
	var b strings.Builder
	b.WriteString(lines(
		"[server]",
		fmt.Sprintf("listen = [\"127.0.0.1:%d\"]", s.port),
		fmt.Sprintf("admin = %q", "unix:"+filepath.Join(s.dir, "admin.sock")),
		fmt.Sprintf("state = %q", filepath.Join(s.dir, "state")),
		fmt.Sprintf("run = %q", filepath.Join(s.dir, "run")),
		`cgroup = "off"`,
		fmt.Sprintf("access_log = %q", log),
		`access_log_format = "combined"`,
		"",
	))
	for i := range s.hosts {
		fmt.Fprintf(&b, "[apps.app%d]\nhosts = [%q]\ntarget = %q\n", i, hostOf(i), "unix:"+s.socket)
	}
	fmt.Fprintf(&b, "[apps.cached]\nhosts = [%q]\ntarget = %q\ncache.enabled = true\n", hostCached, "unix:"+s.socket)
	return setup{
		files:    []File{{"usher.toml", b.String()}},
		programs: []program{{path: s.program, args: []string{"serve", "--config", filepath.Join(s.dir, "usher.toml")}, env: homeless(s.dir)}},
	}
}

func hostOf(i int) string { return fmt.Sprintf("app%d.bench.localhost", i) }
