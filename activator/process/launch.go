package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/process/child"
)

// Launch says what to start and how.
type Launch struct {
	App        string
	Generation uint64

	// Dir is the working directory, absolute. It is entered with usher's own
	// rights, and a Path inside it is run relative to it: so the directories
	// above Dir may be closed to the app's user, only Dir and what is in it
	// must be open to it. (An app that looks up its own absolute path, as Node
	// does, needs search permission above Dir as well.)
	Dir string
	// Path is the file to run: absolute, or relative to Dir. It is not
	// searched in PATH.
	Path string
	// Args are the arguments with the program's name first; empty means Path
	// alone.
	Args []string
	// Env is the complete environment as "NAME=value"; nothing is inherited.
	Env []string

	// UID and GID are the user to run as; nil means usher's own. With a UID
	// there must be a GID, and the supplementary groups are cleared.
	UID, GID *uint32

	// LogPath is the file that standard output and error are appended to, made
	// with mode 0600 if missing; empty means /dev/null.
	LogPath string

	// Group holds the process tree. It is required, and must be fresh.
	Group cgroup.Group

	// NoNewPrivs stops set-uid files from giving the app other rights.
	NoNewPrivs bool

	// ListenPID adds LISTEN_PID=<pid> to the environment, which only the
	// process itself can know in time.
	ListenPID bool

	// Yields lets everything else go before it at the CPU, until Process.Claim, where
	// the kernel can be told so.
	Yields bool

	// Rlimits are set before the credentials, so hard limits may be raised.
	// Without an entry for it, the descriptor limit is the one usher was
	// started with, not the raised one it gives itself.
	Rlimits []Rlimit
}

// Rlimit is one resource limit (setrlimit(2)).
type Rlimit = child.Rlimit

// Prepare makes a child in l.Group and returns once it waits for the go-byte. ctx
// bounds only this call. An error proves that nothing of the build ran, and wraps
// ErrNotExecuted.
func (f *Forker) Prepare(ctx context.Context, l Launch) (*Pending, error) {
	p, err := f.prepare(ctx, l)
	if err != nil {
		return nil, fmt.Errorf("prepare %s generation %d: %w", l.App, l.Generation, notExecuted{err})
	}
	return p, nil
}

func (f *Forker) prepare(ctx context.Context, l Launch) (*Pending, error) {
	spec, err := l.spec()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	p, err := f.fork(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := p.handshake(ctx, spec); err != nil {
		return nil, errors.Join(err, p.end())
	}
	if l.Yields {
		p.proc.yield()
	}
	return p, nil
}

// spec checks the launch and turns it into what the child is told.
func (l Launch) spec() (child.Spec, error) {
	switch {
	case l.Group == nil:
		return child.Spec{}, errors.New("no group given to hold its processes")
	case l.Path == "":
		return child.Spec{}, errors.New("no file given to run")
	case !filepath.IsAbs(l.Dir):
		return child.Spec{}, fmt.Errorf("working directory %q is not absolute", l.Dir)
	case (l.UID == nil) != (l.GID == nil):
		return child.Spec{}, errors.New("a user needs a group and a group needs a user: give both or neither")
	}
	for _, text := range append(append([]string{l.Path, l.Dir}, l.Args...), l.Env...) {
		if strings.ContainsRune(text, 0) {
			// The text is not quoted: it may be a secret.
			return child.Spec{}, errors.New("a path, argument or environment entry holds a NUL byte, which no process can be given: remove it")
		}
	}
	s := child.Spec{Dir: l.Dir, Path: l.runPath(), Args: l.Args, Env: l.Env, NoNewPrivs: l.NoNewPrivs, ListenPID: l.ListenPID, Rlimits: l.Rlimits}
	if len(s.Args) == 0 {
		s.Args = []string{l.Path}
	}
	return s, l.credentials(&s)
}

// credentials fills in the user. Running as the user that usher already is
// needs no right to change it, and no change.
func (l Launch) credentials(s *child.Spec) error {
	if l.UID == nil {
		return nil
	}
	if euid := os.Geteuid(); euid != 0 {
		if int(*l.UID) != euid || int(*l.GID) != os.Getegid() {
			return fmt.Errorf("cannot run as uid %d gid %d: usher itself runs as uid %d; start usher as root or take `user` out of the app's spec", *l.UID, *l.GID, euid)
		}
		return nil
	}
	s.SwitchUser, s.UID, s.GID = true, *l.UID, *l.GID
	return nil
}

// runPath is the path as the child runs it: relative if it lies in Dir.
func (l Launch) runPath() string {
	path := l.Path
	if filepath.IsAbs(path) {
		rel, err := filepath.Rel(l.Dir, path)
		if err != nil || !filepath.IsLocal(rel) {
			return path
		}
		path = rel
	}
	return "./" + filepath.Clean(path)
}

// absPath is the path as this process sees it, for explaining what went wrong.
func (l Launch) absPath() string {
	if filepath.IsAbs(l.Path) {
		return l.Path
	}
	return filepath.Join(l.Dir, l.Path)
}

// launchFiles are what a child is given beside its channel.
type launchFiles struct {
	log, group *os.File
}

func (f *launchFiles) open(l Launch) (err error) {
	logPath := l.LogPath
	if logPath == "" {
		logPath = "/dev/null"
	}
	if f.log, err = os.OpenFile(logPath, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600); err != nil {
		return fmt.Errorf("open log: %w", err)
	}
	f.group, err = l.Group.FD()
	return err
}

// forChild are the files in the order of a request.
func (f *launchFiles) forChild() []*os.File {
	if f.group == nil {
		return []*os.File{f.log}
	}
	return []*os.File{f.log, f.group}
}

// close closes what was opened. Nothing was written through these descriptors, so
// there is no error worth having.
func (f *launchFiles) close() {
	for _, file := range []*os.File{f.log, f.group} {
		if file != nil {
			_ = file.Close()
		}
	}
}
