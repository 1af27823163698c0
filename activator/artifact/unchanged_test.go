package artifact

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stagedTree is a build of a few files, and the depot that knows its bytes.
func stagedTree(t *testing.T) (*Depot, Build) {
	t.Helper()
	src := t.TempDir()
	for name, text := range map[string]string{"a": "one", "b": "two", "sub/c": "three"} {
		path := filepath.Join(src, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	d, err := Open(filepath.Join(t.TempDir(), "builds"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Stage(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	return d, b
}

// later is a time at which what was staged just now has settled.
func later() time.Time { return time.Now().Add(2 * settled) }

func TestBytesThatDidNotChangeAreHashedOnce(t *testing.T) {
	d, b := stagedTree(t)
	if err := d.verify(t.Context(), b, later()); err != nil {
		t.Fatal(err)
	}
	// Known by a digest that is not theirs, they pass only if nobody hashes them.
	other := b
	other.Digest = digestPrefix + strings.Repeat("0", 64)
	if err := d.verify(t.Context(), other, later()); err == nil {
		t.Fatal("bytes that were not known passed for others")
	}
	d.sound[other.Digest] = d.sound[b.Digest]
	if err := d.verify(t.Context(), other, later()); err != nil {
		t.Errorf("bytes that are known were hashed: %v", err)
	}
}

func TestBytesThatChangedAMomentAgoAreHashedAgain(t *testing.T) {
	d, b := stagedTree(t)
	if err := d.verify(t.Context(), b, time.Now()); err != nil {
		t.Fatal(err)
	}
	if len(d.sound) != 0 {
		t.Error("a change in the tick of the last one would not be seen")
	}
}

func TestEveryChangeOfAKnownBuildIsSeen(t *testing.T) {
	for name, change := range map[string]func(root string) error{
		"other bytes, same size and times": func(root string) error { return inPlace(filepath.Join(root, "a"), "eno") },
		"other bytes below":                func(root string) error { return inPlace(filepath.Join(root, "sub/c"), "eerht") },
		"an execute bit":                   func(root string) error { return os.Chmod(filepath.Join(root, "a"), 0o555) },
		"a new file": opened(".", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "d"), nil, 0o444)
		}),
		"a new file below": opened("sub", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "d"), nil, 0o444)
		}),
		"a file less": opened(".", func(dir string) error { return os.Remove(filepath.Join(dir, "b")) }),
		"two files exchanged": opened(".", func(dir string) error {
			return firstError(os.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "x")),
				os.Rename(filepath.Join(dir, "b"), filepath.Join(dir, "a")), os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, "b")))
		}),
		"a link elsewhere": opened(".", func(dir string) error {
			return firstError(os.Remove(filepath.Join(dir, "link")), os.Symlink("b", filepath.Join(dir, "link")))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			d, b := stagedTree(t)
			if err := d.verify(t.Context(), b, later()); err != nil || len(d.sound) != 1 {
				t.Fatalf("%v, %d builds known", err, len(d.sound))
			}
			if err := change(b.Path); err != nil {
				t.Fatal(err)
			}
			if err := d.verify(t.Context(), b, later()); err == nil {
				t.Error("it passed")
			}
		})
	}
}

// opened makes a directory of a build writable for a change of it.
func opened(name string, change func(dir string) error) func(root string) error {
	return func(root string) error {
		dir := filepath.Join(root, name)
		return firstError(os.Chmod(dir, 0o755), change(dir), os.Chmod(dir, modeDir))
	}
}

// inPlace exchanges the bytes of a file and sets its mode and times back.
func inPlace(path, text string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	return firstError(os.Chmod(path, 0o644), os.WriteFile(path, []byte(text), 0o644),
		os.Chmod(path, info.Mode()), os.Chtimes(path, info.ModTime(), info.ModTime()))
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestACollectedBuildIsForgotten(t *testing.T) {
	d, b := stagedTree(t)
	if err := d.verify(t.Context(), b, later()); err != nil {
		t.Fatal(err)
	}
	d.Unpin(b.Digest)
	if err := d.remove(b.Digest); err != nil {
		t.Fatal(err)
	}
	if len(d.sound) != 0 {
		t.Error("what is not there any more is known")
	}
}
