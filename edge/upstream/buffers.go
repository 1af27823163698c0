package upstream

import "sync"

const defaultBuffer = 64 << 10

// Buffers is a stock of read buffers that pools may share. A connection holds
// one only while bytes of a response pass through it.
type Buffers struct {
	size  int
	stock sync.Pool
	spoil bool // overwrite what is given back, so that tests see late readers
}

// NewBuffers makes a stock of buffers of size bytes each; 0 means 64 KiB. A
// response head must fit in one.
func NewBuffers(size int) *Buffers {
	if size <= 0 {
		size = defaultBuffer
	}
	b := &Buffers{size: size}
	b.stock.New = func() any {
		buf := make([]byte, size)
		return &buf
	}
	return b
}

func (b *Buffers) get() *[]byte { return b.stock.Get().(*[]byte) }

func (b *Buffers) put(buf *[]byte) {
	if b.spoil {
		for i := range *buf {
			(*buf)[i] = 0xdb
		}
	}
	b.stock.Put(buf)
}
