package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

// ErrFenced says that the state directory, or a file in it that makes it this
// usher's, was moved, removed or replaced: another usher may own the state.
var ErrFenced = errors.New("usher does not own its state any more")

// ErrMayHold comes with ErrFenced for a write that had gone to the database when that
// was noticed: nobody can say whether that is the state which the next start finds.
var ErrMayHold = errors.New("this was written before that was noticed: whether it holds shows when usher is started again")

// mayHold is the error of such a write.
func mayHold(fenced error) error { return fmt.Errorf("%w; %w", fenced, ErrMayHold) }

// fence is what tells a store that it lost its state. It falls once.
type fence struct {
	fallen chan struct{} // closed when it has
	once   sync.Once
	why    error // set before fallen is closed
}

func newFence() *fence { return &fence{fallen: make(chan struct{})} }

// Fenced implements Commits.
func (f *fence) Fenced() <-chan struct{} { return f.fallen }

// fall makes what was found the answer from now on.
func (f *fence) fall(why error) error {
	f.once.Do(func() {
		f.why = why
		close(f.fallen)
	})
	return f.err()
}

// err is nil until the fence has fallen.
func (f *fence) err() error {
	select {
	case <-f.fallen:
		return f.why
	default:
		return nil
	}
}

// owned is a file that was opened and must stay what its path names.
type owned struct {
	path string
	is   fs.FileInfo
}

func openOwned(path string, flag int, mode fs.FileMode) (*os.File, owned, error) {
	f, err := os.OpenFile(path, flag, mode)
	if err != nil {
		return nil, owned{}, err
	}
	is, err := f.Stat()
	if err != nil {
		return nil, owned{}, errors.Join(err, f.Close())
	}
	return f, owned{path: path, is: is}, nil
}

// lost says that the path names another file now, or none. What cannot be looked
// at proves nothing: a disk that fails is no other owner.
func (o owned) lost() error {
	now, err := os.Stat(o.path)
	switch {
	case err == nil && os.SameFile(now, o.is):
		return nil
	case err == nil:
		return fmt.Errorf("%w: %s is not the file that it opened, so the state directory was replaced or mounted over; %s", ErrFenced, o.path, fencedTodo)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s is gone, so %s was moved, removed or mounted over; %s", ErrFenced, o.path, filepath.Dir(o.path), fencedTodo)
	}
	return nil
}

// fencedTodo is what only the owner of the machine can do about it.
const fencedTodo = "see to it that the right state is there, and start usher again; apps that run go on"

// Owned implements Commits.
func (b *Bolt) Owned() error {
	if err := b.fence.err(); err != nil {
		return err
	}
	for _, o := range b.owned {
		if err := o.lost(); err != nil {
			return b.fall(err)
		}
	}
	return nil
}
