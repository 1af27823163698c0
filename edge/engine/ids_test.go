package engine

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
)

func TestEveryNumberHasItsOwnDigits(t *testing.T) {
	for _, n := range []uint32{0, 9, 10, 0x0f, 0xa0, 0x12345678, 0x9abcdef0, 0xffffffff, 0x99999999, 0xaaaaaaaa} {
		digits := binary.LittleEndian.AppendUint64(nil, hexDigits(n))
		slices.Reverse(digits)
		if want := fmt.Sprintf("%08x", n); string(digits) != want {
			t.Errorf("%q, want %q", digits, want)
		}
	}
}

func TestRequestsOfAllConnectionsHaveNumbersOfTheirOwn(t *testing.T) {
	seen := map[uint64]bool{}
	for range 100 {
		c := newConn(&Server{}, &door{}, nil, peer{})
		for range 1000 {
			n := c.ids.next()
			if seen[n] {
				t.Fatalf("%x twice", n)
			}
			seen[n] = true
		}
	}
}
