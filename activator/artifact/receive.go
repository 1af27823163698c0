package artifact

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Receive stages an upload: for a File the bytes of the executable, for a Dir
// a tar stream as Pack makes it (uncompressed). The build is returned pinned.
// It fails with ErrTooLarge above the upload limit and with ErrInvalid for a
// stream that is no tar, is cut short, or holds anything that has no place in
// a build. A read that blocks is not interrupted by ctx: close its source.
func (d *Depot) Receive(ctx context.Context, r io.Reader, kind Kind) (Build, error) {
	up := &upload{r: r, limit: d.limit}
	var fill func(*builder) error
	switch kind {
	case File:
		fill = func(to *builder) error { return receiveFile(ctx, up, to) }
	case Dir:
		fill = func(to *builder) error { return receiveTree(ctx, up, to) }
	default:
		return Build{}, of(ErrInvalid, "receive artifact: kind %q must be %s or %s", kind, File, Dir)
	}
	b, err := d.stage(ctx, kind, fill)
	if err != nil {
		return Build{}, fmt.Errorf("receive artifact: %w", err)
	}
	return b, nil
}

func receiveFile(ctx context.Context, up *upload, to *builder) error {
	n, err := to.file(ctx, fileName, true, up)
	if err == nil && n == 0 {
		err = refuse("the upload is empty")
	}
	return err
}

// upload bounds a stream and remembers how it ended.
type upload struct {
	r     io.Reader
	limit int64
	n     int64 // bytes so far
	zeros int64 // how many of the last bytes are zero
	err   error // of the source, other than its end
}

func (u *upload) Read(p []byte) (int, error) {
	if room := u.limit + 1 - u.n; int64(len(p)) > room {
		p = p[:max(room, 0)]
	}
	n, err := u.r.Read(p)
	u.n += int64(n)
	if u.n > u.limit {
		return n, u.tooLarge()
	}
	rest := bytes.TrimRight(p[:n], "\x00")
	if len(rest) > 0 {
		u.zeros = 0
	}
	u.zeros += int64(n - len(rest))
	if err != nil && !errors.Is(err, io.EOF) {
		u.err = err
	}
	return n, err
}

func (u *upload) tooLarge() error {
	return of(ErrTooLarge, "upload is above the limit of %d bytes: leave out what the app does not need, or raise the limit", u.limit)
}

// tarEnd is what a tar stream ends with, in zero bytes. The reader of the
// standard library takes any end between two entries for the end: this tells
// a stream that was cut there from a whole one.
const tarEnd = 1024

func receiveTree(ctx context.Context, up *upload, to *builder) error {
	in := tar.NewReader(up)
	var unpacked int64
	for {
		up.zeros = 0 // what ends the last entry is no part of the end
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			if up.zeros < tarEnd {
				return refuse("the upload is cut short, or is no tar stream")
			}
			return nil
		}
		if err != nil {
			return up.explain(err)
		}
		// A sparse file is longer than its bytes in the stream.
		if unpacked += h.Size; unpacked > up.limit || h.Size > up.limit {
			return up.tooLarge()
		}
		if err := receiveEntry(ctx, h, in, to); err != nil {
			return up.explain(err)
		}
	}
}

// explain tells a stream that is wrong from one that could not be read.
func (u *upload) explain(err error) error {
	switch {
	case u.err != nil:
		return fmt.Errorf("read upload: %w", u.err)
	case errors.Is(err, tar.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, tar.ErrFieldTooLong):
		return refuse("the upload is cut short, or is no tar stream (%w)", err)
	}
	return err
}

func receiveEntry(ctx context.Context, h *tar.Header, content io.Reader, to *builder) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil // what git archive begins with; it describes no file
	}
	name, err := entryName(h.Name)
	if err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeDir:
		if name == "." {
			return nil
		}
		return to.dir(name)
	case tar.TypeReg:
		if name == "." || strings.HasSuffix(h.Name, "/") {
			return refuse("%q is no name for a file", h.Name)
		}
		_, err := to.file(ctx, name, h.Mode&0o111 != 0, content)
		return err
	case tar.TypeSymlink:
		if name == "." {
			return refuse("%q is no name for a link", h.Name)
		}
		return to.link(name, h.Linkname)
	case tar.TypeLink:
		return refuse("%q is a hard link: pack it as a file of its own", h.Name)
	}
	return refuse("%q has type %q: only files, directories and links can be staged", h.Name, h.Typeflag)
}

// entryName checks the name of a tar entry and brings it into the one form
// that the book of the builder knows; "." is the root.
func entryName(raw string) (string, error) {
	if strings.HasPrefix(raw, "/") {
		return "", refuse("%q is an absolute path", raw)
	}
	if strings.ContainsRune(raw, 0) {
		return "", refuse("%q has a zero byte in its name", raw)
	}
	name := strings.TrimSuffix(raw, "/")
	if rest, ok := strings.CutPrefix(name, "./"); ok {
		name = rest
	}
	if name == "." || name == "" && raw == "./" {
		return ".", nil
	}
	for part := range strings.SplitSeq(name, "/") {
		switch part {
		case "", ".", "..":
			return "", refuse("%q is not a plain path below the root", raw)
		}
	}
	return name, nil
}
