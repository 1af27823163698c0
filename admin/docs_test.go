package admin_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The type of a problem is a link to a heading of the README.
func TestEveryProblemIsExplained(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	code := regexp.MustCompile(`(?:Code: +|Kind += |Code\w+ += )"([a-z-]+)"`)
	found := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range code.FindAllStringSubmatch(string(text), -1) {
			found++
			if !strings.Contains(string(readme), "\n### "+m[1]+"\n") {
				t.Errorf("%s: %q has no heading in README.md", name, m[1])
			}
		}
	}
	if found < 30 {
		t.Errorf("found only %d codes: the pattern no longer fits the code", found)
	}
}
