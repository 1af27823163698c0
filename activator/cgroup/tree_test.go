package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func mustNew(t *testing.T, tree *Tree, app string, generation uint64) Group {
	t.Helper()
	g, err := tree.New(app, generation, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = g.Kill()
		waitEmpty(t, g)
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func waitEmpty(t *testing.T, g Group) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := g.WaitEmpty(ctx); err != nil {
		t.Errorf("group does not empty: %v", err)
	}
}

func TestNewGroupIsFreshOrRefused(t *testing.T) {
	tree := newTree(t)
	g := mustNew(t, tree, "shop", 7)
	if g.Level() != LevelCgroup || g.Path() != filepath.Join(tree.Dir(), "shop", "shop.7") {
		t.Fatalf("got %s %s", g.Level(), g.Path())
	}
	// An empty left-over, here with a nested cgroup in it, is replaced.
	if err := os.MkdirAll(filepath.Join(g.Path(), "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	again, err := tree.New("shop", 7, Limits{})
	if err != nil {
		t.Fatalf("an empty left-over must be replaced: %v", err)
	}
	if _, err := os.Stat(filepath.Join(again.Path(), "a")); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the left-over's nested cgroup is still there: %v", err)
	}
	cmd := shell(t, again, "exec sleep 600")
	if _, err := tree.New("shop", 7, Limits{}); !errors.Is(err, ErrNotFresh) {
		t.Fatalf("a populated group must be refused, got %v", err)
	}
	if !alive(cmd.Process.Pid) {
		t.Fatal("the refusal harmed the process in the group")
	}
}

func TestKilledGroupTakesNoNewProcess(t *testing.T) {
	g := mustNew(t, newTree(t), "shop", 1)
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.FD(); !errors.Is(err, ErrNotFresh) {
		t.Fatalf("got %v, want ErrNotFresh", err)
	}
}

func TestOpenFindsGenerationsAndTheLastOneTakesTheAppsDirectoryAlong(t *testing.T) {
	tree := newTree(t)
	seven, eight := mustNew(t, tree, "shop", 7), mustNew(t, tree, "shop", 8)
	mustNew(t, tree, "blog.example", 12)
	opened, err := tree.Open(seven.Path())
	if err != nil || opened.Path() != seven.Path() {
		t.Fatalf("open %s: %v", seven.Path(), err)
	}
	dir := filepath.Dir(seven.Path())
	for i, g := range []Group{opened, eight} {
		if _, err := os.Stat(dir); err != nil {
			t.Fatalf("after %d of two were removed: %v", i, err)
		}
		if err := g.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of an app of which nothing is left: %v", err)
	}
	mustNew(t, tree, "shop", 9)
}

func TestOpenFindsAGenerationFromBeforeTheStateDirectoryWasMoved(t *testing.T) {
	was, is := newTree(t), newTree(t)
	g := mustNew(t, was, "shop", 7)
	opened, err := is.Open(g.Path())
	if err != nil || opened.Path() != g.Path() {
		t.Fatalf("open %s: %v", g.Path(), err)
	}
}

func TestOpenRefusesWhatIsNotAGeneration(t *testing.T) {
	tree := newTree(t)
	_, err := tree.Open(filepath.Join(tree.Dir(), "shop", "shop.1"))
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a group that is gone: got %v, want fs.ErrNotExist", err)
	}
	elsewhere := filepath.Join(t.TempDir(), filepath.Base(tree.Dir()), "shop", "shop.1")
	if err := os.MkdirAll(elsewhere, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{
		"", "/", tree.Dir(), tree.Dir() + "/shop", tree.Dir() + "/../shop/shop.1",
		"usher/shop/shop.1", filepath.Dir(tree.Dir()) + "/usher-other/shop/shop.1", elsewhere,
		tree.Dir() + "/shop.1", tree.Dir() + "/blog/shop.1", tree.Dir() + "/shop/shop.01",
	} {
		if _, err := tree.Open(path); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("open %q: got %v, want a refusal", path, err)
		}
	}
}

func TestAppNamesThatCannotBeDirectoriesAreRefused(t *testing.T) {
	tree := &Tree{dir: t.TempDir()}
	for _, app := range []string{"", "..", ".hidden", "a/b", "a\nb", "a\x00b", strings.Repeat("x", 255)} {
		if _, err := tree.New(app, 1, Limits{}); err == nil {
			t.Errorf("%q was taken", app)
		}
	}
	entries, err := os.ReadDir(tree.dir)
	if err != nil || len(entries) != 0 {
		t.Fatalf("left %v, %v", entries, err)
	}
}
