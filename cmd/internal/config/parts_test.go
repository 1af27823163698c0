package config

import (
	"strings"
	"testing"
	"time"
)

func containsAll(s string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(s, p) {
			return false
		}
	}
	return true
}

func TestOverlappingListenersAreFound(t *testing.T) {
	tcp := func(s string) Addr { return Addr{"tcp", s} }
	for _, c := range []struct {
		a, b Addr
		want bool
	}{
		{tcp("127.0.0.1:80"), tcp("127.0.0.1:80"), true},
		{tcp("127.0.0.1:80"), tcp("127.0.0.1:81"), false},
		{tcp("127.0.0.1:80"), tcp("127.0.0.2:80"), false},
		{tcp("127.0.0.1:80"), tcp(":80"), true},
		{tcp("[::1]:80"), tcp("0.0.0.0:80"), true},
		{tcp("[::]:80"), tcp("0.0.0.0:80"), true},
		{tcp(":0"), tcp(":0"), false},
		{tcp(":80"), Addr{"unix", "/:80"}, false},
		{Addr{"unix", "/a"}, Addr{"unix", "/a"}, true},
		{Addr{"unix", "/a"}, Addr{"unix", "/b"}, false},
	} {
		if overlaps(c.a, c.b) != c.want || overlaps(c.b, c.a) != c.want {
			t.Errorf("%s and %s: want overlap %v", c.a, c.b, c.want)
		}
	}
}

func TestSuggestionsAreTheNearestKeyOrAll(t *testing.T) {
	known := []string{"hosts", "paths", "park_limit", "park_bytes", "user"}
	for word, want := range map[string]string{
		"host":       "did you mean hosts?",
		"Path":       "did you mean paths?",
		"park-limit": "did you mean park_limit?",
		"uesr":       "did you mean user?",
		"x":          "known here: hosts, park_bytes, park_limit, paths, user",
		"completely": "known here: hosts, park_bytes, park_limit, paths, user",
	} {
		if got := suggest(word, known); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}

func TestEditCostCountsSingleSteps(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "abc", 3}, {"abc", "abc", 0}, {"abc", "axc", 1}, {"abc", "acb", 1}, {"kitten", "sitting", 3}} {
		if got := editCost(c.a, c.b); got != c.want {
			t.Errorf("%q to %q costs %d, want %d", c.a, c.b, got, c.want)
		}
	}
}

func TestSizesAndDurationsPrintTheShortWay(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 1: "1B", 1024: "1KiB", 1536: "1536B", 64 << 20: "64MiB", 3 << 30: "3GiB"} {
		if got := formatSize(n); got != want {
			t.Errorf("%d prints %s, want %s", n, got, want)
		}
		if back, ok := parseSize(want); !ok || back != n {
			t.Errorf("%s reads %d, %v", want, back, ok)
		}
	}
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", 90 * time.Minute: "1h30m", 90 * time.Second: "1m30s", time.Minute: "1m", 20 * time.Second: "20s",
		time.Hour + 15*time.Second: "1h0m15s", 0: "0s", 10 * time.Hour: "10h",
	} {
		if got := short(d); got != want {
			t.Errorf("%d prints %s, want %s", d, got, want)
		}
	}
}

func TestAddressesPrintAsTheFileSpellsThem(t *testing.T) {
	env := testEnv()
	r := &reader{dir: "/d", env: env}
	for _, text := range []string{"127.0.0.1:80", ":80", "[::1]:80", "unix:/run/x"} {
		a, problem := r.listenAddr(text)
		if problem != "" || a.String() != text {
			t.Errorf("%s prints %s (%s)", text, a, problem)
		}
	}
	if p, _ := portRange("20000-20010"); p.String() != "20000-20010" || !p.Contains(20010) || p.Contains(20011) {
		t.Errorf("range %s", p)
	}
}
