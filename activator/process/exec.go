package process

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The steps of the child that can be refused, as they show up in ExecError.
const (
	stepChdir      = "chdir"
	stepAccess     = "access"
	stepNoNewPrivs = "no_new_privs"
	stepAmbient    = "ambient"
	stepRlimit     = "rlimit"
	stepSetgroups  = "setgroups"
	stepSetgid     = "setgid"
	stepSetuid     = "setuid"
	stepExec       = "exec"
)

// Exit codes of the child when it does not become the app. 127 and 126 would
// look like a shell's.
const (
	exitNoGo    = 120 // the channel ended: usher is gone or has changed its mind
	exitRefused = 121 // the reason was sent over the channel
	exitUsage   = 122 // not started by usher
)

// ExecMain is the child's side of Prepare and Go: the main program of
// `usher __exec <channel descriptor>`. It must be called before anything else of
// the binary runs, and does not return.
func ExecMain(args []string) {
	// no_new_privs, credentials and signal mask belong to a thread. The thread
	// that has them is the one that execs, which ends all others.
	runtime.LockOSThread()
	if len(args) != 1 {
		os.Exit(exitUsage)
	}
	fd, err := strconv.Atoi(args[0])
	if err != nil || fd < 3 {
		os.Exit(exitUsage)
	}
	unix.CloseOnExec(fd)
	os.Exit(runChild(os.NewFile(uintptr(fd), "exec channel")))
}

// runChild talks to usher and execs; it returns the exit code if it did not.
func runChild(channel *os.File) int {
	var spec execSpec
	if err := readFrame(channel, &spec); err != nil {
		return exitNoGo
	}
	if reply := check(spec); reply.Step != "" {
		return refuse(channel, reply)
	}
	if err := writeFrame(channel, execReply{}); err != nil {
		return exitNoGo
	}
	var signal [1]byte
	if _, err := io.ReadFull(channel, signal[:]); err != nil || signal[0] != goByte {
		return exitNoGo
	}
	return refuse(channel, become(spec))
}

func refuse(channel *os.File, reply execReply) int {
	if err := writeFrame(channel, reply); err != nil {
		return exitNoGo
	}
	return exitRefused
}

func failed(step string, err error) execReply {
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		errno = syscall.EINVAL
	}
	return execReply{Step: step, Errno: uint32(errno)}
}

// check does everything that can be refused before the go-byte, when nothing has
// been stopped for this start yet: it enters the directory and asks whether the
// user may run the file.
func check(spec execSpec) execReply {
	if err := unix.Chdir(spec.Dir); err != nil {
		return failed(stepChdir, err)
	}
	result := make(chan execReply)
	go func() {
		// The thread changes its user and is thrown away with the goroutine.
		runtime.LockOSThread()
		result <- mayRun(spec)
	}()
	return <-result
}

func mayRun(spec execSpec) execReply {
	if reply := switchUser(spec); reply.Step != "" {
		return reply
	}
	var st unix.Stat_t
	if err := unix.Stat(spec.Path, &st); err != nil {
		return failed(stepAccess, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return failed(stepAccess, unix.EACCES)
	}
	if err := unix.Access(spec.Path, unix.X_OK); err != nil {
		return failed(stepAccess, err)
	}
	return execReply{}
}

// become turns this process into the app. It returns only if that failed.
func become(spec execSpec) execReply {
	env := spec.Env
	if spec.ListenPID {
		env = append(env[:len(env):len(env)], "LISTEN_PID="+strconv.Itoa(os.Getpid()))
	}
	unix.Umask(0o022)
	resetSignals()
	// Whatever else usher had open when it forked stays here.
	_ = unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC)
	if spec.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return failed(stepNoNewPrivs, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return failed(stepAmbient, err)
	}
	// Limits come late, for this runtime has to live with them, and before the
	// user, for only root may raise them.
	for _, r := range spec.Rlimits {
		if err := unix.Setrlimit(r.Resource, &unix.Rlimit{Cur: r.Soft, Max: r.Hard}); err != nil {
			return failed(stepRlimit, err)
		}
	}
	if reply := switchUser(spec); reply.Step != "" {
		return reply
	}
	return failed(stepExec, execute(spec.Path, spec.Args, env))
}

// switchUser changes the user of the calling thread only.
func switchUser(spec execSpec) execReply {
	if !spec.SwitchUser {
		return execReply{}
	}
	uid, gid := uintptr(spec.UID), uintptr(spec.GID)
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return failed(stepSetgroups, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); errno != 0 {
		return failed(stepSetgid, errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); errno != 0 {
		return failed(stepSetuid, errno)
	}
	return execReply{}
}

// A file that usher has just written can be busy for as long as some other
// fork of usher, which inherited the descriptor, has not reached its exec.
const (
	busyTries = 50
	busyPause = 10 * time.Millisecond
)

func execute(path string, args, env []string) error {
	for try := 1; ; try++ {
		err := unix.Exec(path, args, env)
		if !errors.Is(err, unix.ETXTBSY) || try == busyTries {
			return err
		}
		time.Sleep(busyPause)
	}
}

// resetSignals gives the app what a program expects: every signal at its default
// and none blocked. Handlers are reset by the exec itself, but a signal that
// usher was told to ignore (nohup) or that was blocked at its start would stay so.
func resetSignals() {
	const lastSignal = 64
	const ignored = 1
	for sig := uintptr(1); sig <= lastSignal; sig++ {
		// Big enough for the kernel's struct sigaction, which begins with the
		// handler on the machines we build for.
		var old, zero [8]uintptr
		_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, 0, uintptr(unsafe.Pointer(&old)), 8, 0, 0)
		if errno == 0 && old[0] == ignored {
			_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, sig, uintptr(unsafe.Pointer(&zero)), 0, 8, 0, 0)
		}
	}
	var none unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
}
