package artifact

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkVerify is what every start costs in the depot: hashed is the first of a
// build since usher began, known are all after it.
func BenchmarkVerify(b *testing.B) {
	for _, c := range []struct {
		name        string
		files, size int
	}{{"file of 16 MiB", 0, 16 << 20}, {"tree of 100 files", 100, 16 << 10}, {"tree of 5000 files", 5000, 4 << 10}} {
		src := filepath.Join(b.TempDir(), "app")
		fill(b, src, c.files, c.size)
		d, err := Open(filepath.Join(b.TempDir(), "builds"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = removeTree(d.dir) })
		build, err := d.Stage(b.Context(), src)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(c.name+"/hashed", func(b *testing.B) {
			for b.Loop() {
				if err := d.verify(b.Context(), build, time.Time{}); err != nil { // nothing has settled by then
					b.Fatal(err)
				}
			}
		})
		b.Run(c.name+"/known", func(b *testing.B) {
			if err := d.verify(b.Context(), build, later()); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				if err := d.verify(b.Context(), build, later()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// fill makes a program, or a tree of files.
func fill(b *testing.B, src string, files, size int) {
	b.Helper()
	content := bytes.Repeat([]byte("x"), size)
	err := error(nil)
	if files == 0 {
		err = os.WriteFile(src, content, 0o755)
	}
	for i := 0; i < files && err == nil; i++ {
		dir := filepath.Join(src, fmt.Sprint(i%64))
		if err = os.MkdirAll(dir, 0o755); err == nil {
			err = os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), content, 0o644)
		}
	}
	if err != nil {
		b.Fatal(err)
	}
}
