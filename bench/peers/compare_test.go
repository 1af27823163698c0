package peers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/usher-edge/usher/bench/proc"
)

// quick is a plan that takes a few seconds with all peers.
func quick(t *testing.T) Plan {
	return Plan{Usher: builtUsher(t), Rounds: 1, Duration: 100 * time.Millisecond, Say: t.Logf, hosts: 20, least: 20}
}

// withPath puts programs of the test's own before those of the machine; alone,
// there are no others.
func withPath(t *testing.T, alone bool, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range programs {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if !alone {
		dir += ":" + os.Getenv("PATH")
	}
	t.Setenv("PATH", dir)
}

func (r *Report) peer(t *testing.T, name string) PeerReport {
	t.Helper()
	for _, p := range r.Peers {
		if p.Name == name {
			return p
		}
	}
	t.Fatalf("%s is not in the report", name)
	return PeerReport{}
}

func TestEveryPeerThatIsInstalledDoesEveryWork(t *testing.T) {
	plan := quick(t)
	shortTemp(t)
	r, err := Compare(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	standing := 0
	for _, p := range r.Peers {
		if p.Skipped == "" {
			standing++
		} else if !strings.HasSuffix(p.Skipped, " is not on PATH") {
			t.Errorf("%s: %s", p.Name, p.Skipped)
		}
	}
	if standing == 1 {
		t.Log("no peer is installed; for a real comparison: apt-get install nginx haproxy varnish caddy")
	}
	if len(r.Works) != len(Works()) || r.Cut != "" || r.Rounds != 1 {
		t.Fatalf("%d works, %d rounds, cut %q", len(r.Works), r.Rounds, r.Cut)
	}
	for _, w := range r.Works {
		if len(w.Peers) < 1 || !w.Cached && len(w.Peers) != standing {
			t.Errorf("%s: %d peers of %d", w.ID, len(w.Peers), standing)
		}
		for _, p := range w.Peers {
			if p.Failures != 0 || p.Problem != "" || p.Figures[CPU].Median <= 0 || p.Figures[PerSecond].Median <= 0 {
				t.Errorf("%s by %s: %d failures, %s, figures %+v", w.ID, p.Peer, p.Failures, p.Problem, p.Figures)
			}
		}
	}
}

func TestWithoutAnyPeerThereIsUsherAndAnOriginOfOurOwn(t *testing.T) {
	plan := quick(t)
	shortTemp(t)
	withPath(t, true, nil)
	plan.Works = []string{"small-4", "upload", "cached"}
	plan.NoAccessLog = true
	r, err := Compare(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(r.Origin, "this program itself") || r.peer(t, Nginx).Skipped != "nginx is not on PATH" || r.AccessLog {
		t.Errorf("origin %s, %+v", r.Origin, r.Peers)
	}
	for _, w := range r.Works {
		if len(w.Peers) != 1 || w.Peers[0].Failures != 0 || w.Peers[0].Problem != "" {
			t.Errorf("%s: %+v", w.ID, w.Peers)
		}
	}
}

func TestAPeerThatCannotServeIsLeftOutWithItsWords(t *testing.T) {
	plan := quick(t)
	shortTemp(t)
	plan.Works, plan.Peers = []string{"small-4"}, []string{HAProxy, Caddy}
	withPath(t, false, map[string]string{
		"haproxy": `[ "$1" = -v ] && echo fake 1 && exit; echo "no such
  keyword" >&2; exit 3`,
		"caddy": `echo v0`, // ends well, and at once
	})
	r, err := Compare(t.Context(), plan)
	if err != nil {
		t.Fatal(err)
	}
	if p := r.peer(t, HAProxy); p.Skipped != "haproxy ended: exit status 3: no such keyword" || p.Version != "fake 1" {
		t.Errorf("%+v", p)
	}
	if p := r.peer(t, Caddy); !strings.HasPrefix(p.Skipped, "caddy ended: exit status 0") {
		t.Errorf("%+v", p)
	}
	if w := r.Works[0]; len(w.Peers) != 1 || w.Peers[0].Failures != 0 {
		t.Errorf("%+v", w.Peers)
	}
}

func TestAnUsherThatDoesNotStartEndsTheComparison(t *testing.T) {
	shortTemp(t)
	withPath(t, true, map[string]string{"broken": "echo my words >&2; exit 5"})
	_, err := Compare(t.Context(), Plan{Usher: filepath.Join(os.Getenv("PATH"), "broken"), Works: []string{"small-4"}})
	if err == nil || !strings.Contains(err.Error(), "start usher: broken ended: exit status 5: my words") {
		t.Errorf("got %v", err)
	}
}

func TestAComparisonThatIsInterruptedReportsWhatItHasAndLeavesNothing(t *testing.T) {
	plan := quick(t)
	shortTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plan.Rounds, plan.Works = 100, []string{"small-4"}
	plan.Say = func(format string, args ...any) {
		if strings.HasPrefix(fmt.Sprintf(format, args...), "round 2 ") {
			cancel()
		}
	}
	r, err := Compare(ctx, plan)
	if err != nil || r.Rounds != 1 || r.Cut == "" || len(r.Works[0].Peers[0].Samples) != 1 {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestAComparisonThatIsInterruptedWhileItStartsLeavesNothing(t *testing.T) {
	plan := quick(t)
	shortTemp(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plan.Say = func(format string, args ...any) {
		if strings.HasPrefix(fmt.Sprintf(format, args...), "usher: ") {
			cancel()
		}
	}
	if r, err := Compare(ctx, plan); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestOnlyTheSameAnswerTwiceIsAHit(t *testing.T) {
	cached := Works()[len(Works())-1]
	if !cached.Cached {
		t.Fatalf("%s is not the cached work", cached.ID)
	}
	for name, tc := range map[string]struct {
		serial func(n int64) string
		want   string
	}{
		"kept":     {func(int64) string { return "1" }, ""},
		"not kept": {func(n int64) string { return fmt.Sprint(n) }, "it does not answer from its cache"},
		"lost":     {func(int64) string { return "" }, "has lost its field"},
	} {
		var n atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if serial := tc.serial(n.Add(1)); serial != "" {
				w.Header().Set(serialField, serial)
			}
			body(cached.length)(w, r)
		}))
		err := ask("tcp", server.Listener.Addr().String(), cached)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
		server.Close()
	}
}

// What a program has started is ended with it, even if it does not see to that.
func TestStoppingEndsTheWholeTree(t *testing.T) {
	dir := t.TempDir()
	r, err := program{path: "/bin/sh", args: []string{"-c", "trap '' TERM; sleep 1000 & echo $! > child; sleep 1001"}}.start(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := eventually(t.Context(), nil, func() error {
		tree := proc.Tree{Roots: []int{r.cmd.Process.Pid}}
		if err := tree.Look(); err != nil || len(tree.Known) < 3 {
			return fmt.Errorf("%d processes, %w", len(tree.Known), err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	tree := proc.Tree{Roots: []int{r.cmd.Process.Pid}}
	if err := tree.Look(); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.stop() // is harmless
	for _, pid := range tree.Known {
		if err := eventually(t.Context(), nil, func() error {
			if s, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(s), ") Z ") {
				return fmt.Errorf("%d still runs: %s", pid, s)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}
