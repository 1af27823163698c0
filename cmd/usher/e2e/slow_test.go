package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/usher-edge/usher/bench"
)

// slowMode is one of the attacks that slowhttptest knows.
type slowMode struct {
	name  string
	path  string
	args  []string
	rate  int    // connections that come each second
	cause string // how usher ends them; empty: there is nothing slow to end, they are answered
}

func slowModes() []slowMode {
	return []slowMode{
		{"heads", "/", []string{"-H", "-i", "1", "-x", "24"}, 100, "head-timeout"},
		{"bodies", "/upload", []string{"-B", "-i", "1", "-s", "1000000", "-x", "10", "-t", "POST"}, 100, "body-timeout"},
		{"ranges", "/big?n=65536", []string{"-R", "-t", "HEAD"}, 100, ""},
		// Each answer must be larger than the kernel keeps for one connection, so few
		// connections move much.
		{"reading", "/big?n=8388608", []string{"-X", "-w", "1", "-y", "64", "-n", "1", "-z", "1"}, 15, "slow-client"},
	}
}

// tolerance is what the p99 of two ushers that are treated alike may differ by, beside
// the factor that is asked for: docs/testing.md says what was measured.
const tolerance = 20 * time.Millisecond

// While slow clients keep coming to an usher, others are served as fast by it, on
// connections that are open and on new ones, as by its twin, which has the same load in
// the same seconds and no slow clients; so whatever else the machine has to do slows
// both. The slow ones are told to go, and when they have gone nothing of them is left.
func TestSlowClientsSlowNobodyElse(t *testing.T) {
	program, err := exec.LookPath("slowhttptest")
	if err != nil {
		t.Skip("slowhttptest is not installed: apt-get install slowhttptest")
	}
	lasts := rounds(8, 30) // seconds
	alike := options{
		apps: []app{{lines: []string{`hosts = ["hello.localhost", "127.0.0.1"]`}}},
		server: []string{
			`head_timeout = "3s"`, `body_timeout = "3s"`, `write_timeout = "3s"`, "min_body_rate = 1024", "min_write_rate = 1024",
		},
	}
	u, twin := start(t, alike), start(t, alike)
	p99s(t, 1, u, twin)
	u.sleep("hello") // with it go the connections to it, however many there are
	before := u.vitals()
	for _, m := range slowModes() {
		t.Run(m.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience*time.Duration(lasts)*time.Second)
			defer cancel()
			p99s(t, 1, u, twin)
			accepted, ended := u.sum("usher_connections_accepted_total"), u.sum("usher_request_causes_total", fmt.Sprintf("cause=%q", m.cause))
			done := make(chan []byte, 1)
			go func() { done <- m.attack(ctx, program, u.listen, lasts) }()
			u.eventually(20*time.Second, "the slow ones come", func() error {
				if n := u.sum("usher_connections_accepted_total") - accepted; n < float64(m.rate) {
					return fmt.Errorf("%g have", n)
				}
				return nil
			})
			p99 := p99s(t, lasts-2, u, twin)
			out := <-done
			t.Logf("p99 is %s beside them and %s without: %.2f times", p99[0], p99[1], float64(p99[0])/float64(p99[1]))
			if limit := 2*p99[1] + tolerance; p99[0] > limit {
				t.Errorf("p99 is %s beside slow clients and %s without; at most %s is right\n%s", p99[0], p99[1], limit, out)
			}
			u.sleep("hello")
			err := poll(20*time.Second, func() error {
				if n := u.sum("usher_request_causes_total", fmt.Sprintf("cause=%q", m.cause)) - ended; m.cause != "" && n < float64(m.rate) {
					return fmt.Errorf("%g slow ones were ended by %s", n, m.cause)
				}
				if v := u.vitals(); v.descriptors != before.descriptors {
					return fmt.Errorf("%d descriptors, %d before: %v", v.descriptors, before.descriptors, descriptors(u.cmd.Process.Pid))
				}
				return nil
			})
			if err != nil {
				t.Errorf("when they are gone: %v\n%s", err, out)
			}
		})
	}
}

// attack makes connections to address for so many seconds, and returns what the program
// says; how it ends says nothing.
func (m slowMode) attack(ctx context.Context, program, address string, seconds int) []byte {
	args := append(m.args, "-r", strconv.Itoa(m.rate), "-c", strconv.Itoa(m.rate*(seconds-1)),
		"-l", strconv.Itoa(seconds), "-p", "3", "-u", "http://"+address+m.path)
	out, _ := exec.CommandContext(ctx, program, args...).CombinedOutput()
	return out
}

// p99s is the median, over that many seconds, of the 99th percentile of one, for each of
// the ushers. All have their load at once, and all requests must succeed. Each second
// brings connections of its own, and more of them for every fifth request.
func p99s(t *testing.T, seconds int, ushers ...*usher) []time.Duration {
	t.Helper()
	all := make([][]float64, len(ushers))
	for range seconds {
		runs := make([]*bench.Run, len(ushers))
		for i, u := range ushers {
			runs[i] = u.loadOf(bench.Load{
				Rate: 200, Duration: time.Second, NewConnections: 0.2, Connections: 16,
				Targets: []bench.Target{{Address: u.listen, Host: "hello.localhost", Path: "/version"}},
			})
		}
		for i, run := range runs {
			res, err := run.Wait(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if res.Total.Failed > 0 || res.Total.Served == 0 {
				t.Fatalf("%d of %d requests failed %v: %+v", res.Total.Failed, res.Total.Requests, res.Total.Failures, res.FailureSamples)
			}
			all[i] = append(all[i], res.Total.Latency.P99MS)
		}
	}
	medians := make([]time.Duration, len(ushers))
	for i := range all {
		slices.Sort(all[i])
		medians[i] = time.Duration(all[i][len(all[i])/2] * float64(time.Millisecond))
	}
	return medians
}

// sum scrapes and adds up; see metrics.sum.
func (u *usher) sum(name string, labels ...string) float64 {
	u.t.Helper()
	m, err := u.metrics()
	if err != nil {
		u.t.Fatal(err)
	}
	return m.sum(name, labels...)
}
