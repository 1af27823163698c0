package daemon

import (
	"math"
	"testing"
)

func TestEveryClientHasADescriptorForItsAppToo(t *testing.T) {
	for descriptors, want := range map[uint64]uint64{
		0: 1, 8: 2, 64: 16, 256: 64, 512: 128, 1024: 384, 65536: 32640, math.MaxUint64: (math.MaxUint64 - reservedDescriptors) / 2,
	} {
		if got := fitting(descriptors); got != want {
			t.Errorf("%d clients fit into %d descriptors, want %d", got, descriptors, want)
		}
		if n := fitting(descriptors); descriptors > 8 && 2*n+min(reservedDescriptors, descriptors/2) > descriptors {
			t.Errorf("%d clients with their apps do not fit into %d descriptors", n, descriptors)
		}
	}
}
