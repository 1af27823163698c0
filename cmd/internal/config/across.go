package config

import (
	"cmp"
	"slices"
)

// socketBelowRun is the longest path that a generation's socket has below the
// run directory.
const socketBelowRun = "/sock/18446744073709551615/app.sock"

// checkAcross finds what is right in each app and wrong between them. Of two
// that collide the later one in the file is told.
func checkAcross(r *reader, s *serverRead, apps []*appRead) {
	slices.SortFunc(apps, func(a, b *appRead) int { return cmp.Compare(a.t.node.val, b.t.node.val) })
	checkRoutes(r, apps)
	checkPorts(r, s, apps)
	for _, a := range apps {
		if most := maxSocketPath - len(socketBelowRun); a.Listen.Kind == ListenSocket && len(s.Run) > most {
			a.t.errorf("listen", "the path of the socket below server.run (%s) would be too long; choose a directory of %d bytes at most", s.Run, most)
		}
		for _, l := range s.listeners {
			if a.External() && reaches(a.Target, l.addr) {
				a.t.errorf("target", "%s is usher's own %s (%s), so requests would go round in a circle; write the app's address",
					a.Target, s.t.full(l.key), r.where(l.off))
				break
			}
		}
	}
}

type route struct{ host, path string }

// checkRoutes finds two apps with one host and path.
func checkRoutes(r *reader, apps []*appRead) {
	type owner struct {
		app string
		off int
	}
	owners := make(map[route]owner)
	for _, a := range apps {
		for _, h := range a.hosts {
			for _, p := range a.paths {
				first, taken := owners[route{h.text, p.text}]
				if !taken {
					owners[route{h.text, p.text}] = owner{a.Name, h.off}
					continue
				}
				what := "host " + h.text
				if p.text != "/" {
					what += " with path " + p.text
				}
				r.errorf(h.off, "%s: %s belongs to apps.%s already (%s); remove it from one of them, or give them different paths",
					a.t.full("hosts"), what, first.app, r.where(first.off))
			}
		}
	}
}

// checkPorts finds fixed ports that something else has.
func checkPorts(r *reader, s *serverRead, apps []*appRead) {
	owners := make(map[uint16]*appRead)
	for _, l := range s.listeners {
		if l.addr.Network != "tcp" {
			continue
		}
		_, port := tcpParts(l.addr)
		for _, a := range apps {
			if a.Listen.Port != 0 && a.Listen.Port == port {
				a.t.errorf("listen", "port %d is usher's own (%s, %s); choose another", port, s.t.full(l.key), r.where(l.off))
			}
		}
	}
	for _, a := range apps {
		port := a.Listen.Port
		if port == 0 {
			continue
		}
		if s.appPorts.Contains(port) {
			a.t.errorf("listen", "port %d lies in server.port_range %s, from which other apps get theirs; choose one outside", port, s.appPorts)
		}
		if first := owners[port]; first != nil {
			a.t.errorf("listen", "port %d belongs to apps.%s already (%s); choose another", port, first.Name, r.where(first.t.off("listen")))
			continue
		}
		owners[port] = a
	}
}
