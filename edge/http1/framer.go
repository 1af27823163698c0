package http1

import "math"

// Bounds of what may surround the data of a chunked body.
const (
	maxSizeDigits = 16
	maxExtension  = 4 << 10 // bytes of extensions ahead of the data they came with
	maxTrailer    = 8 << 10
	maxTrailers   = 32
)

// Where a chunked body stands.
const (
	inSize = iota // the size, possibly after some of its digits
	inSizeLF
	inExtName // after `;`
	inExtValue
	inExtToken
	inExtQuoted
	inExtEscape
	inExtAfter // after a quoted value
	inData
	inDataCR
	inDataLF
	inTrailer
	inTrailerLF
	ended
)

// Framer finds the body in the bytes of a connection without copying it.
type Framer struct {
	length  int64 // as given to Reset
	left    int64 // bytes left of the body, or of the chunk
	state   uint8
	digits  uint8
	named   bool // the extension has a name
	budget  int  // extension bytes still allowed
	section []byte
	line    int // start of the current line in section
	fields  []Field
}

// Reset starts a body of that length: a byte count, Chunked or UntilClose.
func (f *Framer) Reset(length int64) {
	*f = Framer{length: length, budget: maxExtension, section: f.section[:0], fields: f.fields[:0]}
	if length >= 0 {
		f.left = length
	}
}

// Ahead is how many bytes of body are still to come in one piece: of all of it
// where its length is known, of the chunk that has begun where it is chunked.
// Without an end it is as many as there are.
func (f *Framer) Ahead() int64 {
	switch {
	case f.length == UntilClose:
		return math.MaxInt64
	case f.length >= 0 || f.state == inData:
		return f.left
	default:
		return 0
	}
}

// Pass is Next of n bytes, of Ahead at most, that nobody has looked at: for a body whose
// length is known.
func (f *Framer) Pass(n int) (done bool) {
	f.left -= int64(n)
	return f.left == 0
}

// Next reads from the start of buf. data is the next piece of body, a slice of
// buf and possibly empty; n is how many bytes of buf are used up, framing
// included; done means that the body has ended and buf[n:] belongs to the
// next message. With no data, not done and no error, more bytes are needed.
// A body of UntilClose is never done: it ends when the connection does. On an
// error (an *Error of status 400) nothing else is valid.
func (f *Framer) Next(buf []byte) (data []byte, n int, done bool, err error) {
	switch {
	case f.length == UntilClose:
		return buf, len(buf), false, nil
	case f.length >= 0:
		n = int(min(int64(len(buf)), f.left))
		f.left -= int64(n)
		return buf[:n], n, f.left == 0, nil
	}
	n, bad := f.framing(buf)
	if bad == nil && f.state == inData {
		k := int(min(int64(len(buf)-n), f.left))
		data = buf[n : n+k]
		f.take(k)
		n += k
		var m int
		m, bad = f.framing(buf[n:])
		n += m
	}
	if bad != nil {
		return nil, 0, false, &bad.request
	}
	return data, n, f.state == ended, nil
}

// Gather is Next for several small chunks at once: their data is moved together
// within buf, behind that of the first, so that what came with one read can go on
// with one write.
func (f *Framer) Gather(buf []byte) (data []byte, n int, done bool, err error) {
	data, n, done, err = f.Next(buf)
	for err == nil && !done && n < len(buf) && min(f.left, int64(len(buf)-n)) <= mostMoved {
		var more []byte
		var k int
		more, k, done, err = f.Next(buf[n:])
		n += k
		if len(data) == 0 {
			data = more
		} else {
			data = append(data, more...) // buf has the room, up to where more was
		}
	}
	if err != nil {
		return nil, 0, false, err
	}
	return data, n, done, nil
}

// mostMoved is up to where moving a chunk costs less than a write of its own.
const mostMoved = 8 << 10

// take counts data of the current chunk.
func (f *Framer) take(k int) {
	f.left -= int64(k)
	f.budget = min(maxExtension, f.budget+k)
	if f.left == 0 {
		f.state = inDataCR
	}
}

// framing reads on to the next byte of data, or to the end of the body or of b.
func (f *Framer) framing(b []byte) (n int, bad *fault) {
	for n < len(b) && f.state != inData && f.state != ended {
		if f.state == inTrailer {
			k := controlButTab(b, n)
			if bad = f.keep(b[n:k]); bad != nil {
				return n, bad
			}
			if n = k; n == len(b) {
				break
			}
		}
		if bad = f.step(b[n]); bad != nil {
			return n, bad
		}
		n++
	}
	return n, nil
}

// step takes one byte of framing (RFC 9112 section 7.1).
func (f *Framer) step(c byte) *fault {
	switch f.state {
	case inSize:
		return f.size(c)
	case inSizeLF:
		return f.sizeEnd(c)
	case inDataCR:
		return f.expect(c, '\r', inDataLF)
	case inDataLF:
		f.digits = 0
		return f.expect(c, '\n', inSize)
	case inTrailer:
		if c == '\n' {
			return faultBareLF
		}
		if c != '\r' {
			return faultControl
		}
		f.state = inTrailerLF
		return nil
	case inTrailerLF:
		if c != '\n' {
			return faultBareCR
		}
		return f.trailerLine()
	}
	return f.extension(c)
}

func (f *Framer) expect(c, want byte, next uint8) *fault {
	if c != want {
		return faultChunkEnd
	}
	f.state = next
	return nil
}

func (f *Framer) size(c byte) *fault {
	if v, ok := hexValue(c); ok {
		if f.digits == maxSizeDigits || f.left >= 1<<59 {
			return faultChunkSize
		}
		f.digits++
		f.left = f.left<<4 | int64(v)
		return nil
	}
	if f.digits == 0 {
		return faultChunkSize
	}
	switch c {
	case '\r':
		f.state = inSizeLF
	case ';':
		return f.newExtension()
	case '\n':
		return faultBareLF
	default:
		return faultChunkSize
	}
	return nil
}

func (f *Framer) sizeEnd(c byte) *fault {
	if c != '\n' {
		return faultBareCR
	}
	f.state = inData
	if f.left == 0 {
		f.state = inTrailer
	}
	return nil
}

func (f *Framer) newExtension() *fault {
	f.state, f.named = inExtName, false
	return f.spend()
}

func (f *Framer) spend() *fault {
	if f.budget--; f.budget < 0 {
		return faultChunkExtBig
	}
	return nil
}

// extension takes one byte of chunk extensions (RFC 9112 section 7.1.1), which
// mean nothing to us and are dropped; quotes must match, so that nobody reads
// the end of the line elsewhere.
func (f *Framer) extension(c byte) *fault {
	if c != '\r' { // which only ends them
		if bad := f.spend(); bad != nil {
			return bad
		}
	}
	if c == '\n' {
		return faultBareLF
	}
	if c < 0x20 && c != '\r' || c == 0x7f {
		return faultChunkExt
	}
	switch f.state {
	case inExtQuoted:
		return f.quoted(c)
	case inExtEscape:
		if c == '\r' {
			return faultChunkExt
		}
		f.state = inExtQuoted
		return nil
	case inExtValue:
		return f.valueStart(c)
	}
	return f.extensionEnd(c)
}

func (f *Framer) quoted(c byte) *fault {
	switch c {
	case '"':
		f.state = inExtAfter
	case '\\':
		f.state = inExtEscape
	case '\r':
		return faultChunkExt
	}
	return nil
}

func (f *Framer) valueStart(c byte) *fault {
	switch {
	case c == '"':
		f.state = inExtQuoted
	case c == ' ':
	case fold[c] != 0:
		f.state = inExtToken
	default:
		return faultChunkExt
	}
	return nil
}

// extensionEnd is for the places where an extension may go on or end: in its
// name, in a token, after a quoted value.
func (f *Framer) extensionEnd(c byte) *fault {
	switch {
	case c == ' ':
		return nil
	case c == ';' && f.named:
		f.state, f.named = inExtName, false
		return nil
	case c == '\r' && f.named:
		f.state = inSizeLF
		return nil
	case c == '=' && f.state == inExtName && f.named:
		f.state = inExtValue
		return nil
	case fold[c] != 0 && f.state != inExtAfter:
		f.named = true
		return nil
	}
	return faultChunkExt
}

// Done reports whether the whole body has been read.
func (f *Framer) Done() bool {
	return f.length >= 0 && f.left == 0 || f.state == ended
}

// Trailer returns the trailer fields of a chunked body that is done, without
// those that may not be trailers (RFC 9110 section 6.5.1). Valid until the
// next call of Next or Reset.
func (f *Framer) Trailer() []Field { return f.fields }
