package upstream

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
)

// Dialer opens a connection; net.Dialer.DialContext is one. A connection that
// does not implement syscall.Conn serves one request.
type Dialer func(ctx context.Context, network, address string) (net.Conn, error)

// Options of a Pool. Zero fields mean the defaults named here.
type Options struct {
	Network     string        // "tcp" or "unix"
	Address     string        // host:port or path
	Dial        Dialer        // default: that of net.Dialer, with rawio.Unpaced
	DialTimeout time.Duration // for one connect, waiting for a full unix backlog included; default 5s
	MaxIdle     int           // idle connections kept for longer than a sweep; default 256
	MaxConns    int           // connections at once; default 0: no limit
	IdleTimeout time.Duration // an idle connection is closed after this; default 60s
	Limits      http1.Limits  // of response heads; Head is cut to the size of a buffer
	Buffers     *Buffers      // shared read buffers; default: the pool's own

	Reserve *rawio.Reserve // nothing is dialled unless it is whole; default: none
	Share   *Share         // with other pools; default: none
}

func (o Options) withDefaults() Options {
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Control: rawio.Unpaced}).DialContext
	}
	if o.DialTimeout <= 0 {
		o.DialTimeout = 5 * time.Second
	}
	if o.MaxIdle <= 0 {
		o.MaxIdle = 256
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = time.Minute
	}
	if o.Buffers == nil {
		o.Buffers = NewBuffers(0)
	}
	o.Limits = o.Limits.WithDefaults()
	o.Limits.Head = min(o.Limits.Head, o.Buffers.size)
	return o
}

// maxReuse is how long a TCP connection may have been idle, at most, to carry
// a request that must not run twice.
const maxReuse = time.Second

// Pool holds the connections to one target. All methods are safe for use by
// many goroutines.
type Pool struct {
	opt Options

	mu sync.Mutex // guards everything below; never held while dialling, closing, looking or waiting

	open    map[*Conn]struct{} // all connections
	dialing int
	idle    []*row
	looking int // taken out of idle by the sweep, or by Stirs, for a moment
	retired bool
	closed  bool

	// reuse is how long a connection may have been idle to carry a request that
	// must not run twice: at most maxReuse, half of the app's own hint, and half
	// of the age at which connections were found closed.
	reuse    time.Duration
	reuseAt  time.Time   // when it was last lowered or doubled
	trusting atomic.Bool // reuse is maxReuse; read without mu

	sweeper *time.Timer
	armed   bool
	sweeps  sync.WaitGroup // sweeps armed or running

	dialled, reused, stale int64
}

// NewPool makes a pool. It dials nothing and needs no Close while it is empty.
func NewPool(o Options) *Pool {
	p := &Pool{opt: o.withDefaults(), open: make(map[*Conn]struct{})}
	p.bound(maxReuse)
	return p
}

// Get returns an idle connection, newest first, or dials. idempotent says that
// the request may run twice. An error is an *Error.
//
// The connection may have ended while it was idle. The first write looks, and
// fails with a Stale error: discard it and get another one.
func (p *Pool) Get(ctx context.Context, idempotent bool) (*Conn, error) {
	for {
		c, tooOld, err := p.take(idempotent)
		p.dismiss(tooOld)
		switch {
		case err != nil:
			return nil, &Error{Op: "dial", Err: err, undelivered: true}
		case c == nil:
			return p.dial(ctx)
		case c.home != nil && c.Land(p.opt.Reserve.Land) != nil:
			p.Discard(c) // without a descriptor to spare; now there is one
			continue
		}
		c.reuse()
		return c, nil
	}
}

// take picks an idle connection, or reserves the right to dial. If there are
// only idle connections that are too old for this request, the oldest makes
// room, so that slow writers do not heap up connections in the app.
func (p *Pool) take(idempotent bool) (c, tooOld *Conn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil, ErrClosed
	}
	if c = p.pick(nil, idempotent); c != nil {
		return c, nil, nil
	}
	if r := p.oldest(); r != nil {
		tooOld = r.drop(1)[0]
		tooOld.idleFor = time.Since(tooOld.idleSince)
	} else if p.opt.MaxConns > 0 && len(p.open)+p.dialing-p.looking >= p.opt.MaxConns {
		return nil, nil, ErrFull
	}
	p.dialing++
	return nil, tooOld, nil
}

// pick takes the newest idle connection that a request may use, one that is at h if there
// is one. p.mu is held.
func (p *Pool) pick(h *Home, idempotent bool) *Conn {
	if p.closed {
		return nil
	}
	own := p.row(h)
	if c := p.pickOf(own, idempotent); c != nil {
		return c
	}
	for _, r := range p.idle {
		if r == own {
			continue
		}
		if c := p.pickOf(r, idempotent); c != nil {
			return c
		}
	}
	return nil
}

func (p *Pool) pickOf(r *row, idempotent bool) *Conn {
	if len(r.conns) == 0 {
		return nil
	}
	c := r.newest()
	c.idleFor = time.Since(c.idleSince)
	if !idempotent && !p.safeToReuse(c) {
		return nil
	}
	r.cut()
	p.reused++
	return c
}

// safeToReuse says whether a request that may not run twice may go over c. A unix
// socket refuses a write that its peer will never read, so there the bound holds
// only once the app was seen to close idle connections: it could do so between
// our write and its read. Called with mu held.
func (p *Pool) safeToReuse(c *Conn) bool {
	return c.idleFor < p.reuse || p.opt.Network == "unix" && p.reuse == maxReuse
}

// dismiss closes a connection that was too old for a request, if there is one,
// but looks whether that was true.
func (p *Pool) dismiss(c *Conn) {
	if c != nil {
		p.judge(c)
		p.Discard(c)
	}
}

// found is told what the look before the first write on a reused connection
// showed. Discard learns from a death.
func (p *Pool) found(c *Conn, alive bool) {
	if alive && p.trusting.Load() {
		return // nothing to learn
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if alive {
		p.learn(c.idleFor, true)
		return
	}
	p.stale++
	p.reused--
}

// judge looks at an idle connection and learns from what it sees.
func (p *Pool) judge(c *Conn) (alive bool) {
	alive = c.look(noFD) == quiet
	if alive && p.trusting.Load() {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.learn(c.idleFor, alive)
	if !alive {
		p.stale++
	}
	return alive
}

// learn adjusts reuse to the age at which a connection was found alive or
// closed. A death may have been a restart rather than a timeout, so while no
// other follows the bound is doubled each minute. p.mu is held.
func (p *Pool) learn(age time.Duration, alive bool) {
	if !alive {
		p.bound(min(p.reuse, age/2))
		p.reuseAt = time.Now()
		return
	}
	if p.reuse == maxReuse {
		return
	}
	if now := time.Now(); now.Sub(p.reuseAt) > time.Minute {
		p.reuse, p.reuseAt = max(2*p.reuse, time.Millisecond), now
	}
	p.bound(min(maxReuse, max(p.reuse, age/2)))
}

// bound sets reuse. p.mu is held.
func (p *Pool) bound(d time.Duration) {
	p.reuse = d
	p.trusting.Store(d == maxReuse)
}

// hint takes in the idle timeout that the app announces.
func (p *Pool) hint(timeout time.Duration) {
	if timeout >= 2*maxReuse {
		return
	}
	p.mu.Lock()
	p.bound(min(p.reuse, timeout/2))
	p.mu.Unlock()
}

// Put gives a connection back. It is kept only if the exchange on it is
// complete and clean (Sent, whole response read, nothing after it, keep-alive),
// otherwise it is closed as by Discard. Once each Conn from Get, Put or Discard.
//
// However many are idle, it is the sweep that closes those which are too many:
// where requests come and go in waves all of them are idle for a moment, and the
// next wave would have to dial them again.
func (p *Pool) Put(c *Conn) {
	if !c.clean() {
		p.Discard(c)
		return
	}
	c.lent = nil
	c.release()
	c.SetWriteDeadline(time.Time{})
	p.mu.Lock()
	if p.closed || p.retired {
		p.mu.Unlock()
		p.Discard(c)
		return
	}
	c.idleSince = time.Now()
	p.row(c.home).add(c)
	p.arm()
	p.mu.Unlock()
}

// Discard closes a connection.
func (p *Pool) Discard(c *Conn) {
	c.lent = nil
	c.release()
	p.mu.Lock()
	delete(p.open, c)
	if c.Reused && !c.Responded() && c.broken.Load() && !c.interrupted.Load() {
		p.learn(c.idleFor, false) // it died of being reused
	}
	p.mu.Unlock()
	c.close()
	p.opt.Share.give()
}

func (p *Pool) closeAll(conns []*Conn) {
	for _, c := range conns {
		p.Discard(c)
	}
}

// Retire closes idle connections at once; nothing pooled is handed out any
// more, holders may still dial, and what they give back is closed.
func (p *Pool) Retire() {
	p.mu.Lock()
	p.retired = true
	dropped := p.dropAll()
	p.disarm()
	p.mu.Unlock()
	p.closeAll(dropped)
}

// Close closes all connections, those in use too, and makes Get fail. Holders
// still have to give theirs back. It waits for a sweep that runs.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	dropped := p.dropAll()
	var held []net.Conn
	for c := range p.open {
		if c.home != nil {
			c.shut()
		} else {
			held = append(held, c.net)
		}
	}
	p.disarm()
	p.mu.Unlock()
	for _, nc := range held {
		_ = nc.Close()
	}
	p.closeAll(dropped)
	p.sweeps.Wait()
}

// Stats are counters of a pool.
type Stats struct {
	Open    int   // connections, idle ones included
	Idle    int   // connections waiting for use
	Dialled int64 // connects that succeeded, ever
	Reused  int64 // times an idle connection was handed out, ever
	Stale   int64 // idle connections found dead or with surplus bytes, ever
}

// Stats returns the counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{
		Open: len(p.open), Idle: p.idling() + p.looking,
		Dialled: p.dialled, Reused: p.reused, Stale: p.stale,
	}
}
