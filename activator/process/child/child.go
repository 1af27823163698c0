package child

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// Verb is the argument of the usher binary that makes it a forker.
const Verb = "__exec"

// Channel is the descriptor of a forker on which its requests come, and of a child
// the one on which it speaks with usher.
const Channel = 3

// Exit codes of what does not become an app. 127 and 126 would look like a shell's.
const (
	exitNoGo    = 120 // the channel ended: usher is gone or has changed its mind
	exitRefused = 121 // the reason was sent over the channel
	exitUsage   = 122 // not started by usher
)

// System calls and their arguments that package syscall has no names for. The
// numbers are the same on every machine that Go builds for.
const (
	sysPidfdOpen       = 434
	sysClone3          = 435
	sysCloseRange      = 436
	cloneIntoCgroup    = 0x200000000
	prSetName          = 15
	prSetNoNewPrivs    = 38
	prCapAmbient       = 47
	prCapAmbientClear  = 4
	sigSetMask         = 2
	bytesOfSignalSet   = 8
	lastSignal         = 64
	executableByCaller = 1 // X_OK
	openPath           = 0x200000
	umask              = 0o022

	atCwd   = ^uintptr(99) // AT_FDCWD, -100
	same    = ^uintptr(0)  // an id that is not to be changed
	noGroup = ^uintptr(0)
)

// How long a busy file is tried: 50 times every 10 ms.
const (
	busyTries = 50
	busyPause = 10_000_000
)

func init() {
	if len(os.Args) < 2 || os.Args[1] != Verb {
		return
	}
	if len(os.Args) != 2 {
		os.Exit(exitUsage)
	}
	os.Exit(serve())
}

// serve makes a child for each request, until usher has closed its end or is gone.
func serve() int {
	// The thread that forks is all there is of the runtime in the fork.
	runtime.LockOSThread()
	nameThread([16]byte{'u', 's', 'h', 'e', 'r', '-', 'f', 'o', 'r', 'k', 'e', 'r'})
	// Whatever else usher had open when it started this process.
	_, _, _ = syscall.RawSyscall(sysCloseRange, Channel+1, uintptr(^uint32(0)), 0)
	// An exec that fails gives back the descriptor limit that usher was started
	// with, which this runtime has raised. Nothing else in package syscall does.
	_ = syscall.Exec("", nil, nil)
	into := new([maxOrder]byte) // only children write to it, so it costs nothing
	for {
		fds, n, errno := request()
		switch {
		case errno != 0:
			return exitUsage
		case n == 0:
			return exitNoGo
		}
		if n >= 2 {
			if errno := fork(fds[0], fds[1], fds[2], into); errno != 0 {
				say(fds[0], errno) // if there is still somebody to listen
			}
		}
		for _, fd := range fds[:n] {
			_ = syscall.Close(int(fd))
		}
	}
}

// request waits for the next one: the descriptors that the child shall have. None
// is the end. It allocates nothing, for nothing here is ever collected.
func request() (fds [3]uintptr, n int, errno syscall.Errno) {
	for {
		var (
			data   byte
			rights struct {
				head syscall.Cmsghdr
				fds  [len(fds) + 1]int32
			}
			part = syscall.Iovec{Base: &data, Len: 1}
			msg  = syscall.Msghdr{Iov: &part, Iovlen: 1, Control: (*byte)(unsafe.Pointer(&rights)), Controllen: uint64(unsafe.Sizeof(rights))}
		)
		got, _, errno := syscall.Syscall(syscall.SYS_RECVMSG, Channel, uintptr(unsafe.Pointer(&msg)), syscall.MSG_CMSG_CLOEXEC)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno != 0 || got == 0:
			return fds, 0, errno
		}
		fds = [...]uintptr{noGroup, noGroup, noGroup}
		if msg.Controllen > 0 {
			n = min((int(rights.head.Len)-int(unsafe.Sizeof(rights.head)))/4, len(fds))
		}
		for i := range n {
			fds[i] = uintptr(rights.fds[i])
		}
		return fds, n, 0
	}
}
