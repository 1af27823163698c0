package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/usher-edge/usher/edge/clients"
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
	loops   []*loop
	turn    atomic.Uint32 // whose turn it is to get a connection
	began   time.Time
	tick    atomic.Uint64 // moment of the last sweep

	park     context.Context // ends when Shutdown begins: parked requests are refused
	noPark   context.CancelFunc
	work     context.Context // ends when Shutdown's time is up: dialling stops
	noWork   context.CancelFunc
	draining atomic.Bool

	goroutines sync.WaitGroup // acceptors and connections
	sweeping   sync.WaitGroup
	slots      slots          // one per connection
	clients    clients.Counts // how many connections each has
	tally      tally
	starved    atomic.Uint64 // moment at which it was last said that apps cannot be connected to

	mu        sync.Mutex // guards the sets below; no I/O under it
	listeners map[net.Listener]struct{}
	conns     map[*conn]struct{}
	closed    bool
}

// texts are bytes that are written often and never changed.
type texts struct{ via, http, goOn []byte }

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
	if s.loops, err = newLoops(s); err != nil {
		w.close()
		return nil, err
	}
	s.stock.open(o.poison)
	s.text = texts{
		via: []byte(o.Via), http: []byte("http"),
		goOn: []byte("HTTP/1.1 100 Continue\r\n\r\n"),
	}
	s.park, s.noPark = context.WithCancel(context.Background())
	s.work, s.noWork = context.WithCancel(context.Background())
	s.slots = newSlots(o.MaxConnections)
	s.sweeping.Add(1)
	go s.sweep()
	for _, l := range s.loops {
		go l.run()
	}
	return s, nil
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
	s.release(c.door, c.client)
	s.goroutines.Done()
}

// holds counts in a goroutine that acts on c from outside, unless c is forgotten.
func (s *Server) holds(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, here := s.conns[c]
	if here {
		s.goroutines.Add(1)
	}
	return here
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
// when ctx ends gets 503 if its answer has not begun, else it is reset, and ctx's
// error is returned within lastWords. Either way no goroutine of the server is left.
// A second call waits like the first.
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
			c.Cut()
		}
		s.lastWords(gone)
	}
	s.noWork()
	s.sweeping.Wait()
	if first {
		s.watcher.close()
		for _, l := range s.loops {
			l.close()
		}
	}
	return err
}

// lastWords lets those who were cut before their answers had begun be told so, and
// then ends all connections.
func (s *Server) lastWords(gone <-chan struct{}) {
	t := time.NewTimer(lastWords)
	defer t.Stop()
	select {
	case <-gone:
	case <-t.C:
		for _, c := range s.all() {
			c.sever()
		}
		<-gone
	}
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
