package artifact_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/artifact"
)

func TestFileIsStagedUnderTheDigestOfItsBytes(t *testing.T) {
	d, dir := openDepot(t)
	src := filepath.Join(t.TempDir(), "hello-v1")
	write(t, src, "#!/bin/sh\nexit 0\n", 0o700)
	b, err := d.Stage(t.Context(), src)
	must(t, err)
	want := fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("#!/bin/sh\nexit 0\n")))
	if b.Digest != want || b.Kind != artifact.File || b.Exec != b.Path || filepath.Dir(b.Path) != b.Dir {
		t.Errorf("build is %+v, want digest %s", b, want)
	}
	if !strings.HasPrefix(b.Path, dir) || strings.Contains(b.Path, ":") {
		t.Errorf("path is %s", b.Path)
	}
	sealed(t, dir)
	from, err := os.Stat(src)
	must(t, err)
	to, err := os.Stat(b.Path)
	must(t, err)
	if os.SameFile(from, to) || to.Mode().Perm() != 0o555 {
		t.Errorf("staged file has mode %v, same inode %v", to.Mode(), os.SameFile(from, to))
	}
	found, err := d.Lookup(b.Digest)
	must(t, err)
	if found != b {
		t.Errorf("lookup gives %+v, want %+v", found, b)
	}
	must(t, d.Verify(t.Context(), b.Digest))
}

// sealed checks owners and modes of everything in the depot.
func sealed(t *testing.T, dir string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		must(t, err)
		info, err := d.Info()
		must(t, err)
		mode := info.Mode()
		switch {
		case path == dir:
			if mode.Perm() != 0o755 {
				t.Errorf("depot has mode %v", mode)
			}
		case d.IsDir() && mode.Perm() != 0o555, mode.IsRegular() && mode.Perm() != 0o444 && mode.Perm() != 0o555:
			t.Errorf("%s has mode %v", path, mode)
		}
		if int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
			t.Errorf("%s has another owner", path)
		}
		return nil
	}))
}

func TestTreeIsStagedWithItsLinksAndModes(t *testing.T) {
	d, dir := openDepot(t)
	b, err := d.Stage(t.Context(), node(t))
	must(t, err)
	if b.Kind != artifact.Dir || b.Dir != b.Path || b.Exec != "" {
		t.Errorf("build is %+v", b)
	}
	sealed(t, dir)
	for name, want := range map[string]string{
		"server.js": "listen()", "current/index.js": "", "node_modules/a/self": "", "odd \n\"name\" \xff": "odd",
	} {
		got, err := os.ReadFile(filepath.Join(b.Path, name))
		must(t, err)
		if string(got) != want {
			t.Errorf("%s holds %q", name, got)
		}
	}
	if text, err := os.Readlink(filepath.Join(b.Path, "dangling")); err != nil || text != "not/there" {
		t.Errorf("dangling link is %q, %v", text, err)
	}
	if _, err := os.Lstat(filepath.Join(b.Path, "empty")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an empty directory was staged (%v)", err)
	}
	info, err := os.Stat(filepath.Join(b.Path, "bin/start"))
	must(t, err)
	if info.Mode().Perm() != 0o555 {
		t.Errorf("a program that only its owner could run is staged with %v", info.Mode())
	}
	must(t, d.Verify(t.Context(), b.Digest))
}

func TestTreeDigestSeesEveryChangeThatMatters(t *testing.T) {
	d, _ := openDepot(t)
	digest := func(change func(dir string)) string {
		dir := node(t)
		change(dir)
		b, err := d.Stage(t.Context(), dir)
		must(t, err)
		return b.Digest
	}
	base := digest(func(string) {})
	seen := map[string]string{base: "nothing"}
	for name, change := range map[string]func(dir string){
		"content":        func(dir string) { write(t, filepath.Join(dir, "server.js"), "listen!!", 0o644) },
		"an execute bit": func(dir string) { must(t, os.Chmod(filepath.Join(dir, "server.js"), 0o755)) },
		"a name":         func(dir string) { must(t, os.Rename(filepath.Join(dir, "server.js"), filepath.Join(dir, "main.js"))) },
		"one more file":  func(dir string) { write(t, filepath.Join(dir, "z"), "", 0o644) },
		"one file less":  func(dir string) { must(t, os.Remove(filepath.Join(dir, "bin/start"))) },
		"a link text": func(dir string) {
			must(t, os.Remove(filepath.Join(dir, "dangling")))
			must(t, os.Symlink("not/here", filepath.Join(dir, "dangling")))
		},
		"a link that became a file": func(dir string) {
			must(t, os.Remove(filepath.Join(dir, "dangling")))
			write(t, filepath.Join(dir, "dangling"), "not/there", 0o644)
		},
	} {
		got := digest(change)
		if other, ok := seen[got]; ok {
			t.Errorf("changing %s and changing %s give the same digest", name, other)
		}
		seen[got] = name
	}
	same := digest(func(dir string) {
		must(t, os.Chmod(filepath.Join(dir, "server.js"), 0o600))
		must(t, os.Chmod(filepath.Join(dir, "bin/start"), 0o755))
		must(t, os.RemoveAll(filepath.Join(dir, "empty")))
	})
	if same != base {
		t.Error("read and write bits or empty directories change the digest")
	}
}

func TestWhatCannotBeStagedSaysWhy(t *testing.T) {
	d, dir := openDepot(t)
	src := t.TempDir()
	write(t, filepath.Join(src, "plain"), "text", 0o644)
	write(t, filepath.Join(src, "nothing"), "", 0o755)
	must(t, os.MkdirAll(filepath.Join(src, "hollow/inner"), 0o755))
	tree := func(name string, make func(dir string)) string {
		at := filepath.Join(src, name)
		write(t, filepath.Join(at, "sub/file"), "x", 0o644)
		make(at)
		return at
	}
	link := func(text, name string) func(string) {
		return func(dir string) { must(t, os.Symlink(text, filepath.Join(dir, name))) }
	}
	for _, c := range []struct {
		path, says string
		is         error
	}{
		{filepath.Join(src, "missing"), "build it first", fs.ErrNotExist},
		{filepath.Join(src, "plain"), "chmod +x", artifact.ErrInvalid},
		{filepath.Join(src, "nothing"), "empty", artifact.ErrInvalid},
		{filepath.Join(src, "hollow"), "no files", artifact.ErrInvalid},
		{os.DevNull, "neither a file nor a directory", artifact.ErrInvalid},
		{tree("pipe", func(dir string) { must(t, unix.Mkfifo(filepath.Join(dir, "p"), 0o600)) }), "named pipe", artifact.ErrInvalid},
		{tree("socket", func(dir string) { must(t, unix.Mknod(filepath.Join(dir, "s"), unix.S_IFSOCK|0o600, 0)) }), "socket", artifact.ErrInvalid},
		{tree("absolute", link("/etc/passwd", "l")), "leaves the directory", artifact.ErrInvalid},
		{tree("up", link("../x", "l")), "leaves the directory", artifact.ErrInvalid},
		{tree("up in a subdirectory", link("../../x", "sub/l")), "leaves the directory", artifact.ErrInvalid},
		{tree("up through a link", func(dir string) {
			must(t, os.Symlink("..", filepath.Join(dir, "sub/root")))
			must(t, os.Symlink("root/..", filepath.Join(dir, "sub/out")))
		}), "leaves the directory", artifact.ErrInvalid},
	} {
		_, err := d.Stage(t.Context(), c.path)
		wantErr(t, err, c.is)
		if err != nil && (!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), c.path)) {
			t.Errorf("%s: message is %q, want %q in it", c.path, err, c.says)
		}
		if _, _, perr := artifact.Pack(t.Context(), c.path); perr == nil || !errors.Is(perr, c.is) {
			t.Errorf("%s: pack says %v", c.path, perr)
		}
	}
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("refused artifacts left %q", left)
	}
}

func TestLinksThatLoopOrStayInsideAreStaged(t *testing.T) {
	d, _ := openDepot(t)
	dir := node(t)
	for name, text := range map[string]string{
		"loop": "loop", "a1": "a2", "a2": "a1", "node_modules/up": "..", "node_modules/deep": "up/node_modules/../current/.", "dot": ".",
	} {
		must(t, os.Symlink(text, filepath.Join(dir, name)))
	}
	b, err := d.Stage(t.Context(), dir)
	must(t, err)
	must(t, d.Verify(t.Context(), b.Digest))
}

func TestArtifactNamedByALinkIsFollowed(t *testing.T) {
	d, _ := openDepot(t)
	dir := t.TempDir()
	write(t, filepath.Join(dir, "releases/7/app"), "#!/bin/sh\n", 0o755)
	must(t, os.Symlink("releases/7", filepath.Join(dir, "current")))
	must(t, os.Symlink("releases/7/app", filepath.Join(dir, "app")))
	tree, err := d.Stage(t.Context(), filepath.Join(dir, "current"))
	must(t, err)
	file, err := d.Stage(t.Context(), filepath.Join(dir, "app"))
	must(t, err)
	if tree.Kind != artifact.Dir || file.Kind != artifact.File {
		t.Errorf("builds are %+v and %+v", tree, file)
	}
}

func TestVerifyFindsWhatWasChanged(t *testing.T) {
	for name, c := range map[string]struct {
		change func(t *testing.T, root string)
		says   string
	}{
		"content": {func(t *testing.T, root string) {
			must(t, os.Chmod(filepath.Join(root, "server.js"), 0o644))
			write(t, filepath.Join(root, "server.js"), "listen!!", 0o444)
		}, "has digest"},
		"one more file": {func(t *testing.T, root string) {
			must(t, os.Chmod(root, 0o755))
			write(t, filepath.Join(root, "new"), "x", 0o444)
			must(t, os.Chmod(root, 0o555))
		}, "has digest"},
		"one file less": {func(t *testing.T, root string) {
			must(t, os.Chmod(root, 0o755))
			must(t, os.Remove(filepath.Join(root, "server.js")))
			must(t, os.Chmod(root, 0o555))
		}, "has digest"},
		"an execute bit":       {func(t *testing.T, root string) { must(t, os.Chmod(filepath.Join(root, "server.js"), 0o555)) }, "has digest"},
		"a writable file":      {func(t *testing.T, root string) { must(t, os.Chmod(filepath.Join(root, "server.js"), 0o646)) }, "writable"},
		"a writable directory": {func(t *testing.T, root string) { must(t, os.Chmod(filepath.Join(root, "bin"), 0o757)) }, "writable"},
		"a named pipe": {func(t *testing.T, root string) {
			must(t, os.Chmod(root, 0o755))
			must(t, unix.Mkfifo(filepath.Join(root, "pipe"), 0o444))
			must(t, os.Chmod(root, 0o555))
		}, "named pipe"},
	} {
		t.Run(name, func(t *testing.T) {
			d, _ := openDepot(t)
			src := node(t)
			b, err := d.Stage(t.Context(), src)
			must(t, err)
			c.change(t, b.Path)
			err = d.Verify(t.Context(), b.Digest)
			wantErr(t, err, artifact.ErrMismatch)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("message is %q, want %q in it", err, c.says)
			}
			// Staging it again is the way out.
			again, err := d.Stage(t.Context(), src)
			must(t, err)
			if again != b {
				t.Errorf("staged again it is %+v, was %+v", again, b)
			}
			must(t, d.Verify(t.Context(), b.Digest))
		})
	}
}

func TestVerifyOfAFileFindsWhatWasChanged(t *testing.T) {
	d, _ := openDepot(t)
	src := filepath.Join(t.TempDir(), "app")
	write(t, src, "#!/bin/sh\n", 0o755)
	b, err := d.Stage(t.Context(), src)
	must(t, err)
	must(t, os.Chmod(b.Path, 0o444))
	wantErr(t, d.Verify(t.Context(), b.Digest), artifact.ErrMismatch)
	must(t, os.Chmod(b.Path, 0o755))
	wantErr(t, d.Verify(t.Context(), b.Digest), artifact.ErrMismatch)
	write(t, b.Path, "#!/bin/sh -x\n", 0o555)
	wantErr(t, d.Verify(t.Context(), b.Digest), artifact.ErrMismatch)
	_, err = d.Stage(t.Context(), src)
	must(t, err)
	must(t, d.Verify(t.Context(), b.Digest))
}

func TestUnknownAndMalformedDigests(t *testing.T) {
	d, _ := openDepot(t)
	unknown := "sha256:" + strings.Repeat("0a", 32)
	_, err := d.Lookup(unknown)
	wantErr(t, err, artifact.ErrNotFound)
	if !strings.Contains(err.Error(), "deploy it again") {
		t.Errorf("message is %q", err)
	}
	wantErr(t, d.Verify(t.Context(), unknown), artifact.ErrNotFound)
	for _, digest := range []string{"", "sha256:", "sha256:../../etc", "md5:" + strings.Repeat("0a", 32), "sha256:" + strings.Repeat("0A", 32), unknown + "/..", unknown[:len(unknown)-2]} {
		_, err := d.Lookup(digest)
		wantErr(t, err, artifact.ErrInvalid)
	}
	if got := artifact.Short(unknown); got != "0a0a0a0a0a0a" {
		t.Errorf("short digest is %q", got)
	}
}

func TestStagingOneDigestManyTimesLeavesOneCopy(t *testing.T) {
	d, dir := openDepot(t)
	src := node(t)
	var wg sync.WaitGroup
	builds := make([]artifact.Build, 8)
	for i := range builds {
		wg.Go(func() {
			b, err := d.Stage(t.Context(), src)
			if err != nil {
				t.Error(err)
			}
			builds[i] = b
		})
	}
	wg.Wait()
	for _, b := range builds {
		if b != builds[0] {
			t.Errorf("builds differ: %+v and %+v", b, builds[0])
		}
	}
	if left := entries(t, dir); len(left) != 1 {
		t.Errorf("depot holds %q", left)
	}
}

func TestCancelledStagingLeavesNothing(t *testing.T) {
	d, dir := openDepot(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Stage(ctx, node(t))
	wantErr(t, err, context.Canceled)
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("depot holds %q", left)
	}
}

func TestOpenCleansUpAfterACrash(t *testing.T) {
	d, dir := openDepot(t)
	b, err := d.Stage(t.Context(), node(t))
	must(t, err)
	half := filepath.Join(dir, ".tmp-123/tree/sub")
	write(t, filepath.Join(half, "file"), "x", 0o444)
	must(t, os.Chmod(half, 0o555))
	must(t, os.Chmod(filepath.Dir(half), 0o555))
	write(t, filepath.Join(dir, "README"), "not ours", 0o644)
	again, err := artifact.Open(dir)
	must(t, err)
	if left := entries(t, dir); len(left) != 2 || !slices.Contains(left, "README") {
		t.Errorf("depot holds %q", left)
	}
	must(t, again.Verify(t.Context(), b.Digest))
}

func TestDepotOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: gives a directory to another user")
	}
	dir := t.TempDir()
	must(t, os.Chown(dir, 65534, 65534))
	if _, err := artifact.Open(dir); err == nil || !strings.Contains(err.Error(), "chown") {
		t.Errorf("error is %v", err)
	}
}
