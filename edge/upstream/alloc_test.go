//go:build !race

package upstream

import (
	"testing"
)

func TestAnExchangeAllocatesNothing(t *testing.T) {
	o := newOrigin(t, "unix", still)
	p := o.pool(Options{})
	run := exchange(p)
	if n := testing.AllocsPerRun(200, func() {
		if err := run(); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if s := p.Stats(); s.Dialled != 1 {
		t.Errorf("%+v", s)
	}
}
