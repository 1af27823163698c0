package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// ClientShare is the part of all client connections, one in so many, that one
// client may have unless the file says otherwise.
const ClientShare = 4

// What the durations of clients may be.
func headSpan() span {
	return span{def: 10 * time.Second, least: 10 * time.Millisecond, most: 10 * time.Minute}
}

func idleSpan() span {
	return span{def: 75 * time.Second, least: 10 * time.Millisecond, most: 24 * time.Hour}
}

func bodySpan() span {
	return span{def: 30 * time.Second, least: 100 * time.Millisecond, most: time.Hour}
}

func writeSpan() span {
	return span{def: 60 * time.Second, least: 100 * time.Millisecond, most: time.Hour}
}

const (
	mostConnections = 10_000_000
	mostRate        = 1 << 30
	mostLoops       = 256
)

// PerProcessor is what Server.EventLoops is where the file does not say: one for each
// processor.
const PerProcessor = -1

// limits reads what clients may have of the server.
func (s *serverRead) limits() {
	t := s.t
	s.CacheBytes = t.size("cache_bytes", defaultCacheBytes, 0, 1<<40)
	s.EventLoops = t.integer("event_loops", PerProcessor, 0, mostLoops)
	s.MaxConnections = t.integer("max_connections", DefaultMaxConnections, 1, mostConnections)
	s.MaxPerClient = t.integer("max_connections_per_client", max(1, s.MaxConnections/ClientShare), 0, mostConnections)
	if s.MaxPerClient > s.MaxConnections {
		t.warnf("max_connections_per_client", "has no effect: there are %d connections at most (server.max_connections)", s.MaxConnections)
	}
	s.HeadTimeout = t.duration("head_timeout", headSpan())
	s.IdleTimeout = t.duration("idle_timeout", idleSpan())
	s.BodyTimeout = t.duration("body_timeout", bodySpan())
	s.WriteTimeout = t.duration("write_timeout", writeSpan())
	s.MinBodyRate = t.size("min_body_rate", defaultRate, 0, mostRate)
	s.MinWriteRate = t.size("min_write_rate", defaultRate, 0, mostRate)
}

// listenerTables reads [server.listeners."ADDR"], one table for each listener
// that differs.
func (s *serverRead) listenerTables() {
	all, ok := s.t.table("listeners")
	if !ok {
		return
	}
	seen := map[Addr]bool{}
	for _, name := range all.names() {
		t, ok := all.table(name)
		if !ok {
			continue
		}
		t.path = all.path + "." + quoted(name)
		a, problem := t.r.listenAddr(name)
		switch {
		case problem != "":
			t.r.errorf(t.node.key, "%s: %s", t.path, problem)
		case !s.listensOn(a):
			t.r.errorf(t.node.key, "%s: is not in server.listen; add it there, or write an address that is", t.path)
		case seen[a]:
			t.r.errorf(t.node.key, "%s: has a table already, under another spelling; remove one", t.path)
		}
		seen[a] = true
		s.Listeners = append(s.Listeners, s.listenerTable(t, a))
		t.done()
	}
}

func quoted(s string) string { return `"` + s + `"` }

func (s *serverRead) listensOn(a Addr) bool { return slices.Contains(s.Listen, a) }

func (s *serverRead) listenerTable(t *table, a Addr) Listener {
	l := Listener{Addr: a}
	l.MaxConnections = t.integer("max_connections", 0, 1, mostConnections)
	if l.MaxConnections > s.MaxConnections {
		t.warnf("max_connections", "has no effect: all listeners together have %d at most (server.max_connections)", s.MaxConnections)
	}
	l.MaxPerClient = none(t, "max_connections_per_client", t.integer("max_connections_per_client", 0, 0, mostConnections))
	for _, f := range []durationField{
		{"head_timeout", &l.HeadTimeout, headSpan()},
		{"idle_timeout", &l.IdleTimeout, idleSpan()},
		{"body_timeout", &l.BodyTimeout, bodySpan()},
		{"write_timeout", &l.WriteTimeout, writeSpan()},
	} {
		f.def = 0
		*f.to = t.duration(f.key, f.span)
	}
	l.MinBodyRate = none(t, "min_body_rate", t.size("min_body_rate", 0, 0, mostRate))
	l.MinWriteRate = none(t, "min_write_rate", t.size("min_write_rate", 0, 0, mostRate))
	l.Trusted = t.boolean("trusted", false)
	s.checkListenerTable(t, &l)
	return l
}

// none tells a 0 that was written from a key that is absent.
func none[T int | int64](t *table, key string, v T) T {
	if v == 0 && t.has(key) {
		return None
	}
	return v
}

func (s *serverRead) checkListenerTable(t *table, l *Listener) {
	if l.Addr.Network == "unix" {
		if t.has("max_connections_per_client") {
			t.errorf("max_connections_per_client", "peers of a unix socket have no address to tell them apart; write max_connections")
		}
		if t.has("trusted") {
			t.errorf("trusted", "peers of a unix socket are trusted anyway; remove it")
		}
		return
	}
	host, _ := tcpParts(l.Addr)
	if ip, err := netip.ParseAddr(host); l.Trusted && (err != nil || !ip.IsLoopback()) {
		t.warnf("trusted", "whoever can connect to %s can choose the address that apps see; let nobody but your proxies reach it", l.Addr)
	}
}

func (s *serverRead) accessLog() {
	t := s.t
	s.AccessLog = LogOff
	s.LogFormat = t.choice("access_log_format", LogJSON, LogCombined)
	text, ok := t.str("access_log")
	switch {
	case !ok:
	case text == LogOff || text == LogStdout:
		s.AccessLog = text
	default:
		s.AccessLog = t.r.path(text)
		dir := filepath.Dir(s.AccessLog)
		if info, err := t.r.env.Stat(dir); err != nil || !info.IsDir() {
			t.errorf("access_log", `there is no directory %s; create it, or write "off" or "stdout"`, dir)
		} else if info, err := t.r.env.Stat(s.AccessLog); err == nil && info.Mode()&os.ModeType == os.ModeDir {
			t.errorf("access_log", "%s is a directory; name a file", s.AccessLog)
		}
	}
}
