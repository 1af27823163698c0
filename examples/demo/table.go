package main

import (
	"bytes"
	"fmt"
	"text/tabwriter"

	"github.com/usher-edge/usher/bench"
)

// swap is one deploy under load.
type swap struct {
	mode, version string
	result        *bench.Result
	parked        parked
}

// saysVersion checks that a page comes from a version of the example app.
func saysVersion(version string) func(bench.Answer) error {
	return func(a bench.Answer) error {
		if !bytes.HasSuffix(bytes.TrimSpace(a.Body), []byte(" from "+version)) {
			return fmt.Errorf("the page says %q, not that it is from %s", a.Body, version)
		}
		return nil
	}
}

// printTable shows what clients saw of the swaps.
func (t *story) printTable() {
	fmt.Fprintln(t.out)
	w := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SWAP\tPHASE\tREQUESTS\tFAILED\tP50 MS\tP99 MS\tMAX MS\tPARKED")
	for _, s := range t.swaps {
		name := s.mode + " to " + s.version
		for _, p := range s.result.Phases {
			waited := ""
			if p.Name == bench.PhaseDuring {
				waited = s.parked.String()
			}
			fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%s\n", name, p.Name, p.Requests, p.Failed,
				p.Latency.P50MS, p.Latency.P99MS, p.Latency.MaxMS, waited)
			name = ""
		}
	}
	// Errors of the terminal have nowhere to go.
	_ = w.Flush()
}

// verdict is nil if nothing failed and the hold really held.
func (t *story) verdict() error {
	requests, failed := 0, 0
	for _, s := range t.swaps {
		requests += s.result.Total.Requests
		failed += s.result.Failures()
		for _, f := range s.result.FailureSamples {
			fmt.Fprintf(t.out, "    %s to %s, %.3f s: %s: %s\n", s.mode, s.version, f.AtMS/1000, f.Kind, f.Detail)
		}
		if s.mode == "hold" && s.parked.count < 1 {
			return fmt.Errorf("hold to %s: no request was parked, so nothing was held", s.version)
		}
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d requests failed", failed, requests)
	}
	t.say("%d requests during two swaps, none failed", requests)
	return nil
}
