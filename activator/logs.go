package activator

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	lc "github.com/usher-edge/usher/activator/lifecycle"
)

const (
	tailLines   = 20
	tailBytes   = 64 << 10
	keptLogs    = 5        // generations that are gone whose output is kept, per app
	logLimit    = 16 << 20 // bytes of one generation's output
	logKept     = 1 << 20  // what is kept beside a log that was cut
	logSuffix   = ".log"
	olderSuffix = ".log.older"
)

func (a *Activator) logDir(app string) string { return filepath.Join(a.stateDir, "logs", app) }

func (a *Activator) logPath(app string, gen uint64) string {
	return filepath.Join(a.logDir(app), strconv.FormatUint(gen, 10)+logSuffix)
}

func (a *Activator) makeLogDir(app string) error { return os.MkdirAll(a.logDir(app), 0o700) }

// tail returns the last n lines of a file; what cannot be read has none.
func tail(path string, n int) []string {
	text, _ := tailText(path, n)
	text = strings.TrimRight(text, "\n")
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// tailText returns the last n lines of a file as they stand, and where they end:
// what is written later begins there.
func tailText(path string, n int) (text string, end int64) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", 0
	}
	end = fi.Size()
	from := max(end-tailBytes, 0)
	b, err := io.ReadAll(io.NewSectionReader(f, from, end-from))
	if err != nil {
		return "", end
	}
	lines := strings.SplitAfter(string(b), "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if from > 0 && len(lines) > 1 {
		lines = lines[1:] // the first one is cut
	}
	return strings.Join(lines[max(len(lines)-n, 0):], ""), end
}

// generationsWithLogs returns the numbers of an app's logs, oldest first.
func (a *Activator) generationsWithLogs(app string) []uint64 {
	entries, err := os.ReadDir(a.logDir(app))
	if err != nil {
		return nil
	}
	var out []uint64
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), logSuffix)
		if n, err := strconv.ParseUint(name, 10, 64); ok && err == nil {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

// pruneLogs removes the output of all but the last of the generations that are
// gone. One that lives goes on writing, into a file that must not lose its name.
func (r *runner) pruneLogs() {
	a, app := r.act, r.name
	if a.Owned() != nil {
		return
	}
	all := slices.DeleteFunc(a.generationsWithLogs(app), func(n uint64) bool { return r.gens[lc.GenID(n)] != nil })
	for _, n := range all[:max(len(all)-keptLogs, 0)] {
		for _, suffix := range []string{logSuffix, olderSuffix} {
			err := os.Remove(filepath.Join(a.logDir(app), strconv.FormatUint(n, 10)+suffix))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				a.log.Warn("cannot remove an old log", "error", err)
			}
		}
	}
}

// boundLog cuts a log that has grown too long. The app appends, so it goes on at
// the new end; what it writes in between may be lost.
func boundLog(path string) error {
	fi, err := os.Stat(path)
	if err != nil || fi.Size() <= logLimit {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var kept bytes.Buffer
	if _, err := io.Copy(&kept, io.NewSectionReader(f, fi.Size()-logKept, logKept)); err != nil {
		return err
	}
	older := strings.TrimSuffix(path, logSuffix) + olderSuffix
	if err := os.WriteFile(older, kept.Bytes(), 0o600); err != nil {
		return err
	}
	return f.Truncate(0)
}
