package rawio

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ends are the two of one connection that Go's poller looks after.
func ends(t *testing.T, network string) (a, b net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
	})
	for _, c := range []net.Conn{a, b} {
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	}
	return a, b
}

// traits are what is to stay as it is.
type traits struct {
	socket            uint64
	nonblock, cloexec bool
}

func traitsOf(t *testing.T, fd int) traits {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	status, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	return traits{st.Ino, status&unix.O_NONBLOCK != 0, flags&unix.FD_CLOEXEC != 0}
}

func traitsOfConn(t *testing.T, nc net.Conn) (x traits) {
	t.Helper()
	raw, err := nc.(syscall.Conn).SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { x = traitsOf(t, int(fd)) })
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// arrives waits until there is something to read.
func arrives(t *testing.T, fd int) {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 20000)
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("nothing to read: %v", err)
		}
		return
	}
}

func say(t *testing.T, nc net.Conn, word string) {
	t.Helper()
	if _, err := io.WriteString(nc, word); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, nc net.Conn, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if n, err := io.ReadFull(nc, b); string(b[:n]) != want {
		t.Fatalf("%q, %v; want %q", b[:n], err, want)
	}
}

// hearBare is hear by descriptor.
func hearBare(t *testing.T, fd int, want string) {
	t.Helper()
	arrives(t, fd)
	var b [64]byte
	if n, err := Read(uintptr(fd), b[:]); string(b[:n]) != want || err != nil {
		t.Fatalf("%q, %v; want %q", b[:n], err, want)
	}
}

func TestASocketGoesToAndFroWithItsBytesAndItsMode(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			a, b := ends(t, network)
			was := traitsOfConn(t, a)
			say(t, b, "before the lift")
			fd, err := Lift(a)
			if err != nil {
				t.Fatal(err)
			}
			if got := traitsOf(t, fd); got != was || !got.nonblock || !got.cloexec {
				t.Errorf("lifted: %+v, was %+v", got, was)
			}
			a.Close()
			hearBare(t, fd, "before the lift")
			if n, err := Write(uintptr(fd), []byte("lifted")); n != 6 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
			hear(t, b, "lifted")
			say(t, b, "before the landing")
			nc, err := Land(fd)
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if got := traitsOfConn(t, nc); got != was {
				t.Errorf("landed: %+v, was %+v", got, was)
			}
			unix.Close(fd)
			hear(t, nc, "before the landing")
			_ = nc.SetReadDeadline(time.Now()) // holds only in Go's poller
			if _, err := nc.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a read with a deadline: %v", err)
			}
			say(t, nc, "landed")
			hear(t, b, "landed")
			nc.Close()
			if n, err := b.Read(make([]byte, 1)); n != 0 || err != io.EOF {
				t.Errorf("%d, %v: somebody still has the socket", n, err)
			}
		})
	}
}

func TestOnlyAnOpenSocketIsLifted(t *testing.T) {
	x, y := net.Pipe()
	defer x.Close()
	defer y.Close()
	if fd, err := Lift(x); err == nil {
		t.Errorf("a pipe in memory became descriptor %d", fd)
	}
	go io.WriteString(y, "still a pipe")
	hear(t, x, "still a pipe")
	a, _ := ends(t, "tcp")
	a.Close()
	if fd, err := Lift(a); !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d, %v", fd, err)
	}
}

func TestOnlyASocketLands(t *testing.T) {
	if nc, err := Land(-1); err == nil {
		t.Errorf("%v", nc)
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])
	was := traitsOf(t, fds[0])
	if nc, err := Land(fds[0]); err == nil {
		t.Errorf("a pipe became %T", nc)
	}
	if got := traitsOf(t, fds[0]); got != was {
		t.Errorf("%+v, was %+v", got, was)
	}
}

// fewDescriptors tells the child process of the next test what it is.
const fewDescriptors = "USHER_TEST_FEW_DESCRIPTORS"

func TestWithoutDescriptorsTheSocketStaysWhereItIs(t *testing.T) {
	if os.Getenv(fewDescriptors) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWithoutDescriptorsTheSocketStaysWhereItIs$", "-test.v")
		cmd.Env = append(os.Environ(), fewDescriptors+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	a, b := ends(t, "tcp")
	was := traitsOfConn(t, a)
	taken := allDescriptors(t)
	free := func() {
		unix.Close(taken[len(taken)-1])
		taken = taken[:len(taken)-1]
	}
	if fd, err := Lift(a); !errors.Is(err, unix.EMFILE) {
		t.Fatalf("lift: %d, %v", fd, err)
	}
	if got := traitsOfConn(t, a); got != was {
		t.Errorf("%+v, was %+v", got, was)
	}
	say(t, a, "not lifted")
	hear(t, b, "not lifted")
	free()
	fd, err := Lift(a) // one will do
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	if err := unix.Dup3(0, spot(t), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for left := range 2 {
		if nc, err := Land(fd); !errors.Is(err, unix.EMFILE) {
			t.Fatalf("land with %d: %v, %v", left, nc, err)
		}
		if got := traitsOf(t, fd); got != was {
			t.Errorf("with %d: %+v, was %+v", left, got, was)
		}
		if n, err := Write(uintptr(fd), []byte("not landed")); n != 10 || err != nil {
			t.Errorf("with %d: %d, %v", left, n, err)
		}
		hear(t, b, "not landed")
		free()
		if n := unused(t); n != left+1 {
			t.Errorf("%d descriptors are free, want %d", n, left+1)
		}
	}
	nc, err := Land(fd) // two will do
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	unix.Close(fd)
	say(t, b, "landed at last")
	hear(t, nc, "landed at last")
}

const mostDescriptors = 64

// allDescriptors uses up what there is.
func allDescriptors(t *testing.T) (taken []int) {
	t.Helper()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: mostDescriptors, Max: mostDescriptors}); err != nil {
		t.Fatal(err)
	}
	for {
		fd, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return taken
		}
		taken = append(taken, fd)
	}
}

// spot is the one descriptor that is free.
func spot(t *testing.T) int {
	t.Helper()
	for fd := range mostDescriptors {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == unix.EBADF {
			return fd
		}
	}
	t.Fatal("none is free")
	return 0
}

func unused(t *testing.T) (n int) {
	t.Helper()
	for fd := range mostDescriptors {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == unix.EBADF {
			n++
		}
	}
	return n
}

func TestWaitBrieflyReturnsWhatHasHappenedAndNothingAfterItsTime(t *testing.T) {
	epoll, fds := watching(t, 3)
	var room [2]unix.EpollEvent
	waited := false
	for range 50 { // the runtime may interrupt some
		began := time.Now()
		if n, err := WaitBriefly(epoll, room[:], 3*time.Millisecond); n != 0 || err != nil {
			t.Fatalf("nothing has happened: %d, %v", n, err)
		}
		waited = waited || time.Since(began) >= 3*time.Millisecond
	}
	if !waited {
		t.Error("it does not wait")
	}
	one := [8]byte{1}
	for n, fd := range fds {
		if _, err := unix.Write(fd, one[:]); err != nil {
			t.Fatal(err)
		}
		want := min(n+1, len(room))
		if got, err := WaitBriefly(epoll, room[:], 0); got != want || err != nil {
			t.Errorf("%d, %v; want %d", got, err, want)
		}
	}
	if !slices.Contains(fds, int(room[0].Fd)) || room[0].Events != unix.EPOLLIN {
		t.Errorf("%+v", room[0])
	}
	if n, err := WaitBriefly(fds[0], room[:], 0); n != 0 || !errors.Is(err, unix.EINVAL) {
		t.Errorf("no epoll: %d, %v", n, err)
	}
	if n, err := WaitBriefly(-1, room[:], 0); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("no descriptor: %d, %v", n, err)
	}
}

func TestWaitBrieflyThatIsInterruptedIsNoError(t *testing.T) {
	epoll, _ := watching(t, 1)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, done := unix.Gettid(), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(done)
	wg.Go(func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_ = unix.Tgkill(unix.Getpid(), thread, unix.SIGURG) // which the runtime uses as well
			case <-done:
				return
			}
		}
	})
	var room [1]unix.EpollEvent
	for range 5 {
		if n, err := WaitBriefly(epoll, room[:], 100*time.Millisecond); n != 0 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
}

// watching is an epoll set with so many eventfds.
func watching(t *testing.T, n int) (epoll int, fds []int) {
	t.Helper()
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(epoll) })
	for range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)}
		if err := unix.EpollCtl(epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
			t.Fatal(err)
		}
		fds = append(fds, fd)
	}
	return epoll, fds
}
