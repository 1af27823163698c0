package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// A case is a file in which every expected problem is marked: ‸ stands right
// before the character whose line and column the message must carry. want holds
// a part of each message in the order of the marks.
type badCase struct {
	name string
	text string
	want []string
	env  func() Env // default testEnv
}

const mark = "‸"

// unmark takes the marks out and returns "line:column" of each.
func unmark(text string) (clean string, places []string) {
	for {
		before, after, found := strings.Cut(text, mark)
		if !found {
			return text, places
		}
		line := strings.Count(before, "\n") + 1
		column := len([]rune(before[strings.LastIndexByte(before, '\n')+1:])) + 1
		places = append(places, fmt.Sprintf("%d:%d", line, column))
		text = before + after
	}
}

// top is a valid beginning, ok a valid app body.
const (
	top = "[server]\nlisten = [\"127.0.0.1:8080\"]\n"
	app = top + "[apps.a]\nhosts = [\"a.example\"]\nuser = \"hello\"\n"
	ext = top + "[apps.a]\nhosts = [\"a.example\"]\n"
)

func checkProblems(t *testing.T, got []Problem, places, want []string) {
	t.Helper()
	if len(places) != len(want) {
		t.Fatalf("bad case: %d marks, %d messages", len(places), len(want))
	}
	for i, p := range got {
		if i >= len(want) {
			t.Errorf("one more than expected: %s", p)
			continue
		}
		if place := fmt.Sprintf("%d:%d", p.Line, p.Column); place != places[i] || !strings.Contains(p.Message, want[i]) {
			t.Errorf("problem %d:\n got %s\nwant usher.toml:%s: …%s…", i+1, p, places[i], want[i])
		}
	}
	for i := len(got); i < len(want); i++ {
		t.Errorf("missing: usher.toml:%s: …%s…", places[i], want[i])
	}
}

func runBad(t *testing.T, cases []badCase) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			env := testEnv()
			if c.env != nil {
				env = c.env()
			}
			text, places := unmark(c.text)
			f, err := Parse("usher.toml", []byte(text), env)
			var got Problems
			if !errors.As(err, &got) {
				t.Fatalf("accepted or another error: %+v, %v", f, err)
			}
			if f != nil {
				t.Error("a file came with the error")
			}
			checkProblems(t, got, places, c.want)
		})
	}
}

func TestEveryProblemComesAtOnceInFileOrder(t *testing.T) {
	runBad(t, []badCase{{name: "all", text: `[server]
listen = ["127.0.0.1:8080", ‸"127.0.0.1"]
‸lisen = 1
cache_bytes = ‸"lots"

[apps.‸One]
hosts = ["x.example"]
user = ‸"nobody-here"
idle_timeout = ‸"15 minutes"

‸[apps.two]
hosts = [
  "y.example", # fine
  ‸"X.example",
]
artifact = ‸"bin/gone"
env = { ‸PORT = "1", ‸"no-name" = "2" }
[apps.two.health]
‸pth = "/up"
`, want: []string{
		`server.listen: "127.0.0.1" is no address`,
		"server.lisen: unknown key; did you mean listen?",
		`server.cache_bytes: "lots" is no size`,
		"apps.One: is no name for an app",
		`apps.One.user: there is no user "nobody-here"`,
		`apps.One.idle_timeout: "15 minutes" is no duration`,
		"apps.two: user is missing",
		"apps.two.hosts: host x.example belongs to apps.One already (line 7)",
		"apps.two.artifact: /etc/usher/bin/gone: file does not exist; build it first",
		"apps.two.env: PORT is set by usher",
		`apps.two.env: "no-name" is no name of a variable`,
		"apps.two.health.pth: unknown key; did you mean path?",
	}}})
}
