package artifact_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/usher-edge/usher/activator/artifact"
)

// While other goroutines start processes all the time, each of which has for a
// moment a copy of every open descriptor, a build that was just staged can be
// run at once.
func TestStagedBuildRunsAtOnceWhileOthersFork(t *testing.T) {
	program, err := os.ReadFile("/bin/true")
	if err != nil {
		t.Skipf("needs a program to run: %v", err)
	}
	base := fastDir(t, program)
	d, err := artifact.Open(filepath.Join(base, "artifacts"))
	must(t, err)
	t.Cleanup(func() { makeRemovable(t, base) })
	stop := make(chan struct{})
	var forks, wg sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					if err := exec.CommandContext(t.Context(), "/bin/true").Run(); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				// Bytes after the end of a program do no harm, and make each one new.
				content := append(bytes.Clone(program), fmt.Sprintf("%d-%d", w, i)...)
				b, err := d.Receive(t.Context(), bytes.NewReader(content), artifact.File)
				if err == nil {
					err = exec.CommandContext(t.Context(), b.Exec).Run()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	close(stop)
	forks.Wait()
}

// fastDir is a directory in memory if programs can run from there: a disk is
// so slow to sync that the children are gone by then.
func fastDir(t *testing.T, program []byte) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "usher-exec-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	probe := filepath.Join(dir, "probe")
	must(t, os.WriteFile(probe, program, 0o755))
	if exec.CommandContext(t.Context(), probe).Run() != nil {
		return t.TempDir()
	}
	return dir
}
