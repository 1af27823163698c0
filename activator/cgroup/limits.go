package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// ErrNotLimited means that a limit could not be set. The wrapping error says why.
var ErrNotLimited = errors.New("limit not applied")

// Limits bound what all processes of a group may use together. Zero is no limit.
type Limits struct {
	Memory uint64 `json:"memory,omitempty"` // bytes (memory.max, cgroup-v2.rst)
	PIDs   uint64 `json:"pids,omitempty"`   // processes and threads (pids.max)
}

// None says that nothing is limited.
func (l Limits) None() bool { return l == Limits{} }

// Plus is what a group of both needs. What one of them has no limit of, both have
// none of.
func (l Limits) Plus(o Limits) Limits {
	sum := Limits{}
	if l.Memory != 0 && o.Memory != 0 {
		sum.Memory = l.Memory + o.Memory
	}
	if l.PIDs != 0 && o.PIDs != 0 {
		sum.PIDs = l.PIDs + o.PIDs
	}
	return sum
}

// String is for events and status.
func (l Limits) String() string {
	var parts []string
	if l.Memory != 0 {
		parts = append(parts, "memory "+bytesText(l.Memory))
	}
	if l.PIDs != 0 {
		parts = append(parts, fmt.Sprintf("pids %d", l.PIDs))
	}
	if len(parts) == 0 {
		return "no limit"
	}
	return strings.Join(parts, ", ")
}

// setting is one interface file and what it shall hold.
type setting struct {
	file  string
	value uint64
}

func (l Limits) settings() []setting {
	return []setting{{"memory.max", l.Memory}, {"pids.max", l.PIDs}}
}

const noLimit = "max"

// write sets the limits of the group at dir. A file that is not there, because its
// controller is not, limits nothing already.
func (l Limits) write(dir string) error {
	for _, s := range l.settings() {
		text := noLimit
		if s.value != 0 {
			text = strconv.FormatUint(s.value, 10)
		}
		err := writeFile(filepath.Join(dir, s.file), text)
		if err != nil && (s.value != 0 || !errors.Is(err, fs.ErrNotExist)) {
			return fmt.Errorf("%w: set %s to %s: %w", ErrNotLimited, filepath.Join(dir, s.file), text, err)
		}
	}
	return nil
}

// readLimits is what the kernel holds the group at dir to.
func readLimits(dir string) (Limits, error) {
	if _, err := os.Stat(dir); err != nil {
		return Limits{}, err
	}
	var l Limits
	for file, to := range map[string]*uint64{"memory.max": &l.Memory, "pids.max": &l.PIDs} {
		raw, err := os.ReadFile(filepath.Join(dir, file))
		text := strings.TrimSpace(string(raw))
		if errors.Is(err, fs.ErrNotExist) || text == noLimit {
			continue
		}
		if err == nil {
			*to, err = strconv.ParseUint(text, 10, 64)
		}
		if err != nil {
			return l, fmt.Errorf("read limits of %s: %w", dir, err)
		}
	}
	return l, nil
}

// writeFile writes to a file of the hierarchy; unlike os.WriteFile it makes none.
func writeFile(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// limiting are the controllers that Limits needs.
var limiting = [...]string{"memory", "pids"}

// Enforces switches the controllers on that limits need, for this tree and for
// what is below it, and says why it cannot. It may be called at any time.
func (t *Tree) Enforces() error { return t.enable(limiting[:]...) }

// enable switches controllers on for the children of the tree.
func (t *Tree) enable(controllers ...string) error {
	for _, dir := range []string{filepath.Dir(t.dir), t.dir} {
		if err := enableIn(dir, controllers); err != nil {
			return err
		}
	}
	return nil
}

// enableIn switches controllers on for the children of dir. The kernel refuses it
// for a group that holds processes itself, unless that is the root.
func enableIn(dir string, controllers []string) error {
	there, err := words(dir, "cgroup.controllers")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotLimited, err)
	}
	on, err := words(dir, "cgroup.subtree_control")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNotLimited, err)
	}
	for _, c := range controllers {
		switch {
		case on[c]:
			continue
		case !there[c]:
			return fmt.Errorf("%w: %s has no %s controller (it is not delegated, or a cgroup v1 hierarchy holds it)", ErrNotLimited, dir, c)
		}
		if err := writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
			return fmt.Errorf("%w: switch the %s controller on in %s: %w (under systemd 254 and later set DelegateSubgroup=daemon, so that usher is not in that cgroup itself)", ErrNotLimited, c, dir, err)
		}
	}
	return nil
}

// words reads a file of the hierarchy that lists words.
func words(dir, file string) (map[string]bool, error) {
	raw, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, w := range strings.Fields(string(raw)) {
		found[w] = true
	}
	return found, nil
}

// Limit bounds what all generations of an app may use together.
func (t *Tree) Limit(app string, l Limits) error {
	dir, err := t.appDir(app)
	if err != nil {
		return err
	}
	if err := t.makeApp(dir, l); err != nil {
		return err
	}
	return l.write(dir)
}

// Limits is what all generations of an app may use together now, as the kernel
// says. The error of an app of which nothing is left wraps fs.ErrNotExist.
func (t *Tree) Limits(app string) (Limits, error) {
	dir, err := t.appDir(app)
	if err != nil {
		return Limits{}, err
	}
	return readLimits(dir)
}

// makeApp makes the directory that an app's generations share, with the
// controllers that limits below it need.
func (t *Tree) makeApp(dir string, l Limits) error {
	if l.None() {
		return mkdir(dir)
	}
	if err := t.Enforces(); err != nil {
		return err
	}
	if err := mkdir(dir); err != nil {
		return err
	}
	return enableIn(dir, limiting[:])
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make the cgroup of an app: %w", err)
	}
	return nil
}
