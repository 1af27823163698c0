package admin_test

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
)

func listen(path string) (net.Listener, error) {
	return admin.ListenUnix(context.Background(), path, admin.SocketOptions{})
}

// staleSocket leaves what a killed process leaves: a socket nobody listens on.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = l.Close()
}

func TestOnlyADeadSocketIsReplaced(t *testing.T) {
	tests := []struct {
		name string
		make func(t *testing.T, path string)
		want string // in the error; empty: it listens
	}{
		{"nothing", func(*testing.T, string) {}, ""},
		{"stale socket", staleSocket, ""},
		{"live socket", func(t *testing.T, path string) {
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
		}, "another process listens there"},
		{"regular file", func(t *testing.T, path string) {
			if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "regular file"},
		{"directory", func(t *testing.T, path string) {
			if err := os.Mkdir(path, 0o700); err != nil {
				t.Fatal(err)
			}
		}, "directory"},
		{"link to a stale socket", func(t *testing.T, path string) {
			staleSocket(t, path+"2")
			if err := os.Symlink(path+"2", path); err != nil {
				t.Fatal(err)
			}
		}, "symbolic link"},
		{"datagram socket", func(t *testing.T, path string) {
			c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}, "may be in use"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := admintest.SocketPath(t)
			tt.make(t, path)
			before, _ := os.Lstat(path)
			l, err := listen(path)
			if tt.want == "" {
				if err != nil {
					t.Fatalf("listen: %v", err)
				}
				c, err := net.Dial("unix", path)
				if err != nil {
					t.Fatalf("dial: %v", err)
				}
				_ = c.Close()
				_ = l.Close()
				if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("the socket is left behind: %v", err)
				}
				return
			}
			if err == nil {
				_ = l.Close()
				t.Fatal("it listens")
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("error %q does not say %q and the path", err, tt.want)
			}
			if after, err := os.Lstat(path); err != nil || !os.SameFile(before, after) || before.Size() != after.Size() {
				t.Errorf("what was there was touched: %v", err)
			}
		})
	}
}

func TestTheSocketIsForItsOwnerWhateverTheUmask(t *testing.T) {
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	for _, o := range []admin.SocketOptions{{}, {Mode: 0o660}, {Mode: 0o660, Chown: true, GID: os.Getegid()}} {
		path := admintest.SocketPath(t)
		l, err := admin.ListenUnix(context.Background(), path, o)
		if err != nil {
			t.Fatal(err)
		}
		want := o.Mode
		if want == 0 {
			want = 0o600
		}
		if fi, err := os.Lstat(path); err != nil || fi.Mode().Perm() != want {
			t.Errorf("%+v: mode %v, %v", o, fi.Mode(), err)
		}
		_ = l.Close()
	}
}

func TestAMissingDirectoryIsMadeForTheOwner(t *testing.T) {
	path := filepath.Join(filepath.Dir(admintest.SocketPath(t)), "run", "admin.sock")
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if fi, err := os.Stat(filepath.Dir(path)); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("directory: %v %v", fi.Mode(), err)
	}
}

func TestClosingLeavesTheSocketOfASuccessor(t *testing.T) {
	path := admintest.SocketPath(t)
	first, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the successor's socket is gone: %v", err)
	}
	_ = c.Close()
	_ = second.Close()
	_ = second.Close() // again, harmless
}

func TestALongPathIsRefusedWithAReason(t *testing.T) {
	_, err := listen("/" + strings.Repeat("x", 200) + "/admin.sock")
	if err == nil || !strings.Contains(err.Error(), "shorter") {
		t.Errorf("listen: %v", err)
	}
}

func TestOfTwoThatStartAtOnceOneListens(t *testing.T) {
	for range 20 {
		path := admintest.SocketPath(t)
		staleSocket(t, path)
		var wg sync.WaitGroup
		got := make([]net.Listener, 4)
		for i := range got {
			wg.Go(func() {
				if l, err := listen(path); err == nil {
					got[i] = l
				}
			})
		}
		wg.Wait()
		won := 0
		for _, l := range got {
			if l != nil {
				won++
				defer func() { _ = l.Close() }()
			}
		}
		c, err := net.Dial("unix", path)
		if won != 1 || err != nil {
			t.Fatalf("%d listen, dial: %v", won, err)
		}
		_ = c.Close()
	}
}

func TestAddressesAreParsed(t *testing.T) {
	for text, want := range map[string]string{
		"unix:/run/usher/admin.sock":   "unix:/run/usher/admin.sock",
		"unix:///run/usher/admin.sock": "unix:/run/usher/admin.sock",
		"/tmp/a.sock":                  "unix:/tmp/a.sock",
		"./a.sock":                     "unix:./a.sock",
		"unix:a.sock":                  "unix:a.sock",
		"127.0.0.1:9000":               "http://127.0.0.1:9000",
		"tcp:[::1]:9000":               "http://[::1]:9000",
		"tcp://box:9000":               "http://box:9000",
		"https://box.example":          "https://box.example",
		"http://box:1/":                "http://box:1",
	} {
		got, err := admin.ParseAddress(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
		if again, err := admin.ParseAddress(got.String()); err != nil || again != got {
			t.Errorf("%q does not read back: %v, %v", got, again, err)
		}
	}
	for _, text := range []string{"", "box", "box:", ":9000", "box:0", "box:99999", "unix:", "http://", "http://u@box", "http://box/v1", "ftp://box:1"} {
		if a, err := admin.ParseAddress(text); err == nil {
			t.Errorf("%q: read as %q", text, a)
		} else if !strings.Contains(err.Error(), "use unix:/path") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTheDefaultAddressFollowsTheUser(t *testing.T) {
	for _, tt := range []struct {
		uid  int
		env  map[string]string
		want string
	}{
		{0, map[string]string{"XDG_RUNTIME_DIR": "/run/user/0"}, "unix:/run/usher/admin.sock"},
		{1000, map[string]string{"XDG_RUNTIME_DIR": "/x", "HOME": "/home/me"}, "unix:/x/usher/admin.sock"},
		{1000, map[string]string{"XDG_STATE_HOME": "/s", "HOME": "/home/me"}, "unix:/s/usher/admin.sock"},
		{1000, map[string]string{"HOME": "/home/me"}, "unix:/home/me/.local/state/usher/admin.sock"},
	} {
		get := func(k string) string { return tt.env[k] }
		if got := admin.DefaultAddress(tt.uid, get).String(); got != tt.want {
			t.Errorf("%+v: %s", tt, got)
		}
	}
}
