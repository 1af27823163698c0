package edge

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestRetiredGateLetsNobodyIn(t *testing.T) {
	var g gate
	if g.enter(0) != entered {
		t.Fatal("an open gate refused")
	}
	if g.retire() {
		t.Fatal("a gate with somebody inside was called empty")
	}
	if g.enter(0) != isRetired {
		t.Fatal("a retired gate let somebody in")
	}
	if !g.leave() {
		t.Fatal("the last to leave a retired gate was not told")
	}
	if g.retire() {
		t.Fatal("emptiness was told twice")
	}
}

func TestGateSleepsOnlyWhenNobodyIsInside(t *testing.T) {
	var g gate
	g.enter(0)
	if g.retireIfIdle() {
		t.Fatal("a busy gate was retired")
	}
	if g.leave() {
		t.Fatal("an open gate was called empty for good")
	}
	if !g.retireIfIdle() || g.retireIfIdle() {
		t.Fatal("an idle gate must retire exactly once")
	}
}

func TestGateCountsUpToItsLimit(t *testing.T) {
	var g gate
	if g.enter(1) != entered || g.enter(1) != isFull {
		t.Fatal("the limit does not hold")
	}
	g.leave()
	if g.enter(1) != entered {
		t.Fatal("a place that was given back is lost")
	}
}

// Requests enter and leave gates that are retired and put to sleep under them.
// However it falls out: nobody is inside after the end was told, it is told
// exactly once per gate, and no count is lost.
func TestGateNeitherLosesACountNorTellsTheEndTwice(t *testing.T) {
	const (
		gates   = 2000
		workers = 4
		tries   = 125 // 2000 × 4 × 125 = 1,000,000
	)
	for range gates {
		var g gate
		var told, inside atomic.Int64
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for range tries {
					if g.enter(0) != entered {
						continue
					}
					inside.Add(1)
					if told.Load() != 0 {
						t.Error("inside a gate that was called empty")
					}
					inside.Add(-1)
					if g.leave() {
						told.Add(1)
					}
				}
			})
		}
		wg.Go(func() {
			for range tries {
				if g.retireIfIdle() {
					told.Add(1)
					return
				}
			}
			if g.retire() {
				told.Add(1)
			}
		})
		wg.Wait()
		if told.Load() != 1 || g.inside() != 0 || !g.retired() {
			t.Fatalf("told %d times, %d inside, retired %v", told.Load(), g.inside(), g.retired())
		}
	}
}

func BenchmarkGateEnterLeave(b *testing.B) {
	var g gate
	b.ReportAllocs()
	for b.Loop() {
		g.enter(0)
		g.leave()
	}
}
