package artifact

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Pack makes the upload stream of a file or a directory, for Receive. What
// cannot be staged is refused before the first byte, as by Stage; what changes
// meanwhile is an error of Read. The caller closes the stream, at any time;
// Close waits for the work behind it. Nothing is read after ctx is done.
func Pack(ctx context.Context, path string) (Kind, io.ReadCloser, error) {
	s, err := lookAt(ctx, path)
	if err != nil {
		return "", nil, err
	}
	root := s.path
	if s.kind == File {
		root = filepath.Dir(s.path)
	}
	dir, err := os.OpenRoot(root)
	if err != nil {
		return "", nil, err
	}
	r, w := io.Pipe()
	p := &packed{PipeReader: r, done: make(chan struct{})}
	go func() { // ends when everything is written, or when Close breaks the pipe
		defer close(p.done)
		var err error
		if s.kind == File {
			err = packFile(ctx, dir, filepath.Base(s.path), w)
		} else {
			err = s.packTree(ctx, dir, w)
		}
		w.CloseWithError(errors.Join(err, dir.Close())) // nil is the end
	}()
	return s.kind, p, nil
}

// packed is the reading end of a stream being packed.
type packed struct {
	*io.PipeReader
	once sync.Once
	done chan struct{}
}

func (p *packed) Close() error {
	p.once.Do(func() { _ = p.PipeReader.Close() }) // never fails
	<-p.done
	return nil
}

func packFile(ctx context.Context, root *os.Root, name string, w io.Writer) error {
	f, info, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer f.Close()
	return readSteady(f, info, func(r io.Reader) (int64, error) {
		n, _, err := copyHash(ctx, w, r, make([]byte, copySize))
		return n, err
	})
}

func (s *source) packTree(ctx context.Context, root *os.Root, w io.Writer) error {
	out := tar.NewWriter(w)
	buf := make([]byte, copySize)
	for _, e := range s.list {
		var err error
		if e.kind == symlink {
			err = out.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: e.path, Linkname: e.link, Format: tar.FormatPAX})
		} else {
			err = packOne(ctx, root, e.path, out, buf)
		}
		if err != nil {
			return err
		}
	}
	return out.Close()
}

func packOne(ctx context.Context, root *os.Root, name string, out *tar.Writer, buf []byte) error {
	f, info, err := openRegular(root, name)
	if err != nil {
		return err
	}
	defer f.Close()
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: 0o644, Format: tar.FormatPAX}
	if info.Mode()&0o111 != 0 {
		h.Mode = 0o755
	}
	if err := out.WriteHeader(h); err != nil {
		return err
	}
	err = readSteady(f, info, func(r io.Reader) (int64, error) {
		n, _, err := copyHash(ctx, out, r, buf)
		return n, err
	})
	if errors.Is(err, tar.ErrWriteTooLong) {
		return changed(name)
	}
	return err
}
