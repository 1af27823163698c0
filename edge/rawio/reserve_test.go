package rawio

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// without leaves no descriptor but n, until undo.
func without(t *testing.T, n int) (undo func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(0) // the lowest that is free
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(fd + 64), Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	var taken []int
	for fd, err = unix.Dup(0); err == nil; fd, err = unix.Dup(0) {
		taken = append(taken, fd)
	}
	for range n {
		unix.Close(taken[0])
		taken = taken[1:]
	}
	return func() {
		for _, fd := range taken {
			unix.Close(fd)
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	}
}

// Whoever has a connection can hand it over though there is no descriptor left, beside
// others who take every one that they may.
func TestTheReserveIsForThoseWhoAreHere(t *testing.T) {
	r, err := NewReserve(8)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	a, b := ends(t, "tcp")
	defer a.Close()
	defer b.Close()
	fd, err := Lift(a)
	if err != nil {
		t.Fatal(err)
	}
	undo := without(t, 4)
	defer undo()
	var over atomic.Bool
	var wg, all sync.WaitGroup
	all.Add(4)
	for range 4 {
		wg.Go(func() {
			had, refused := -1, sync.OnceFunc(all.Done)
			for !over.Load() {
				if !r.Whole() {
					refused()
				} else if fd, err := unix.Dup(0); err != nil {
					refused()
				} else {
					unix.Close(had) // the first one is none
					had = fd
				}
			}
			unix.Close(had)
		})
	}
	all.Wait()
	lacking := 0
	const times = 3000
	for i := range times {
		nc, err := r.Land(fd)
		if err != nil {
			t.Errorf("%d: %v", i, err)
			break
		}
		if !r.whole.Load() {
			lacking++
		}
		nc.Close()
	}
	over.Store(true)
	wg.Wait()
	if lacking < times/20 {
		t.Errorf("after %d of %d the reserve was not whole: there were descriptors enough", lacking, times)
	}
	unix.Close(fd)
	if !r.Whole() {
		t.Error("the reserve is not whole in the end")
	}
}

func TestAReserveThatIsEmptyFailsAndFills(t *testing.T) {
	r, err := NewReserve(1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := r.For(func() error { return fs.ErrExist }); !errors.Is(err, fs.ErrExist) || !r.whole.Load() {
		t.Errorf("%v: what is no want of descriptors is no reason to give one up", err)
	}
	undo := without(t, 0)
	var f, g *os.File
	open := func(to **os.File) func() error {
		return func() (err error) { *to, err = os.Open(os.DevNull); return err }
	}
	if err := r.For(open(&f)); err != nil {
		t.Errorf("the one that is kept back: %v", err)
	}
	if err := r.For(open(&g)); !Exhausted(err) || r.Whole() {
		t.Errorf("a second one: %v", err)
	}
	f.Close()
	if !r.Whole() {
		t.Error("what was closed is not kept back")
	}
	if _, err := NewReserve(1); !Exhausted(err) {
		t.Errorf("a reserve out of nothing: %v", err)
	}
	undo()
}
