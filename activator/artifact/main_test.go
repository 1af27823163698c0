package artifact_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/usher-edge/usher/activator/artifact"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("error is %v, want %v", got, want)
		return
	}
	kinds := []error{artifact.ErrInvalid, artifact.ErrNotFound, artifact.ErrMismatch, artifact.ErrTooLarge}
	if slices.Contains(kinds, want) && strings.Contains(got.Error(), want.Error()) {
		t.Errorf("%v is to be of the kind %q and not to say so", got, want)
	}
}

func openDepot(t testing.TB, opts ...artifact.Option) (*artifact.Depot, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "artifacts")
	d, err := artifact.Open(dir, opts...)
	must(t, err)
	t.Cleanup(func() { makeRemovable(t, dir) })
	return d, dir
}

// makeRemovable lets t.TempDir clean up after an ordinary user.
func makeRemovable(t testing.TB, dir string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return err
	}))
}

func write(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), mode))
	must(t, os.Chmod(path, mode))
}

// node makes a small tree with all that a tree may have.
func node(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "server.js"), "listen()", 0o644)
	write(t, filepath.Join(dir, "bin/start"), "#!/bin/sh\n", 0o700)
	write(t, filepath.Join(dir, "node_modules/a/index.js"), "", 0o600)
	write(t, filepath.Join(dir, "odd \n\"name\" \xff"), "odd", 0o644)
	must(t, os.Symlink("index.js", filepath.Join(dir, "node_modules/a/self")))
	must(t, os.Symlink("node_modules/a", filepath.Join(dir, "current")))
	must(t, os.Symlink("not/there", filepath.Join(dir, "dangling")))
	must(t, os.MkdirAll(filepath.Join(dir, "empty/below"), 0o755))
	return dir
}

// entries lists the names in the depot.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	must(t, err)
	var names []string
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names
}
