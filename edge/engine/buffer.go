package engine

import (
	"net"
	"sync"

	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/rawio"
	"github.com/usher-edge/usher/edge/upstream"
)

const (
	inSize    = 8 << 10       // what most heads fit in
	textsSize = inSize + 3<<9 // with it and the rest of memory, three pages
	pumpSize  = 64 << 10      // one read of a request's body
	keepWide  = 16 << 10      // a buffer that is larger is not kept
	leastRoom = 1 << 10       // what is worth lending
	ownHead   = 1 << 10       // of an answer of usher's own
	additions = 1 << 9        // to a head that is passed on
)

// memory is what a connection needs while a request is under way. An idle
// connection has none.
//
// What belongs to a request lies together, as every page that is touched between
// two system calls costs: a kernel that isolates itself forgets with each of them
// where pages are. So four texts follow each other in one array: the request as it
// comes, as it goes on, the answer as it comes, as it goes on. Where each begins
// is known once the one before has ended. What is too long for that has a buffer
// of its own: in grows, out is wide, and the connection to the app takes one.
type memory struct {
	in    []byte // in[r:w] has been read from the client and not been used up
	r, w  int
	out   []byte // heads and small bodies, built here
	begun int    // where the first text ends
	free  int    // where the last one ends that has ended
	wide  []byte // out, if that does not fit into texts
	extra []byte // field lines of ours
	id    [16]byte
	req   http1.Request
	res   http1.Response
	body  http1.Framer
	fwd   http1.Forward

	try       attempt
	more      *[]byte // body of the request, following what is in in; nil: none
	moreLen   int
	headUntil moment // when a head must be complete; 0 while there is none
	bad       error  // why what came is no request
	continued bool   // 100 Continue was sent for this request
	took      int    // how much of it the client was sent, if a write failed
	vec       [3][]byte
	bufs      net.Buffers

	asked, answered [8]http1.Field // of req and res, unless there are more
	lines           [128]byte      // extra, likewise
	texts           [textsSize]byte
}

func newMemory() *memory {
	m := &memory{}
	m.open()
	m.extra = m.lines[:0]
	m.req.Fields, m.res.Fields = m.asked[:0], m.answered[:0]
	return m
}

// open makes room for the next request.
func (m *memory) open() { m.in, m.r, m.w = m.texts[:inSize:inSize], 0, 0 }

// seal ends the first text: what may still come goes elsewhere. out follows it.
func (m *memory) seal() {
	m.begun = m.w
	if cap(m.in) != inSize {
		m.begun = 0 // it has grown out of texts
	}
	m.in = m.in[:m.w]
	m.again(ownHead)
}

// again forgets what a try has left in texts: out follows the first.
func (m *memory) again(size int) {
	m.free = m.begun
	m.out = m.text(size)
}

// text is where a text of about that size can be built.
func (m *memory) text(size int) []byte {
	if m.free+size <= len(m.texts) {
		return m.texts[m.free:m.free]
	}
	if cap(m.wide) < size {
		m.wide = make([]byte, 0, size)
	}
	return m.wide[:0]
}

// lend gives the connection to the app what room there is behind out, which holds
// all of the request that it will.
func (m *memory) lend(up *upstream.Conn, moves bool) {
	if cap(m.out) == len(m.texts)-m.free { // it is neither wide nor has it grown
		m.free += len(m.out)
	}
	if len(m.texts)-m.free >= leastRoom {
		up.Lend(m.texts[m.free:], moves)
	}
}

// follow makes out follow what has come from the app. It will hold the head of
// that, and so many bytes more.
func (m *memory) follow(up *upstream.Conn, more int) {
	m.free += up.Seal()
	m.out = m.text(up.HeadSize() + more)
}

func (m *memory) unread() []byte { return m.in[m.r:m.w] }

// compact moves what is unread to the front. Only between requests: a parsed
// head points into the buffer.
func (m *memory) compact() {
	m.in = m.in[:cap(m.in)]
	m.w = copy(m.in, m.unread())
	m.r = 0
}

// grow doubles a buffer that is full. The old one is left to the collector, as
// a head that is parsed in part points into it.
func (m *memory) grow() {
	n := make([]byte, 2*max(len(m.in), inSize))
	m.w = copy(n, m.unread())
	m.in, m.r = n, 0
}

// adopt puts bytes that a pump has read too far behind what is unread.
func (m *memory) adopt(b []byte) {
	for len(m.in)-m.w < len(b) {
		m.grow()
	}
	m.w += copy(m.in[m.w:], b)
}

// stock recycles memory and the buffers of bodies and tunnels. With poison set,
// what is given back is overwritten, so that a use after that shows up in tests.
type stock struct {
	poison   bool
	memories sync.Pool
	bodies   *upstream.Buffers // common ones of pumpSize
	pipes    rawio.Pipes
}

func (s *stock) open(poison bool) {
	s.poison, s.bodies = poison, upstream.NewBuffers(pumpSize)
	if poison {
		s.bodies.Spoil()
	}
}

func (s *stock) get() *memory {
	if m, _ := s.memories.Get().(*memory); m != nil {
		return m
	}
	return newMemory()
}

// forgetGathered gives the buffer of a body back: nothing of it may be found by the next
// request.
func (s *stock) forgetGathered(m *memory) {
	if m.more != nil {
		s.bodies.Put(m.more)
		m.more, m.moreLen = nil, 0
	}
}

func (s *stock) put(m *memory) {
	s.forgetGathered(m)
	if s.poison {
		fillWith(m.texts[:], 0xdb)
		fillWith(m.in, 0xdb)
		fillWith(m.wide[:cap(m.wide)], 0xdb)
		fillWith(m.extra[:cap(m.extra)], 0xdb)
	}
	m.open()
	if m.out = nil; cap(m.wide) > keepWide {
		m.wide = nil
	}
	m.req.Reset()
	m.res.Reset()
	m.fwd, m.try, m.vec, m.bufs, m.bad, m.headUntil = http1.Forward{}, attempt{}, [3][]byte{}, nil, nil, 0
	s.memories.Put(m)
}

func fillWith(b []byte, c byte) {
	for i := range b {
		b[i] = c
	}
}
