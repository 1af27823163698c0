package engine

import "bytes"

// closeRestart is an unmasked WebSocket close frame with status 1012, "service
// restart": the server's side is going away, come back (RFC 6455 §5.5.1, §7.4,
// and the registry of close codes).
const closeRestart = "\x88\x02\x03\xf4"

// isWebSocket says whether an Upgrade value means WebSocket (RFC 6455 §4.1).
func isWebSocket(protocol []byte) bool { return bytes.EqualFold(protocol, []byte("websocket")) }

// frames follows a stream of WebSocket frames and knows when one has ended: the
// only places where a frame of usher's may be put in (RFC 6455 §5.2).
type frames struct {
	head   [14]byte
	have   int    // bytes of head
	left   uint64 // payload bytes to come
	closed bool   // a close frame has begun: nothing may follow it
}

// boundary says whether the next byte begins a frame.
func (f *frames) boundary() bool { return f.have == 0 && f.left == 0 }

// follow takes bytes of the stream.
func (f *frames) follow(b []byte) {
	for len(b) > 0 {
		if f.left > 0 {
			n := min(f.left, uint64(len(b)))
			f.left -= n
			b = b[n:]
			continue
		}
		f.head[f.have] = b[0]
		f.have++
		b = b[1:]
		if f.have >= 2 && f.have == f.headSize() {
			f.left = f.payload()
			f.closed = f.closed || f.head[0]&0xf == 8
			f.have = 0
		}
	}
}

// headSize is how long the head is, given its first two bytes.
func (f *frames) headSize() int {
	n := 2
	switch f.head[1] & 0x7f {
	case 126:
		n += 2
	case 127:
		n += 8
	}
	if f.head[1]&0x80 != 0 {
		n += 4
	}
	return n
}

func (f *frames) payload() uint64 {
	n := uint64(f.head[1] & 0x7f)
	size := 0
	switch n {
	case 126:
		size = 2
	case 127:
		size = 8
	default:
		return n
	}
	n = 0
	for _, b := range f.head[2 : 2+size] {
		n = n<<8 | uint64(b)
	}
	return n
}
