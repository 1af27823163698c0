package upstream

import (
	"slices"
	"time"
)

// sweepEvery is how often idle connections are looked at while there are any:
// those that the app has closed should not hold descriptors until they expire.
const sweepEvery = 5 * time.Second

// arm starts the sweep timer unless it runs. p.mu is held.
func (p *Pool) arm() {
	if p.armed {
		return
	}
	p.armed = p.idling() > 0
	p.opt.Share.holds(p, p.armed)
	if !p.armed {
		return
	}
	p.sweeps.Add(1)
	wait := min(sweepEvery, p.opt.IdleTimeout)
	if p.sweeper == nil {
		p.sweeper = time.AfterFunc(wait, p.sweep)
		return
	}
	p.sweeper.Reset(wait)
}

// disarm stops the sweep timer. p.mu is held.
func (p *Pool) disarm() {
	if p.armed && p.sweeper.Stop() {
		p.armed = false
		p.opt.Share.holds(p, false)
		p.sweeps.Done()
	}
}

// sweep closes idle connections that are expired or dead. It runs in the
// timer's goroutine, which ends with it.
func (p *Pool) sweep() {
	defer p.sweeps.Done()
	old := p.takeOld()
	keep := old[:0]
	var drop []*Conn
	for _, c := range old {
		if p.judge(c) && c.idleFor < p.opt.IdleTimeout {
			keep = append(keep, c)
		} else {
			drop = append(drop, c)
		}
	}
	p.closeAll(append(drop, p.putBack(keep, len(old))...))
}

// takeOld takes out the idle connections that have not been used for a moment;
// busy ones need no look.
func (p *Pool) takeOld() []*Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, moment := time.Now(), min(time.Second, p.opt.IdleTimeout)
	var old []*Conn
	for _, r := range p.idle {
		n := 0
		for ; n < len(r.conns); n++ {
			c := r.conns[n]
			if c.idleFor = now.Sub(c.idleSince); c.idleFor < moment {
				break
			}
		}
		old = append(old, r.drop(n)...)
	}
	p.looking += len(old)
	return old
}

// putBack returns connections to the old end of idle, and those for which
// there is no room or no use any more to the caller.
func (p *Pool) putBack(keep []*Conn, taken int) (surplus []*Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looking -= taken
	p.armed = false
	room := p.opt.MaxIdle - p.idling()
	if limit := p.opt.MaxConns; limit > 0 {
		room = min(room, len(keep)-(len(p.open)+p.dialing-limit))
	}
	if p.retired || p.closed {
		room = 0
	}
	slices.SortFunc(keep, func(a, b *Conn) int { return a.idleSince.Compare(b.idleSince) })
	cut := max(0, len(keep)-max(0, room))
	surplus = append(surplus, keep[:cut]...)
	for _, c := range keep[cut:] {
		p.row(c.home).restore(c)
	}
	p.arm()
	return surplus
}
