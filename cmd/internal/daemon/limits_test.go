package daemon

import (
	"math"
	"testing"
)

func TestEveryClientHasADescriptorForItsAppToo(t *testing.T) {
	const own = ownDescriptors + 2*loopDescriptors // with two loops
	for descriptors, want := range map[uint64]uint64{
		0: 1, 8: 1, own: 1, own + 4: 2, 64: 14, 256: 64, 512: 128, 1024: 384, 65536: 32640, math.MaxUint64: (math.MaxUint64 - reservedDescriptors) / 2,
	} {
		got := fitting(descriptors, 2)
		if got != want {
			t.Errorf("%d clients fit into %d descriptors, want %d", got, descriptors, want)
		}
		if got > 1 && 2*got+own > descriptors {
			t.Errorf("%d clients with their apps do not fit into %d descriptors", got, descriptors)
		}
	}
	if n := fitting(512, 128); n != (512-ownDescriptors-128*loopDescriptors)/2 {
		t.Errorf("%d clients beside 128 loops", n)
	}
}
