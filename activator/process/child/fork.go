package child

import (
	"runtime"
	"syscall"
	"unsafe"
)

// What is in this file runs in a fork of the forker, where nothing of Go's runtime
// is left but the memory and this thread: so nothing here allocates, grows the stack,
// stores a pointer to the heap, panics or calls anything but raw system calls and its
// like. Every function is marked to be compiled without what would enter the runtime
// by itself; a test reads the file for that.

// fork makes the child that a request asks for. It returns in the forker only.
//
//go:nosplit
//go:norace
func fork(channel, log, group uintptr, into *[maxOrder]byte) syscall.Errno {
	// Until the child has its signals sorted out it gets none: a handler would
	// enter the runtime.
	all, old := ^uint64(0), uint64(0)
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&old)), bytesOfSignalSet, 0, 0)
	pid, errno := clone(group)
	if pid == 0 && errno == 0 {
		live(channel, log, into)
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&old)), 0, bytesOfSignalSet, 0, 0)
	return errno
}

// cloneArgs is the kernel's (clone3(2)).
type cloneArgs struct {
	flags, pidfd, childTID, parentTID, exitSignal, stack, stackSize, tls, setTID, setTIDSize, cgroup uint64
}

// clone forks a child of usher's, not of the forker's: its exit status is usher's to
// collect. Only to be born in a cgroup needs clone3, which some sandboxes refuse.
//
//go:nosplit
//go:norace
func clone(group uintptr) (pid uintptr, errno syscall.Errno) {
	if group != noGroup {
		args := cloneArgs{flags: syscall.CLONE_PARENT | cloneIntoCgroup, cgroup: uint64(group)}
		pid, _, errno = syscall.RawSyscall(sysClone3, uintptr(unsafe.Pointer(&args)), unsafe.Sizeof(args), 0)
		return pid, errno
	}
	flags, stack := uintptr(syscall.CLONE_PARENT|syscall.SIGCHLD), uintptr(0)
	if runtime.GOARCH == "s390x" {
		flags, stack = stack, flags
	}
	pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, flags, stack, 0, 0, 0, 0)
	return pid, errno
}

// live is the life of a child until it has become the app. It does not return.
//
//go:nosplit
//go:norace
func live(channel, log uintptr, into *[maxOrder]byte) {
	if !moveIn(channel, log) || !sayHello() {
		exit(exitNoGo)
	}
	_, _, _ = syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	resetSignals()
	o := (*order)(unsafe.Pointer(into))
	if !receive(o) {
		exit(exitNoGo)
	}
	o.locate()
	if step, errno := o.check(); step != 0 {
		refuse(step, errno)
	}
	if !reply(0, 0) {
		exit(exitNoGo)
	}
	signal := byte(0)
	if readSome(uintptr(unsafe.Pointer(&signal)), 1) != 1 || signal != GoByte {
		exit(exitNoGo)
	}
	refuse(o.become())
}

// nameThread names the process as well, for ps and top.
//
//go:nosplit
//go:norace
func nameThread(name [16]byte) {
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, prSetName, uintptr(unsafe.Pointer(&name)), 0, 0, 0, 0)
}

//go:nosplit
//go:norace
func exit(code uintptr) {
	for {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT_GROUP, code, 0, 0)
	}
}

// moveIn leaves the child with its log, its channel, and nothing of the forker's or
// of what goes to other children.
//
//go:nosplit
//go:norace
func moveIn(channel, log uintptr) bool {
	_, _, out := syscall.RawSyscall(syscall.SYS_DUP3, log, 1, 0)
	_, _, err := syscall.RawSyscall(syscall.SYS_DUP3, log, 2, 0)
	_, _, own := syscall.RawSyscall(syscall.SYS_DUP3, channel, Channel, syscall.O_CLOEXEC)
	// Before Linux 5.9 they are closed by the exec.
	_, _, _ = syscall.RawSyscall(sysCloseRange, Channel+1, uintptr(^uint32(0)), 0)
	nameThread([16]byte{'u', 's', 'h', 'e', 'r', '-', 'c', 'h', 'i', 'l', 'd'})
	return out == 0 && err == 0 && own == 0
}

// rights is a control message with one descriptor.
type rights struct {
	head syscall.Cmsghdr
	fd   int32
	_    int32
}

// sayHello comes first: who ends before it is in the forker's process group, where
// usher finds and reaps it, and who ends later is known by its pidfd.
//
//go:nosplit
//go:norace
func sayHello() bool {
	pid, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
	pidfd, _, errno := syscall.RawSyscall(sysPidfdOpen, pid, 0, 0)
	if errno != 0 {
		return say(Channel, errno)
	}
	h := Hello{PID: uint32(pid)}
	data := syscall.Iovec{Base: (*byte)(unsafe.Pointer(&h)), Len: uint64(unsafe.Sizeof(h))}
	fd := rights{fd: int32(pidfd)}
	fd.head.Len, fd.head.Level, fd.head.Type = uint64(unsafe.Sizeof(fd.head)+4), syscall.SOL_SOCKET, syscall.SCM_RIGHTS
	msg := syscall.Msghdr{Iov: &data, Iovlen: 1, Control: (*byte)(unsafe.Pointer(&fd)), Controllen: uint64(unsafe.Sizeof(fd))}
	_, _, errno = syscall.RawSyscall(syscall.SYS_SENDMSG, Channel, uintptr(unsafe.Pointer(&msg)), syscall.MSG_NOSIGNAL)
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, pidfd, 0, 0)
	return errno == 0
}

// say tells that there is no child.
//
//go:nosplit
//go:norace
func say(channel uintptr, why syscall.Errno) bool {
	h := Hello{Errno: uint32(why)}
	return send(channel, uintptr(unsafe.Pointer(&h)), unsafe.Sizeof(h))
}

//go:nosplit
//go:norace
func reply(step Step, errno syscall.Errno) bool {
	r := Reply{Step: step, Errno: uint32(errno)}
	return send(Channel, uintptr(unsafe.Pointer(&r)), unsafe.Sizeof(r))
}

// send writes what fits any socket buffer.
//
//go:nosplit
//go:norace
func send(fd, at, n uintptr) bool {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, fd, at, n, syscall.MSG_NOSIGNAL, 0, 0)
	return errno == 0
}

//go:nosplit
//go:norace
func refuse(step Step, errno syscall.Errno) {
	if !reply(step, errno) {
		exit(exitNoGo)
	}
	exit(exitRefused)
}

// resetSignals gives the app what a program expects: every signal at its default
// and none blocked, whatever usher was told to ignore (nohup).
//
//go:nosplit
//go:norace
func resetSignals() {
	// Big enough for the kernel's struct sigaction on the machines we build for.
	var zero [8]uintptr
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&zero)), 0, bytesOfSignalSet, 0, 0)
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&zero)), 0, bytesOfSignalSet, 0, 0)
}

// receive reads the order; false: it was not all sent.
//
//go:nosplit
//go:norace
func receive(o *order) bool {
	at := uintptr(unsafe.Pointer(o))
	if !readAll(at, word) || o.size < orderSize || o.size > maxOrder {
		return false
	}
	return readAll(at+word, o.size-word)
}

//go:nosplit
//go:norace
func readAll(at, n uintptr) bool {
	for n > 0 {
		got := readSome(at, n)
		if got == 0 {
			return false
		}
		at, n = at+got, n-got
	}
	return true
}

// readSome returns 0 at the end of the channel, and if it is broken.
//
//go:nosplit
//go:norace
func readSome(at, n uintptr) uintptr {
	for {
		got, _, errno := syscall.RawSyscall(syscall.SYS_READ, Channel, at, n)
		switch errno {
		case 0:
			return got
		case syscall.EINTR:
		default:
			return 0
		}
	}
}

// locate turns places into addresses.
//
//go:nosplit
//go:norace
//go:nocheckptr
func (o *order) locate() {
	base := uintptr(unsafe.Pointer(o))
	o.dir, o.path = o.dir+base, o.path+base
	o.locateList(o.args)
	o.locateList(o.env)
	if o.pidText != 0 {
		pid, _, _ := syscall.RawSyscall(syscall.SYS_GETPID, 0, 0, 0)
		digits(unsafe.Add(unsafe.Pointer(o), o.pidText), pid)
	}
}

//go:nosplit
//go:norace
//go:nocheckptr
func (o *order) locateList(list uintptr) {
	base := uintptr(unsafe.Pointer(o))
	for p := list; ; p += word {
		text := (*uintptr)(unsafe.Add(unsafe.Pointer(o), p))
		if *text == 0 {
			return
		}
		*text += base
	}
}

// digits writes n, which is not 0, where zero bytes follow.
//
//go:nosplit
//go:norace
//go:nocheckptr
func digits(at unsafe.Pointer, n uintptr) {
	last := uintptr(0)
	for rest := n; rest > 9; rest /= 10 {
		last++
	}
	for i := last; ; i-- {
		*(*byte)(unsafe.Add(at, i)) = byte('0' + n%10)
		n /= 10
		if i == 0 {
			return
		}
	}
}

// check does everything that can be refused before the go-byte, when nothing has
// been stopped for this start yet: it enters the directory and asks whether the
// user may run the file.
//
//go:nosplit
//go:norace
func (o *order) check() (Step, syscall.Errno) {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_CHDIR, o.dir, 0, 0); errno != 0 {
		return StepChdir, errno
	}
	if o.switchUser == 0 {
		return o.mayRun()
	}
	// access(2) asks for the real user, which is why there is one.
	step, errno := o.changeUser(same, same)
	if step == 0 {
		step, errno = o.mayRun()
	}
	if _, _, back := syscall.RawSyscall(syscall.SYS_SETRESUID, 0, same, same); step == 0 && back != 0 {
		step, errno = StepSetuid, back
	}
	return step, errno
}

//go:nosplit
//go:norace
func (o *order) mayRun() (Step, syscall.Errno) {
	if _, _, errno := syscall.RawSyscall(syscall.SYS_FACCESSAT, atCwd, o.path, executableByCaller); errno != 0 {
		return StepAccess, errno
	}
	fd, _, errno := syscall.RawSyscall6(syscall.SYS_OPENAT, atCwd, o.path, openPath|syscall.O_CLOEXEC, 0, 0, 0)
	if errno != 0 {
		return StepAccess, errno
	}
	var st syscall.Stat_t
	_, _, errno = syscall.RawSyscall(syscall.SYS_FSTAT, fd, uintptr(unsafe.Pointer(&st)), 0)
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOSE, fd, 0, 0)
	if errno == 0 && st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		errno = syscall.EACCES
	}
	if errno != 0 {
		return StepAccess, errno
	}
	return 0, 0
}

// become turns this process into the app. It returns only if that failed.
//
//go:nosplit
//go:norace
func (o *order) become() (Step, syscall.Errno) {
	_, _, _ = syscall.RawSyscall(syscall.SYS_UMASK, umask, 0, 0)
	if o.noNewPrivs != 0 {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
			return StepNoNewPrivs, errno
		}
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClear, 0, 0, 0, 0); errno != 0 {
		return StepAmbient, errno
	}
	// Limits come before the user, for only root may raise them.
	if errno := o.limit(); errno != 0 {
		return StepRlimit, errno
	}
	if o.switchUser != 0 {
		if step, errno := o.changeUser(uintptr(o.uid), uintptr(o.uid)); step != 0 {
			return step, errno
		}
	}
	return StepExec, o.execute()
}

//go:nosplit
//go:norace
//go:nocheckptr
func (o *order) limit() syscall.Errno {
	for p := o.rlimits; p < o.rlimitsEnd; p += rlimitSize {
		r := (*rlimit)(unsafe.Add(unsafe.Pointer(o), p))
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, 0, r.resource, uintptr(unsafe.Pointer(&r.soft)), 0, 0, 0); errno != 0 {
			return errno
		}
	}
	return 0
}

// changeUser changes the real user to the app's, and the effective and the saved
// one to what is given.
//
//go:nosplit
//go:norace
func (o *order) changeUser(effective, saved uintptr) (Step, syscall.Errno) {
	gid, egid, sgid := uintptr(o.gid), uintptr(o.gid), uintptr(o.gid)
	if effective == same {
		egid, sgid = same, same
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return StepSetgroups, errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, gid, egid, sgid); errno != 0 {
		return StepSetgid, errno
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uintptr(o.uid), effective, saved); errno != 0 {
		return StepSetuid, errno
	}
	return 0, 0
}

// execute tries again while the file is busy: one that usher has just written is
// for as long as some other fork of usher, which inherited the descriptor, has not
// reached its exec.
//
//go:nosplit
//go:norace
func (o *order) execute() syscall.Errno {
	base := uintptr(unsafe.Pointer(o))
	for try := 1; ; try++ {
		_, _, errno := syscall.RawSyscall(syscall.SYS_EXECVE, o.path, base+o.args, base+o.env)
		if errno != syscall.ETXTBSY || try == busyTries {
			return errno
		}
		pause := syscall.Timespec{Nsec: busyPause}
		_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&pause)), 0, 0)
	}
}
