package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// sweepEvery is how often the sweeper looks at the deadlines.
const sweepEvery = 100 * time.Millisecond

// ErrClosed is what Serve returns after Shutdown.
var ErrClosed = errors.New("engine: server is shut down")

// Server accepts connections and serves the apps of one Edge on them.
type Server struct {
	opt     Options
	text    texts
	stock   stock
	watcher *watcher
	began   time.Time
	tick    atomic.Uint64 // moment of the last sweep

	park     context.Context // ends when Shutdown begins: parked requests are refused
	noPark   context.CancelFunc
	work     context.Context // ends when Shutdown's time is up: dialling stops
	noWork   context.CancelFunc
	draining atomic.Bool

	goroutines sync.WaitGroup // acceptors and connections
	sweeping   sync.WaitGroup
	slots      chan struct{} // one per connection; nil: no bound

	mu        sync.Mutex // guards the sets below; no I/O under it
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	closed    bool
}

// texts are bytes that are written often and never changed.
type texts struct{ via, http, crlf, goOn []byte }

// New returns a Server that listens nowhere yet. It must be shut down even if
// nothing was served.
func New(o Options) (*Server, error) {
	o, err := o.complete()
	if err != nil {
		return nil, err
	}
	w, err := newWatcher()
	if err != nil {
		return nil, err
	}
	s := &Server{
		opt: o, watcher: w, began: time.Now(),
		listeners: map[net.Listener]struct{}{}, conns: map[*conn]struct{}{},
	}
	s.stock.poison = o.poison
	s.text = texts{
		via: []byte(o.Via), http: []byte("http"), crlf: []byte("\r\n"),
		goOn: []byte("HTTP/1.1 100 Continue\r\n\r\n"),
	}
	s.park, s.noPark = context.WithCancel(context.Background())
	s.work, s.noWork = context.WithCancel(context.Background())
	if o.MaxConnections > 0 {
		s.slots = make(chan struct{}, o.MaxConnections)
	}
	s.sweeping.Add(1)
	go s.sweep()
	return s, nil
}

// Serve accepts connections on ln until Shutdown, or until ln fails for good.
// It closes ln. Running out of descriptors does not end it: it waits, says so
// once, and goes on.
func (s *Server) Serve(ln net.Listener) error {
	if !s.enter(ln) {
		_ = ln.Close() // it was never used
		return ErrClosed
	}
	defer s.goroutines.Done()
	defer s.leave(ln)
	var pause backoff
	for {
		if !s.takeSlot() {
			return ErrClosed
		}
		nc, err := ln.Accept()
		if err != nil {
			s.giveSlot()
			if s.draining.Load() {
				return ErrClosed
			}
			if !temporary(err) {
				return fmt.Errorf("accept on %s: %w", ln.Addr(), err)
			}
			if pause.begins() {
				s.opt.Warn(fmt.Sprintf("accepting on %s pauses (%v): raise the descriptor limit or lower max_connections", ln.Addr(), err))
			}
			pause.wait(s.park)
			continue
		}
		if pause.ends() {
			s.opt.Warn(fmt.Sprintf("accepting on %s goes on", ln.Addr()))
		}
		s.start(nc)
	}
}

// start serves one connection, unless the server is closing.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.conns[c] = struct{}{}
		s.goroutines.Add(1)
	}
	s.mu.Unlock()
	if closed {
		_ = nc.Close() // nothing was said on it
		s.giveSlot()
		return
	}
	go c.serve()
}

func (s *Server) enter(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.listeners[ln] = struct{}{}
	s.goroutines.Add(1)
	return true
}

func (s *Server) leave(ln net.Listener) {
	_ = ln.Close() // closed already, or failed
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.listeners, ln)
}

// forget is what a connection does last.
func (s *Server) forget(c *conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.giveSlot()
	s.goroutines.Done()
}

func (s *Server) takeSlot() bool {
	if s.slots == nil {
		return !s.draining.Load()
	}
	select {
	case s.slots <- struct{}{}:
		return true
	case <-s.park.Done():
		return false
	}
}

func (s *Server) giveSlot() {
	if s.slots != nil {
		<-s.slots
	}
}

// Connections is how many clients are connected.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Shutdown stops accepting, closes idle connections at once, refuses parked
// requests with 503, ends upgraded connections and event streams politely, and
// lets what is under way finish with Connection: close. What has not finished
// when ctx ends is reset, and ctx's error returned. Either way no goroutine of
// the server is left. A second call waits like the first.
func (s *Server) Shutdown(ctx context.Context) error {
	s.draining.Store(true)
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	var lns []net.Listener
	for ln := range s.listeners {
		lns = append(lns, ln)
	}
	s.mu.Unlock()
	for _, ln := range lns {
		_ = ln.Close() // the acceptor reports what matters
	}
	s.noPark()
	for _, c := range s.all() {
		c.retire()
	}
	gone := make(chan struct{})
	go s.awaitGone(gone)
	var err error
	select {
	case <-gone:
	case <-ctx.Done():
		err = fmt.Errorf("shut down: %w", ctx.Err())
		s.noWork()
		for _, c := range s.all() {
			c.cutShort.Store(true)
			c.Cut()
		}
		<-gone
	}
	s.noWork()
	s.sweeping.Wait()
	if first {
		s.watcher.close()
	}
	return err
}

// awaitGone ends when the last connection has: Shutdown makes sure they do.
func (s *Server) awaitGone(gone chan<- struct{}) {
	s.goroutines.Wait()
	close(gone)
}

func (s *Server) all() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		all = append(all, c)
	}
	return all
}

// sweep interrupts what is late, until the server has shut down.
func (s *Server) sweep() {
	defer s.sweeping.Done()
	t := time.NewTicker(sweepEvery)
	defer t.Stop()
	var late []*conn
	for {
		select {
		case <-s.work.Done():
			return
		case <-t.C:
		}
		now := moment(time.Since(s.began) / time.Millisecond)
		s.tick.Store(uint64(now))
		late = s.lateConns(now, late[:0])
		for _, c := range late {
			c.sweep(now)
		}
		clear(late)
	}
}

// lateConns collects those with something to do, so that it is not done under
// the lock.
func (s *Server) lateConns(now moment, late []*conn) []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		if c.clock.due(now) || c.bodyClock.due(now) {
			late = append(late, c)
		}
	}
	return late
}

// now is the time that deadlines are counted from, as coarse as the sweep.
func (s *Server) now() moment { return moment(s.tick.Load()) }

// temporary says whether accepting can work again (accept(2)).
func temporary(err error) bool {
	for _, e := range []error{
		syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EINTR, syscall.EPROTO,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// backoff is the pause of an acceptor that cannot accept.
type backoff struct{ d time.Duration }

func (b *backoff) begins() bool { return b.d == 0 }

func (b *backoff) ends() bool {
	was := b.d != 0
	b.d = 0
	return was
}

func (b *backoff) wait(ctx context.Context) {
	b.d = min(max(2*b.d, 10*time.Millisecond), time.Second)
	t := time.NewTimer(b.d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
