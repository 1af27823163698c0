// Command tests runs go test, shows what go test shows, and says in one line for
// each test that was skipped which it is and why. So does it with what a test says
// it has counted, in a line of its log that begins with "counted: ". go test itself
// tells both only with -v, among thousands of other lines.
//
//	go run ./cmd/internal/tests PACKAGE...
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

func main() { os.Exit(run(os.Args[1:])) }

func run(packages []string) int {
	cmd := exec.Command("go", append([]string{"test", "-json"}, packages...)...)
	cmd.Stderr = os.Stderr
	events, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "tests: start go test: %v\n", err)
		return 1
	}
	err = show(os.Stdout, events)
	ended := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case errors.As(ended, &exit):
		return max(1, exit.ExitCode()) // it has said why
	case err == nil:
		err = ended
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "tests: %v\n", err)
		return 1
	}
	return 0
}

// event is what go test -json says of each step; see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

// show writes for people what go test -json says in r.
func show(w io.Writer, r io.Reader) error {
	s := screen{w: w, held: map[test][]string{}}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			s.line(line)
		}
		if errors.Is(err, io.EOF) {
			return s.err
		}
		if err != nil {
			return fmt.Errorf("read what go test says: %w", err)
		}
	}
}

type test struct{ pkg, name string }

// screen holds what a test writes until it is known whether anybody wants to see
// it.
type screen struct {
	w    io.Writer
	held map[test][]string
	err  error // of the first write that failed
}

func (s *screen) print(text string) {
	if _, err := io.WriteString(s.w, text); s.err == nil {
		s.err = err
	}
}

func (s *screen) line(text string) {
	var e event
	if json.Unmarshal([]byte(text), &e) != nil || e.Action == "" {
		s.print(text) // something wrote past go test
		return
	}
	t := test{e.Package, e.Test}
	switch {
	case e.Action == "output" && e.Test != "":
		s.held[t] = append(s.held[t], e.Output)
	case e.Action == "build-output", e.Action == "output" && e.Output != "PASS\n":
		s.print(e.Output)
	case e.Action == "fail" && e.Test == "":
		s.cutShort(e.Package)
	case e.Action == "fail":
		s.release(t)
	case e.Action == "skip" && e.Test != "":
		s.print(fmt.Sprintf("skipped %s %s: %s\n", e.Package, e.Test, reason(s.held[t])))
		delete(s.held, t)
	case e.Action == "pass":
		s.counted(t)
		delete(s.held, t)
	}
}

// counted shows what a test has counted that passed.
func (s *screen) counted(t test) {
	for _, line := range s.held[t] {
		if what, ok := strings.CutPrefix(said(line), "counted: "); ok {
			s.print(fmt.Sprintf("counted %s %s: %s\n", t.pkg, t.name, what))
		}
	}
}

// release shows what a test wrote that failed.
func (s *screen) release(t test) {
	for _, line := range s.held[t] {
		if !strings.HasPrefix(line, "=== ") {
			s.print(line)
		}
	}
	delete(s.held, t)
}

// cutShort shows what the tests wrote that were under way when their package
// ended, such as a panic.
func (s *screen) cutShort(pkg string) {
	under := slices.Collect(maps.Keys(s.held))
	slices.SortFunc(under, func(a, b test) int { return strings.Compare(a.name, b.name) })
	for _, t := range under {
		if t.pkg == pkg {
			s.release(t)
		}
	}
}

var place = regexp.MustCompile(`^\s*\S+\.go:\d+: `)

// said is a line of a test's log without the place where it is written.
func said(line string) string { return strings.TrimSpace(place.ReplaceAllString(line, "")) }

// reason is what a skipped test has said last.
func reason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		text := said(line)
		if text != "" && !strings.HasPrefix(text, "=== ") && !strings.HasPrefix(text, "--- ") {
			return text
		}
	}
	return "it does not say why"
}
