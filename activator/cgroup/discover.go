package cgroup

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Options says where the tree shall be.
type Options struct {
	// StateDir is usher's state directory. Its absolute path gives the tree its
	// name, so that two ushers on one box never meet. It is required.
	StateDir string

	// Base is the absolute cgroup directory to make the tree in. Empty means
	// usher's own cgroup, as /proc/self/cgroup and the mount table give it.
	Base string
}

// Discover finds a cgroup v2 directory that usher may use and makes its tree
// there. It needs the unified hierarchy to be mounted writable anywhere (beside
// v1 is fine) and a kernel with cgroup.kill (5.14), and no controller. Without
// one, the tree is nil and the error wraps ErrUnavailable and says why, which is
// no failure: the caller goes on with sessions.
func Discover(o Options) (*Tree, error) {
	if o.StateDir == "" {
		return nil, errors.New("discover cgroups: no state directory given")
	}
	stateDir, err := filepath.Abs(o.StateDir)
	if err != nil {
		return nil, fmt.Errorf("discover cgroups: %w", err)
	}
	sys, err := readSystem()
	if err != nil {
		return nil, unavailable("%v", err)
	}
	base, err := sys.base(o.Base)
	if err != nil {
		return nil, err
	}
	tree := &Tree{dir: filepath.Join(base, treeName(stateDir))}
	if err := sys.prepare(base, tree.dir); err != nil {
		return nil, err
	}
	return tree, nil
}

func unavailable(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnavailable, fmt.Sprintf(format, args...))
}

// treeName is usher-<id>; the id is short because it shows up in ps and top.
func treeName(stateDir string) string {
	sum := sha256.Sum256([]byte(stateDir))
	return treePrefix + hex.EncodeToString(sum[:treeID])
}

const (
	treePrefix = "usher-"
	treeID     = 5 // bytes
)

// isTreeName says whether some usher calls its tree so.
func isTreeName(name string) bool {
	digits, ok := strings.CutPrefix(name, treePrefix)
	id, err := hex.DecodeString(digits)
	return ok && err == nil && len(id) == treeID
}

// system is what the kernel says about this process and the hierarchy.
type system struct {
	mounts []mount
	// own is this process's place in the hierarchy, as /proc/self/cgroup shows
	// it in this cgroup namespace; "" when the unified hierarchy is not there.
	own string
}

// mount is one cgroup2 line of the mount table (proc_pid_mountinfo(5)).
type mount struct {
	root     string // the part of the hierarchy that is mounted
	point    string // where
	writable bool
}

func readSystem() (system, error) {
	table, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return system{}, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return system{}, err
	}
	return system{mounts: parseMounts(string(table)), own: parseOwn(string(own))}, nil
}

// parseMounts picks the cgroup2 mounts out of a mountinfo text. A line is
//
//	36 35 98:0 /root /point opts [tags…] - fstype source superopts
func parseMounts(table string) []mount {
	var found []mount
	for line := range strings.Lines(table) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 || right[0] != "cgroup2" {
			continue
		}
		found = append(found, mount{
			root:     unescape(left[3]),
			point:    unescape(left[4]),
			writable: hasOption(left[5], "rw") && hasOption(right[2], "rw"),
		})
	}
	return found
}

func hasOption(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want {
			return true
		}
	}
	return false
}

// unescape undoes the four octal escapes that the kernel uses in mount tables.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// parseOwn finds the line of the unified hierarchy, "0::<path>".
func parseOwn(text string) string {
	for line := range strings.Lines(text) {
		if path, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "0::"); ok {
			// An own cgroup that was removed meanwhile is shown like this.
			return strings.TrimSuffix(path, " (deleted)")
		}
	}
	return ""
}

// base picks the directory that usher's tree goes into.
func (s system) base(wanted string) (string, error) {
	if len(s.mounts) == 0 {
		return "", unavailable("the mount table has no cgroup2 file system")
	}
	if wanted != "" {
		return s.checkWanted(filepath.Clean(wanted))
	}
	if s.own == "" {
		return "", unavailable("/proc/self/cgroup has no line of the unified hierarchy")
	}
	readOnly := ""
	for _, m := range s.mounts {
		dir, ok := m.locate(s.own)
		switch {
		case !ok:
		case m.writable && dir != m.point && !delegated(dir) && delegated(filepath.Dir(dir)):
			return filepath.Dir(dir), nil // the other half of systemd's DelegateSubgroup=
		case m.writable:
			return dir, nil
		default:
			readOnly = m.point
		}
	}
	if readOnly != "" {
		return "", unavailable("%s is mounted read-only (in a container, mount it writable)", readOnly)
	}
	return "", unavailable("usher's own cgroup %s is not below any cgroup2 mount", s.own)
}

// delegated says that systemd has handed the cgroup over to us whole (Delegate=).
func delegated(dir string) bool {
	for _, attr := range []string{"user.delegate", "trusted.delegate"} {
		var buf [1]byte
		if n, err := unix.Getxattr(dir, attr, buf[:]); err == nil && n == 1 && buf[0] == '1' {
			return true
		}
	}
	return false
}

func (s system) checkWanted(dir string) (string, error) {
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("discover cgroups: base %q is not absolute: give the full path of a cgroup v2 directory", dir)
	}
	for _, m := range s.mounts {
		if !below(dir, m.point) {
			continue
		}
		if !m.writable {
			return "", unavailable("base %s: %s is mounted read-only", dir, m.point)
		}
		return dir, nil
	}
	return "", unavailable("base %s is not below a cgroup2 mount", dir)
}

// locate gives the directory at which a cgroup of the hierarchy is reachable
// through this mount.
func (m mount) locate(cgroup string) (string, bool) {
	if !below(cgroup, m.root) {
		return "", false
	}
	rel, err := filepath.Rel(m.root, cgroup)
	if err != nil {
		return "", false
	}
	return filepath.Join(m.point, rel), true
}

func below(path, top string) bool {
	// A path that climbs out of the cgroup namespace ("/../x") is in no mount.
	if strings.Contains(path+"/", "/../") {
		return false
	}
	return top == "/" || path == top || strings.HasPrefix(path, top+"/")
}

// prepare makes the tree's directory and checks that a process of ours could be
// cloned into a leaf of it.
func (s system) prepare(base, dir string) error {
	if err := unix.Access(base, unix.W_OK|unix.X_OK); err != nil {
		return unavailable("%s is not writable for uid %d: %v (under systemd set Delegate=yes, or give another base)", base, os.Geteuid(), err)
	}
	if err := s.checkAttach(base); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return unavailable("%v", err)
	}
	if err := checkLeaf(dir); err != nil {
		// Best effort: an empty directory of ours is no harm to anyone.
		_ = unix.Rmdir(dir)
		return err
	}
	return nil
}

// checkAttach applies the kernel's rule for moving a process, which clone3 into
// a cgroup follows too: cgroup.procs of the nearest common ancestor must be
// writable.
func (s system) checkAttach(base string) error {
	for _, m := range s.mounts {
		own, ok := m.locate(s.own)
		if !ok || !below(base, m.point) {
			continue
		}
		common := base
		for common != m.point && !below(own, common) {
			common = filepath.Dir(common)
		}
		procs := filepath.Join(common, "cgroup.procs")
		if err := unix.Access(procs, unix.W_OK); err != nil {
			return unavailable("%s is not writable for uid %d: %v (start usher inside the delegated cgroup)", procs, os.Geteuid(), err)
		}
		return nil
	}
	return nil
}

func checkLeaf(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil {
		return unavailable("%s has no cgroup.kill: the kernel is older than 5.14", dir)
	}
	kind, err := os.ReadFile(filepath.Join(dir, "cgroup.type"))
	if err != nil {
		return unavailable("%v", err)
	}
	if got := strings.TrimSpace(string(kind)); got != "domain" {
		return unavailable("%s is a %q cgroup (usher runs below a threaded one): processes need a domain", dir, got)
	}
	return nil
}
