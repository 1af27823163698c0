package artifact

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
)

// What a caller branches on.
var (
	// ErrNotFound: the depot has no such build.
	ErrNotFound = errors.New("build not found")
	// ErrMismatch: the staged bytes are no longer what their digest says.
	ErrMismatch = errors.New("build does not match its digest")
	// ErrTooLarge: an upload is above the limit, or a tree has more than
	// MaxEntries entries.
	ErrTooLarge = errors.New("artifact is too large")
	// ErrInvalid: the artifact itself is not acceptable; the message says why.
	ErrInvalid = errors.New("artifact refused")
)

// refusal is an error of a kind, in words of its own: whoever branches on it has no
// need to read the kind as well.
type refusal struct{ kind, words error }

func (e *refusal) Error() string   { return e.words.Error() }
func (e *refusal) Unwrap() []error { return []error{e.kind, e.words} }

// of is fmt.Errorf for an error that is of a kind as well.
func of(kind error, format string, args ...any) error {
	return &refusal{kind, fmt.Errorf(format, args...)}
}

// Limits.
const (
	DefaultUploadLimit = 1 << 30 // bytes
	MaxEntries         = 300_000 // files, links and directories in a tree
)

// Kind says what a build is.
type Kind string

// The two kinds of builds.
const (
	File Kind = "file" // one executable
	Dir  Kind = "dir"  // a tree
)

// Build is one staged build.
type Build struct {
	Digest string // "sha256:" and 64 hex digits
	Kind   Kind
	Path   string // absolute: the executable of a File, the root of a Dir
	Dir    string // absolute: the working directory for a run
	Exec   string // what runs when no command is given: Path of a File, empty for a Dir
}

// Names inside the depot.
const (
	digestPrefix = "sha256:"
	namePrefix   = "sha256-" // of a build's directory: no colon, which would split a PATH
	tempPrefix   = ".tmp-"
	fileName     = "app"  // in a build's directory: the executable of a File
	treeName     = "tree" // or the root of a Dir
)

// Depot is a directory of builds; Open makes one. Its methods may be called by
// any number of goroutines.
type Depot struct {
	dir   string
	limit int64

	// mu guards what follows. No file is touched under it.
	mu       sync.Mutex
	pinned   map[string]bool          // digests that Collect must leave alone
	removing map[string]chan struct{} // digests being removed; closed at the end
	sound    map[string]imprint       // of builds whose bytes were hashed and found right
}

// Option changes a Depot at Open.
type Option func(*Depot)

// WithUploadLimit bounds what Receive accepts, in bytes, both for the stream
// and for the files unpacked from it; the default is DefaultUploadLimit.
func WithUploadLimit(bytes int64) Option {
	return func(d *Depot) { d.limit = bytes }
}

// Open opens the depot in dir, makes it if needed (mode 0755), and removes
// what interrupted stagings and collections have left.
func Open(dir string, opts ...Option) (*Depot, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open artifact depot: %w", err)
	}
	d := &Depot{
		dir:      dir,
		limit:    DefaultUploadLimit,
		pinned:   map[string]bool{},
		removing: map[string]chan struct{}{},
		sound:    map[string]imprint{},
	}
	for _, o := range opts {
		o(d)
	}
	if err := own(dir); err != nil {
		return nil, fmt.Errorf("open artifact depot %s: %w", dir, err)
	}
	if err := clean(dir); err != nil {
		return nil, fmt.Errorf("clean artifact depot %s: %w", dir, err)
	}
	return d, nil
}

// own makes sure that dir is there, durably, and that only this user can
// write to it.
func own(dir string) error {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := syncPath(filepath.Dir(dir)); err != nil {
			return err
		}
		info, err = os.Stat(dir)
	}
	if err != nil {
		return err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return fmt.Errorf("directory belongs to user %d, who could change what runs: chown it to user %d", st.Uid, os.Geteuid())
	}
	return os.Chmod(dir, 0o755)
}

// clean removes everything that has a temporary name.
func clean(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), tempPrefix) {
			continue
		}
		if err := removeTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Lookup finds a staged build; it does not look at its bytes (see Verify).
// ErrNotFound if there is none, ErrInvalid if digest is none.
func (d *Depot) Lookup(digest string) (Build, error) {
	name, err := buildName(digest)
	if err != nil {
		return Build{}, err
	}
	home := filepath.Join(d.dir, name)
	for _, kind := range []Kind{File, Dir} {
		b := describe(home, digest, kind)
		if _, err := os.Lstat(b.Path); err == nil {
			return b, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return Build{}, fmt.Errorf("look up build %s: %w", Short(digest), err)
		}
	}
	return Build{}, of(ErrNotFound, "build %s is not in %s: deploy it again, or roll back to another one", Short(digest), d.dir)
}

func describe(home, digest string, kind Kind) Build {
	if kind == File {
		path := filepath.Join(home, fileName)
		return Build{Digest: digest, Kind: File, Path: path, Dir: home, Exec: path}
	}
	path := filepath.Join(home, treeName)
	return Build{Digest: digest, Kind: Dir, Path: path, Dir: path}
}

// buildName turns a digest into the name of its directory.
func buildName(digest string) (string, error) {
	sum, ok := strings.CutPrefix(digest, digestPrefix)
	raw, err := hex.DecodeString(sum)
	if !ok || err != nil || len(raw) != 32 || strings.ToLower(sum) != sum {
		return "", of(ErrInvalid, "%q is no digest, it must be %s and 64 lower-case hex digits", digest, digestPrefix)
	}
	return namePrefix + sum, nil
}

// Short is a digest for people: its first 12 hex digits.
func Short(digest string) string {
	sum := strings.TrimPrefix(digest, digestPrefix)
	return sum[:min(12, len(sum))]
}

// pin keeps Collect away from digest; it waits for a removal that has begun.
func (d *Depot) pin(ctx context.Context, digest string) error {
	for {
		d.mu.Lock()
		busy := d.removing[digest]
		if busy == nil {
			d.pinned[digest] = true
		}
		d.mu.Unlock()
		if busy == nil {
			return nil
		}
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Unpin says that the build returned by Stage or Receive will not be referred
// to: Collect may remove it like any other. A digest that is not pinned is no
// error.
func (d *Depot) Unpin(digest string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.pinned, digest)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
