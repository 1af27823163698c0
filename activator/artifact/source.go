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
)

// source is a local artifact, looked at but not yet read.
type source struct {
	path string // links resolved
	kind Kind
	list []entry // of a Dir: without modes, sizes and sums
}

// lookAt finds out what src is, and refuses what cannot be staged before
// anything is copied.
func lookAt(ctx context.Context, src string) (source, error) {
	path, err := filepath.EvalSymlinks(src)
	if errors.Is(err, fs.ErrNotExist) {
		return source{}, fmt.Errorf("artifact %s does not exist: build it first, or correct the path: %w", src, err)
	}
	if err != nil {
		return source{}, fmt.Errorf("artifact %s: %w", src, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return source{}, fmt.Errorf("artifact %s: %w", src, err)
	}
	s := source{path: path, kind: File}
	switch {
	case info.IsDir():
		s.kind = Dir
		err = s.walk(ctx)
	case !info.Mode().IsRegular():
		err = refuse("it is neither a file nor a directory")
	case info.Mode()&0o111 == 0:
		err = refuse("not executable: chmod +x it, or name the directory that holds the app")
	case info.Size() == 0:
		err = refuse("the file is empty")
	}
	if err != nil {
		return source{}, fmt.Errorf("artifact %s: %w", src, err)
	}
	return s, nil
}

func (s *source) walk(ctx context.Context) error {
	err := filepath.WalkDir(s.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		name, err := filepath.Rel(s.path, path)
		if err != nil || name == "." {
			return err
		}
		if len(s.list) >= MaxEntries {
			return of(ErrTooLarge, "more than %d entries: leave out what the app does not need", MaxEntries)
		}
		return s.add(filepath.ToSlash(name), path, d)
	})
	if err != nil {
		return err
	}
	if len(s.list) == 0 {
		return refuse("the directory holds no files")
	}
	return checkLinks(s.list)
}

func (s *source) add(name, path string, d fs.DirEntry) error {
	switch {
	case d.IsDir():
		return nil
	case d.Type() == fs.ModeSymlink:
		text, err := os.Readlink(path)
		s.list = append(s.list, entry{path: name, kind: symlink, link: text})
		return err
	case d.Type().IsRegular():
		s.list = append(s.list, entry{path: name, kind: regular})
		return nil
	}
	return refuse("%q is a %s: only files, directories and links can be staged", name, typeName(d.Type()))
}

func typeName(m fs.FileMode) string {
	switch {
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}

// openRegular opens a file of the source. What was a regular file when it was
// listed may be something else by now: it is asked again, without blocking on
// a pipe, and root does not let a link lead outside.
func openRegular(root *os.Root, name string) (*os.File, os.FileInfo, error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = changed(name)
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

func changed(name string) error {
	return refuse("%q changed while it was read: try again when nothing writes to it", name)
}

// readSteady gives the content of an open file to use, and checks that nobody
// wrote to the file meanwhile. use returns how much it took.
func readSteady(f *os.File, before os.FileInfo, use func(io.Reader) (int64, error)) error {
	n, err := use(f)
	if err != nil {
		return err
	}
	after, err := f.Stat()
	if err != nil {
		return err
	}
	if n != before.Size() || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		return changed(filepath.Base(f.Name()))
	}
	return nil
}
