package artifact

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Root may write to read-only directories, an ordinary user may not: the whole
// life of a build, as one.
func TestDepotWorksForAnOrdinaryUser(t *testing.T) {
	base := t.TempDir()
	for _, dir := range []string{base, filepath.Dir(base)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(base, 65534, 65534); err != nil {
			t.Fatal(err)
		}
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Skipf("cannot become another user: %v", err)
		}
		defer func() {
			if err := unix.Setfsuid(0); err != nil {
				t.Error(err)
			}
		}()
	}
	src, dir := filepath.Join(base, "src"), filepath.Join(base, "artifacts")
	for _, at := range []string{filepath.Join(src, "sub"), dir} {
		if err := os.MkdirAll(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(src, "sub/file"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	d := &Depot{dir: dir, pinned: map[string]bool{}, removing: map[string]chan struct{}{}}
	b, err := d.Stage(t.Context(), src)
	if err != nil {
		t.Fatal(err)
	}
	again, err := d.Stage(t.Context(), src)
	if err != nil || again != b {
		t.Errorf("staged again: %+v, %v", again, err)
	}
	if err := os.WriteFile(filepath.Join(b.Path, "sub/other"), nil, 0o644); !errors.Is(err, os.ErrPermission) {
		t.Errorf("a build can be added to: %v", err)
	}
	if err := os.Chmod(filepath.Join(b.Path, "sub/file"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(t.Context(), b.Digest); !errors.Is(err, ErrMismatch) {
		t.Errorf("verify: %v", err)
	}
	if _, err := d.Stage(t.Context(), src); err != nil {
		t.Errorf("staging over a damaged build: %v", err)
	}
	if err := d.Verify(t.Context(), b.Digest); err != nil {
		t.Error(err)
	}
	d.Unpin(b.Digest)
	if err := errors.Join(d.Collect(func(string) bool { return false }, 0), clean(dir)); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("depot holds %v, %v", left, err)
	}
}

// A child that is about to exec can have the file open for writing; here
// another descriptor plays its part.
func TestStagingWaitsUntilNobodyCanWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app")
	if err := os.WriteFile(path, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	reader, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := awaitNoWriter(ctx, reader); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with a writer: %v", err)
	}
	done := make(chan error)
	go func() { done <- awaitNoWriter(t.Context(), reader) }()
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("after the writer has left: %v", err)
	}
}

func TestNoBuildIsPublishedThatSomebodyCanWriteTo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "artifacts")
	d, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	var writer *os.File
	defer func() { _ = writer.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = d.stage(ctx, File, func(to *builder) error {
		_, err := to.file(ctx, fileName, true, strings.NewReader("x"))
		if err != nil {
			return err
		}
		// For the one moment that it takes to open it, an owner may write.
		if err := to.root.Chmod(fileName, 0o755); err != nil {
			return err
		}
		writer, err = to.root.OpenFile(fileName, os.O_WRONLY, 0)
		return errors.Join(err, to.root.Chmod(fileName, modeExec))
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("depot holds %v, %v", left, err)
	}
}

func TestLargeTreesAreSyncedAtOnce(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(filepath.Join(dir, "artifacts"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.stage(t.Context(), Dir, func(to *builder) error {
		for i := range syncEach + 10 {
			if _, err := to.file(t.Context(), filepath.Join("d", string(rune('a'+i%26)), time.Duration(i).String()), false, strings.NewReader("")); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(t.Context(), b.Digest); err != nil {
		t.Error(err)
	}
	if err := removeTree(d.dir); err != nil {
		t.Error(err)
	}
}

func TestEntriesAreBounded(t *testing.T) {
	b := newBuilder(nil)
	for i := range MaxEntries {
		b.book[time.Duration(i).String()] = bookLeaf
	}
	if err := b.dir("one more"); !errors.Is(err, ErrTooLarge) {
		t.Errorf("error is %v", err)
	}
}
