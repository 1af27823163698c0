package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/usher-edge/usher/bench/peers"
	"github.com/usher-edge/usher/bench/stats"
)

func TestBenchPeersShowsHowEachWouldBeRunAndRunsNothing(t *testing.T) {
	tt := newTerminal(t)
	code, out, errs := tt.run("bench", "peers", "--show-config", "--peers", "kamal-proxy,nginx")
	if code != exitOK || errs != "" || !strings.Contains(out, "## usher: ") || !strings.Contains(out, "\n## nginx: ") ||
		!strings.Contains(out, "\n## kamal-proxy: ") || !strings.Contains(out, "$ /bin/false serve --config ") || strings.Contains(out, "## haproxy") {
		t.Errorf("exit %d, stdout\n%s, stderr\n%s", code, out, errs)
	}
	if n := strings.Count(out, "\n"); n > 300 {
		t.Errorf("%d lines: a thousand hosts are too many to show", n)
	}
}

func TestBenchPeersWhoseUsherDoesNotStartLeavesNoFile(t *testing.T) {
	tt := newTerminal(t)
	page := filepath.Join(t.TempDir(), "a.html")
	code, out, errs := tt.run("bench", "peers", "--peers", "usher", "--work", "small-4", "--html", page)
	if code != exitFailed || out != "" || !strings.Contains(errs, "usher: bench peers: start usher: false ended: exit status 1") {
		t.Errorf("exit %d, stdout %s, stderr %s", code, out, errs)
	}
	if _, err := os.Stat(page); !os.IsNotExist(err) {
		t.Errorf("%s: %v", page, err)
	}
}

func TestBenchPeersFailsForUshersFailuresAndOnDemandForBars(t *testing.T) {
	missed := &peers.Report{Works: []peers.WorkReport{{
		Peers:  []peers.PeerResult{{Peer: peers.Usher}, {Peer: peers.Nginx, Failures: 9}},
		Ratios: []peers.Ratio{{Verdict: stats.Missed}, {Verdict: stats.Unclear}, {Verdict: stats.Met}},
	}}}
	failed := &peers.Report{Works: []peers.WorkReport{{Peers: []peers.PeerResult{{Peer: peers.Usher, Failures: 2}}}}}
	for _, tc := range []struct {
		report *peers.Report
		check  bool
		want   string
	}{
		{missed, false, ""},
		{missed, true, "bench peers: 1 bar missed"},
		{failed, false, "bench peers: usher failed 2 requests"},
		{&peers.Report{Cut: "context canceled"}, false, "bench peers: ended early: context canceled"},
		{&peers.Report{}, true, ""},
	} {
		got := ""
		if err := (&benchPeers{check: tc.check}).verdict(tc.report); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%q, want %q", got, tc.want)
		}
	}
}
