package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// shot is one measurement of one peer: what the client sends, and for how long.
type shot struct {
	address     netip.AddrPort
	request     []byte // one whole request
	length      int    // of the body of each answer
	connections int
	rate        float64 // requests/s on a fixed schedule; 0: each answer is followed by the next request
	warm        time.Duration
	duration    time.Duration
	least       int // requests that must have been answered right before it ends, however long that takes
	// open and shut are called by the client at the two ends of what is
	// measured.
	open, shut func()
}

// tally is what the client saw of a shot after its warming.
type tally struct {
	requests int // answered right
	failures int
	elapsed  time.Duration
	latency  *hdrhistogram.Histogram // nanoseconds
	first    error                   // of the failures
}

// client is one thread with one epoll: it shares the machine with what it
// measures, so it must cost little. It allocates nothing while it measures.
type client struct {
	shot
	poll    int
	timer   int // of the schedule; -1 without one
	conns   []conn
	idle    []int32 // with a schedule: connections without a request, oldest first
	sent    int     // requests of the schedule that have left
	start   time.Time
	opened  time.Duration
	closing time.Duration // when measuring ends
	tally   tally
	buf     []byte
}

// conn is one connection and the request that it has open.
type conn struct {
	fd      int
	due     time.Duration // when its request was to be sent
	unsent  []byte
	busy    bool
	head    []byte // of an answer that came in parts
	body    int    // bytes of the answer that are still to come; -1: its head is not whole
	closes  bool   // the peer said that it closes after this answer
	failing int    // failures in a row
}

const (
	mostFailing = 20      // failures in a row of one connection that end a shot
	mostHead    = 8 << 10 // bytes of an answer's head
)

// fire sends the load and returns what came of it. An error means that there
// is no tally to speak of.
func (s shot) fire(ctx context.Context) (tally, error) {
	c := &client{shot: s, timer: -1, poll: -1, buf: make([]byte, 256<<10)}
	c.tally.latency = hdrhistogram.New(1000, time.Minute.Nanoseconds(), 3)
	defer c.close()
	if err := c.dial(); err != nil {
		return tally{}, err
	}
	c.start = time.Now()
	c.closing = s.warm + s.duration
	if err := c.begin(); err != nil {
		return tally{}, err
	}
	if err := c.loop(ctx); err != nil {
		return tally{}, err
	}
	return c.tally, nil
}

func (c *client) now() time.Duration { return time.Since(c.start) }

func (c *client) dial() (err error) {
	if c.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("make epoll: %w", err)
	}
	c.conns = make([]conn, c.connections)
	for i := range c.conns {
		c.conns[i] = conn{fd: -1, head: make([]byte, 0, mostHead)}
	}
	for i := range c.conns {
		if err := c.connect(i); err != nil {
			return err
		}
	}
	return nil
}

// connect waits for the kernel only: the peer is on this machine.
func (c *client) connect(i int) error {
	k := &c.conns[i]
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make socket: %w", err)
	}
	k.fd = fd
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: c.address.Addr().As4(), Port: int(c.address.Port())})
	for errors.Is(err, unix.EINTR) {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: c.address.Addr().As4(), Port: int(c.address.Port())})
	}
	if errors.Is(err, unix.EISCONN) {
		err = nil
	}
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(i)}
	for _, step := range []func() error{
		func() error { return err },
		func() error { return unix.SetNonblock(fd, true) },
		func() error { return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1) },
		func() error { return unix.EpollCtl(c.poll, unix.EPOLL_CTL_ADD, fd, &event) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("connect to %s: %w", c.address, err)
		}
	}
	k.busy, k.unsent, k.closes, k.body, k.head = false, nil, false, -1, k.head[:0]
	return nil
}

// close gives everything back; the peer sees its clients leave.
func (c *client) close() {
	for i := range c.conns {
		if c.conns[i].fd >= 0 {
			_ = unix.Close(c.conns[i].fd) // nothing is lost with it
		}
	}
	for _, fd := range []int{c.timer, c.poll} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
}

// timerEvent stands for the schedule among the numbers of connections.
const timerEvent = -1

// begin sends what is due first.
func (c *client) begin() (err error) {
	if c.rate > 0 {
		if c.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
			return fmt.Errorf("make timer: %w", err)
		}
		event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: timerEvent}
		if err := unix.EpollCtl(c.poll, unix.EPOLL_CTL_ADD, c.timer, &event); err != nil {
			return fmt.Errorf("watch timer: %w", err)
		}
		c.idle = make([]int32, 0, 2*len(c.conns))
		for i := range c.conns {
			c.idle = append(c.idle, int32(i))
		}
		return c.schedule(c.now())
	}
	for i := range c.conns {
		if err := c.send(i, c.now()); err != nil {
			return err
		}
	}
	return nil
}

// loop ends when the time is over.
func (c *client) loop(ctx context.Context) error {
	var events [256]unix.EpollEvent
	for {
		n, err := unix.EpollWait(c.poll, events[:], 10)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for answers: %w", err)
		}
		if over, err := c.turn(ctx); over || err != nil {
			return err
		}
		for i := range events[:max(n, 0)] {
			if err := c.event(&events[i]); err != nil {
				return err
			}
		}
	}
}

// turn looks at the clock: measuring begins and ends here.
func (c *client) turn(ctx context.Context) (over bool, err error) {
	now := c.now()
	if c.opened == 0 && now >= c.warm {
		c.shot.open()
		c.opened = c.now()
		c.closing = c.opened + c.duration
		c.tally.requests, c.tally.failures, c.tally.first = 0, 0, nil
		c.tally.latency.Reset()
	}
	if c.opened > 0 && now >= c.closing && c.tally.requests >= c.least {
		c.tally.elapsed = c.now() - c.opened
		c.shot.shut()
		return true, nil
	}
	return false, ctx.Err()
}

func (c *client) event(e *unix.EpollEvent) error {
	if e.Fd == timerEvent {
		var ticks [8]byte
		_, _ = unix.Read(c.timer, ticks[:]) // only to make it quiet
		return c.schedule(c.now())
	}
	i := int(e.Fd)
	k := &c.conns[i]
	if len(k.unsent) > 0 {
		if err := c.push(i); err != nil {
			return err
		}
	}
	if e.Events&^unix.EPOLLOUT == 0 {
		return nil
	}
	return c.receive(i)
}

// schedule sends what is due as long as a connection is idle, and sets the
// timer for what is due next.
func (c *client) schedule(now time.Duration) error {
	gap := float64(time.Second) / c.rate
	for {
		due := time.Duration(float64(c.sent) * gap)
		if due > now {
			spec := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(due - now))}
			if err := unix.TimerfdSettime(c.timer, 0, &spec, nil); err != nil {
				return fmt.Errorf("set timer: %w", err)
			}
			return nil
		}
		if len(c.idle) == 0 {
			return nil // the next answer comes here again
		}
		i := int(c.idle[0])
		c.idle = c.idle[:copy(c.idle, c.idle[1:])]
		c.sent++
		if err := c.send(i, due); err != nil {
			return err
		}
	}
}

// send begins a request that was due then.
func (c *client) send(i int, due time.Duration) error {
	k := &c.conns[i]
	k.busy, k.due, k.unsent, k.body = true, due, c.request, -1
	return c.push(i)
}

// push writes what the socket takes.
func (c *client) push(i int) error {
	k := &c.conns[i]
	for len(k.unsent) > 0 {
		n, errno := transfer(unix.SYS_WRITE, k.fd, k.unsent)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN:
			return nil
		case errno != 0:
			return c.fail(i, fmt.Errorf("send: %w", errno))
		default:
			k.unsent = k.unsent[n:]
		}
	}
	return nil
}

// transfer reads or writes without telling the scheduler: the socket does not
// block, and being told costs a good part of what the call does. b is not empty.
func transfer(call uintptr, fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall(call, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return int(n), errno
}

// receive reads until the answer is whole or nothing more is there: with the last
// bytes may come the end of the connection, and no further event.
func (c *client) receive(i int) error {
	k := &c.conns[i]
	for {
		n, errno := transfer(unix.SYS_READ, k.fd, c.buf)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			return nil
		case errno != 0:
			return c.fail(i, fmt.Errorf("receive: %w", errno))
		case n == 0 && !k.busy:
			return c.again(i)
		case n == 0:
			return c.fail(i, errors.New("the connection was closed before the answer was whole"))
		}
		whole, err := c.take(k, c.buf[:n])
		if err != nil {
			return c.fail(i, err)
		}
		if whole {
			return c.answered(i)
		}
	}
}

// again opens a connection anew.
func (c *client) again(i int) error {
	_ = unix.Close(c.conns[i].fd) // it is closed by the peer, or broken
	c.conns[i].fd = -1
	return c.connect(i)
}

func (c *client) answered(i int) error {
	k := &c.conns[i]
	now := c.now()
	k.failing = 0
	c.tally.requests++
	// In range by construction of the histogram, or cut to it.
	_ = c.tally.latency.RecordValue(min(max((now-k.due).Nanoseconds(), 1000), time.Minute.Nanoseconds()))
	if k.closes {
		if err := c.again(i); err != nil {
			return err
		}
	}
	return c.next(i, now)
}

// next gives a connection its next request.
func (c *client) next(i int, now time.Duration) error {
	k := &c.conns[i]
	if c.rate == 0 {
		return c.send(i, now)
	}
	k.busy = false
	c.idle = append(c.idle, int32(i))
	if time.Duration(float64(c.sent)*float64(time.Second)/c.rate) <= now {
		return c.schedule(now)
	}
	return nil
}

// fail counts a request that was not answered right, and goes on with a new
// connection.
func (c *client) fail(i int, err error) error {
	k := &c.conns[i]
	c.tally.failures++
	if c.tally.first == nil {
		c.tally.first = err
	}
	k.failing++
	if k.failing > mostFailing {
		return fmt.Errorf("%d failures in a row: %w", k.failing, err)
	}
	if err := c.again(i); err != nil {
		return err
	}
	return c.next(i, c.now())
}

// take reads bytes of an answer and reports whether it is whole.
func (c *client) take(k *conn, b []byte) (whole bool, err error) {
	if !k.busy {
		return false, fmt.Errorf("%d bytes that nobody asked for", len(b))
	}
	if k.body < 0 {
		if b, err = c.takeHead(k, b); b == nil || err != nil {
			return false, err
		}
	}
	if len(b) > k.body {
		return false, fmt.Errorf("%d bytes after the answer", len(b)-k.body)
	}
	k.body -= len(b)
	return k.body == 0, nil
}

// takeHead returns what follows the head, nil while the head is not whole.
func (c *client) takeHead(k *conn, b []byte) ([]byte, error) {
	if len(k.head) > 0 {
		if len(k.head)+len(b) > mostHead+len(c.buf) {
			return nil, errors.New("the head of the answer is too long")
		}
		k.head = append(k.head, b...)
		b = k.head
	}
	end := bytes.Index(b, []byte("\r\n\r\n"))
	if end < 0 {
		if len(k.head) == 0 {
			k.head = append(k.head, b...)
		}
		return nil, nil
	}
	head := b[:end+2]
	rest := b[end+4:]
	if !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")) {
		return nil, fmt.Errorf("answered %.40q", head)
	}
	length, closes := readHead(head)
	if length != c.length {
		return nil, fmt.Errorf("an answer of %d bytes, not of %d", length, c.length)
	}
	k.body, k.closes, k.head = length, closes, k.head[:0]
	return rest, nil
}

// readHead finds the two fields that the client needs; -1 is no length.
func readHead(head []byte) (length int, closes bool) {
	length = -1
	for len(head) > 0 {
		end := bytes.IndexByte(head, '\n')
		line := head[:end+1]
		head = head[end+1:]
		switch {
		case isField(line, "content-length"):
			length = number(line[len("content-length:"):])
		case isField(line, "connection"):
			closes = bytes.EqualFold(bytes.TrimSpace(line[len("connection:"):]), []byte("close"))
		}
	}
	return length, closes
}

// isField compares in small letters, first by what costs least.
func isField(line []byte, name string) bool {
	return len(line) > len(name) && line[len(name)] == ':' && line[0]|0x20 == name[0] &&
		bytes.EqualFold(line[:len(name)], []byte(name))
}

// number reads a length with blanks around it; -1 is none.
func number(b []byte) int {
	b = bytes.TrimSpace(b)
	n := 0
	for _, d := range b {
		if d < '0' || d > '9' || n > 1<<40 {
			return -1
		}
		n = n*10 + int(d-'0')
	}
	if len(b) == 0 {
		return -1
	}
	return n
}
