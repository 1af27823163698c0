package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Stage copies the executable file or the directory at src into the depot and
// returns its build, pinned. It fails with fs.ErrNotExist if there is nothing
// at src, with ErrInvalid if that cannot be staged or changes meanwhile.
func (d *Depot) Stage(ctx context.Context, src string) (Build, error) {
	s, err := lookAt(ctx, src)
	if err != nil {
		return Build{}, err
	}
	b, err := d.stage(ctx, s.kind, func(tree *builder) error {
		if s.kind == File {
			return s.copyFile(ctx, tree)
		}
		return s.copyTree(ctx, tree)
	})
	if err != nil {
		return Build{}, fmt.Errorf("stage %s: %w", src, err)
	}
	return b, nil
}

func (s *source) copyFile(ctx context.Context, to *builder) error {
	root, err := os.OpenRoot(filepath.Dir(s.path))
	if err != nil {
		return err
	}
	defer root.Close()
	return copyOne(ctx, root, filepath.Base(s.path), to, func(fs.FileMode) (string, bool) { return fileName, true })
}

func (s *source) copyTree(ctx context.Context, to *builder) error {
	root, err := os.OpenRoot(s.path)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, e := range s.list {
		if e.kind == symlink {
			err = to.link(e.path, e.link)
		} else {
			err = copyOne(ctx, root, e.path, to, func(m fs.FileMode) (string, bool) { return e.path, m&0o111 != 0 })
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyOne copies a file of root; as says, by its mode, under which name and
// whether it is executable.
func copyOne(ctx context.Context, root *os.Root, name string, to *builder, as func(fs.FileMode) (string, bool)) error {
	f, info, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer f.Close()
	toName, exec := as(info.Mode())
	return readSteady(f, info, func(r io.Reader) (int64, error) { return to.file(ctx, toName, exec, r) })
}

// stage makes a build: fill writes it into a temporary directory, then it is
// sealed, hashed again from what was written, synced and given its name.
func (d *Depot) stage(ctx context.Context, kind Kind, fill func(*builder) error) (b Build, err error) {
	home, err := os.MkdirTemp(d.dir, tempPrefix)
	if err != nil {
		return Build{}, err
	}
	defer func() {
		if rerr := removeTree(home); err == nil { // gone if it was published
			err = rerr
		}
	}()
	digest, err := build(describe(home, "", kind), fill)
	if err != nil {
		return Build{}, err
	}
	if err := os.Chmod(home, modeDir); err != nil {
		return Build{}, err
	}
	awaitForks()
	if err := check(ctx, describe(home, digest, kind), checkStaged); err != nil {
		return Build{}, err
	}
	if err := syncPath(home); err != nil {
		return Build{}, err
	}
	if err := d.publish(ctx, home, digest, kind); err != nil {
		return Build{}, err
	}
	return d.Lookup(digest)
}

// build fills b.Dir and returns the digest of what was written.
func build(b Build, fill func(*builder) error) (string, error) {
	if b.Kind == Dir {
		if err := os.Mkdir(b.Dir, 0o700); err != nil {
			return "", err
		}
	}
	root, err := os.OpenRoot(b.Dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	tree := newBuilder(root)
	if err := fill(tree); err != nil {
		return "", err
	}
	digest, err := tree.seal()
	if b.Kind == File && err == nil {
		digest = fileDigest(tree.entries[0].sum)
	}
	return digest, err
}

// publish renames home to the name of digest, or, if that is there, checks
// the copy that has it and leaves home to be removed. The digest is pinned.
func (d *Depot) publish(ctx context.Context, home, digest string, kind Kind) error {
	name, err := buildName(digest)
	if err != nil {
		return err
	}
	if err := d.pin(ctx, digest); err != nil {
		return err
	}
	target := filepath.Join(d.dir, name)
	err = os.Rename(home, target)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) {
		err = d.merge(ctx, home, describe(target, digest, kind))
	}
	if err == nil {
		now := time.Now()
		err = os.Chtimes(target, now, now) // the newest build, for Collect
	}
	if err == nil {
		err = syncPath(d.dir)
	}
	return err // the pin stays: it may be another staging's as well, and ends with this Depot
}

// merge settles on one of two copies of a build: the one that is there if it
// is sound, else the new one. The damaged one keeps a temporary name until the
// next Open, as something may be running from it.
func (d *Depot) merge(ctx context.Context, home string, there Build) error {
	have, err := d.Lookup(there.Digest)
	if err == nil && have.Kind != there.Kind {
		return refuse("its digest is that of a staged %s", have.Kind)
	}
	err = check(ctx, there, checkBytes)
	if err == nil || ctx.Err() != nil {
		return err
	}
	target := filepath.Join(d.dir, namePrefix+there.Digest[len(digestPrefix):])
	if err := unix.Renameat2(unix.AT_FDCWD, home, unix.AT_FDCWD, target, unix.RENAME_EXCHANGE); err != nil {
		return fmt.Errorf("replace damaged build: %w", &os.PathError{Op: "exchange", Path: target, Err: err})
	}
	return os.Rename(home, home+"-damaged")
}

// awaitForks waits until no child of this process is between fork and exec:
// until then it holds a copy of every descriptor, and a file that somebody can
// write to cannot be executed. The children themselves let go a moment after
// the lock is free, which awaitNoWriter sees to.
func awaitForks() {
	syscall.ForkLock.RLock()
	//lint:ignore SA2001 it is the wait that matters
	syscall.ForkLock.RUnlock()
}
