package config

import (
	"net/netip"
	"path/filepath"
	"strings"
)

// Default sizes and counts of [server].
const (
	DefaultMaxConnections = 10_000

	defaultCacheBytes = 64 << 20
	defaultRate       = 256
)

// serverRead is the [server] table with what later checks need to know.
type serverRead struct {
	Server
	t         *table
	listeners []listener
	appPorts  PortRange // Server.PortRange or what is taken without it
	// noCgroup says why no cgroup can be used; empty: one can.
	noCgroup string
}

// listener is something usher itself will listen on.
type listener struct {
	key  string
	addr Addr
	off  int
}

func readServer(t *table) serverRead {
	s := serverRead{t: t}
	s.dirs()
	s.listen()
	s.admin()
	s.ask()
	s.proxies()
	s.cgroup()
	s.ports()
	s.accessLog()
	s.limits()
	s.listenerTables()
	t.done()
	s.checkListeners()
	return s
}

func (s *serverRead) dirs() {
	t := s.t
	s.State, s.Run = defaultState(t.r.env), ""
	if p, ok := t.str("state"); ok {
		s.State = t.r.path(p)
	}
	if s.State == "" {
		t.errorf("state", "has no default here because neither XDG_STATE_HOME nor HOME is set; write the directory for builds and records")
	}
	s.Run = defaultRun(t.r.env, s.State)
	if p, ok := t.str("run"); ok {
		s.Run = t.r.path(p)
	}
	if s.Run == s.State && s.State != "" {
		t.errorf("run", "is the state directory; choose another one, what is in it does not survive a reboot")
	}
}

func defaultState(env Env) string {
	switch {
	case env.EUID == 0:
		return "/var/lib/usher"
	case filepath.IsAbs(env.XDGStateHome):
		return filepath.Join(env.XDGStateHome, "usher")
	case filepath.IsAbs(env.Home):
		return filepath.Join(env.Home, ".local/state/usher")
	}
	return ""
}

func defaultRun(env Env, state string) string {
	switch {
	case env.EUID == 0:
		return "/run/usher"
	case filepath.IsAbs(env.XDGRuntimeDir):
		return filepath.Join(env.XDGRuntimeDir, "usher")
	}
	return filepath.Join(state, "run")
}

func defaultAdmin(env Env, state string) Addr {
	dir := state
	switch {
	case env.EUID == 0:
		dir = "/run/usher"
	case filepath.IsAbs(env.XDGRuntimeDir):
		dir = filepath.Join(env.XDGRuntimeDir, "usher")
	}
	return Addr{Network: "unix", Address: filepath.Join(dir, "admin.sock")}
}

// DefaultAdmin is where the admin API listens when the file does not say, which
// is also where the CLI looks for it. It is zero if that cannot be known
// because the environment names no directory of the user's own.
func DefaultAdmin(env Env) Addr {
	if env.EUID != 0 && !filepath.IsAbs(env.XDGRuntimeDir) && defaultState(env) == "" {
		return Addr{}
	}
	return defaultAdmin(env, defaultState(env))
}

func (s *serverRead) listen() {
	t := s.t
	items, ok := t.strs("listen")
	if len(items) == 0 && t.vals != nil && (ok && len(t.node.child("listen").elems) == 0 || !t.has("listen")) {
		t.errorf("listen", `names no address; write where requests come in, such as listen = ["127.0.0.1:8080"]`)
	}
	unix := false
	for _, it := range items {
		a, problem := t.r.listenAddr(it.text)
		if problem != "" {
			t.r.errorf(it.off, "%s: %s", t.full("listen"), problem)
			continue
		}
		unix = unix || a.Network == "unix"
		s.Listen = append(s.Listen, a)
		s.listeners = append(s.listeners, listener{"listen", a, it.off})
	}
	s.ListenGroup = s.group("listen_group", "unix listeners stay closed to others")
	if t.has("listen_group") && ok && !unix {
		t.warnf("listen_group", "has no effect: no listener is a unix socket")
	}
}

// group reads the name of a group. One that does not exist is only a warning:
// without it the socket is open to fewer, not more.
func (s *serverRead) group(key, without string) Group {
	name, ok := s.t.str(key)
	if !ok {
		return Group{}
	}
	g, err := s.t.r.env.LookupGroup(name)
	if err != nil {
		s.t.warnf(key, "there is no group %q: %s; create it (groupadd %s) or name another", name, without, name)
		return Group{}
	}
	g.Name = name
	return g
}

func (s *serverRead) admin() {
	t := s.t
	s.Admin = defaultAdmin(t.r.env, s.State)
	if text, ok := t.str("admin"); ok {
		a, problem := t.r.listenAddr(text)
		if problem != "" {
			t.errorf("admin", "%s", problem)
			a = Addr{}
		}
		s.Admin = a
	} else if len(s.Admin.Address) > maxSocketPath {
		t.errorf("admin", "the default %s is too long for a socket; name a shorter one", s.Admin)
	}
	s.AdminGroup = s.group("admin_group", "the admin socket stays open to usher's own user only")
	s.adminToken()
	if !s.Admin.IsZero() {
		s.listeners = append(s.listeners, listener{"admin", s.Admin, t.off("admin")})
	}
}

// adminToken checks the rule that the admin API is on TCP only with a token.
func (s *serverRead) adminToken() {
	t := s.t
	file, ok := t.str("admin_token_file")
	switch {
	case s.Admin.Network == "tcp" && !t.has("admin_token_file"):
		t.errorf("admin", "is on TCP, where anyone who can connect could deploy; write admin_token_file too, or use a unix socket")
	case s.Admin.Network == "unix" && ok:
		t.errorf("admin_token_file", "is used on TCP only; remove it, a unix socket is guarded by its mode")
	case ok:
		s.AdminTokenFile = t.r.path(file)
		s.tokenFile()
	}
	if s.Admin.Network != "tcp" {
		return
	}
	if t.has("admin_group") {
		t.errorf("admin_group", "is used on a unix socket only; remove it")
	}
	host, _ := tcpParts(s.Admin)
	if ip, err := netip.ParseAddr(host); err != nil || !ip.IsLoopback() {
		t.warnf("admin", "the token crosses the network in plain text; listen on 127.0.0.1 and reach it through ssh or TLS")
	}
}

func (s *serverRead) tokenFile() {
	t, env := s.t, s.t.r.env
	const key = "admin_token_file"
	data, err := env.ReadFile(s.AdminTokenFile)
	if err != nil {
		t.errorf(key, "%s cannot be read (%v); create it with a long random line", s.AdminTokenFile, plain(err))
		return
	}
	if len(strings.TrimSpace(string(data))) < 16 {
		t.errorf(key, "%s holds fewer than 16 characters; write a long random line (openssl rand -hex 32)", s.AdminTokenFile)
		return
	}
	if info, err := env.Stat(s.AdminTokenFile); err == nil && info.Mode().Perm()&0o077 != 0 {
		t.warnf(key, "%s can be read by others (mode %04o); chmod 600 it", s.AdminTokenFile, info.Mode().Perm())
	}
}

func (s *serverRead) ask() {
	t := s.t
	text, ok := t.str("ask_listen")
	if !ok {
		return
	}
	a, problem := t.r.listenAddr(text)
	if problem == "" {
		host, _ := tcpParts(a)
		ip, err := netip.ParseAddr(host)
		if a.Network != "tcp" || err != nil || !ip.IsLoopback() {
			problem = `answers who has which host, to the TLS front of this machine only; write a loopback address such as "127.0.0.1:9180"`
		}
	}
	if problem != "" {
		t.errorf("ask_listen", "%s", problem)
		return
	}
	s.AskListen = a
	s.listeners = append(s.listeners, listener{"ask_listen", a, t.off("ask_listen")})
}

func (s *serverRead) proxies() {
	t := s.t
	items, _ := t.strs("trusted_proxies")
	for _, it := range items {
		p, problem := prefix(it.text)
		if problem != "" {
			t.r.errorf(it.off, "%s: %s", t.full("trusted_proxies"), problem)
			continue
		}
		if p.Bits() == 0 {
			t.r.warnf(it.off, "%s: %s trusts everybody: any client can choose the address that apps see", t.full("trusted_proxies"), p)
		}
		s.TrustedProxies = append(s.TrustedProxies, p)
	}
}

func (s *serverRead) cgroup() {
	t, env := s.t, s.t.r.env
	s.Cgroup = CgroupAuto
	text, ok := t.str("cgroup")
	if ok && text != CgroupAuto && text != CgroupOff && !filepath.IsAbs(text) {
		t.errorf("cgroup", `%q is no absolute path; write "auto", "off" or the path of a delegated cgroup`, text)
		return
	}
	if ok {
		s.Cgroup = text
	}
	switch {
	case s.Cgroup == CgroupOff:
		s.noCgroup = `cgroup is "off"`
	case env.CgroupProblem != nil:
		s.noCgroup = env.CgroupProblem(s.Cgroup, s.State)
	}
	if s.noCgroup != "" && filepath.IsAbs(s.Cgroup) {
		t.errorf("cgroup", `%s cannot be used because %s; name a delegated cgroup or write "auto"`, s.Cgroup, s.noCgroup)
	}
}

func (s *serverRead) ports() {
	t := s.t
	s.appPorts = PortRange{20000, 29999}
	text, ok := t.str("port_range")
	if !ok {
		return
	}
	p, problem := portRange(text)
	e := t.r.env.EphemeralPorts
	switch {
	case problem != "":
		t.errorf("port_range", "%s", problem)
	case e.Last != 0 && p.First <= e.Last && e.First <= p.Last:
		t.errorf("port_range", "%s overlaps %s, where the kernel takes ports for outgoing connections, so an app could find its port taken; choose a range outside, or change net.ipv4.ip_local_port_range",
			p, e)
	default:
		s.PortRange, s.appPorts = p, p
	}
}

// checkListeners finds addresses that cannot be opened together.
func (s *serverRead) checkListeners() {
	t := s.t
	for i, l := range s.listeners {
		if l.addr.Network == "tcp" {
			if _, port := tcpParts(l.addr); port != 0 && s.appPorts.Contains(port) {
				t.r.warnf(l.off, "%s: port %d lies in port_range %s, so an app may have it when usher starts; choose one outside", t.full(l.key), port, s.appPorts)
			}
		}
		for _, other := range s.listeners[:i] {
			if overlaps(other.addr, l.addr) {
				t.r.errorf(l.off, "%s: %s overlaps %s of %s in %s; one address can be listened on once",
					t.full(l.key), l.addr, other.addr, t.full(other.key), t.r.where(other.off))
				break
			}
		}
	}
}
