package artifact_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/usher-edge/usher/activator/artifact"
)

// stageN stages n different trees, oldest first, and unpins them.
func stageN(t *testing.T, d *artifact.Depot, n int) []string {
	t.Helper()
	var digests []string
	for i := range n {
		src := node(t)
		write(t, filepath.Join(src, "version"), fmt.Sprint(i), 0o644)
		b, err := d.Stage(t.Context(), src)
		must(t, err)
		d.Unpin(b.Digest)
		digests = append(digests, b.Digest)
	}
	return digests
}

// have returns which of the digests are still there, as a string of their
// numbers.
func have(t *testing.T, d *artifact.Depot, digests []string) string {
	t.Helper()
	var left string
	for i, digest := range digests {
		if _, err := d.Lookup(digest); err == nil {
			must(t, d.Verify(t.Context(), digest))
			left += fmt.Sprint(i)
		}
	}
	return left
}

func none(string) bool { return false }

func TestCollectKeepsTheLastAndTheReferenced(t *testing.T) {
	d, dir := openDepot(t)
	digests := stageN(t, d, 9)
	write(t, filepath.Join(dir, "README"), "not ours", 0o644)
	must(t, d.Collect(func(digest string) bool { return digest == digests[1] }, 5))
	if got := have(t, d, digests); got != "145678" {
		t.Errorf("left are %s", got)
	}
	must(t, d.Collect(none, 0))
	if left := entries(t, dir); !slices.Equal(left, []string{"README"}) {
		t.Errorf("depot holds %q", left)
	}
}

func TestFewBuildsNeedNoLookAtWhatIsReferredTo(t *testing.T) {
	d, _ := openDepot(t)
	digests := stageN(t, d, 3)
	for last, want := range []bool{false, false, false, true, true} {
		if few, err := d.Few(last); err != nil || few != want {
			t.Errorf("three builds are few beside the last %d: %v (%v)", last, few, err)
		}
	}
	_, err := d.Stage(t.Context(), node(t))
	must(t, err)
	if few, err := d.Few(9); err != nil || few {
		t.Errorf("a pin is not seen (%v)", err)
	}
	must(t, d.Collect(func(string) bool { return true }, 9))
	if few, err := d.Few(9); err != nil || !few || have(t, d, digests) != "012" {
		t.Errorf("a pin that a reference took over counts (%v)", err)
	}
}

func TestStagingABuildAgainMakesItTheLast(t *testing.T) {
	d, _ := openDepot(t)
	digests := stageN(t, d, 4)
	stageN(t, d, 1) // the same as the first
	must(t, d.Collect(none, 2))
	if got := have(t, d, digests); got != "03" {
		t.Errorf("left are %s", got)
	}
}

func TestPinnedBuildsAreKeptUntilReferencedOnce(t *testing.T) {
	d, _ := openDepot(t)
	b, err := d.Stage(t.Context(), node(t))
	must(t, err)
	there := func() bool { _, err := d.Lookup(b.Digest); return err == nil }
	must(t, d.Collect(none, 0))
	must(t, d.Collect(none, 0))
	if !there() {
		t.Fatal("a build was removed before anyone could refer to it")
	}
	must(t, d.Collect(func(string) bool { return true }, 0))
	must(t, d.Collect(none, 0))
	if there() {
		t.Error("a build that is no longer referred to was kept")
	}
}

func TestCollectAndStageOfOneDigestDoNotLoseIt(t *testing.T) {
	d, dir := openDepot(t)
	src := filepath.Join(t.TempDir(), "app")
	write(t, src, "#!/bin/sh\n", 0o755)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := d.Collect(none, 0); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for range 50 {
		b, err := d.Stage(t.Context(), src)
		must(t, err)
		must(t, d.Verify(t.Context(), b.Digest)) // pinned: it must be there
		d.Unpin(b.Digest)
	}
	close(stop)
	wg.Wait()
	must(t, d.Collect(none, 0))
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("depot holds %q", left)
	}
}
