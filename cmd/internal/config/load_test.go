package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func TestLoadReadsARealFileRelativeToItsDirectory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode fs.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("hello", "#!/bin/sh\n", 0o755)
	write("usher.toml", "[server]\nlisten=['unix:http.sock']\nstate='state'\n[apps.a]\nhosts=['a']\nartifact='hello'\nuser="+quoteID(os.Geteuid())+"\n", 0o600)
	f, err := Load(filepath.Join(dir, "usher.toml"), System())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.Apps[0].Artifact, filepath.Join(dir, "hello"); got != want {
		t.Errorf("artifact = %s, want %s", got, want)
	}
	if got, want := f.Server.State, filepath.Join(dir, "state"); got != want {
		t.Errorf("state = %s, want %s", got, want)
	}
	if u := f.Apps[0].User; int(u.UID) != os.Geteuid() || !u.Own {
		t.Errorf("the app runs as %+v, want usher's own account", u)
	}
	if _, err := os.Stat(filepath.Join(dir, "state")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("validation made the state directory: %v", err)
	}
}

func quoteID(euid int) string {
	if euid == 0 {
		return "'root'"
	}
	return "'" + strconv.Itoa(euid) + "'"
}

func TestAFileThatCannotBeReadSaysWhatToDo(t *testing.T) {
	env := testEnv()
	for _, c := range []struct {
		err  error
		want string
	}{
		{fs.ErrNotExist, "my.toml: there is no such file; write one or name another with --config"},
		{fs.ErrPermission, "my.toml: usher may not read the file"},
		{errors.New("input/output error"), "my.toml: cannot be read: input/output error"},
	} {
		env.ReadFile = func(path string) ([]byte, error) {
			if path != "/etc/usher/my.toml" {
				t.Errorf("read %q, want the path made absolute", path)
			}
			return nil, c.err
		}
		_, err := Load("my.toml", env)
		var ps Problems
		if !errors.As(err, &ps) || !strings.HasPrefix(ps.Error(), c.want) {
			t.Errorf("error = %v, want %s", err, c.want)
		}
	}
}

func TestAHugeFileIsRefusedBeforeItIsRead(t *testing.T) {
	_, err := Parse("usher.toml", make([]byte, maxFile+1), testEnv())
	if err == nil || !strings.Contains(err.Error(), "is larger than") {
		t.Errorf("error = %v", err)
	}
}

func TestProblemsPrintOnePerLineWithTheirPlace(t *testing.T) {
	_, err := Parse("conf/usher.toml", []byte("[server]\nlisten=[':80']\nstate=1\nrun=2\n"), testEnv())
	want := "conf/usher.toml:3:7: server.state: is a whole number; write a string in quotes\n" +
		"conf/usher.toml:4:5: server.run: is a whole number; write a string in quotes"
	if err == nil || err.Error() != want {
		t.Errorf("got\n%v\nwant\n%s", err, want)
	}
}

func TestAByteOrderMarkDoesNotShiftPlaces(t *testing.T) {
	_, err := Parse("u", []byte("\ufeffserver = 3\n"), testEnv())
	if err == nil || !strings.HasPrefix(err.Error(), "u:1:10: ") {
		t.Errorf("error = %v, want it at 1:10", err)
	}
}

func TestUTF16IsRefused(t *testing.T) {
	for _, text := range []string{"\xff\xfea\x00", "\xfe\xff\x00a"} {
		_, err := Parse("u", []byte(text), testEnv())
		if err == nil || err.Error() != "u: is UTF-16; save it as UTF-8" {
			t.Errorf("error = %v", err)
		}
	}
}

func TestSecretsOfTheEnvironmentAreInNoMessage(t *testing.T) {
	const secret = "hunter2"
	text := app + "[apps.a.env]\nPORT = '" + secret + "'\n1X = '" + secret + "'\nN = \"" + secret + "\\u0000\"\nD = { X = '" + secret + "' }\n"
	_, err := Parse("usher.toml", []byte(text), testEnv())
	var ps Problems
	if !errors.As(err, &ps) || len(ps) != 4 {
		t.Fatalf("want four problems, got %v", err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("a value is shown:\n%v", err)
	}
}

func TestTheSystemKnowsItsAccounts(t *testing.T) {
	env := System()
	root, err := env.LookupUser("root")
	if err != nil || root.UID != 0 {
		t.Errorf("root = %+v, %v", root, err)
	}
	if byNumber, err := env.LookupUser("0"); err != nil || byNumber != root {
		t.Errorf("0 = %+v, %v, want %+v", byNumber, err, root)
	}
	if none, err := env.LookupUser("4000000000"); err != nil || none.UID != 4000000000 || none.GID != NoID {
		t.Errorf("a number without an account = %+v, %v", none, err)
	}
	if _, err := env.LookupUser("no-such-user-here"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown user: %v", err)
	}
	if g, err := env.LookupGroup("0"); err != nil || g.GID != 0 {
		t.Errorf("group 0 = %+v, %v", g, err)
	}
	if g, err := env.LookupGroup("4000000000"); err != nil || g.GID != 4000000000 {
		t.Errorf("a group without a name = %+v, %v", g, err)
	}
	if _, err := env.LookupGroup("no-such-group-here"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("unknown group: %v", err)
	}
	if p := env.EphemeralPorts; p.Last != 0 && p.First >= p.Last {
		t.Errorf("ephemeral ports %s", p)
	}
	if !filepath.IsAbs(env.WorkDir) {
		t.Errorf("work dir %q", env.WorkDir)
	}
}

func TestAnAccountIsLookedUpOnceHoweverManyAppsNameIt(t *testing.T) {
	env := testEnv()
	env.EUID = 0
	asked, look := 0, env.LookupUser
	env.LookupUser = func(name string) (Account, error) {
		asked++
		return look(name)
	}
	text := "[server]\nlisten = [\"127.0.0.1:8080\"]\n"
	for _, name := range []string{"a", "b", "c"} {
		text += "[apps." + name + "]\nhosts = [\"" + name + ".example.com\"]\nuser = \"root\"\n"
	}
	if f, err := Parse("usher.toml", []byte(text), env); err != nil || f.Apps[2].User.Name != "root" {
		t.Fatalf("%v", err)
	}
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}
