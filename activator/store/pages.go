package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"slices"
)

// This file reads a bbolt database without bbolt. The library maps the file
// and trusts what its pages say: a damaged page makes it panic, loop, or read
// past the end of the file, which kills the process. So before it opens a
// file, every page it could follow is read here with plain reads and checked,
// and the records that are whole are collected on the way, so that damage to
// one of them does not cost the others.
//
// The format, in the byte order of the machine: a page starts with id (8
// bytes), flags (2), count (2) and overflow (4). A meta page goes on with
// magic, version, page size, flags (4 each), root page, root sequence,
// freelist page, end page, transaction (8 each) and an FNV-1a sum of these.
// Branch elements are position, key size (4 each) and page (8); leaf elements
// are flags, position, key size and value size (4 each); positions count from
// the element. A value that is a bucket starts with its root page (0: the
// page follows inline) and a sequence.
const (
	pageHeader  = 16
	pageElement = 16
	bucketHead  = 16
	metaSum     = 56 // bytes of a meta that its checksum covers
	metaEnd     = pageHeader + metaSum + 8

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10
	flagBucket   = 0x01 // of a leaf element

	boltMagic   = 0xED0CDAED
	boltVersion = 2
	maxPageSize = 1 << 20
)

// boltMeta is the part of a meta page that matters here.
type boltMeta struct {
	pageSize             int64
	root, freelist, next uint64 // page ids; next is one past the last page in use
	txid                 uint64
}

// pageWalk reads one file. Faults are collected, not fatal: what can be
// reached around them is still read.
type pageWalk struct {
	r      io.ReaderAt
	size   int64
	meta   boltMeta
	seen   map[uint64]bool
	faults []error
	emit   func(bucket string, key, value []byte)
}

// walkPages checks the database file at path and calls emit for every key that
// it can reach; the bytes are the callee's to keep. faults are what is damaged
// in the file; err is what kept the file from being read at all, and says
// nothing about damage.
func walkPages(path string, emit func(bucket string, key, value []byte)) (faults []error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: fmt.Errorf("not a regular file")}
	}
	w := &pageWalk{r: f, size: info.Size(), seen: map[uint64]bool{}, emit: emit}
	if w.size == 0 {
		return []error{fmt.Errorf("file is empty")}, nil
	}
	if err := w.readMeta(); err != nil {
		return []error{err}, nil
	}
	if end := int64(w.meta.next) * w.meta.pageSize; end > w.size {
		w.fault("file ends at %d of %d bytes", w.size, end)
	}
	w.freelist()
	w.page("", w.meta.root)
	return w.faults, nil
}

func (w *pageWalk) fault(format string, args ...any) {
	w.faults = append(w.faults, fmt.Errorf(format, args...))
}

// readMeta picks the newer of the two meta pages that are whole, as the
// library does: a torn last write leaves the one before.
func (w *pageWalk) readMeta() error {
	found := false
	try := func(offset int64) {
		buf := make([]byte, metaEnd)
		if _, err := w.r.ReadAt(buf, offset); err != nil {
			return
		}
		if m, ok := parseMeta(buf[pageHeader:]); ok && (!found || m.txid > w.meta.txid) {
			w.meta, found = m, true
		}
	}
	try(0)
	if found {
		try(w.meta.pageSize)
	} else {
		try(int64(os.Getpagesize()))
	}
	if !found {
		return fmt.Errorf("neither of its two headers is whole")
	}
	return nil
}

func parseMeta(b []byte) (boltMeta, bool) {
	u32 := binary.NativeEndian.Uint32
	u64 := binary.NativeEndian.Uint64
	sum := fnv.New64a()
	sum.Write(b[:metaSum]) // never fails
	if u32(b) != boltMagic || u32(b[4:]) != boltVersion || u64(b[metaSum:]) != sum.Sum64() {
		return boltMeta{}, false
	}
	m := boltMeta{
		pageSize: int64(u32(b[8:])),
		root:     u64(b[16:]),
		freelist: u64(b[32:]),
		next:     u64(b[40:]),
		txid:     u64(b[48:]),
	}
	return m, m.pageSize >= 1024 && m.pageSize <= maxPageSize && m.next < 1<<40
}

// read returns the page whole, its overflow included.
func (w *pageWalk) read(id uint64) ([]byte, bool) {
	if id < 2 || id >= w.meta.next {
		w.fault("page %d is outside the file", id)
		return nil, false
	}
	head := make([]byte, pageHeader)
	if _, err := w.r.ReadAt(head, int64(id)*w.meta.pageSize); err != nil {
		w.fault("page %d cannot be read: %w", id, err)
		return nil, false
	}
	pages := uint64(binary.NativeEndian.Uint32(head[12:])) + 1
	if got := binary.NativeEndian.Uint64(head); got != id || id+pages > w.meta.next {
		w.fault("page %d is not itself (id %d, %d pages)", id, got, pages)
		return nil, false
	}
	for p := id; p < id+pages; p++ {
		if w.seen[p] {
			w.fault("page %d is used twice", p)
			return nil, false
		}
		w.seen[p] = true
	}
	if int64(id+pages)*w.meta.pageSize > w.size {
		w.fault("page %d is cut off", id)
		return nil, false
	}
	buf := make([]byte, int64(pages)*w.meta.pageSize)
	if _, err := w.r.ReadAt(buf, int64(id)*w.meta.pageSize); err != nil {
		w.fault("page %d cannot be read: %w", id, err)
		return nil, false
	}
	return buf, true
}

// freelist checks that the list of free pages is one and fits its page; the
// library's own check compares it with the pages in use.
func (w *pageWalk) freelist() {
	buf, ok := w.read(w.meta.freelist)
	if !ok {
		return
	}
	count := uint64(binary.NativeEndian.Uint16(buf[10:]))
	room := uint64(len(buf)-pageHeader) / 8
	from := pageHeader
	if count == 0xFFFF {
		count = binary.NativeEndian.Uint64(buf[pageHeader:])
		from, room = from+8, room-1
	}
	if binary.NativeEndian.Uint16(buf[8:]) != flagFreelist || count > room {
		w.fault("page %d is no list of free pages", w.meta.freelist)
		return
	}
	ids := make([]uint64, count)
	for i := range ids {
		ids[i] = binary.NativeEndian.Uint64(buf[from+8*i:])
		if ids[i] < 2 || ids[i] >= w.meta.next {
			w.fault("free page %d is outside the file", ids[i])
		}
	}
	slices.Sort(ids)
	if len(slices.Compact(ids)) != int(count) {
		w.fault("a page is free twice")
	}
}

// page reads the subtree of a bucket ("" is the list of buckets) below page id.
func (w *pageWalk) page(bucket string, id uint64) {
	buf, ok := w.read(id)
	if !ok {
		return
	}
	w.elements(bucket, id, buf)
}

func (w *pageWalk) elements(bucket string, id uint64, buf []byte) {
	flags := binary.NativeEndian.Uint16(buf[8:])
	count := int(binary.NativeEndian.Uint16(buf[10:]))
	if flags != flagBranch && flags != flagLeaf || flags == flagBranch && count == 0 {
		w.fault("page %d of %q is no tree page (flags %#x, %d keys)", id, bucket, flags, count)
		return
	}
	if pageHeader+count*pageElement > len(buf) {
		w.fault("page %d of %q has more keys than fit (%d)", id, bucket, count)
		return
	}
	var last []byte
	for i := range count {
		at := pageHeader + i*pageElement
		key, value, ok := element(buf[at:], flags == flagLeaf)
		if !ok || i > 0 && bytes.Compare(last, key) >= 0 {
			w.fault("page %d of %q has a damaged key (number %d)", id, bucket, i)
			continue
		}
		last = key
		switch elemFlags := binary.NativeEndian.Uint32(buf[at:]); {
		case flags == flagBranch:
			w.page(bucket, binary.NativeEndian.Uint64(buf[at+8:]))
		case elemFlags&flagBucket != 0:
			w.bucket(bucket, string(key), value)
		case bucket == "":
			w.fault("key %q lies outside of any bucket", key)
		default:
			w.emit(bucket, key, value)
		}
	}
}

// element cuts key and value out of the bytes that start at the element.
func element(b []byte, leaf bool) (key, value []byte, ok bool) {
	pos := uint64(binary.NativeEndian.Uint32(b))
	ksize, vsize := uint64(binary.NativeEndian.Uint32(b[4:])), uint64(0)
	if leaf {
		pos = uint64(binary.NativeEndian.Uint32(b[4:]))
		ksize = uint64(binary.NativeEndian.Uint32(b[8:]))
		vsize = uint64(binary.NativeEndian.Uint32(b[12:]))
	}
	if ksize == 0 || pos+ksize+vsize > uint64(len(b)) {
		return nil, nil, false
	}
	return b[pos : pos+ksize], b[pos+ksize : pos+ksize+vsize], true
}

func (w *pageWalk) bucket(parent, name string, value []byte) {
	if parent != "" {
		name = parent + "/" + name
	}
	if len(value) < bucketHead {
		w.fault("bucket %q has no head", name)
		return
	}
	root, inline := binary.NativeEndian.Uint64(value), value[bucketHead:]
	switch {
	case root != 0:
		w.page(name, root)
	case len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != flagLeaf:
		w.fault("bucket %q has a damaged inline page", name)
	default:
		w.elements(name, 0, inline)
	}
}
