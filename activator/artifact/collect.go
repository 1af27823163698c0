package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Collect removes the builds that nobody needs: all but those that keep says
// are referred to, the keepLast that were staged last, and the pinned ones. A
// build that keep wants loses its pin: from then on the reference holds it.
// Builds that cannot be removed are reported together; the others are removed
// all the same.
func (d *Depot) Collect(keep func(digest string) bool, keepLast int) error {
	staged, err := d.list()
	if err != nil {
		return fmt.Errorf("collect builds: %w", err)
	}
	var errs []error
	for i, digest := range staged {
		switch {
		case keep(digest):
			d.Unpin(digest)
		case i >= keepLast:
			if err := d.remove(digest); err != nil {
				errs = append(errs, fmt.Errorf("remove build %s: %w", Short(digest), err))
			}
		}
	}
	return errors.Join(errs...)
}

// Few says that Collect has nothing to do, whatever is referred to: there are no more
// builds than it keeps in any case, and no pin that a reference could take over.
func (d *Depot) Few(keepLast int) (bool, error) {
	staged, err := d.list()
	d.mu.Lock()
	defer d.mu.Unlock()
	return err == nil && len(staged) <= keepLast && len(d.pinned) == 0, err
}

// list returns the digests of all builds, the one staged last first.
func (d *Depot) list() ([]string, error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, err
	}
	type staged struct {
		digest string
		at     time.Time
	}
	var found []staged
	for _, e := range entries {
		sum, ok := strings.CutPrefix(e.Name(), namePrefix)
		digest := digestPrefix + sum
		if _, err := buildName(digest); !ok || err != nil {
			continue // not ours
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		found = append(found, staged{digest, info.ModTime()})
	}
	slices.SortStableFunc(found, func(a, b staged) int { return b.at.Compare(a.at) })
	digests := make([]string, len(found))
	for i, f := range found {
		digests[i] = f.digest
	}
	return digests, nil
}

// remove takes a build away in one step, then deletes it. A staging of the
// same digest waits for the first of these, a pinned build is left alone.
func (d *Depot) remove(digest string) error {
	d.mu.Lock()
	if d.pinned[digest] || d.removing[digest] != nil {
		d.mu.Unlock()
		return nil
	}
	done := make(chan struct{})
	d.removing[digest] = done
	d.mu.Unlock()

	trash, err := d.takeAway(digest)

	d.mu.Lock()
	delete(d.removing, digest)
	delete(d.sound, digest)
	close(done)
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return removeTree(trash)
}

func (d *Depot) takeAway(digest string) (trash string, err error) {
	name, err := buildName(digest)
	if err != nil {
		return "", err
	}
	trash, err = os.MkdirTemp(d.dir, tempPrefix)
	if err != nil {
		return "", err
	}
	// The system call, unlike os.Rename, takes the place of an empty directory.
	if err := unix.Rename(filepath.Join(d.dir, name), trash); err != nil {
		return "", errors.Join(err, os.Remove(trash))
	}
	return trash, nil
}

// removeTree removes a tree of read-only directories; one that is not there is
// no error.
func removeTree(path string) error {
	err := filepath.WalkDir(path, func(at string, e fs.DirEntry, err error) error {
		if err != nil || !e.IsDir() {
			return err
		}
		return os.Chmod(at, 0o700)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(path)
}
