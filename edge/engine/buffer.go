package engine

import (
	"net"
	"sync"

	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

const (
	inSize   = 8 << 10  // what most heads fit in
	pumpSize = 64 << 10 // one read of a request's body
	keepOut  = 16 << 10 // scratch that is larger is not kept
)

// memory is what a connection needs while a request is under way. An idle
// connection has none.
type memory struct {
	in    []byte // in[r:w] has been read from the client and not been used up
	r, w  int
	out   []byte // heads and small bodies, built here
	extra []byte // field lines of ours
	id    [16]byte
	req   http1.Request
	res   http1.Response
	body  http1.Framer
	fwd   http1.Forward

	try       attempt
	more      *[]byte // body of the request, following what is in in; nil: none
	moreLen   int
	continued bool // 100 Continue was sent for this request
	vec       [3][]byte
	bufs      net.Buffers
}

func (m *memory) unread() []byte { return m.in[m.r:m.w] }

// compact moves what is unread to the front. Only between requests: a parsed
// head points into the buffer.
func (m *memory) compact() {
	m.w = copy(m.in, m.unread())
	m.r = 0
}

// grow doubles a buffer that is full. The old one is left to the collector, as
// a head that is parsed in part points into it.
func (m *memory) grow() {
	n := make([]byte, 2*len(m.in))
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
	return &memory{in: make([]byte, inSize), out: make([]byte, 0, 4<<10)}
}

func (s *stock) put(m *memory) {
	if s.poison {
		fillWith(m.in, 0xdb)
		fillWith(m.out[:cap(m.out)], 0xdb)
		fillWith(m.extra[:cap(m.extra)], 0xdb)
	}
	m.r, m.w = 0, 0
	if len(m.in) > inSize || cap(m.out) > keepOut {
		return
	}
	m.req.Reset()
	m.res.Reset()
	m.fwd, m.try, m.vec, m.bufs = http1.Forward{}, attempt{}, [3][]byte{}, nil
	s.memories.Put(m)
}

func fillWith(b []byte, c byte) {
	for i := range b {
		b[i] = c
	}
}
