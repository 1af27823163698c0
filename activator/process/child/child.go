package child

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// Verb is the first argument of the usher binary that makes it a child; the
// second is the descriptor of its channel.
const Verb = "__exec"

// The steps of the child that can be refused.
const (
	StepChdir      = "chdir"
	StepAccess     = "access"
	StepNoNewPrivs = "no_new_privs"
	StepAmbient    = "ambient"
	StepRlimit     = "rlimit"
	StepSetgroups  = "setgroups"
	StepSetgid     = "setgid"
	StepSetuid     = "setuid"
	StepExec       = "exec"
)

// Exit codes of the child when it does not become the app. 127 and 126 would
// look like a shell's.
const (
	exitNoGo    = 120 // the channel ended: usher is gone or has changed its mind
	exitRefused = 121 // the reason was sent over the channel
	exitUsage   = 122 // not started by usher
)

// System calls and their arguments that package syscall has no names for. The
// number is the same on every machine that Go builds for.
const (
	sysCloseRange      = 436
	closeRangeCloexec  = 4
	prSetNoNewPrivs    = 38
	prCapAmbient       = 47
	prCapAmbientClear  = 4
	sigSetMask         = 2
	bytesOfSignalSet   = 8
	lastSignal         = 64
	ignored            = 1 // SIG_IGN
	executableByCaller = 1 // X_OK
)

func init() {
	if len(os.Args) < 2 || os.Args[1] != Verb {
		return
	}
	// no_new_privs, credentials and signal mask belong to a thread. The thread
	// that has them is the one that execs, which ends all others.
	runtime.LockOSThread()
	if len(os.Args) != 3 {
		os.Exit(exitUsage)
	}
	fd, err := strconv.Atoi(os.Args[2])
	if err != nil || fd < 3 {
		os.Exit(exitUsage)
	}
	syscall.CloseOnExec(fd)
	os.Exit(run(os.NewFile(uintptr(fd), "exec channel")))
}

// run talks to usher and execs; it returns the exit code if it did not.
func run(channel *os.File) int {
	spec, err := readSpec(channel)
	if err != nil {
		return exitNoGo
	}
	if reply := check(spec); reply.Step != "" {
		return refuse(channel, reply)
	}
	if err := writeReply(channel, Reply{}); err != nil {
		return exitNoGo
	}
	var signal [1]byte
	if n, err := channel.Read(signal[:]); n != 1 || err != nil || signal[0] != GoByte {
		return exitNoGo
	}
	return refuse(channel, become(spec))
}

func refuse(channel *os.File, reply Reply) int {
	if err := writeReply(channel, reply); err != nil {
		return exitNoGo
	}
	return exitRefused
}

func failed(step string, err error) Reply {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EINVAL
	}
	return Reply{Step: step, Errno: uint32(errno)}
}

// check does everything that can be refused before the go-byte, when nothing has
// been stopped for this start yet: it enters the directory and asks whether the
// user may run the file.
func check(spec Spec) Reply {
	if err := syscall.Chdir(spec.Dir); err != nil {
		return failed(StepChdir, err)
	}
	if !spec.SwitchUser {
		return mayRun(spec)
	}
	result := make(chan Reply)
	go func() {
		// The thread changes its user and is thrown away with the goroutine.
		runtime.LockOSThread()
		result <- mayRun(spec)
	}()
	return <-result
}

func mayRun(spec Spec) Reply {
	if reply := switchUser(spec); reply.Step != "" {
		return reply
	}
	var st syscall.Stat_t
	if err := syscall.Stat(spec.Path, &st); err != nil {
		return failed(StepAccess, err)
	}
	if st.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return failed(StepAccess, syscall.EACCES)
	}
	if err := syscall.Access(spec.Path, executableByCaller); err != nil {
		return failed(StepAccess, err)
	}
	return Reply{}
}

// become turns this process into the app. It returns only if that failed.
func become(spec Spec) Reply {
	env := spec.Env
	if spec.ListenPID {
		env = append(env[:len(env):len(env)], "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	}
	syscall.Umask(0o022)
	resetSignals()
	// Whatever else usher had open when it forked stays here.
	_, _, _ = syscall.RawSyscall(sysCloseRange, 3, uintptr(^uint32(0)), closeRangeCloexec)
	if spec.NoNewPrivs {
		if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
			return failed(StepNoNewPrivs, errno)
		}
	}
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, prCapAmbient, prCapAmbientClear, 0, 0, 0, 0); errno != 0 {
		return failed(StepAmbient, errno)
	}
	// Limits come late, for this runtime has to live with them, and before the
	// user, for only root may raise them.
	for _, r := range spec.Rlimits {
		if err := syscall.Setrlimit(r.Resource, &syscall.Rlimit{Cur: r.Soft, Max: r.Hard}); err != nil {
			return failed(StepRlimit, err)
		}
	}
	if reply := switchUser(spec); reply.Step != "" {
		return reply
	}
	return failed(StepExec, execute(spec.Path, spec.Args, env))
}

// switchUser changes the user of the calling thread only.
func switchUser(spec Spec) Reply {
	if !spec.SwitchUser {
		return Reply{}
	}
	uid, gid := uintptr(spec.UID), uintptr(spec.GID)
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return failed(StepSetgroups, errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return failed(StepSetgid, errno)
	}
	if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return failed(StepSetuid, errno)
	}
	return Reply{}
}

// A file that usher has just written can be busy for as long as some other
// fork of usher, which inherited the descriptor, has not reached its exec.
const (
	busyTries = 50
	busyPause = 10 * time.Millisecond
)

func execute(path string, args, env []string) error {
	for try := 1; ; try++ {
		err := syscall.Exec(path, args, env)
		if !errors.Is(err, syscall.ETXTBSY) || try == busyTries {
			return err
		}
		time.Sleep(busyPause)
	}
}

// resetSignals gives the app what a program expects: every signal at its default
// and none blocked. Handlers are reset by the exec itself, but a signal that
// usher was told to ignore (nohup) or that was blocked at its start would stay so.
func resetSignals() {
	// Big enough for the kernel's struct sigaction, which begins with the
	// handler on the machines we build for.
	var old, zero [8]uintptr
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		_, _, errno := syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), bytesOfSignalSet, 0, 0)
		if errno == 0 && old[0] == ignored {
			_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&zero)), 0, bytesOfSignalSet, 0, 0)
		}
	}
	_, _, _ = syscall.RawSyscall6(syscall.SYS_RT_SIGPROCMASK, sigSetMask, uintptr(unsafe.Pointer(&zero)), 0, bytesOfSignalSet, 0, 0)
}
