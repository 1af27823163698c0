package daemon

import (
	"math"
	"testing"
)

func TestEveryClientHasADescriptorForItsAppToo(t *testing.T) {
	for _, c := range []struct{ limit, own, want int }{
		{0, 44, 1},
		{44, 44, 1},
		{46, 44, 1},
		{48, 44, 2},
		{64, 44, 10},
		{128, 44, 32},
		{256, 44, 64},
		{512, 44, 128},
		{1024, 44, 384},
		{65536, 44, 32640},
		{math.MaxInt32, 44, (math.MaxInt32 - reservedDescriptors) / 2},
		{1024, 1024 - 20, 10},
		{1024, 600, 212}, // many loops, listeners or apps
	} {
		got := fitting(c.limit, c.own)
		if got != c.want {
			t.Errorf("%d clients fit into %d descriptors beside %d, want %d", got, c.limit, c.own, c.want)
		}
		if got > 1 && 2*got+c.own > c.limit {
			t.Errorf("%d clients with their apps do not fit into %d descriptors beside %d", got, c.limit, c.own)
		}
	}
}
