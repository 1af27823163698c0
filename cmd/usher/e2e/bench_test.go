package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"os/exec"
	"testing"
	"time"

	"github.com/usher-edge/usher/bench"
)

// The figures of a loaded machine are nobody's: what counts is that the real
// thing can be compared, that nothing is lost and nothing left over.
func TestBenchSwapComparesSwapsOfTheRealThing(t *testing.T) {
	t.Parallel()
	for _, hold := range []bool{false, true} {
		u := start(t, options{apps: []app{{hold: hold, lines: []string{`listen = "socket"`}}}})
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, theLab.usher, "--admin", "unix:"+u.admin, "bench", "swap", "hello",
			"--swaps", "2", "--rate", "50", "--lead", "50ms", "--tail", "50ms", "--json")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil {
			t.Fatalf("hold %v: %v\n%s", hold, err, errs.String())
		}
		var r bench.Result
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatal(err)
		}
		p := r.Pinned
		if p == nil || p.Swaps != 2 || r.Total.Failed != 0 {
			t.Fatalf("hold %v: %+v, %+v", hold, r.Total, p)
		}
		switch {
		case hold && (p.Hold == nil || p.Hold.StartMS.Of != 2 || p.Hold.StopMS.Least <= 0 || p.Hold.StartMS.Least <= 0 || len(r.Windows) != 2):
			t.Errorf("hold: %+v, %d windows", p.Hold, len(r.Windows))
		case !hold && (p.Hold != nil || len(r.Windows) != 4):
			t.Errorf("overlap: %+v, %d windows", p, len(r.Windows))
		}
		for _, w := range r.Windows {
			// A second lives in it for a moment at least, and usher works.
			if w.EndMS <= w.StartMS || w.LiveMS <= w.StartMS || w.LiveMS >= w.SwitchMS || w.Requests > 0 && w.CPUMicros <= 0 {
				t.Errorf("hold %v: window %+v", hold, w)
			}
		}
	}
}
