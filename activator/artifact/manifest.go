package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// entry is one line of a manifest: a regular file or a symbolic link.
type entry struct {
	path string // slash-separated, relative to the root
	link string // text of a symbolic link
	exec bool
	size int64
	sum  [sha256.Size]byte
	kind entryKind
}

type entryKind byte

const (
	regular entryKind = 'f'
	symlink entryKind = 'l'
)

// manifestHead names the layout, and keeps a manifest from being mistaken for
// anything else.
const manifestHead = "usher tree 1\n"

// treeDigest is the digest of a directory: see the package documentation.
// Paths and link texts are quoted, so that no name can pass for two.
func treeDigest(entries []entry) string {
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	h := sha256.New()
	io.WriteString(h, manifestHead) // a hash never fails
	for _, e := range entries {
		if e.kind == symlink {
			fmt.Fprintf(h, "%c %s %s\n", e.kind, strconv.Quote(e.path), strconv.Quote(e.link))
			continue
		}
		mode := 0
		if e.exec {
			mode = 0o111
		}
		fmt.Fprintf(h, "%c %s %04o %d %x\n", e.kind, strconv.Quote(e.path), mode, e.size, e.sum)
	}
	return digestPrefix + hex.EncodeToString(h.Sum(nil))
}

func fileDigest(sum [sha256.Size]byte) string {
	return digestPrefix + hex.EncodeToString(sum[:])
}

// maxHops is how many links the kernel follows in one path before it gives up;
// a link that needs more leads nowhere, and so not outside.
const maxHops = 40

// checkLinks refuses links that leave the tree, followed through other links
// too: "a -> .", "b -> a/.." is outside although no text says so.
func checkLinks(entries []entry) error {
	links := map[string]string{}
	for _, e := range entries {
		if e.kind == symlink {
			links[e.path] = e.link
		}
	}
	for from, text := range links {
		if !staysInside(links, from, text) {
			return of(ErrInvalid, "link %q -> %q leaves the directory: make it relative and keep its target inside", from, text)
		}
	}
	return nil
}

func staysInside(links map[string]string, from, text string) bool {
	if text == "" || strings.HasPrefix(text, "/") {
		return false
	}
	at := path.Dir(from) // "." is the root
	rest := strings.Split(text, "/")
	for hops := 0; len(rest) > 0; {
		step := rest[0]
		rest = rest[1:]
		switch step {
		case "", ".":
			continue
		case "..":
			if at == "." {
				return false
			}
			at = path.Dir(at)
			continue
		}
		at = path.Join(at, step)
		next, isLink := links[at]
		if !isLink {
			continue
		}
		if hops++; hops > maxHops {
			return true // ELOOP
		}
		if strings.HasPrefix(next, "/") {
			return false
		}
		at = path.Dir(at)
		rest = append(strings.Split(next, "/"), rest...)
	}
	return true
}
