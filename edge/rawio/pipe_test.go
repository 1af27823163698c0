package rawio

import (
	"bytes"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// socket is one end of a connection, and its descriptor outside Go's poller.
func socket(t *testing.T, c net.Conn) uintptr {
	t.Helper()
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	fd := f.Fd()
	if err := syscall.SetNonblock(int(fd), true); err != nil {
		t.Fatal(err)
	}
	return fd
}

// connected are the two ends of a TCP connection.
func connected(t *testing.T) (a, b net.Conn) {
	t.Helper()
	ln, err := (&net.ListenConfig{Control: Unpaced}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if a, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

func TestBytesGoThroughAPipeAndNoneIsLost(t *testing.T) {
	app, in := connected(t)
	out, client := connected(t)
	from, to := socket(t, in), socket(t, out)
	var pipes Pipes
	p := pipes.Get()
	if p == nil {
		t.Fatal("no pipe")
	}
	if n, err := p.From(from, 1000); n != 0 || err != syscall.EAGAIN {
		t.Fatalf("%d, %v from a socket in which nothing is", n, err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	if _, err := app.Write(want); err != nil {
		t.Fatal(err)
	}
	for left := len(want); left > 0; {
		n, err := p.From(from, min(left, 10_000))
		if err == syscall.EAGAIN {
			continue // it is on its way
		}
		if err != nil || n > 10_000 || p.Held() != n {
			t.Fatalf("%d, %v, holds %d", n, err, p.Held())
		}
		left -= n
		if left < 30_000 { // the last of it by copying
			b := make([]byte, n)
			if k, err := p.Read(b); k != n || err != nil {
				t.Fatalf("%d, %v", k, err)
			}
			if _, err := out.Write(b); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if k, err := p.To(to); k != n || err != nil || p.Held() != 0 {
			t.Fatalf("%d of %d, %v, holds %d", k, n, err, p.Held())
		}
	}
	out.Close()
	if err := syscall.Shutdown(int(to), syscall.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	app.Close()
	for {
		n, err := p.From(from, 1000)
		if err == syscall.EAGAIN {
			continue
		}
		if n != 0 || err != nil {
			t.Fatalf("%d, %v at the end", n, err)
		}
		break
	}
}

func TestAClientThatTakesNothingLeavesThePipeFullAndItIsNotUsedAgain(t *testing.T) {
	app, in := connected(t)
	out, _ := connected(t)
	from, to := socket(t, in), socket(t, out)
	var pipes Pipes
	p := pipes.Get()
	sending := make(chan struct{})
	go func() {
		defer close(sending)
		_, _ = app.Write(make([]byte, 64<<20)) // until it is closed
	}()
	for {
		if _, err := p.From(from, 64<<10); err != nil && err != syscall.EAGAIN {
			t.Fatal(err)
		}
		if p.Held() == 0 {
			continue
		}
		if _, err := p.To(to); err == syscall.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	app.Close()
	<-sending
	pipes.Put(p)
	for range 4 {
		if q := pipes.Get(); q == p {
			t.Fatal("a pipe that holds bytes is handed out")
		}
	}
}

func TestAPipeThatIsEmptyIsUsedAgain(t *testing.T) {
	var pipes Pipes
	for range 1000 {
		p := pipes.Get()
		if p == nil {
			t.Fatal("no pipe")
		}
		pipes.Put(p)
	}
	if n := pipes.Made(); n > 500 { // the race detector drops some on purpose
		t.Errorf("%d pipes were made for one at a time", n)
	}
}

func TestAKernelThatMovesNothingIsNotAskedAgain(t *testing.T) {
	var pipes Pipes
	if pipes.Refused(syscall.EAGAIN) || pipes.Refused(nil) || pipes.Get() == nil {
		t.Fatal("not refused")
	}
	if !pipes.Refused(syscall.EINVAL) || pipes.Get() != nil {
		t.Fatal("refused, and asked again")
	}
}

func TestWhatIsPacedOrNoTCPIsNotMovedTo(t *testing.T) {
	listen := func(network, address string, control func(string, string, syscall.RawConn) error) net.Listener {
		t.Helper()
		ln, err := (&net.ListenConfig{Control: control}).Listen(t.Context(), network, address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		return ln
	}
	if !Moves(listen("tcp", "127.0.0.1:0", Unpaced)) {
		t.Error("not to a loopback listener of usher's")
	}
	if Moves(listen("unix", t.TempDir()+"/s", nil)) {
		t.Error("to a unix socket")
	}
	bbr := listen("tcp", "127.0.0.1:0", func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			if syscall.SetsockoptString(int(fd), syscall.IPPROTO_TCP, syscall.TCP_CONGESTION, "bbr") != nil {
				t.Log("no BBR here")
			}
		})
	})
	if name := congestion(t, bbr.(*net.TCPListener)); name == "bbr" && Moves(bbr) {
		t.Error("to a socket that BBR paces")
	}
}

// Who has many pipes gets but small ones. Nothing is gained by moving through those.
func TestAPipeThatIsTooSmallIsNone(t *testing.T) {
	const enough = 2000 // far beyond pipe-user-pages-soft
	got, worn := make(chan int), make(chan []*Pipe)
	go func() {
		runtime.LockOSThread() // for good: what it becomes is no other goroutine's affair
		if os.Getuid() == 0 {
			if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, 54321, 54321, 54321); errno != 0 {
				t.Log(errno)
			}
		}
		var pipes Pipes
		var all []*Pipe
		for len(all) < enough {
			p := pipes.Get()
			if p == nil {
				break
			}
			size, err := unix.FcntlInt(uintptr(p.r), unix.F_GETPIPE_SZ, 0)
			if all = append(all, p); err != nil || size < 64<<10 {
				t.Errorf("pipe %d is of %d bytes, %v", len(all), size, err)
				break
			}
		}
		got <- len(all)
		worn <- all
	}()
	n := <-got
	for _, p := range <-worn {
		p.cleanup.Stop()
		closeBoth([2]int{p.r, p.w})
	}
	t.Logf("%d pipes were to be had", n)
}
