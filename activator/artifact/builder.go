package artifact

import (
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"os"
	"path"
	"strings"
	"syscall"
)

const (
	modeFile = 0o444
	modeExec = 0o555
	modeDir  = 0o555
	copySize = 256 << 10 // bytes per read
)

// builder writes one tree below root. It decides from its own book of what is
// there already, not from the file system; root keeps it inside even so.
type builder struct {
	root    *os.Root
	entries []entry
	book    map[string]bookKind // every path so far, parents included
	made    map[string]bool     // directories that are there
	buf     []byte
}

type bookKind byte

const (
	bookLeaf    bookKind = iota + 1 // a file or a link
	bookDir                         // a directory that was named
	bookImplied                     // a directory that only contains something
)

func newBuilder(root *os.Root) *builder {
	return &builder{root: root, book: map[string]bookKind{}, made: map[string]bool{".": true}, buf: make([]byte, copySize)}
}

// claim enters name into the book with its parents, and refuses what cannot
// be there.
func (b *builder) claim(name string, kind bookKind) error {
	if len(b.book) >= MaxEntries {
		return of(ErrTooLarge, "more than %d entries: leave out what the app does not need", MaxEntries)
	}
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		switch b.book[at] {
		case bookLeaf:
			return refuse("%q lies below %q, which is no directory", name, at)
		case 0:
			b.book[at] = bookImplied
		}
	}
	switch was := b.book[name]; {
	case was == 0, was == bookImplied && kind == bookDir:
		b.book[name] = kind
		return nil
	}
	return refuse("%q is in it twice", name)
}

// dir notes a directory. It is made when a file needs it, so that an empty
// one, which the digest does not cover, is not staged.
func (b *builder) dir(name string) error { return b.claim(name, bookDir) }

func (b *builder) parents(name string) error {
	dir := path.Dir(name)
	if b.made[dir] {
		return nil
	}
	if err := b.root.MkdirAll(dir, 0o700); err != nil { // read-only from seal on
		return plainErr(err)
	}
	for ; !b.made[dir]; dir = path.Dir(dir) {
		b.made[dir] = true
	}
	return nil
}

// file copies r into a new file and returns its size.
func (b *builder) file(ctx context.Context, name string, exec bool, r io.Reader) (int64, error) {
	if err := b.claim(name, bookLeaf); err != nil {
		return 0, err
	}
	if err := b.parents(name); err != nil {
		return 0, err
	}
	f, err := b.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, plainErr(err)
	}
	e := entry{path: name, kind: regular, exec: exec}
	e.size, e.sum, err = copyHash(ctx, f, r, b.buf)
	if err == nil {
		err = f.Chmod(stagedMode(exec))
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return 0, err
	}
	b.entries = append(b.entries, e)
	return e.size, nil
}

func stagedMode(exec bool) os.FileMode {
	if exec {
		return modeExec
	}
	return modeFile
}

func (b *builder) link(name, text string) error {
	if err := b.claim(name, bookLeaf); err != nil {
		return err
	}
	// Now, before anything is made through it; checkLinks sees the rest.
	if text == "" || strings.HasPrefix(text, "/") || strings.ContainsRune(text, 0) {
		return refuse("link %q -> %q is not relative", name, text)
	}
	if err := b.parents(name); err != nil {
		return err
	}
	if err := b.root.Symlink(text, name); err != nil {
		return plainErr(err)
	}
	b.entries = append(b.entries, entry{path: name, kind: symlink, link: text})
	return nil
}

// seal makes the directories read-only and returns the digest of what was
// written.
func (b *builder) seal() (string, error) {
	if len(b.entries) == 0 {
		return "", refuse("the directory holds no files")
	}
	if err := checkLinks(b.entries); err != nil {
		return "", err
	}
	for at := range b.made {
		if err := b.root.Chmod(at, modeDir); err != nil {
			return "", err
		}
	}
	return treeDigest(b.entries), nil
}

func refuse(format string, args ...any) error {
	return of(ErrInvalid, format, args...)
}

// plainErr marks what the names in an artifact are to blame for.
func plainErr(err error) error {
	if errors.Is(err, syscall.ENAMETOOLONG) {
		return of(ErrInvalid, "%w", err)
	}
	return err
}

// copyHash copies r to w until it ends, and stops between reads when ctx is
// done.
func copyHash(ctx context.Context, w io.Writer, r io.Reader, buf []byte) (n int64, sum [sha256.Size]byte, err error) {
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return n, sum, err
		}
		got, rerr := r.Read(buf)
		h.Write(buf[:got]) // never fails
		if _, err := w.Write(buf[:got]); err != nil {
			return n, sum, err
		}
		n += int64(got)
		if errors.Is(rerr, io.EOF) {
			h.Sum(sum[:0])
			return n, sum, nil
		}
		if rerr != nil {
			return n, sum, rerr
		}
	}
}
