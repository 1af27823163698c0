package config

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// NoID is the number that no user or group has.
const NoID = math.MaxUint32

// Env is what the configuration depends on and the file does not say. System
// returns the one of this process; tests build their own.
type Env struct {
	EUID          int    // effective user id of the usher that will run the file
	EGID          int    // its effective group id
	Home          string // $HOME; may be empty
	XDGStateHome  string // $XDG_STATE_HOME; may be empty
	XDGRuntimeDir string // $XDG_RUNTIME_DIR; may be empty
	WorkDir       string // absolute; what a relative file name is relative to

	// EphemeralPorts is the range the kernel picks outgoing ports from; zero:
	// unknown.
	EphemeralPorts PortRange

	// Stat and ReadFile see the file system. ReadFile is called for the file
	// itself, the admin token and maintenance pages.
	Stat     func(path string) (fs.FileInfo, error)
	ReadFile func(path string) ([]byte, error)

	// LookupUser finds an account by name, or by number if there is no account
	// of that name. A number without an account is no error: its GID is NoID.
	// LookupGroup finds groups so. fs.ErrNotExist means that there is none.
	LookupUser  func(name string) (Account, error)
	LookupGroup func(name string) (Group, error)

	// CgroupProblem says why no cgroup can be used with these values of `cgroup`
	// (CgroupAuto or a path) and `state`, in words that fit after "because";
	// empty: one can. A nil func asks nobody: only cgroup = "off" counts as none.
	CgroupProblem func(setting, state string) string
}

// System returns the Env of this process. CgroupProblem is left to the caller,
// who knows how cgroups are found.
func System() Env {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/" // a deleted directory: absolute paths still work
	}
	return Env{
		EUID:           os.Geteuid(),
		EGID:           os.Getegid(),
		Home:           os.Getenv("HOME"),
		XDGStateHome:   os.Getenv("XDG_STATE_HOME"),
		XDGRuntimeDir:  os.Getenv("XDG_RUNTIME_DIR"),
		WorkDir:        dir,
		EphemeralPorts: ephemeralPorts(),
		Stat:           os.Stat,
		ReadFile:       os.ReadFile,
		LookupUser:     lookupUser,
		LookupGroup:    lookupGroup,
	}
}

// remembering asks the system once for each account and group: a large file names
// the same ones over and over.
func (e Env) remembering() Env {
	e.LookupUser, e.LookupGroup = remembered(e.LookupUser), remembered(e.LookupGroup)
	return e
}

func remembered[V any](look func(name string) (V, error)) func(name string) (V, error) {
	type answer struct {
		v   V
		err error
	}
	known := map[string]answer{}
	return func(name string) (V, error) {
		a, asked := known[name]
		if !asked {
			a.v, a.err = look(name)
			known[name] = a
		}
		return a.v, a.err
	}
}

func ephemeralPorts() PortRange {
	data, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return PortRange{}
	}
	p, problem := portRange(strings.Join(strings.Fields(string(data)), "-"))
	if problem != "" {
		return PortRange{}
	}
	return p
}

func lookupUser(name string) (Account, error) {
	u, err := user.Lookup(name)
	uid, isNumber := number(name)
	if err != nil && isNumber {
		u, err = user.LookupId(name)
	}
	switch {
	case err == nil:
	case unknown(err) && isNumber:
		return Account{Name: name, UID: uid, GID: NoID}, nil
	case unknown(err):
		return Account{}, fs.ErrNotExist
	default:
		return Account{}, err
	}
	uid, _ = number(u.Uid)
	gid, _ := number(u.Gid)
	return Account{Name: u.Username, UID: uid, GID: gid, Home: u.HomeDir}, nil
}

func lookupGroup(name string) (Group, error) {
	g, err := user.LookupGroup(name)
	gid, isNumber := number(name)
	switch {
	case err == nil:
		gid, _ = number(g.Gid)
		return Group{Name: g.Name, GID: gid}, nil
	case unknown(err) && isNumber:
		return Group{Name: name, GID: gid}, nil
	case unknown(err):
		return Group{}, fs.ErrNotExist
	}
	return Group{}, err
}

func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil && n != NoID
}

func unknown(err error) bool {
	var u user.UnknownUserError
	var i user.UnknownUserIdError
	var g user.UnknownGroupError
	return errors.As(err, &u) || errors.As(err, &i) || errors.As(err, &g)
}
