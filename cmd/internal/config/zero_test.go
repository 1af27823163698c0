package config

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// sections are the parts of a file with durations, each as the text that comes before
// a key of it and the heading that it has in the documentation.
func sections() map[string]string {
	return map[string]string{
		"## `[server]`":                     top,
		"### `[server.listeners.\"ADDR\"]`": top + "[server.listeners.\"127.0.0.1:8080\"]\n",
		"## `[apps.NAME]`":                  app,
		"### `[apps.NAME.health]`":          app + "[apps.a.health]\n",
	}
}

func problemWith(text string) string {
	_, err := Parse("usher.toml", []byte(text), testEnv())
	return fmt.Sprint(err)
}

// documented is the row that the documentation has of a key, below a heading.
func documented(t *testing.T, heading, key string) string {
	t.Helper()
	text, err := os.ReadFile("../../../docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text2, found := strings.Cut(string(text), "\n"+heading+"\n")
	row := regexp.MustCompile("(?m)^\\|[^|]*`" + key + "`.*").FindString(text2)
	if !found || row == "" {
		t.Fatalf("docs/config.md has no %s below %s", key, heading)
	}
	return row
}

// No duration that is 0 is taken for none, or for anything else, behind the back of
// whoever wrote it: it is refused, or the documentation says what it does.
func TestADurationOfZeroIsRefusedOrDocumented(t *testing.T) {
	known := regexp.MustCompile("known here: (.*)")
	durations := 0
	for heading, before := range sections() {
		keys := known.FindStringSubmatch(problemWith(before + "zzzzzzzzzzzz = 1\n"))
		if keys == nil {
			t.Fatalf("%s: no list of keys", heading)
		}
		for key := range strings.SplitSeq(keys[1], ", ") {
			if !strings.Contains(problemWith(before+key+" = 'x'\n"), `"x" is no duration`) {
				continue
			}
			durations++
			row := documented(t, heading, key)
			zero := problemWith(before + key + " = '0s'\n")
			refused := strings.Contains(zero, key+": 0s is out of range; write a duration from ")
			switch told := strings.Contains(row, "`\"0s\"`"); {
			case refused == told:
				t.Errorf("%s: 0s is refused: %t (%s); documented: %t", key, refused, zero, told)
			case strings.Contains(row, "`\"never\"`") && !strings.Contains(zero, `or "never"`):
				t.Errorf("%s: whoever writes 0 is not told to write never: %s", key, zero)
			}
		}
	}
	if durations < 18 {
		t.Errorf("only %d durations", durations)
	}
}
