package http1

import (
	"encoding/binary"
	"math/bits"
)

const (
	eachByte = 0x0101010101010101
	highBits = 0x8080808080808080
)

// wordAt is the eight bytes of b from i on, the first of them lowest. (With its end
// given twice, the slice costs no more than the load.)
func wordAt(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8 : i+8]) }

// folded makes lower case of the letters in a word. No byte becomes a letter, a
// digit, `-` or `:` that was not one before.
func folded(x uint64) uint64 { return x | x&(0x40*eachByte)>>1 }

// match marks the first byte of a word that is c, in its high bit; later ones may
// be marked without being c. 0 means that there is none.
func match(x uint64, c byte) uint64 {
	x ^= uint64(c) * eachByte
	return (x - eachByte) &^ x & highBits
}

// bytesBelow is how many bytes are before the first that is marked.
func bytesBelow(marks uint64) uint64 { return uint64(bits.TrailingZeros64(marks)) >> 3 }

// below covers the bytes before the first that is marked.
func below(marks uint64) uint64 { return (marks ^ (marks - 1)) >> 8 }

// control returns the index, from i on, of the first control character in b
// (below 0x20, HTAB included, or 0x7f), or len(b).
func control(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if marks := controls(wordAt(b, i)); marks != 0 {
			return i + int(bytesBelow(marks))
		}
	}
	for ; i < len(b); i++ {
		if b[i] < 0x20 || b[i] == 0x7f {
			return i
		}
	}
	return i
}

// controls marks the control characters of a word. One up, 0x7f is 0x80, and the
// others are up to 0x20; no byte carries into the next.
func controls(x uint64) uint64 {
	up := x&^highBits + eachByte
	return ^(up&^highBits + (0x7f-0x20)*eachByte | x) & highBits
}

// controlButTab is control, with HTAB allowed (RFC 9110 section 5.5).
func controlButTab(b []byte, i int) int {
	i = control(b, i)
	for i < len(b) && b[i] == '\t' {
		i = control(b, i+1)
	}
	return i
}

// trim takes blanks off both ends (OWS, RFC 9110 section 5.6.3).
func trim(b []byte) []byte {
	from, to := trimmed(b, 0, len(b))
	return b[from:to]
}

// trimmed are the ends of b[from:to] without the blanks at both.
func trimmed(b []byte, from, to int) (int, int) {
	for from < to && isBlank(b[from]) {
		from++
	}
	for from < to && isBlank(b[to-1]) {
		to--
	}
	return from, to
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// cut returns the first element of a comma-separated list, trimmed, and what
// is after its comma, nil at the end.
func cut(list []byte) (element, rest []byte) {
	if i := index(list, ','); i >= 0 {
		return trim(list[:i]), list[i+1:]
	}
	return trim(list), nil
}

// index is where c is in b first, or -1. It is for what is mostly short: less than
// a call of bytes.IndexByte, whose code lies elsewhere.
func index(b []byte, c byte) int {
	for i, x := range b {
		if x == c {
			return i
		}
	}
	return -1
}

// maxDigits keeps a Content-Length within an int64.
const maxDigits = 18

// decimal reads 1 to 18 digits and nothing else.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > maxDigits {
		return 0, false
	}
	var n int64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

func isHex(c byte) bool { _, ok := hexValue(c); return ok }

func hexValue(c byte) (uint64, bool) {
	switch {
	case '0' <= c && c <= '9':
		return uint64(c - '0'), true
	case 'a' <= c && c <= 'f':
		return uint64(c-'a') + 10, true
	case 'A' <= c && c <= 'F':
		return uint64(c-'A') + 10, true
	}
	return 0, false
}
