//go:build !stepped

package edge

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The same package once more, with words that wait for their turn: what is
// explored is the code as it is (words.go, stepped_test.go).
func TestRequestsASwitchAndASleepInEveryOrder(t *testing.T) {
	if testing.Short() {
		t.Skip("it compiles the package once more")
	}
	for _, f := range []string{"stepped_test.go", "stepped_words_test.go"} {
		if _, err := os.ReadFile(f); err != nil { // so that go test knows what this one depends on
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-v", "-tags=stepped", "-run=^TestStepped", ".")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	passed := 0
	for line := range strings.Lines(string(out)) {
		if strings.HasPrefix(line, "    ") {
			t.Log(strings.TrimSpace(line))
		}
		if strings.HasPrefix(line, "--- PASS: TestStepped") {
			passed++
		}
	}
	if passed != 2 {
		t.Errorf("%d of 2 tests were run:\n%s", passed, out)
	}
}
