package config

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
)

// process reads everything about the process of the app, and target, which says
// that there is none of usher's own.
func (a *appRead) process() {
	t := a.t
	if text, ok := t.str("target"); ok {
		addr, problem := t.r.dialAddr(text)
		if problem != "" {
			t.errorf("target", "%s", problem)
		}
		a.Target = addr
	}
	a.listen()
	a.account()
	a.environment()
	a.command()
	a.artifact()
}

func (a *appRead) listen() {
	t := a.t
	a.Listen = Listen{Kind: ListenPort}
	text, ok := t.str("listen")
	if !ok {
		return
	}
	const advice = `write "port", "port:N" with a fixed N, or "socket"`
	kind, num, fixed := strings.Cut(text, ":")
	switch {
	case kind == ListenSocket && !fixed:
		a.Listen.Kind = ListenSocket
	case kind == ListenPort && !fixed:
	case kind == ListenPort:
		n, err := strconv.ParseUint(num, 10, 16)
		if err != nil || n == 0 {
			t.errorf("listen", "%q is no port from 1 to 65535; %s", num, advice)
			return
		}
		a.Listen.Port = uint16(n)
	default:
		t.errorf("listen", "%q is not known; %s", text, advice)
	}
}

// account reads user and group.
func (a *appRead) account() {
	t, env := a.t, a.t.r.env
	user, hasUser := a.id("user")
	group, hasGroup := a.id("group")
	if t.has("target") {
		return
	}
	if env.EUID != 0 {
		a.ownAccount(user, hasUser, group, hasGroup)
		return
	}
	if !hasUser {
		if !t.has("user") {
			t.r.errorf(t.node.val, `%s: user is missing, and usher runs as root; write the account the app runs as, user = "%s", or user = "root" if you mean root`, t.path, a.Name)
		}
		return
	}
	acc, ok := a.lookupUser(user)
	if !ok {
		return
	}
	if acc.UID == 0 && user != "root" {
		t.errorf("user", `%q is root under another name; write user = "root" if you mean root`, user)
	}
	a.User = acc
	a.User.Own = acc.UID == 0
	if hasGroup {
		a.User.GID = a.lookupGroup(group)
	} else if _, err := strconv.ParseUint(user, 10, 32); err == nil && acc.Home == "" && acc.GID == NoID {
		t.errorf("user", "%s has no account, so its group is not known; write group too", user)
	}
}

// id reads user or group: a name, or a number with or without quotes.
func (a *appRead) id(key string) (string, bool) {
	if n, isInt := a.t.vals[key].(int64); isInt {
		a.t.known = append(a.t.known, key)
		if n < 0 || n >= NoID {
			a.t.errorf(key, "%d is out of range; write a number from 0 to %d, or a name", n, NoID-1)
			return "", false
		}
		return strconv.FormatInt(n, 10), true
	}
	return a.t.str(key)
}

func (a *appRead) lookupUser(user string) (Account, bool) {
	acc, err := a.t.r.env.LookupUser(user)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.t.errorf("user", "there is no user %q; create the account (useradd --system %s) or name another", user, user)
	case err != nil:
		a.t.errorf("user", "%q cannot be looked up: %v; check the account database", user, err)
	}
	acc.Name = user
	return acc, err == nil
}

func (a *appRead) lookupGroup(group string) uint32 {
	g, err := a.t.r.env.LookupGroup(group)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		a.t.errorf("group", "there is no group %q; create it (groupadd --system %s) or name another", group, group)
	case err != nil:
		a.t.errorf("group", "%q cannot be looked up: %v; check the account database", group, err)
	}
	return g.GID
}

// ownAccount is the account of an app when usher is not root: its own.
func (a *appRead) ownAccount(user string, hasUser bool, group string, hasGroup bool) {
	t, env := a.t, a.t.r.env
	own := strconv.Itoa(env.EUID)
	a.User = Account{Name: own, UID: uint32(env.EUID), GID: uint32(env.EGID), Home: env.Home}
	if acc, err := env.LookupUser(own); err == nil {
		if acc.Name != "" {
			a.User.Name = acc.Name
		}
		a.User.Home = acc.Home
	}
	a.User.Own = true
	if hasUser {
		if acc, ok := a.lookupUser(user); ok && acc.UID != a.User.UID {
			t.errorf("user", "usher runs as %s and cannot start the app as %s; start usher as root, or remove user", a.User.Name, user)
		}
	}
	if hasGroup && a.lookupGroup(group) != a.User.GID {
		t.errorf("group", "usher is not root and cannot change the group to %s; start usher as root, or remove group", group)
	}
}

// environment reads env. Its values are secrets: no message shows one.
func (a *appRead) environment() {
	env, ok := a.t.table("env")
	if !ok {
		return
	}
	a.Env = make(map[string]string, len(env.vals))
	for _, name := range env.names() {
		off := env.keyOff(name)
		v, isString := env.vals[name].(string)
		switch {
		case !envName(name):
			env.r.errorf(off, "%s: %q is no name of a variable; use letters, digits and _, not beginning with a digit", env.path, name)
		case reserved(name):
			env.r.errorf(off, "%s: %s is set by usher; choose another name", env.path, name)
		case !isString:
			env.wrongType(name, env.vals[name], "a string in quotes")
		case strings.IndexByte(v, 0) >= 0:
			env.errorf(name, "holds a NUL character; remove it")
		default:
			a.Env[strings.Clone(name)] = strings.Clone(v)
		}
	}
}

func envName(s string) bool {
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

// reserved reports names with which usher tells the app where to listen and
// who it is.
func reserved(name string) bool {
	switch name {
	case "PORT", "SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "NOTIFY_SOCKET":
		return true
	}
	return strings.HasPrefix(name, "USHER_")
}

func (a *appRead) command() {
	t := a.t
	items, ok := t.strs("command")
	for _, it := range items {
		a.Command = append(a.Command, it.text)
	}
	if ok && len(t.node.child("command").elems) == 0 {
		t.errorf("command", `is empty; remove it to run the artifact itself, or write command = ["./program", "argument"]`)
	}
	a.unread(items)
	if len(a.Command) > 0 && a.Command[0] == "" {
		t.r.errorf(items[0].off, "%s: names no program; write one first", t.full("command"))
		a.Command = nil
	}
	if len(a.Command) > 0 && filepath.IsAbs(a.Command[0]) && !t.has("target") {
		a.runnable(items[0].off, "command", a.Command[0])
	}
}

// unread warns of an address that the program would get as the name of a
// variable. A program that is a shell knows what to do with it.
func (a *appRead) unread(items []item) {
	if len(items) == 0 || strings.HasSuffix(items[0].text, "sh") {
		return
	}
	for _, it := range items[1:] {
		for _, name := range []string{"$PORT", "${PORT}", "$SOCKET", "${SOCKET}"} {
			if strings.Contains(it.text, name) {
				a.t.r.warnf(it.off, `%s: %q reaches the program as it stands, as no shell reads it; write ["sh", "-c", "exec %s …"]`,
					a.t.full("command"), it.text, items[0].text)
				return
			}
		}
	}
}

// artifact checks that the first release is there and can run.
func (a *appRead) artifact() {
	t := a.t
	value, ok := t.str("artifact")
	if !ok || t.has("target") {
		return
	}
	a.ArtifactValue, a.Artifact = value, t.r.path(value)
	info, err := t.r.env.Stat(a.Artifact)
	if err != nil {
		t.errorf("artifact", "%s: %v; build it first, paths are relative to the configuration file", a.Artifact, plain(err))
		return
	}
	if !info.IsDir() {
		if a.runnable(t.off("artifact"), "artifact", a.Artifact) {
			a.commandInFile()
		}
		return
	}
	switch {
	case !t.has("command"):
		t.errorf("artifact", `%s is a directory, which cannot run by itself; write command = ["./program"]`, a.Artifact)
	case len(a.Command) > 0 && inBuild(a.Command[0]):
		a.runnable(t.node.child("command").elem(0).val, "command", filepath.Join(a.Artifact, a.Command[0]))
	}
}

// commandInFile checks a command that names a file of the build when the build
// is a single file.
func (a *appRead) commandInFile() {
	if len(a.Command) == 0 || !inBuild(a.Command[0]) {
		return
	}
	if base := filepath.Base(a.Artifact); filepath.Clean(a.Command[0]) != base {
		a.t.r.errorf(a.t.node.child("command").elem(0).val, `%s: %q is not in the build, which holds only %s; write "./%s" or remove command`,
			a.t.full("command"), a.Command[0], base, base)
	}
}

// inBuild reports that a program is named by a path inside the build, rather
// than found through PATH.
func inBuild(program string) bool {
	return strings.Contains(program, "/") && !filepath.IsAbs(program)
}

// runnable checks that path is a file that may be executed.
func (a *appRead) runnable(off int, key, path string) bool {
	r := a.t.r
	info, err := r.env.Stat(path)
	switch {
	case err != nil:
		r.errorf(off, "%s: %s: %v; correct the path or create the file", a.t.full(key), path, plain(err))
	case !info.Mode().IsRegular():
		r.errorf(off, "%s: %s is no regular file; name a program", a.t.full(key), path)
	case info.Mode().Perm()&0o111 == 0:
		r.errorf(off, "%s: %s is not executable; chmod +x it", a.t.full(key), path)
	default:
		return true
	}
	return false
}

// plain takes the path out of a file error, which messages show themselves.
func plain(err error) error {
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
