package process

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/process/child"
)

// ErrNotExecuted is wrapped by every error that proves that nothing of the
// build ran; a retry allowance may be given back.
var ErrNotExecuted = errors.New("nothing of the build ran")

// notExecuted adds the proof to an error without adding to its text.
type notExecuted struct{ cause error }

func (e notExecuted) Error() string   { return e.cause.Error() }
func (e notExecuted) Unwrap() []error { return []error{e.cause, ErrNotExecuted} }

// ExecError says why the kernel, or the steps just before it, refused to run
// the app's file. It wraps its Errno and ErrNotExecuted.
type ExecError struct {
	// Step is what failed: "chdir", "access", "no_new_privs", "ambient",
	// "rlimit", "setgroups", "setgid", "setuid" or "exec".
	Step string
	// Path is the file or directory that the step was about.
	Path  string
	Errno syscall.Errno
	// Advice says what is wrong in the user's words and what to do.
	Advice string
}

func (e *ExecError) Error() string {
	return fmt.Sprintf("run %s: %s: %s (%s)", e.Path, e.Advice, e.Errno.Error(), e.Step)
}

// Unwrap lets errors.Is find the errno and the proof.
func (e *ExecError) Unwrap() []error { return []error{e.Errno, ErrNotExecuted} }

// OfBuild says that the build, or what its app's spec says to run, is to blame: the
// file is missing, may not be run, or is no program. The next try would end the same
// way. Anything else is the machine's, and may pass.
func (e *ExecError) OfBuild() bool {
	if e.Step != child.StepAccess.String() && e.Step != child.StepExec.String() {
		return false
	}
	switch e.Errno {
	case unix.ENOENT, unix.ENOEXEC, unix.ENOTDIR, unix.ELOOP, unix.ENAMETOOLONG, unix.EISDIR, unix.ELIBBAD, unix.EINVAL, unix.E2BIG:
		return true
	case unix.EACCES:
		return !onNoExec(e.Path)
	}
	return false
}

// explain turns the child's answer into an error that says what to do. It looks
// at the file with usher's own eyes, after the fact.
func (l Launch) explain(r child.Reply) *ExecError {
	e := &ExecError{Step: r.Step.String(), Path: l.absPath(), Errno: syscall.Errno(r.Errno)}
	switch r.Step {
	case child.StepChdir:
		e.Path, e.Advice = l.Dir, "cannot enter the working directory; check that the build directory exists"
	case child.StepRlimit:
		e.Advice = "a resource limit was refused; soft must not exceed hard, and only root can raise a hard limit"
	case child.StepSetgroups, child.StepSetgid, child.StepSetuid:
		e.Advice = fmt.Sprintf("cannot become %s; start usher as root with CAP_SETUID and CAP_SETGID, or take `user` out of the app's spec", l.who())
	case child.StepAccess, child.StepExec:
		e.Advice = l.explainFile(e.Path, e.Errno)
	default:
		e.Advice = "the kernel refused a step before the exec; look at what confines usher itself, such as a seccomp profile or dropped capabilities"
	}
	return e
}

func (l Launch) who() string {
	if l.UID == nil {
		return fmt.Sprintf("uid %d", os.Geteuid())
	}
	return fmt.Sprintf("uid %d gid %d", *l.UID, *l.GID)
}

func (l Launch) explainFile(path string, errno syscall.Errno) string {
	switch errno {
	case unix.ENOENT:
		return explainMissing(path)
	case unix.EACCES:
		return l.explainDenied(path)
	case unix.ENOEXEC:
		return explainFormat(path)
	case unix.E2BIG:
		return "its arguments and environment are larger than the kernel takes; make them smaller"
	case unix.ETXTBSY:
		return "the file is still open for writing; try again"
	case unix.EAGAIN:
		return l.who() + " has as many processes as its limit allows; raise the nproc limit"
	case unix.ENOTDIR, unix.ELOOP:
		return "a part of the path is not a directory, or its links form a loop; check `command` in the app's spec"
	default:
		return "the kernel refused to run it; check the file and the app's limits"
	}
}

// explainMissing: the kernel says ENOENT for a missing file and for a missing
// interpreter or loader of a file that is there.
func explainMissing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return "not found; check `command` in the app's spec against the files of the build"
	}
	if interpreter := shebang(path); interpreter != "" {
		if trimmed := strings.TrimRight(interpreter, "\r"); trimmed != interpreter {
			return "its first line ends with CR LF, so the interpreter is not found; save the script with LF line ends"
		}
		return fmt.Sprintf("its interpreter %s is missing; install it, or correct the #! line", interpreter)
	}
	if loader := elfLoader(path); loader != "" {
		return fmt.Sprintf("its loader %s is missing: it was built for another C library; build it statically, or install that library", loader)
	}
	return "its interpreter is missing; install what the file needs to run"
}

func (l Launch) explainDenied(path string) string {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "permission denied on the way to it; open the directories to " + l.who()
	case info.IsDir():
		return "it is a directory; name the executable file in `command`"
	case !info.Mode().IsRegular():
		return "it is not a regular file; name the executable file in `command`"
	case info.Mode()&0o111 == 0:
		return "it is not executable; run chmod +x on it and deploy again"
	case onNoExec(path):
		return "its file system is mounted noexec; put usher's state directory on another one"
	}
	if interpreter := shebang(path); interpreter != "" {
		return fmt.Sprintf("%s may not run it or its interpreter %s; check the permissions of both", l.who(), interpreter)
	}
	return fmt.Sprintf("%s may not run it; check its permissions and those of the directories in %s", l.who(), filepath.Dir(path))
}

func explainFormat(path string) string {
	file, err := elf.Open(path)
	if err == nil {
		machine := strings.TrimPrefix(file.Machine.String(), "EM_")
		file.Close()
		return fmt.Sprintf("it is a program for %s, which this machine (%s) does not run; build it for this one", machine, runtime.GOARCH)
	}
	if info, err := os.Stat(path); err == nil && info.Size() == 0 {
		return "it is empty; build it again and deploy"
	}
	return "it is neither a program of this machine nor a script with a #! line; add the #! line, or name the interpreter in `command`"
}

// shebang returns the interpreter of a script, or "".
func shebang(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	// The kernel reads 256 bytes.
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	rest, ok := strings.CutPrefix(string(line), "#!")
	if !ok {
		return ""
	}
	rest = strings.Trim(rest, " \t\n")
	if i := strings.IndexAny(rest, " \t"); i >= 0 {
		rest = rest[:i]
	}
	return rest
}

func elfLoader(path string) string {
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP && p.Filesz < 4096 {
			name := make([]byte, p.Filesz)
			if _, err := p.ReadAt(name, 0); err == nil {
				return strings.TrimRight(string(name), "\x00")
			}
		}
	}
	return ""
}

func onNoExec(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Flags&unix.ST_NOEXEC != 0
}
