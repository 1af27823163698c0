package http1

import "encoding/binary"

// A head mostly goes on as it came, but for a few lines. So lines that pass and
// follow each other are copied in one piece: what is done for each field is small,
// and so is the code that does it, which counts for more as it is never at hand
// when a request comes.

// passage is the way of the fields of a head from one message to the next.
type passage struct {
	head   *head
	fields []Field // all to the end of the head
	names  nameSet // those that pass unless Connection names them
	with   nameSet // those that pass in any case

	from int // of head.lines: what is to be copied and has not been begins here
}

// append appends the fields: plain ones that pass as they came, all else as other
// does it.
func (p *passage) append(dst []byte, other func([]byte, *Field) []byte) []byte {
	if !p.head.named {
		p.with |= p.names
	}
	for i := p.stop(0); ; i = p.stop(i + 1) {
		dst = append(dst, p.head.lines[p.from:p.lineAt(i)]...)
		if i == len(p.fields) {
			return dst
		}
		dst = other(dst, &p.fields[i])
		p.from = p.lineAt(i + 1)
	}
}

// stop is the first field, from i on, that cannot be copied, or where they end.
func (p *passage) stop(i int) int {
	for ; i < len(p.fields); i++ {
		f := &p.fields[i]
		if !f.plain || !p.with.has(f.Known) && (!p.names.has(f.Known) || p.head.drops(p.fields, f)) {
			break
		}
	}
	return i
}

// lineAt is where the line of a field begins, or that of the end.
func (p *passage) lineAt(i int) int {
	if i < len(p.fields) {
		return int(p.fields[i].at)
	}
	return max(0, len(p.head.lines)-len("\r\n"))
}

// withLength is Content-Length if it is to pass and can be copied.
func (h *head) withLength(passes bool) nameSet {
	if passes && h.exact {
		return 1 << ContentLength
	}
	return 0
}

// The functions below are not inlined: a copy of them at each place where they are
// called would be more code for each request to fetch.

// appendField appends a field line of ours. Its name comes from the table that the
// names of the sender's fields were just compared with: the program's strings lie
// scattered.
//
//go:noinline
func appendField(dst []byte, name Name, value []byte) []byte {
	dst = append(dst, titles[name].name()...)
	dst = append(dst, ':', ' ')
	dst = append(dst, value...)
	return append(dst, '\r', '\n')
}

// appendLine appends a field line of the sender's.
//
//go:noinline
func appendLine(dst, name, value []byte) []byte {
	dst = append(dst, name...)
	dst = append(dst, ':', ' ')
	dst = append(dst, value...)
	return append(dst, '\r', '\n')
}

func appendInt(dst, name []byte, n int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, ':', ' ')
	dst = appendDecimal(dst, n)
	return append(dst, '\r', '\n')
}

// appendDecimal appends a number that is not below 0.
//
//go:noinline
func appendDecimal(dst []byte, n int64) []byte {
	zeros, rest := 0, n/1e8
	digits := Digits(uint64(n - rest*1e8))
	if rest > 0 {
		dst = appendDecimal(dst, rest)
	} else {
		zeros = min(7, int(bytesBelow(digits)))
	}
	dst = binary.LittleEndian.AppendUint64(dst, (digits+'0'*eachByte)>>(8*zeros&63))
	return dst[:len(dst)-zeros]
}

// Digits are the eight decimal digits of n, which has no more, as numbers in the
// bytes of a word; the first is the lowest. It takes n apart into halves of four
// digits, those into halves of two, and those into digits.
func Digits(n uint64) uint64 {
	x := n/1e4 | n%1e4<<32
	hundreds := x * 5243 >> 19 & 0x7f_0000_007f
	x = hundreds | (x-hundreds*100)<<16
	tens := x * 103 >> 10 & 0xf_000f_000f_000f
	return tens | (x-tens*10)<<8
}

// appendVia appends our own hop.
//
//go:noinline
func appendVia(dst []byte, minor uint8, self []byte) []byte {
	dst = append(dst, "Via: 1.0 "...)
	dst[len(dst)-2] += minor
	dst = append(dst, self...)
	return append(dst, '\r', '\n')
}
