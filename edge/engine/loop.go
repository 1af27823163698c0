package engine

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

// A loop serves what is quick: a request that is here as a whole, for an app that has
// an idle connection and is never silent for a second, for a client that takes the
// answer as it comes; a page of the cache; a refusal. It does so by events, one after the
// other, for all its connections, so that none of them needs a goroutine that is woken
// twice for each request.
//
// Whatever else is to be done has a goroutine: the loop hands the connection over where
// it stands (hand), and gets it back when it is idle (goHome), at once if the reason was
// one that passes, after some quick requests if it was not.
//
// While a loop has a connection:
//   - its socket and that of its app are bare descriptors, in the loop's epoll set and
//     not in Go's. conn.nc is nil;
//   - nobody else touches them. Who wants to interrupt something tells the loop to look
//     (tell); why is in the connection's clock, or in answered;
//   - nothing that is called may block: no dialling, no parking, no write that the
//     kernel does not take at once, no lingering.
//
// Events are edges, and hints: each is followed by a system call that knows.
type loop struct {
	srv  *Server
	home upstream.Home // its epoll set
	wake int           // eventfd: there is something in inbox
	raw  bool          // there are processors for others while it waits
	done chan struct{}

	// The loop's own goroutine's.
	seats []seat  // by descriptor
	seq   int32   // of the last seat
	again []*conn // those that have had their turn and have more

	mu     sync.Mutex // guards what follows; nothing is waited for under it
	inbox  []*conn    // to be looked at
	coming []*conn    // to be taken up
	closed bool
}

// seat is who is meant by the events of a descriptor. seq tells apart two that had one
// number.
type seat struct {
	seq int32
	c   *conn          // the client's connection, or the one that waits for the app
	up  *upstream.Conn // nil: it is the client's
}

// briefly is how long a loop waits before it tells the scheduler that it does. Others
// that want its processor meanwhile have to wait for that; there should be one for them.
const briefly = 5 * time.Millisecond

// mostInTurn is how many requests of a connection a loop answers before others have
// their turn.
const mostInTurn = 16

func newLoops(s *Server) (loops []*loop, err error) {
	for range s.opt.Loops {
		l, err := newLoop(s)
		if err != nil {
			for _, l := range loops {
				l.free()
			}
			return nil, err
		}
		loops = append(loops, l)
	}
	return loops, nil
}

func newLoop(s *Server) (*loop, error) {
	l := &loop{srv: s, raw: runtime.GOMAXPROCS(0) > s.opt.Loops, done: make(chan struct{}), wake: -1}
	var err error
	if l.home.Epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("serve by events: create epoll: %w", err)
	}
	if l.wake, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		err = l.seat(l.wake, nil, nil)
	}
	if err != nil {
		l.free()
		return nil, fmt.Errorf("serve by events: %w", err)
	}
	return l, nil
}

func (l *loop) free() {
	unix.Close(l.home.Epoll)
	if l.wake >= 0 {
		unix.Close(l.wake)
	}
}

// close ends the loop, which has no connection any more, and waits for it.
func (l *loop) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.ring()
	<-l.done
	l.free()
}

// tell has the loop look at c, unless it has handed it over by then: who takes it over
// looks himself. It does not block.
func (l *loop) tell(c *conn) { l.post(&l.inbox, c) }

// takeUp has the loop take up c, whose goroutine has left it.
func (l *loop) takeUp(c *conn) { l.post(&l.coming, c) }

func (l *loop) post(list *[]*conn, c *conn) {
	l.mu.Lock()
	first := len(l.inbox)+len(l.coming) == 0
	*list = append(*list, c)
	l.mu.Unlock()
	if first {
		l.ring()
	}
}

func (l *loop) ring() {
	one := [8]byte{1}
	_, _ = unix.Write(l.wake, one[:]) // cannot fail: the counter is far from full
}

// seat adds a descriptor to the epoll set.
func (l *loop) seat(fd int, c *conn, up *upstream.Conn) error {
	if fd >= len(l.seats) {
		l.seats = append(l.seats, make([]seat, fd+64-len(l.seats))...)
	}
	l.seq++
	l.seats[fd] = seat{seq: l.seq, c: c, up: up}
	const edges = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff
	ev := unix.EpollEvent{Events: edges, Fd: int32(fd), Pad: l.seq}
	if err := unix.EpollCtl(l.home.Epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		l.seats[fd] = seat{}
		return fmt.Errorf("watch by events: %w", err)
	}
	return nil
}

// unseat takes a descriptor out of the epoll set. Closing it does that too, if no other
// stands for the same socket.
func (l *loop) unseat(fd int) {
	l.seats[fd] = seat{}
	_ = unix.EpollCtl(l.home.Epoll, unix.EPOLL_CTL_DEL, fd, nil) // it is in the set
}

func (l *loop) run() {
	defer close(l.done)
	var events [128]unix.EpollEvent
	var told, come []*conn
	for {
		n, err := l.wait(events[:])
		if err != nil {
			return // only if the descriptor were closed under us
		}
		for i := range events[:n] {
			l.event(&events[i])
		}
		l.goOn()
		l.mu.Lock()
		told, l.inbox = l.inbox, told[:0]
		come, l.coming = l.coming, come[:0]
		closed := l.closed
		l.mu.Unlock()
		for i, c := range come {
			l.welcome(c)
			come[i] = nil
		}
		for i, c := range told {
			l.look(c)
			told[i] = nil
		}
		if closed {
			return
		}
	}
}

// wait returns the next events, of which there may be none.
func (l *loop) wait(events []unix.EpollEvent) (n int, err error) {
	if l.raw || len(l.again) > 0 {
		limit := briefly
		if len(l.again) > 0 {
			limit = 0
		}
		if n, err = rawio.WaitBriefly(l.home.Epoll, events, limit); n > 0 || err != nil || limit == 0 {
			return n, err
		}
	}
	n, err = unix.EpollWait(l.home.Epoll, events, -1)
	if errors.Is(err, unix.EINTR) {
		return 0, nil
	}
	return n, err
}

func (l *loop) event(ev *unix.EpollEvent) {
	s := &l.seats[ev.Fd]
	switch {
	case s.seq != ev.Pad: // of an earlier owner of the number
	case s.up == nil && s.c == nil:
		var count [8]byte
		_, _ = unix.Read(l.wake, count[:]) // it is only emptied
	case s.up == nil:
		l.clientStirs(s.c, ev.Events)
	case s.c != nil:
		l.appStirs(s.c, ev.Events)
	default:
		s.up.Stirs()
	}
}

// goOn gives those their turn who have had one and have more.
func (l *loop) goOn() {
	again := l.again
	l.again = nil
	for _, c := range again {
		if !l.has(c) {
			continue
		}
		c.queued = false
		switch {
		case c.flows:
			l.appStirs(c, unix.EPOLLIN)
		case !c.asking:
			l.serve(c)
		}
	}
}

// turnAgain gives c another turn, one: events come meanwhile as well.
func (l *loop) turnAgain(c *conn) {
	if !c.queued {
		c.queued = true
		l.again = append(l.again, c)
	}
}

// clientStirs is told of bytes from the client, or their end.
func (l *loop) clientStirs(c *conn, events uint32) {
	c.drained = false
	if events&^unix.EPOLLIN != 0 {
		c.settled = false // it has ended what it sends, which is told only once
	}
	if !c.asking {
		l.serve(c)
	}
}

// serve answers what has come from the client, until more is to come or the connection
// is handed over, or is over. A phase of the clock is left only by entering the next
// one, by hand, or at the end of a turn: whoever marks it late meanwhile has the loop look, which then sees
// what is waited for by then.
func (l *loop) serve(c *conn) {
	if c.clock.lateIn(phaseHead) {
		l.hand(c, func() { c.lateHead() })
		return
	}
	for n := 0; !c.over && !c.severed(); n++ { // who has severed it has the loop look
		if n == mostInTurn {
			c.clock.rest() // what it waited for has come, and counts no more
			l.turnAgain(c)
			return
		}
		got, wait := c.receive()
		switch {
		case wait:
			if !c.await() {
				return
			}
		case c.isBad():
			l.hand(c, c.reject)
			return
		case got && !l.answer(c):
			return
		}
	}
	if c.over {
		l.end(c)
	}
}

// has says whether c is the loop's: it may have been handed over, and even be on its way
// back, to this loop or another one.
func (l *loop) has(c *conn) bool {
	c.poking.Lock()
	defer c.poking.Unlock()
	return c.loop == l && c.ready
}

// look sees why somebody has told the loop to look at c.
func (l *loop) look(c *conn) {
	switch {
	case !l.has(c):
	case c.severed() && !c.asking:
		c.over, c.broken = true, true
		l.end(c)
	case c.asking:
		if c.clock.lateIn(phaseQuick) || c.answered.Load() >= answerCut {
			l.handAsking(c)
		}
	case c.clock.lateIn(phaseHead):
		l.serve(c)
	case c.mem != nil: // more of a head may still come
	case c.srv.draining.Load(), c.idleUntil != 0 && l.srv.now() >= c.idleUntil:
		c.clock.rest()
		c.over = true
		l.end(c)
	case c.clock.lateIn(phaseIdle):
		c.leaveLane()
		c.clock.wait(phaseIdle, c.idleUntil)
		if c.srv.draining.Load() {
			l.tell(c) // Shutdown may have come before the wait
		}
	}
}

// welcome takes up a connection that is new to the loop.
func (l *loop) welcome(c *conn) {
	if c.severed() {
		c.over, c.broken = true, true
		l.end(c)
		return
	}
	if err := l.seat(int(c.fd), c, nil); err != nil {
		l.srv.opt.Warn(err.Error())
		c.stays = longStay
		l.hand(c, func() {})
		return
	}
	c.ready, c.drained, c.settled = true, false, true
	l.serve(c)
}

// end closes a connection that is over, if nothing is to be waited for.
func (l *loop) end(c *conn) {
	if !c.broken && (c.linger || c.mem != nil && c.mem.r < c.mem.w || c.sentMore()) {
		l.hand(c, func() {})
		return
	}
	l.shut(c)
}

// shut is end without waiting for anything.
func (l *loop) shut(c *conn) {
	c.disarm() // the sweeper may have armed it as its goroutine left it
	if c.ready {
		l.seats[c.fd] = seat{}
	}
	c.ready = false
	c.poking.Lock()
	c.loop = nil // nobody rings for it any more
	c.poking.Unlock()
	if c.broken {
		_ = unix.SetsockoptLinger(int(c.fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // as in reset
	}
	unix.Close(int(c.fd)) // nothing is left to say
	c.vanish()
}
