package rawio

import (
	"bytes"
	"errors"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// pair is two ends of one connection that never block.
func pair(t testing.TB) (a, b uintptr) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Close(fds[0])
		unix.Close(fds[1])
	})
	return uintptr(fds[0]), uintptr(fds[1])
}

func TestWhatWouldBlockFails(t *testing.T) {
	a, b := pair(t)
	var buf [8]byte
	var one [1]byte
	if n, err := Read(a, buf[:]); n != 0 || err != syscall.EAGAIN {
		t.Errorf("read: %d, %v", n, err)
	}
	if n, err := Peek(a, &one); n != 0 || err != syscall.EAGAIN {
		t.Errorf("peek: %d, %v", n, err)
	}
	if n, err := WriteBoth(a, make([]byte, 1<<20), make([]byte, 8<<20)); n == 0 || n >= 9<<20 || err != nil {
		t.Errorf("a write of too much: %d, %v", n, err)
	}
	for range 2 { // what was left of the buffer may take one more small piece
		_, err := Write(a, make([]byte, 1<<20))
		if err == syscall.EAGAIN {
			break
		}
	}
	if n, err := WriteBoth(a, make([]byte, 1<<20), buf[:]); n != 0 || err != syscall.EAGAIN {
		t.Errorf("a write to what is full: %d, %v", n, err)
	}
	_ = b
}

func TestBytesArriveInOrderAndThenTheEnd(t *testing.T) {
	a, b := pair(t)
	for _, pieces := range [][2]string{{"head", "body"}, {"head", ""}, {"", "body"}} {
		if n, err := WriteBoth(a, []byte(pieces[0]), []byte(pieces[1])); n != len(pieces[0]+pieces[1]) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	var one [1]byte
	if n, errno := Peek(b, &one); n != 1 || one[0] != 'h' || errno != 0 {
		t.Errorf("peek: %d, %q, %v", n, one, errno)
	}
	var got bytes.Buffer
	for got.Len() < 16 {
		var buf [3]byte
		n, err := Read(b, buf[:])
		if err != nil {
			t.Fatal(err)
		}
		got.Write(buf[:n])
	}
	if got.String() != "headbodyheadbody" {
		t.Errorf("%q", &got)
	}
	if err := unix.Shutdown(int(a), unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	var buf [3]byte
	if n, err := Read(b, buf[:]); n != 0 || err != nil {
		t.Errorf("the end: %d, %v", n, err)
	}
	if n, errno := Peek(b, &one); n != 0 || errno != 0 {
		t.Errorf("a peek at the end: %d, %v", n, errno)
	}
}

func TestWritingToNobodyIsAnError(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	unix.Close(fds[1])
	if n, err := WriteBoth(uintptr(fds[0]), []byte("a"), []byte("b")); n != 0 || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestFetchingAheadTouchesNothing(t *testing.T) {
	b := []byte("as it was")
	for n := range uintptr(300) {
		Ahead(unsafe.Pointer(unsafe.SliceData(b)), n+1)
		StackAhead(n+1, 0)
		StackAhead(0, n+1)
		StackAhead(1<<20, n) // far beyond the stack
	}
	if string(b) != "as it was" {
		t.Errorf("%q", b)
	}
}

func BenchmarkWriteRead(b *testing.B) {
	from, to := pair(b)
	head, body := make([]byte, 200), make([]byte, 100)
	var buf [512]byte
	b.ReportAllocs()
	for b.Loop() {
		if _, err := WriteBoth(from, head, body); err != nil {
			b.Fatal(err)
		}
		if _, err := Read(to, buf[:]); err != nil {
			b.Fatal(err)
		}
	}
}
