package upstream

import "slices"

// row is the idle connections of one home, oldest first.
type row struct {
	home  *Home
	conns []*Conn
}

func (r *row) newest() *Conn { return r.conns[len(r.conns)-1] }

// cut takes the newest out.
func (r *row) cut() {
	last := len(r.conns) - 1
	r.conns[last] = nil
	r.conns = r.conns[:last]
}

func (r *row) add(c *Conn) { r.conns = append(r.conns, c) }

// restore puts back what was taken out for a moment.
func (r *row) restore(c *Conn) {
	i := len(r.conns)
	for i > 0 && r.conns[i-1].idleSince.After(c.idleSince) {
		i--
	}
	r.conns = slices.Insert(r.conns, i, c)
}

// remove takes c out, if it is there.
func (r *row) remove(c *Conn) bool {
	i := slices.Index(r.conns, c)
	if i >= 0 {
		r.conns = slices.Delete(r.conns, i, i+1)
	}
	return i >= 0
}

// drop takes n connections from the old end.
func (r *row) drop(n int) []*Conn {
	dropped := append([]*Conn(nil), r.conns[:n]...)
	rest := copy(r.conns, r.conns[n:])
	clear(r.conns[rest:])
	r.conns = r.conns[:rest]
	return dropped
}

// row is that of h. p.mu is held.
func (p *Pool) row(h *Home) *row {
	for _, r := range p.idle {
		if r.home == h {
			return r
		}
	}
	r := &row{home: h}
	p.idle = append(p.idle, r)
	return r
}

// oldest is the row whose oldest connection has been idle for longest, nil if none is.
// p.mu is held.
func (p *Pool) oldest() (found *row) {
	for _, r := range p.idle {
		if len(r.conns) > 0 && (found == nil || r.conns[0].idleSince.Before(found.conns[0].idleSince)) {
			found = r
		}
	}
	return found
}

// idling is how many connections are idle. p.mu is held.
func (p *Pool) idling() (n int) {
	for _, r := range p.idle {
		n += len(r.conns)
	}
	return n
}

// dropAll takes all of them. p.mu is held.
func (p *Pool) dropAll() (all []*Conn) {
	for _, r := range p.idle {
		all = append(all, r.drop(len(r.conns))...)
	}
	return all
}
