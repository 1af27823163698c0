package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestSkippedTestsSayWhyGoodOnesWhatTheyCountedAndFailedOnesEverything(t *testing.T) {
	var in strings.Builder
	say := json.NewEncoder(&in)
	for _, e := range []event{
		{"start", "x/a", "", ""},
		{"output", "x/a", "TestGood", "=== RUN   TestGood\n"},
		{"output", "x/a", "TestGood", "    a_test.go:3: all is well\n"},
		{"output", "x/a", "TestGood", "    a_test.go:4: counted: 5 states of 2 kinds\n"},
		{"output", "x/a", "TestGood", "    a_test.go:5: nobody has counted: 7\n"},
		{"pass", "x/a", "TestGood", ""},
		{"output", "x/a", "TestRoot", "=== RUN   TestRoot\n"},
		{"output", "x/a", "TestRoot/user", "    a_test.go:7: needs root: run as root\n"},
		{"output", "x/a", "TestRoot/user", "--- SKIP: TestRoot/user (0.00s)\n"},
		{"skip", "x/a", "TestRoot/user", ""},
		{"pass", "x/a", "TestRoot", ""},
		{"output", "x/a", "TestMute", "--- SKIP: TestMute (0.00s)\n"},
		{"skip", "x/a", "TestMute", ""},
		{"output", "x/a", "", "PASS\n"},
		{"output", "x/a", "", "ok  \tx/a\t0.1s\n"},
		{"pass", "x/a", "", ""},
		{"output", "x/b", "TestBad", "=== RUN   TestBad\n"},
		{"output", "x/b", "TestBad", "    b_test.go:8: counted: 3\n"},
		{"output", "x/b", "TestBad", "    b_test.go:9: got 1, want 2\n"},
		{"output", "x/b", "TestBad", "--- FAIL: TestBad (0.00s)\n"},
		{"fail", "x/b", "TestBad", ""},
		{"output", "x/b", "TestPanics", "panic: oh\n"},
		{"output", "x/b", "", "FAIL\tx/b\t0.1s\n"},
		{"fail", "x/b", "", ""},
		{"output", "x/c", "", "?   \tx/c\t[no test files]\n"},
		{"skip", "x/c", "", ""},
	} {
		if err := say.Encode(e); err != nil {
			t.Fatal(err)
		}
	}
	in.WriteString("something else\n")
	want := `counted x/a TestGood: 5 states of 2 kinds
skipped x/a TestRoot/user: needs root: run as root
skipped x/a TestMute: it does not say why
ok  	x/a	0.1s
    b_test.go:8: counted: 3
    b_test.go:9: got 1, want 2
--- FAIL: TestBad (0.00s)
FAIL	x/b	0.1s
panic: oh
?   	x/c	[no test files]
something else
`
	var out strings.Builder
	if err := show(&out, strings.NewReader(in.String())); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("it shows\n%s\nwant\n%s", &out, want)
	}
}
