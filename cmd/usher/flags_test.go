package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyFlag calls f with every flag of every verb, each on a tree of its own.
func everyFlag(t *testing.T, f func(verb string, flag *pflag.Flag)) {
	t.Helper()
	tt := newTerminal(t, hello())
	tree := func() *cobra.Command {
		w := tt.world(io.Discard, io.Discard)
		return newRoot(w, serveCommand(w), validateCommand(w, nil))
	}
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
			fresh, _, err := tree().Find(strings.Fields(cmd.CommandPath())[1:])
			if err != nil {
				t.Fatal(err)
			}
			f(cmd.CommandPath(), fresh.Flags().Lookup(flag.Name))
		})
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(tree())
}

// What 0 means is said by the help of these.
func takesZero(name string) bool {
	return slices.Contains([]string{"lines", "timeout", "seed", "posts", "new-connections"}, name)
}

func TestANumberOutOfTheRangeOfItsFlagIsToldAndNotTakenForNone(t *testing.T) {
	seen := 0
	everyFlag(t, func(verb string, flag *pflag.Flag) {
		var wrong []string
		switch flag.Value.Type() {
		case "duration":
			wrong = []string{"-5s", "5", "soon", "", "99999999h"}
		case "int", "uint64", "float64":
			wrong = []string{"-1", "many", "", "99999999999999999999999"}
		default:
			return
		}
		seen++
		if !takesZero(flag.Name) {
			wrong = append(wrong, "0")
		}
		for _, text := range wrong {
			err := flag.Value.Set(text)
			if err == nil || strings.Contains(err.Error(), "parse") || strings.Contains(err.Error(), "invalid") {
				t.Errorf("%s --%s %q: %v", verb, flag.Name, text, err)
			}
		}
	})
	if seen < 30 {
		t.Errorf("only %d flags with a number were found", seen)
	}
}

func TestAFlagSaysWhatItTakes(t *testing.T) {
	tt := newTerminal(t, hello())
	for line, want := range map[string]string{
		"wake hello --timeout -5s":        `--timeout is a duration such as 30s, or 0, not "-5s"`,
		"wake hello --timeout 5":          `--timeout is a duration such as 30s, or 0, not "5"`,
		"receipts hello --attempt 0":      `--attempt is a number from 1, not "0"`,
		"receipts hello --revision 0":     `--revision is a number from 1, not "0"`,
		"receipts hello -n -1":            `--lines is a number from 0, not "-1"`,
		"logs hello --generation 0":       `--generation is a number from 1, not "0"`,
		"rollback hello --to 0":           `--to is a number from 1, not "0"`,
		"status --json=maybe":             `--json is true or false, not "maybe"`,
		"deploy hello x --mode fast":      `--mode is overlap or hold, not "fast"`,
		"deploy hello x --wait never":     `--wait is switched or drained, not "never"`,
		"bench wake hello --burst 20001":  `--burst is a number from 1 to 20000, not "20001"`,
		"bench steady x --rate NaN":       `--rate is a number of more than 0 and at most 1000000, not "NaN"`,
		"bench steady x --posts 1.1":      `--posts is a share, 0 to 1, not "1.1"`,
		"bench steady x --duration 0s":    `--duration is a duration of more than 0, such as 30s, not "0s"`,
		"bench swap hello --swaps 0":      `--swaps is a number from 1 to 1000, not "0"`,
		"bench swap hello --connections":  "flag needs an argument: --connections",
		"bench steady x --post-path echo": `--post-path is a path, beginning with /, not "echo"`,
	} {
		code, out, errs := tt.run(strings.Fields(line)...)
		if first, _, _ := strings.Cut(errs, "\n"); code != exitUsage || out != "" || first != "usher: "+want {
			t.Errorf("%s: exit %d, stdout %q, stderr %q", line, code, out, errs)
		}
	}
	if got := tt.ctl.Requests(); len(got) != 0 {
		t.Errorf("control was asked: %v", got)
	}
}
