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

// spareConnections is how many more connections to the app may rest in the pool; the
// end of the test, with the app asleep, is exact.
const spareConnections = 64

// While slow clients keep coming, others are served as fast as without them, on
// connections that are open and on new ones; the slow ones are told to go, and
// when they have gone nothing of them is left.
func TestSlowClientsSlowNobodyElse(t *testing.T) {
	program, err := exec.LookPath("slowhttptest")
	if err != nil {
		t.Skip("slowhttptest is not installed: apt-get install slowhttptest")
	}
	lasts := rounds(6, 30) // seconds
	u := start(t, options{
		apps: []app{{lines: []string{`hosts = ["hello.localhost", "127.0.0.1"]`}}},
		server: []string{
			`head_timeout = "3s"`, `body_timeout = "3s"`, `write_timeout = "3s"`, "min_body_rate = 1024", "min_write_rate = 1024",
		},
	})
	ok(t, u.get("hello", "/"))
	calm := u.p99(t, 3)
	before := u.vitals()
	for _, m := range slowModes() {
		t.Run(m.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience*time.Duration(lasts)*time.Second)
			defer cancel()
			accepted, ended := u.sum("usher_connections_accepted_total"), u.sum("usher_request_causes_total", fmt.Sprintf("cause=%q", m.cause))
			args := append(m.args, "-r", strconv.Itoa(m.rate), "-c", strconv.Itoa(m.rate*(lasts-1)),
				"-l", strconv.Itoa(lasts), "-p", "3", "-u", "http://"+u.listen+m.path)
			done := make(chan []byte, 1)
			go func() {
				out, _ := exec.CommandContext(ctx, program, args...).CombinedOutput() // how it ends says nothing
				done <- out
			}()
			u.eventually(20*time.Second, "the slow ones come", func() error {
				if n := u.sum("usher_connections_accepted_total") - accepted; n < float64(m.rate) {
					return fmt.Errorf("%g have", n)
				}
				return nil
			})
			beside := u.p99(t, lasts-2)
			out := <-done
			t.Logf("p99 is %s without them and %s beside them", calm, beside)
			if limit := max(2*calm, 500*time.Millisecond); beside > limit {
				t.Errorf("p99 is %s beside slow clients and %s without; at most %s is right\n%s", beside, calm, limit, out)
			}
			err := poll(20*time.Second, func() error {
				if n := u.sum("usher_request_causes_total", fmt.Sprintf("cause=%q", m.cause)) - ended; m.cause != "" && n < float64(m.rate) {
					return fmt.Errorf("%g slow ones were ended by %s", n, m.cause)
				}
				if v := u.vitals(); v.descriptors > before.descriptors+spareConnections {
					return fmt.Errorf("%d descriptors, %d before", v.descriptors, before.descriptors)
				}
				return nil
			})
			if err != nil {
				t.Errorf("when they are gone: %v\n%s", err, out)
			}
		})
	}
}

// p99 is the median, over that many seconds, of the 99th percentile of one. All
// requests must succeed. Each second brings connections of its own, and more of
// them for every fifth request.
func (u *usher) p99(t *testing.T, seconds int) time.Duration {
	t.Helper()
	var all []float64
	for range seconds {
		run := u.loadOf(bench.Load{
			Rate: 200, Duration: time.Second, NewConnections: 0.2, Connections: 16,
			Targets: []bench.Target{{Address: u.listen, Host: "hello.localhost", Path: "/version"}},
		})
		res, err := run.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if res.Total.Failed > 0 || res.Total.Served == 0 {
			t.Fatalf("%d of %d requests failed %v: %+v", res.Total.Failed, res.Total.Requests, res.Total.Failures, res.FailureSamples)
		}
		all = append(all, res.Total.Latency.P99MS)
	}
	slices.Sort(all)
	return time.Duration(all[len(all)/2] * float64(time.Millisecond))
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
