//go:build !race

package accesslog

import (
	"io"
	"runtime"
	"testing"

	"github.com/usher-edge/usher/edge"
)

func TestAnEntryAllocatesNothing(t *testing.T) {
	for _, format := range []Format{JSON, Combined} {
		l := newTestLog(t, io.Discard, Options{Format: format})
		e := with(func(e *edge.Entry) {
			e.Target = append(e.Target, "\x00\"\xff\u202eü"...)
			e.Room = make([]byte, 0, 1<<10)
		})
		trip := func() { // a line that wakes the writer, lines that are gathered
			for range 20 {
				l.Write(e)
			}
			for l.queue.waiting() != 0 {
				runtime.Gosched()
			}
		}
		for range 10 {
			trip()
		}
		if n := testing.AllocsPerRun(20, trip); n != 0 {
			t.Errorf("%s: %g allocations for 20 entries", format, n)
		}
		closeLog(t, l)
	}
}
