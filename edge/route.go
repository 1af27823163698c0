package edge

import (
	"errors"
	"fmt"
	"sort"
)

// maxHost is the longest host name there is (RFC 1035 §2.3.4).
const maxHost = 255

// table is one immutable routing table. Looking up allocates nothing.
type table struct {
	number uint64           // of this table; those of one edge are counted
	exact  map[string]*site // "example.com", "192.0.2.1", "[2001:db8::1]"
	below  map[string]*site // the "name" of "*.name"
	any    *site            // "*", or nil
	byName map[string]*App
}

// site is what is mounted on one host pattern, longest prefix first.
type site struct{ mounts []mount }

type mount struct {
	prefix string // "/" or "/a/b", never with a final slash
	app    *App
}

// newTable builds the table for apps and their configurations. Every conflict
// is in the error.
func newTable(number uint64, apps []*App, cfgs []*AppConfig) (*table, error) {
	t := &table{number: number, exact: map[string]*site{}, below: map[string]*site{}, byName: map[string]*App{}}
	var errs []error
	for i, a := range apps {
		t.byName[a.name] = a
		for _, host := range cfgs[i].Hosts {
			for _, path := range cfgs[i].Paths {
				if err := t.siteOf(host).add(host, path, a); err != nil {
					errs = append(errs, err)
				}
			}
		}
	}
	for _, s := range t.sites() {
		sort.Slice(s.mounts, func(i, j int) bool { return len(s.mounts[i].prefix) > len(s.mounts[j].prefix) })
	}
	return t, errors.Join(errs...)
}

// siteOf returns the site of a cleaned host pattern, made if it is new.
func (t *table) siteOf(host string) *site {
	if host == "*" {
		if t.any == nil {
			t.any = &site{}
		}
		return t.any
	}
	m := t.exact
	if len(host) > 2 && host[:2] == "*." {
		m, host = t.below, host[2:]
	}
	if m[host] == nil {
		m[host] = &site{}
	}
	return m[host]
}

func (t *table) sites() []*site {
	var all []*site
	for _, s := range t.exact {
		all = append(all, s)
	}
	for _, s := range t.below {
		all = append(all, s)
	}
	if t.any != nil {
		all = append(all, t.any)
	}
	return all
}

func (s *site) add(host, prefix string, a *App) error {
	for _, m := range s.mounts {
		if m.prefix == prefix && m.app == a {
			return nil
		}
		if m.prefix == prefix {
			return fmt.Errorf("host %q path %q is claimed by both app %s and app %s: give it to one of them",
				host, prefix, m.app.name, a.name)
		}
	}
	s.mounts = append(s.mounts, mount{prefix, a})
	return nil
}

// without is the table with one app left out.
func (t *table) without(a *App) *table {
	n := &table{
		number: t.number + 1, exact: map[string]*site{}, below: map[string]*site{}, any: t.any.without(a),
		byName: map[string]*App{},
	}
	for host, s := range t.exact {
		if s = s.without(a); s != nil {
			n.exact[host] = s
		}
	}
	for host, s := range t.below {
		if s = s.without(a); s != nil {
			n.below[host] = s
		}
	}
	for name, o := range t.byName {
		if o != a {
			n.byName[name] = o
		}
	}
	return n
}

func (s *site) without(a *App) *site {
	if s == nil {
		return nil
	}
	n := &site{}
	for _, m := range s.mounts {
		if m.app != a {
			n.mounts = append(n.mounts, m)
		}
	}
	if len(n.mounts) == 0 {
		return nil
	}
	return n
}

// asks says whether a certificate may be obtained for a name; see Edge.Ask.
func (t *table) asks(name []byte) bool {
	var buf [maxHost]byte
	host, ok := hostKey(buf[:], name)
	if !ok || len(host) == 0 {
		return false
	}
	if t.exact[string(host)] != nil {
		return true
	}
	for i, c := range host {
		if c != '.' || i == 0 {
			continue
		}
		if s := t.below[string(host[i+1:])]; s != nil && s.tlsAsk() {
			return true
		}
	}
	return false
}

func (s *site) tlsAsk() bool {
	for _, m := range s.mounts {
		if m.app.slot.Load().cfg.TLSAsk {
			return true
		}
	}
	return false
}

// lookup finds the app for an authority as it was sent (any case, port, final
// dot) and a raw path. The most specific host that has a matching path wins:
// exact, then the longest "*.name", then "*". nil means there is none. whole says
// that any other path would have found the same.
func (t *table) lookup(authority, path []byte) (a *App, whole bool) {
	var buf [maxHost]byte
	host, ok := hostKey(buf[:], authority)
	if !ok {
		return nil, true
	}
	s := t.exact[string(host)]
	a, whole = s.match(path), true
	if a == nil && len(t.below) > 0 {
		for i, c := range host {
			if c != '.' || i == 0 {
				continue
			}
			whole = whole && s == nil
			s = t.below[string(host[i+1:])]
			if a = s.match(path); a != nil {
				break
			}
		}
	}
	if a == nil {
		whole = whole && s == nil
		s = t.any
		a = s.match(path)
	}
	return a, whole && (s == nil || s.mounts[0].prefix == "/")
}

// way is what one lane's last request found. The requests of a lane mostly have
// the same authority, byte for byte, so most of them need not look it up.
type way struct {
	app    *App
	table  uint64 // number of the table in which it was found; 0: none
	length uint8
	host   [knownHost]byte
}

// knownHost is how long an authority may be to be known again.
const knownHost = 47

// route is lookup in the table as it is, by way of what was found last.
func (e *Edge) route(w *way, authority, path []byte) *App {
	if w.table == e.number.Load() && string(w.host[:w.length]) == string(authority) {
		return w.app
	}
	return w.find(e.table.Load(), authority, path)
}

// find is lookup, and notes what it finds.
func (w *way) find(t *table, authority, path []byte) *App {
	a, whole := t.lookup(authority, path)
	if whole && len(authority) <= len(w.host) {
		w.app, w.table, w.length = a, t.number, uint8(copy(w.host[:], authority))
	} else {
		*w = way{}
	}
	return a
}

func (s *site) match(path []byte) *App {
	if s == nil {
		return nil
	}
	for i := range s.mounts {
		m := &s.mounts[i]
		n := len(m.prefix)
		if n == 1 {
			return m.app
		}
		if len(path) >= n && string(path[:n]) == m.prefix && (len(path) == n || path[n] == '/') {
			return m.app
		}
	}
	return nil
}

// hostKey writes the routing key of an authority into buf: lower case, without
// port and final dot. It fails on names longer than any name can be.
func hostKey(buf, authority []byte) ([]byte, bool) {
	host := stripPort(authority)
	if n := len(host); n > 1 && host[n-1] == '.' {
		host = host[:n-1]
	}
	if len(host) > len(buf) {
		return nil, false
	}
	for i, c := range host {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	return buf[:len(host)], true
}

// stripPort cuts ":port" off. The front has checked the authority's grammar, so
// the last colon outside brackets begins a port.
func stripPort(authority []byte) []byte {
	for i := len(authority) - 1; i >= 0; i-- {
		switch authority[i] {
		case ':':
			return authority[:i]
		case ']':
			return authority
		}
	}
	return authority
}
