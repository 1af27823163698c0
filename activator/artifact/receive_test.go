package artifact_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/usher-edge/usher/activator/artifact"
)

// tarOf makes a stream of these entries; a regular file's Linkname is its
// content.
func tarOf(t *testing.T, headers ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		content := ""
		if h.Typeflag == tar.TypeReg {
			content, h.Linkname = h.Linkname, ""
			h.Size = int64(len(content))
		}
		must(t, w.WriteHeader(&h))
		_, err := io.WriteString(w, content)
		must(t, err)
	}
	must(t, w.Close())
	return b.Bytes()
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Linkname: content, Mode: 0o644}
}

func folder(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}
}

func link(name, text string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: text}
}

func special(flag byte, name, text string) tar.Header {
	return tar.Header{Typeflag: flag, Name: name, Linkname: text}
}

func TestMaliciousUploadsAreRefused(t *testing.T) {
	good := tarOf(t, file("a", "aa"), file("b", strings.Repeat("\x00", 4096)), file("c", "cc"))
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"absolute path":                {tarOf(t, file("/etc/cron.d/x", "x")), "absolute"},
		"path that goes up":            {tarOf(t, file("../x", "x")), "plain path"},
		"path that goes up inside":     {tarOf(t, file("a/../../x", "x")), "plain path"},
		"path with an empty part":      {tarOf(t, file("a//x", "x")), "plain path"},
		"path with a dot part":         {tarOf(t, file("a/./x", "x")), "plain path"},
		"directory that goes up":       {tarOf(t, folder("../x/"), file("y", "y")), "plain path"},
		"file named like a directory":  {tarOf(t, tar.Header{Typeflag: tar.TypeReg, Name: "."}), "no name"},
		"link named like the root":     {tarOf(t, link(".", "x")), "no name"},
		"hard link":                    {tarOf(t, file("a", "a"), special(tar.TypeLink, "b", "a")), "hard link"},
		"hard link to the outside":     {tarOf(t, special(tar.TypeLink, "b", "/etc/passwd")), "hard link"},
		"character device":             {tarOf(t, special(tar.TypeChar, "null", "")), "type"},
		"block device":                 {tarOf(t, special(tar.TypeBlock, "sda", "")), "type"},
		"named pipe":                   {tarOf(t, special(tar.TypeFifo, "p", "")), "type"},
		"absolute link":                {tarOf(t, file("a", "a"), link("l", "/etc/passwd")), "not relative"},
		"link without a text":          {tarOf(t, file("a", "a"), link("l", "")), "not relative"},
		"link that goes up":            {tarOf(t, file("a", "a"), link("l", "../x")), "leaves"},
		"link that goes up through":    {tarOf(t, file("a", "a"), link("d/root", ".."), link("d/out", "root/..")), "leaves"},
		"file through a link":          {tarOf(t, link("d", "e"), file("d/x", "x")), "no directory"},
		"file through a link outside":  {tarOf(t, link("d", "../.."), file("d/x", "x")), "no directory"},
		"file below a file":            {tarOf(t, file("a", "a"), file("a/b", "b")), "no directory"},
		"file in place of a directory": {tarOf(t, file("a/b", "b"), file("a", "a")), "twice"},
		"directory in place of a link": {tarOf(t, link("a", "b"), folder("a/"), file("b", "b")), "twice"},
		"two files of one name":        {tarOf(t, file("a", "1"), file("a", "2")), "twice"},
		"two spellings of one name":    {tarOf(t, file("a", "1"), file("./a", "2")), "twice"},
		"two directories of one name":  {tarOf(t, folder("a/"), folder("a/"), file("a/b", "b")), "twice"},
		"file and link of one name":    {tarOf(t, file("a", "1"), link("a", "b")), "twice"},
		"name that is too long":        {tarOf(t, file(strings.Repeat("n", 300), "x")), "too long"},
		"no entries":                   {tarOf(t), "no files"},
		"only directories":             {tarOf(t, folder("a/"), folder("a/b/")), "no files"},
		"nothing":                      {nil, "cut short"},
		"garbage":                      {bytes.Repeat([]byte("garbage!"), 512), "no tar"},
		"cut in a header":              {good[:100], "cut short"},
		"cut in a content":             {good[:513], "cut short"},
		"cut between entries":          {good[:1024], "cut short"},
		"cut after a file of zeros":    {good[:1024+512+4096], "cut short"},
		"cut in the end":               {good[:len(good)-512], "cut short"},
		"zip":                          {append([]byte("PK\x03\x04"), make([]byte, 508)...), "no tar"},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := openDepot(t)
			_, err := d.Receive(t.Context(), bytes.NewReader(c.data), artifact.Dir)
			wantErr(t, err, artifact.ErrInvalid)
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("message is %q, want %q in it", err, c.says)
			}
			if left := entries(t, dir); len(left) != 0 {
				t.Errorf("a refused upload left %q", left)
			}
			if left := entries(t, filepath.Dir(dir)); len(left) != 1 {
				t.Errorf("a refused upload wrote %q outside", left)
			}
		})
	}
}

func TestOrdinaryTarsAreAccepted(t *testing.T) {
	want := ""
	for name, data := range map[string][]byte{
		"with directories":     tarOf(t, folder("a/"), file("a/b", "b"), file("c", "c")),
		"without directories":  tarOf(t, file("a/b", "b"), file("c", "c")),
		"directories after":    tarOf(t, file("c", "c"), file("a/b", "b"), folder("a/")),
		"from the current dir": tarOf(t, folder("./"), folder("./a/"), file("./a/b", "b"), file("./c", "c")),
		"from git archive": tarOf(t, tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "pax_global_header", PAXRecords: map[string]string{"comment": "abc"}},
			file("a/b", "b"), file("c", "c")),
		"padded": append(tarOf(t, file("a/b", "b"), file("c", "c")), make([]byte, 10240)...),
	} {
		d, _ := openDepot(t)
		b, err := d.Receive(t.Context(), iotest.OneByteReader(bytes.NewReader(data)), artifact.Dir)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if want == "" {
			want = b.Digest
		}
		if b.Digest != want {
			t.Errorf("%s: digest differs", name)
		}
	}
}

func TestUploadLimit(t *testing.T) {
	const limit = 8 << 10
	exact := tarOf(t, file("a", strings.Repeat("x", limit-512-1024)))
	if len(exact) != limit {
		t.Fatalf("test data has %d bytes", len(exact))
	}
	sparse := tarOf(t, file("a", "x"))
	copy(sparse[124:136], "00100000000\x00") // says 8 MiB
	for name, c := range map[string]struct {
		kind artifact.Kind
		data []byte
		want error
	}{
		"file at the limit":    {artifact.File, make([]byte, limit), nil},
		"file above the limit": {artifact.File, make([]byte, limit+1), artifact.ErrTooLarge},
		"tar at the limit":     {artifact.Dir, exact, nil},
		"tar above the limit":  {artifact.Dir, tarOf(t, file("a", strings.Repeat("x", limit))), artifact.ErrTooLarge},
		"tar of many files":    {artifact.Dir, tarOf(t, slicesOf(20)...), artifact.ErrTooLarge},
		"size in the header":   {artifact.Dir, rechecksum(sparse), artifact.ErrTooLarge},
		"empty file":           {artifact.File, nil, artifact.ErrInvalid},
		"unknown kind":         {"zip", nil, artifact.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := openDepot(t, artifact.WithUploadLimit(limit))
			_, err := d.Receive(t.Context(), bytes.NewReader(c.data), c.kind)
			wantErr(t, err, c.want)
			if left := entries(t, dir); c.want != nil && len(left) != 0 {
				t.Errorf("a refused upload left %q", left)
			}
		})
	}
}

func slicesOf(n int) []tar.Header {
	var all []tar.Header
	for i := range n {
		all = append(all, file(strings.Repeat("f", i+1), ""))
	}
	return all
}

// rechecksum repairs the checksum of the first header.
func rechecksum(data []byte) []byte {
	copy(data[148:156], "        ")
	var sum int
	for _, b := range data[:512] {
		sum += int(b)
	}
	digits := []byte("000000\x00 ")
	for i := 5; i >= 0; i-- {
		digits[i] = byte('0' + sum%8)
		sum /= 8
	}
	copy(data[148:156], digits)
	return data
}

func TestBrokenUploadIsNotTheArtifactsFault(t *testing.T) {
	d, dir := openDepot(t)
	broken := errors.New("connection reset")
	data := tarOf(t, file("a", strings.Repeat("x", 4096)))
	for _, kind := range []artifact.Kind{artifact.File, artifact.Dir} {
		for _, n := range []int{0, 100, 512, 1000, len(data) - 1024} {
			r := io.MultiReader(bytes.NewReader(data[:n]), iotest.ErrReader(broken))
			_, err := d.Receive(t.Context(), r, kind)
			wantErr(t, err, broken)
			if errors.Is(err, artifact.ErrInvalid) {
				t.Errorf("%s cut at %d: %v", kind, n, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := d.Receive(ctx, bytes.NewReader(data), artifact.Dir)
	wantErr(t, err, context.Canceled)
	if left := entries(t, dir); len(left) != 0 {
		t.Errorf("broken uploads left %q", left)
	}
}

func TestPackedFileArrivesUnchanged(t *testing.T) {
	src := filepath.Join(t.TempDir(), "app")
	write(t, src, strings.Repeat("#!/bin/sh\n", 100_000), 0o755)
	roundTrip(t, src)
}

func roundTrip(t testing.TB, src string) {
	t.Helper()
	here, _ := openDepot(t)
	there, _ := openDepot(t)
	staged, err := here.Stage(t.Context(), src)
	must(t, err)
	kind, r, err := artifact.Pack(t.Context(), src)
	must(t, err)
	received, err := there.Receive(t.Context(), r, kind)
	must(t, err)
	must(t, r.Close())
	if received.Digest != staged.Digest || received.Kind != staged.Kind {
		t.Errorf("received %+v, staged %+v", received, staged)
	}
	must(t, there.Verify(t.Context(), received.Digest))
}

func TestPackedTreeArrivesUnchanged(t *testing.T) { roundTrip(t, node(t)) }

func TestPackStopsWhenClosedOrCancelled(t *testing.T) {
	src := t.TempDir()
	write(t, filepath.Join(src, "big"), strings.Repeat("x", 1<<20), 0o644)
	_, r, err := artifact.Pack(t.Context(), src)
	must(t, err)
	_, err = io.CopyN(io.Discard, r, 1000)
	must(t, err)
	must(t, r.Close()) // returns, and goleak sees that nothing is left
	must(t, r.Close())

	ctx, cancel := context.WithCancel(t.Context())
	_, r, err = artifact.Pack(ctx, src)
	must(t, err)
	cancel()
	_, err = io.Copy(io.Discard, r)
	wantErr(t, err, context.Canceled)
	must(t, r.Close())
}

func TestPackReportsWhatChangesMeanwhile(t *testing.T) {
	const inA, inB = 100_000, 1_500_000 // bytes of the stream after which a, or b, is being read
	for name, c := range map[string]struct {
		after  int64
		change func(t *testing.T, path string)
	}{
		"grows":         {inB, func(t *testing.T, path string) { write(t, path, strings.Repeat("x", 3<<20), 0o644) }},
		"shrinks":       {inB, func(t *testing.T, path string) { must(t, os.Truncate(path, 1<<20)) }},
		"is rewritten":  {inB, func(t *testing.T, path string) { write(t, path, strings.Repeat("y", 2<<20), 0o644) }},
		"goes away":     {inA, func(t *testing.T, path string) { must(t, os.Remove(path)) }},
		"becomes a dir": {inA, func(t *testing.T, path string) { must(t, os.Remove(path)); must(t, os.Mkdir(path, 0o755)) }},
		"becomes a pipe": {inA, func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, unix.Mkfifo(path, 0o644))
		}},
		"becomes a link to the outside": {inA, func(t *testing.T, path string) {
			must(t, os.Remove(path))
			must(t, os.Symlink("/etc/passwd", path))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			src := t.TempDir()
			write(t, filepath.Join(src, "a"), strings.Repeat("a", 1<<20), 0o644)
			write(t, filepath.Join(src, "b"), strings.Repeat("x", 2<<20), 0o644)
			old := time.Now().Add(-time.Hour) // so that a rewrite shows whatever the clock's steps
			must(t, os.Chtimes(filepath.Join(src, "b"), old, old))
			_, r, err := artifact.Pack(t.Context(), src)
			must(t, err)
			_, err = io.CopyN(io.Discard, r, c.after)
			must(t, err)
			c.change(t, filepath.Join(src, "b"))
			if _, err := io.Copy(io.Discard, r); err == nil {
				t.Error("the change was not noticed")
			}
			must(t, r.Close())
		})
	}
}

// Staging a tree here and sending it there agree on its digest, whatever it
// holds.
func TestUploadKeepsTheDigest(t *testing.T) {
	shm := "/dev/shm" // many small files, not worth a disk
	if info, err := os.Stat(shm); err != nil || !info.IsDir() {
		shm = ""
	}
	rapid.Check(t, func(rt *rapid.T) {
		base, err := os.MkdirTemp(shm, "usher-artifact-")
		if err != nil {
			rt.Skip(err)
		}
		defer func() {
			makeRemovable(t, base)
			must(t, os.RemoveAll(base))
		}()
		src := filepath.Join(base, "src")
		must(t, os.Mkdir(src, 0o755))
		drawTree(rt, t, src)
		depot, err := artifact.Open(filepath.Join(base, "here"))
		must(t, err)
		staged, err := depot.Stage(t.Context(), src)
		must(t, err)
		kind, r, err := artifact.Pack(t.Context(), src)
		must(t, err)
		other, err := artifact.Open(filepath.Join(base, "there"))
		must(t, err)
		received, err := other.Receive(t.Context(), r, kind)
		must(t, err)
		must(t, r.Close())
		if received.Digest != staged.Digest {
			rt.Fatalf("staged %s, received %s", staged.Digest, received.Digest)
		}
		must(t, other.Verify(t.Context(), received.Digest))
	})
}

func drawTree(rt *rapid.T, t *testing.T, src string) {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{"a", "b", "c", "node_modules", "ü", " ", "\n", "-", "..."}),
		rapid.StringMatching(`[^/\x00]{1,20}`),
		rapid.Map(rapid.SliceOfN(rapid.ByteRange(0x80, 0xff), 1, 8), func(b []byte) string { return string(b) }),
	).Filter(func(s string) bool { return s != "." && s != ".." && len(s) < 200 })
	files := rapid.MapOfN(rapid.Map(rapid.SliceOfN(part, 1, 4), func(p []string) string { return filepath.Join(p...) }),
		rapid.SliceOfN(rapid.Byte(), 0, 2000), 1, 8).Draw(rt, "files")
	for name, content := range maps.All(files) {
		path := filepath.Join(src, name)
		mode := rapid.SampledFrom([]os.FileMode{0o644, 0o755, 0o600, 0o700, 0o640}).Draw(rt, "mode")
		if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
			continue // below another file
		}
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			continue
		}
		must(t, os.WriteFile(path, content, mode))
	}
	write(t, filepath.Join(src, "always"), "x", 0o644)
	for i := range rapid.IntRange(0, 3).Draw(rt, "links") {
		text := rapid.SampledFrom([]string{"always", ".", "a", "a/b", "missing"}).Draw(rt, "text")
		_ = os.Symlink(text, filepath.Join(src, "link"+string(rune('0'+i))))
	}
}
