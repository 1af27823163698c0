package child

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

func TestOnlyUsherStartsAForker(t *testing.T) {
	for _, args := range [][]string{{Verb}, {Verb, "3"}} {
		var exit *exec.ExitError
		if err := exec.Command(os.Args[0], args...).Run(); !errors.As(err, &exit) || exit.ExitCode() != exitUsage {
			t.Errorf("%q: %v, want exit code %d", args, err, exitUsage)
		}
	}
}
