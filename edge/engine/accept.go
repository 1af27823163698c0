package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/clients"
	"github.com/usher-edge/usher/edge/rawio"
)

// Listener is what one listener does otherwise than the rest. A zero field means
// what Options says.
type Listener struct {
	HeadTimeout, IdleTimeout, BodyTimeout, WriteTimeout time.Duration

	MinBodyRate, MinWriteRate int64 // below 0: none

	MaxConnections int // of this listener, below those of all; 0: no bound of its own
	MaxPerClient   int // of a client's connections, wherever they are; below 0: no bound

	// Trusted makes every peer a trusted proxy.
	Trusted bool
}

// door is a listener that is served.
type door struct {
	Listener
	ln    net.Listener
	tcp   bool // its connections are TCP's
	moves bool // large answers can go to its connections without being copied
	slots slots

	full, out, hog saying // about this door
}

func (s *Server) newDoor(ln net.Listener, l Listener) *door {
	o := &s.opt
	def := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	def(&l.HeadTimeout, o.HeadTimeout)
	def(&l.IdleTimeout, o.IdleTimeout)
	def(&l.BodyTimeout, o.BodyTimeout)
	def(&l.WriteTimeout, o.WriteTimeout)
	if l.MinBodyRate == 0 {
		l.MinBodyRate = o.MinBodyRate
	}
	if l.MinWriteRate == 0 {
		l.MinWriteRate = o.MinWriteRate
	}
	if l.MaxPerClient == 0 {
		l.MaxPerClient = o.MaxPerClient
	}
	_, tcp := ln.Addr().(*net.TCPAddr)
	return &door{Listener: l, ln: ln, tcp: tcp, moves: rawio.Moves(ln), slots: newSlots(l.MaxConnections)}
}

// Serve is ServeListener without anything special about ln.
func (s *Server) Serve(ln net.Listener) error { return s.ServeListener(ln, Listener{}) }

// ServeListener accepts connections on ln until Shutdown, or until ln fails for
// good. It closes ln. Running out of descriptors or of places does not end it: it
// waits, says so, and goes on; a connection of a client that has too many is
// closed.
func (s *Server) ServeListener(ln net.Listener, l Listener) error {
	if !s.enter(ln) {
		_ = ln.Close() // it was never used
		return ErrClosed
	}
	defer s.goroutines.Done()
	defer s.leave(ln)
	d := s.newDoor(ln, l)
	var pause backoff
	for {
		nc, err := s.accept(ln)
		switch {
		case err == nil:
			pause.end()
			s.goOn(&d.out, d)
			if !s.admit(d, nc) {
				return ErrClosed
			}
		case s.draining.Load():
			return ErrClosed
		case passing(err):
		case rawio.Exhausted(err):
			s.tally.outOfDescriptors.Add(1)
			s.say(&d.out, "accepting on %s pauses (%v): raise the descriptor limit or lower max_connections", ln.Addr(), err)
			pause.wait(s.park)
		default:
			return fmt.Errorf("accept on %s: %w", ln.Addr(), err)
		}
	}
}

// accept does not take the descriptors that those who are connected may need.
func (s *Server) accept(ln net.Listener) (net.Conn, error) {
	if !s.opt.Reserve.Whole() {
		return nil, syscall.EMFILE
	}
	return ln.Accept()
}

// admit serves a connection once there is room for it, unless its client has too
// many. It reports false if the server shuts down meanwhile.
func (s *Server) admit(d *door, nc net.Conn) bool {
	p := s.peer(d, nc)
	if !s.clients.Enter(p.client, d.MaxPerClient) {
		s.tally.refused.Add(1)
		s.say(&d.hog, "client %s has %d connections, which is max_connections_per_client: further ones on %s are refused",
			p.client, d.MaxPerClient, d.ln.Addr())
		turnAway(nc)
		return true
	}
	if !s.takeSlots(d) {
		s.clients.Leave(p.client)
		_ = nc.Close() // nothing was said on it
		return false
	}
	s.tally.accepted.Add(1)
	s.start(newConn(s, d, nc, p))
	return true
}

// takeSlots waits for a place, of the listener and of the server.
func (s *Server) takeSlots(d *door) bool {
	if !d.slots.tryTake() {
		s.pauseFor(d, cap(d.slots))
		if !d.slots.take(s.park) {
			return false
		}
	}
	if !s.slots.tryTake() {
		s.pauseFor(d, cap(s.slots))
		if !s.slots.take(s.park) {
			d.slots.give()
			return false
		}
	}
	s.goOn(&d.full, d)
	return true
}

func (s *Server) pauseFor(d *door, most int) {
	s.tally.atCapacity.Add(1)
	s.say(&d.full, "accepting on %s pauses: %d clients are connected, which is max_connections", d.ln.Addr(), most)
}

// release gives back what admit took.
func (s *Server) release(d *door, client netip.Addr) {
	s.clients.Leave(client)
	s.slots.give()
	d.slots.give()
}

// start serves one connection, unless the server is closing.
func (s *Server) start(c *conn) {
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.conns[c] = struct{}{}
		s.goroutines.Add(1)
	}
	s.mu.Unlock()
	if closed {
		_ = c.nc.Close() // nothing was said on it
		s.release(c.door, c.client)
		return
	}
	if len(s.loops) == 0 || !c.goHome() {
		go c.serve()
	}
}

// peer is who is at the other end of a connection.
type peer struct {
	ip      netip.Addr // zero: of a unix listener
	client  netip.Addr // who the connection counts for; zero: nobody
	trusted bool
}

func (s *Server) peer(d *door, nc net.Conn) peer {
	a, ok := nc.RemoteAddr().(*net.TCPAddr)
	if !ok {
		_, local := nc.RemoteAddr().(*net.UnixAddr)
		return peer{trusted: local || d.Trusted}
	}
	p := peer{ip: a.AddrPort().Addr().Unmap().WithZone("")}
	p.trusted = d.Trusted || contains(s.opt.TrustedProxies, p.ip)
	if !p.trusted && d.MaxPerClient > 0 {
		p.client = clients.Of(p.ip)
	}
	return p
}

func contains(prefixes []netip.Prefix, ip netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(ip) })
}

// turnAway closes a connection with a word of why. It fits into the socket's
// buffer, so nothing waits; and nobody reads what the client may be sending, so
// the word may be lost, which is as well: a client that has too much gets no
// more of our time.
func turnAway(nc net.Conn) {
	_, _ = nc.Write(refusal(edge.CauseClientConnections))
	_ = nc.Close() // it is given up
}

// refusal is a whole answer that says why there is no other.
func refusal(cause edge.Cause) []byte {
	v := cause.Verdict()
	return fmt.Appendf(appendStatus(nil, v.Status), "Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nRetry-After: %d\r\nProxy-Status: usher; error=%s\r\nConnection: close\r\n\r\n%s\n",
		len(v.Text)+1, v.RetryAfter(0), v.Error, v.Text)
}

// tally counts what happens to connections.
type tally struct{ accepted, refused, atCapacity, outOfDescriptors atomic.Uint64 }

// Stats are what happened to connections since New.
type Stats struct {
	Open             int    // now
	Accepted         uint64 // served, or being served
	Refused          uint64 // turned away because their client had too many
	AtCapacity       uint64 // how often accepting waited for another connection to end
	OutOfDescriptors uint64 // how often it waited for a descriptor
}

// Stats returns what happened to connections.
func (s *Server) Stats() Stats {
	return Stats{
		Open: s.Connections(), Accepted: s.tally.accepted.Load(), Refused: s.tally.refused.Load(),
		AtCapacity: s.tally.atCapacity.Load(), OutOfDescriptors: s.tally.outOfDescriptors.Load(),
	}
}

// slots are places for connections. nil: there is always one.
type slots chan struct{}

func newSlots(n int) slots {
	if n <= 0 {
		return nil
	}
	return make(slots, n)
}

func (s slots) tryTake() bool {
	if s == nil {
		return true
	}
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

func (s slots) take(ctx context.Context) bool {
	select {
	case s <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s slots) give() {
	if s != nil {
		<-s
	}
}

// sayEvery is how often the same thing is said at most: under attack it would
// happen all the time.
const sayEvery = time.Minute

// saying is something that is said now and then, and its end.
type saying struct {
	last time.Time
	open bool // its beginning was said, its end was not
}

// say warns, unless that was said a moment ago.
func (s *Server) say(x *saying, format string, args ...any) {
	if now := time.Now(); x.last.IsZero() || now.Sub(x.last) >= sayEvery {
		x.last, x.open = now, true
		s.opt.Warn(fmt.Sprintf(format, args...))
	}
}

// goOn says that what was said is over.
func (s *Server) goOn(x *saying, d *door) {
	if x.open {
		x.open = false
		s.opt.Warn(fmt.Sprintf("accepting on %s goes on", d.ln.Addr()))
	}
}

// starve says that there is no descriptor left to connect to an app with, unless that
// was said a moment ago.
func (s *Server) starve() {
	now := uint64(s.now()) + 1 // 0 means never
	last := s.starved.Load()
	if last != 0 && now-last < uint64(sayEvery/time.Millisecond) || !s.starved.CompareAndSwap(last, now) {
		return
	}
	s.opt.Warn("no descriptor is left for a connection to an app: its requests get 503; raise the limit of open files")
}

// passing says that the next connection may be accepted at once: this one has
// left again (accept(2)).
func passing(err error) bool {
	return errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EPROTO)
}

// backoff is the pause of an acceptor that cannot accept.
type backoff struct{ d time.Duration }

func (b *backoff) end() { b.d = 0 }

func (b *backoff) wait(ctx context.Context) {
	b.d = min(max(2*b.d, 10*time.Millisecond), time.Second)
	t := time.NewTimer(b.d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
