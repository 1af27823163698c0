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

// Verify tells whether the staged bytes are still what was staged: ErrMismatch if
// they, the tree, or the modes are not, ErrNotFound if there are none. It hashes
// them, unless nothing of the build has changed since it did so last: see imprint.
func (d *Depot) Verify(ctx context.Context, digest string) error {
	b, err := d.Lookup(digest)
	if err != nil {
		return err
	}
	if err := d.verify(ctx, b, time.Now()); err != nil {
		return fmt.Errorf("verify build %s: %w", Short(digest), err)
	}
	return nil
}

func (d *Depot) verify(ctx context.Context, b Build, now time.Time) error {
	before, err := imprintOf(ctx, b)
	if err != nil || d.known(b, before) {
		return err
	}
	if err := check(ctx, b, checkBytes); err != nil {
		return err
	}
	d.know(b, before, now)
	return nil
}

// checkMode says how thorough check is.
type checkMode bool

const (
	checkBytes  checkMode = false // compare only
	checkStaged checkMode = true  // sync too, and wait until no file can be written to
)

// mend is what helps against a build that has changed: a deploy of the same bytes
// puts sound ones in their place.
const mend = "deploy the build again, or roll back to another one"

// syncEach is up to how many files and directories each is synced; beyond that, one sync of
// the file system is quicker.
const syncEach = 512

// check compares what is on the disk with b.Digest.
func check(ctx context.Context, b Build, mode checkMode) error {
	c := &checker{ctx: ctx, mode: mode, root: b.Path, buf: make([]byte, copySize)}
	if err := filepath.WalkDir(b.Path, c.visit); err != nil {
		return err
	}
	var digest string
	switch {
	case b.Kind == Dir:
		digest = treeDigest(c.entries)
	case len(c.entries) == 1 && c.entries[0].kind == regular && c.entries[0].exec:
		digest = fileDigest(c.entries[0].sum)
	default:
		return of(ErrMismatch, "%s is no executable file: %s", b.Path, mend)
	}
	if digest != b.Digest {
		return of(ErrMismatch, "%s has digest %s, not %s: %s", b.Path, Short(digest), Short(b.Digest), mend)
	}
	if mode == checkStaged && c.synced > syncEach {
		return syncFS(b.Path)
	}
	return nil
}

// checker walks one build.
type checker struct {
	ctx     context.Context //nolint:containedctx // lives for one walk
	mode    checkMode
	root    string
	entries []entry
	synced  int // files and directories
	buf     []byte
}

func (c *checker) visit(path string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	if err := c.ctx.Err(); err != nil {
		return err
	}
	name, err := filepath.Rel(c.root, path)
	if err != nil {
		return err
	}
	if d.Type() == fs.ModeSymlink {
		text, err := os.Readlink(path)
		c.entries = append(c.entries, entry{path: filepath.ToSlash(name), kind: symlink, link: text})
		return err
	}
	info, err := d.Info()
	if err != nil {
		return err
	}
	if info.Mode().Perm()&0o222 != 0 {
		return of(ErrMismatch, "%s has been made writable (mode %04o): %s", path, info.Mode().Perm(), mend)
	}
	switch {
	case d.IsDir():
		return c.directory(path)
	case info.Mode().IsRegular():
		return c.file(filepath.ToSlash(name), path, info)
	}
	return of(ErrMismatch, "%s is a %s that was not staged: %s", path, typeName(d.Type()), mend)
}

func (c *checker) directory(path string) error {
	if c.mode == checkBytes {
		return nil
	}
	if c.synced++; c.synced <= syncEach {
		return syncPath(path)
	}
	return nil
}

func (c *checker) file(name, path string, info fs.FileInfo) (err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	e := entry{path: name, kind: regular, exec: info.Mode()&0o111 != 0}
	if e.size, e.sum, err = copyHash(c.ctx, io.Discard, f, c.buf); err != nil {
		return err
	}
	c.entries = append(c.entries, e)
	if c.mode == checkBytes {
		return nil
	}
	if c.synced++; c.synced <= syncEach {
		if err := f.Sync(); err != nil {
			return err
		}
	}
	if e.exec {
		return awaitNoWriter(c.ctx, f)
	}
	return nil
}

func syncFS(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = control(f, unix.Syncfs)
	return errors.Join(err, f.Close())
}

// writerPoll is how often awaitNoWriter looks; the children it waits for are
// done in microseconds.
const writerPoll = time.Millisecond

// awaitNoWriter waits until nothing has f open for writing. The kernel answers
// that when it is asked for a read lease, which it refuses for as long. Where
// a file system knows no leases, awaitForks has to do.
func awaitNoWriter(ctx context.Context, f *os.File) error {
	for {
		err := control(f, func(fd int) error {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
				return err
			}
			_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
			return err
		})
		if !errors.Is(err, unix.EAGAIN) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s is still open for writing: %w", f.Name(), ctx.Err())
		case <-time.After(writerPoll):
		}
	}
}

// control runs fn on the descriptor of f.
func control(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var ferr error
	err = raw.Control(func(fd uintptr) { ferr = fn(int(fd)) })
	return errors.Join(err, ferr)
}
