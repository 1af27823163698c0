package rawio

import (
	"net"
	"reflect"
	"sync/atomic"
	"syscall"
	"unsafe"
)

// Note is what Go's poller has noted of a socket: it asks for all sockets at once,
// edge-triggered, and keeps for each whether there may be something to read or room
// to write until somebody waits for that. Looking at a note costs no system call.
//
// What a note proves: epoll_wait(2) tells what happened in the order in which it
// happened, and the runtime has one thread at a time ask it. So who was woken by the
// poller, and finds a note that is blank, knows that nothing had come on that socket
// when what it was woken by came.
//
// The runtime offers no way to read it, so it is found in its memory, where
// its layout is known (note_go126.go); elsewhere there is none. It is only read.
// The zero Note is never blank.
type Note struct {
	reads, writes *atomic.Uintptr // of runtime.pollDesc: 0 if nothing is noted and nobody waits
}

// NoteOf finds the note of c, which must stay open while that is in use.
func NoteOf(c net.Conn) Note {
	fd := reflect.ValueOf(c)
	for _, name := range []string{"conn", "fd", "pfd"} {
		if fd = field(fd, name); !fd.IsValid() {
			return Note{}
		}
	}
	number, desc := field(fd, "Sysfd"), field(field(fd, "pd"), "runtimeCtx")
	if noteAt == 0 || !number.IsValid() || !desc.IsValid() || !number.CanInt() || !desc.CanUint() || desc.Uint() == 0 {
		return Note{}
	}
	address := uintptr(desc.Uint())
	words := *(*unsafe.Pointer)(unsafe.Pointer(&address)) // not the collector's: it never moves and is never freed
	const word = unsafe.Sizeof(address)
	if int64(*(*uintptr)(unsafe.Add(words, word))) != number.Int() {
		return Note{}
	}
	return Note{
		reads:  (*atomic.Uintptr)(unsafe.Add(words, noteAt*word)),
		writes: (*atomic.Uintptr)(unsafe.Add(words, (noteAt+1)*word)),
	}
}

// field is the field of a struct or of what a pointer to one points to; what there
// is not is not valid.
func field(v reflect.Value, name string) reflect.Value {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	if v.Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.FieldByName(name)
}

// Blank says that nothing to read has been noted since somebody last read or waited,
// and makes Still tell of what comes from now on. raw is the socket's.
func (n Note) Blank(raw syscall.RawConn) bool {
	if n.reads == nil {
		return false
	}
	if n.writes.Load() != 0 {
		_ = raw.Write(func(uintptr) bool { return true }) // the poller forgets; what fails here fails again
	}
	return n.reads.Load() == 0 && n.writes.Load() == 0
}

// Still says that nothing has been noted since Blank, which somebody who begins to
// read has made the poller forget: a socket that has something to read has room to
// write as well, unless its peer has left much unread.
func (n Note) Still() bool { return n.writes.Load() == 0 }
