//go:build !race

package clients

import (
	"net/netip"
	"testing"
)

func TestEnteringAgainAllocatesNothing(t *testing.T) {
	var c Counts
	a := netip.MustParseAddr("192.0.2.1")
	c.Enter(a, 10)
	if n := testing.AllocsPerRun(100, func() {
		c.Enter(a, 10)
		c.Leave(a)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
