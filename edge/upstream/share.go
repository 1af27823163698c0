package upstream

import (
	"sync"
	"sync/atomic"
	"time"
)

// A Share is how many connections several pools should have open together. Whoever opens
// one more than that gets it, but what has been idle for longest is closed for it, in
// whatever pool that is: what is only kept for later takes nothing from who needs a
// connection now.
//
// nil is a Share of any number.
type Share struct {
	most int64
	open atomic.Int64 // those that are being dialled too

	mu      sync.Mutex // guards holders; taken with a pool's lock held, so never the other way round
	holders map[*Pool]struct{}
}

// NewShare is for pools that should have most connections together.
func NewShare(most int) *Share {
	return &Share{most: int64(most), holders: make(map[*Pool]struct{})}
}

// take counts one more, before it is opened, and makes room for it.
func (s *Share) take() {
	if s == nil {
		return
	}
	s.open.Add(1)
	for s.open.Load() > s.most && s.closeOldest() {
	}
}

// give counts one less, after it was closed.
func (s *Share) give() {
	if s != nil {
		s.open.Add(-1)
	}
}

// room says whether one more can be opened without closing one.
func (s *Share) room() bool { return s == nil || s.open.Load() < s.most }

// closeOldest closes what has been idle for longest. It reports false if nothing is.
func (s *Share) closeOldest() bool {
	if s == nil {
		return false
	}
	var from *Pool
	var since time.Time
	for _, p := range s.withIdle() {
		if t, is := p.idleSince(); is && (from == nil || t.Before(since)) {
			from, since = p, t
		}
	}
	if from != nil {
		from.closeOldest() // unless it was taken just now: the next one is looked for
	}
	return from != nil
}

func (s *Share) withIdle() (all []*Pool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range s.holders {
		all = append(all, p)
	}
	return all
}

// holds is told by a pool whether it has, or may have, idle connections.
func (s *Share) holds(p *Pool, any bool) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if any {
		s.holders[p] = struct{}{}
	} else {
		delete(s.holders, p)
	}
}

// idleSince is since when the connection has been idle that has been so for longest.
func (p *Pool) idleSince() (since time.Time, any bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.oldest()
	if r == nil {
		return since, false
	}
	return r.conns[0].idleSince, true
}

// closeOldest closes the one that has been idle for longest.
func (p *Pool) closeOldest() {
	p.mu.Lock()
	var old []*Conn
	if r := p.oldest(); r != nil {
		old = r.drop(1)
	}
	p.mu.Unlock()
	p.closeAll(old)
}
