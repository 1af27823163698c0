package upstream

import (
	"sync"
	"sync/atomic"
)

const (
	defaultBuffer = 64 << 10

	// wideBuffer takes at once what an app's socket holds at most, by Linux's
	// defaults (net.core.wmem_default): each piece of a body costs a read, a
	// write and often two wake-ups, which is more than copying it costs.
	wideBuffer = 256 << 10
	// mostWide bounds what clients that take large answers slowly hold: 16 MiB
	// beside a common buffer for each connection.
	mostWide = 64
)

// Buffers is a stock of read buffers that pools may share. A connection to an app
// holds one only while bytes of a response pass through it: none while it waits,
// nor for a small answer if room is lent for that (Conn.Lend).
// There are common ones without limit, and a few wide ones for bodies of which
// much is to come.
type Buffers struct {
	size    int
	stock   sync.Pool
	wide    sync.Pool
	wideOut atomic.Int64
	spoil   bool
}

// NewBuffers makes a stock whose common buffers are of size bytes each; 0 means
// 64 KiB. A response head must fit in one.
func NewBuffers(size int) *Buffers {
	if size <= 0 {
		size = defaultBuffer
	}
	b := &Buffers{size: size}
	b.stock.New = newBuffer(size)
	b.wide.New = newBuffer(wideBuffer)
	return b
}

// Spoil makes the stock overwrite what is given back, so that tests see who
// reads too late. To be called before it is used.
func (b *Buffers) Spoil() { b.spoil = true }

func newBuffer(size int) func() any {
	return func() any {
		buf := make([]byte, size)
		return &buf
	}
}

// Get returns a buffer: a wide one if more is to come than a common one holds,
// and not too many of those are out.
func (b *Buffers) Get(toCome int64) *[]byte {
	if b.size < wideBuffer && toCome > int64(b.size) {
		if b.wideOut.Add(1) <= mostWide {
			return b.wide.Get().(*[]byte)
		}
		b.wideOut.Add(-1)
	}
	return b.stock.Get().(*[]byte)
}

// Put gives a buffer back.
func (b *Buffers) Put(buf *[]byte) {
	if b.spoil {
		for i := range *buf {
			(*buf)[i] = 0xdb
		}
	}
	if len(*buf) > b.size {
		b.wide.Put(buf)
		b.wideOut.Add(-1)
		return
	}
	b.stock.Put(buf)
}
