package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

// Tree is usher's own directory in a cgroup v2 hierarchy,
// <base>/usher-<id of the state directory>. Below it every app has a directory,
// whose limits hold for all of its generations together, and generations are leaves
// below that, named <app>.<generation>. The directory of an app goes with its last
// generation. A Tree has no state of its own and may be used from several
// goroutines.
type Tree struct {
	dir string
}

// Dir is the absolute path of the tree's own directory.
func (t *Tree) Dir() string { return t.dir }

// New makes the group of one generation, which may use no more than l. An empty
// left-over of the same name is removed first; one that still holds processes is
// ErrNotFresh.
func (t *Tree) New(app string, generation uint64, l Limits) (Group, error) {
	path, err := t.Path(app, generation)
	if err != nil {
		return nil, err
	}
	g := &v2Group{path: path}
	if err = t.makeApp(filepath.Dir(path), l); err == nil {
		err = t.makeLeaf(path)
	}
	if errors.Is(err, fs.ErrExist) {
		err = t.replaceLeftover(g, l)
	}
	if err != nil {
		return nil, fmt.Errorf("make cgroup of %s generation %d: %w", app, generation, err)
	}
	if err := l.write(path); err != nil {
		return nil, errors.Join(err, g.Remove())
	}
	return g, nil
}

// Path is where the group of a generation is, made or not.
func (t *Tree) Path(app string, generation uint64) (string, error) {
	dir, err := t.appDir(app)
	if err != nil {
		return "", err
	}
	name, err := leafName(app, generation)
	return filepath.Join(dir, name), err
}

func (t *Tree) appDir(app string) (string, error) {
	_, err := leafName(app, 0)
	return filepath.Join(t.dir, app), err
}

// makeLeaf makes a cgroup that was not there before. Nobody else makes any in
// this directory, so looking first is enough.
func (t *Tree) makeLeaf(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fs.ErrExist
	}
	_, err := cgroup2.NewManager(filepath.Dir(path), "/"+filepath.Base(path), &cgroup2.Resources{})
	return err
}

func (t *Tree) replaceLeftover(g *v2Group, l Limits) error {
	if err := g.Remove(); err != nil {
		if errors.Is(err, ErrPopulated) {
			return fmt.Errorf("%s: %w", g.path, ErrNotFresh)
		}
		return err
	}
	if err := t.makeApp(filepath.Dir(g.path), l); err != nil { // it went with the left-over
		return err
	}
	return t.makeLeaf(g.path)
}

// Open returns the group at a path that New made once, possibly by an earlier
// run of usher that lived elsewhere in the hierarchy, or whose state directory
// had another path. The error of a group that no longer exists, and so holds
// nothing, wraps fs.ErrNotExist.
func (t *Tree) Open(path string) (Group, error) {
	dir, leaf := filepath.Split(filepath.Clean(path))
	app, _, ok := parseLeaf(leaf)
	dir = filepath.Clean(dir)
	if !filepath.IsAbs(path) || !ok || filepath.Base(dir) != app || !isTreeName(filepath.Base(filepath.Dir(dir))) {
		return nil, fmt.Errorf("open cgroup %q: not the path of a generation of usher's (want …/%s/<app>/<app>.<generation>)", path, filepath.Base(t.dir))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil, fmt.Errorf("open cgroup %s: %w", path, err)
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("open cgroup %s: the path is not on a cgroup v2 file system", path)
	}
	return &v2Group{path: filepath.Clean(path)}, nil
}

// Entry is one generation that has a directory in the tree.
type Entry struct {
	App        string
	Generation uint64
	Path       string
}

// List returns every generation that has a directory in the tree, populated or
// not. Directories that New cannot have made are left out.
func (t *Tree) List() ([]Entry, error) {
	apps, err := os.ReadDir(t.dir)
	if err != nil {
		return nil, fmt.Errorf("list generations: %w", err)
	}
	var found []Entry
	for _, dir := range apps {
		leaves, err := os.ReadDir(filepath.Join(t.dir, dir.Name()))
		if err != nil {
			continue // no directory, or gone meanwhile
		}
		for _, leaf := range leaves {
			app, generation, ok := parseLeaf(leaf.Name())
			if ok && leaf.IsDir() && app == dir.Name() {
				found = append(found, Entry{app, generation, filepath.Join(t.dir, app, leaf.Name())})
			}
		}
	}
	return found, nil
}

// Remove removes the tree's own directory. It fails while generations have
// theirs; after it, the tree must be discovered again.
func (t *Tree) Remove() error {
	apps, _ := os.ReadDir(t.dir) // those that no generation has taken along
	for _, app := range apps {
		_ = unix.Rmdir(filepath.Join(t.dir, app.Name()))
	}
	if err := unix.Rmdir(t.dir); err != nil && !gone(err) {
		return fmt.Errorf("remove cgroup tree %s: %w", t.dir, err)
	}
	return nil
}

// maxName is the longest name a directory of the hierarchy can have.
const maxName = 255

func leafName(app string, generation uint64) (string, error) {
	name := app + "." + strconv.FormatUint(generation, 10)
	switch {
	case app == "" || strings.HasPrefix(app, ".") || strings.ContainsAny(app, "/\n\x00"):
		return "", fmt.Errorf("make cgroup: app name %q cannot name a directory: it must not be empty, start with a dot or hold a slash or line break", app)
	case len(name) > maxName:
		return "", fmt.Errorf("make cgroup: app name of %d bytes is too long: use at most %d", len(app), maxName-21)
	}
	return name, nil
}

func parseLeaf(name string) (app string, generation uint64, ok bool) {
	dot := strings.LastIndexByte(name, '.')
	if dot <= 0 {
		return "", 0, false
	}
	generation, err := strconv.ParseUint(name[dot+1:], 10, 64)
	if err != nil {
		return "", 0, false
	}
	app = name[:dot]
	canonical, err := leafName(app, generation)
	return app, generation, err == nil && canonical == name
}
