package artifact

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// imprint is what the file system says of a build without its bytes being read:
// path, inode, mode, size and times of everything in it. A write, a chmod, a
// rename and a new entry each set a change time, which no program can choose.
// So a build whose imprint is that of its hashed bytes still has those bytes.
type imprint struct {
	sum    [sha256.Size]byte
	newest time.Time // change time
}

// settled is how old the newest change must be when bytes are hashed for their
// imprint to count. File systems tell times apart by ticks, of two seconds at
// worst: a change in the tick of the one before it shows in none.
const settled = 3 * time.Second

func imprintOf(ctx context.Context, b Build) (imprint, error) {
	var a imprint
	h := sha256.New()
	err := filepath.WalkDir(b.Path, func(path string, e fs.DirEntry, err error) error {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("stat %s: no inode", path)
		}
		fmt.Fprintf(h, "%q %d %d %o %d %d %d\n", path, st.Dev, st.Ino, st.Mode, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
		if changed := time.Unix(st.Ctim.Unix()); changed.After(a.newest) {
			a.newest = changed
		}
		return nil
	})
	h.Sum(a.sum[:0])
	return a, err
}

// known says whether that is the imprint of the build when its bytes were hashed
// last.
func (d *Depot) known(b Build, a imprint) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sound[b.Digest] == a
}

// know keeps the imprint of a build whose bytes were found right after hashing.
func (d *Depot) know(b Build, a imprint, hashing time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.newest.Before(hashing.Add(-settled)) {
		d.sound[b.Digest] = a
	}
}
