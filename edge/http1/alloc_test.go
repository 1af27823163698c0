//go:build !race

package http1

import (
	"testing"
)

func TestHotPathAllocatesNothing(t *testing.T) {
	for name, f := range hotPath() {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	byByte, head := new(Request), browserRequest()
	byByte.Parse(head, nil)
	if n := testing.AllocsPerRun(20, func() {
		for i := range head {
			byByte.Parse(head[:i+1], nil)
		}
	}); n != 0 {
		t.Errorf("byte by byte: %v allocations", n)
	}
}
