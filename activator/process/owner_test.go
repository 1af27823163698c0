package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/activator/cgroup"
)

// listenPort finds the port in "listening 127.0.0.1:1234".
func listenPort(t *testing.T, l Launch) int {
	t.Helper()
	line, _, _ := strings.Cut(output(t, l, "\n"), "\n")
	port, err := strconv.Atoi(line[strings.LastIndexByte(line, ':')+1:])
	if err != nil {
		t.Fatalf("the app said %q", line)
	}
	return port
}

func wantOwner(t *testing.T, group cgroup.Group, pid, port int, want bool) {
	t.Helper()
	got, err := OwnsPort(group, pid, port)
	if err != nil || got != want {
		t.Errorf("port %d, pid %d: got %v, %v; want %v", port, pid, got, err, want)
	}
}

func TestPortBelongsToTheGenerationThatListens(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::]:0", "[::1]:0"} {
			if strings.HasPrefix(address, "[::1") && !hasIPv6() {
				continue
			}
			l := app(t, "listen", address)
			p := mustStart(t, g, &l)
			port := listenPort(t, l)
			wantOwner(t, l.Group, p.Identity().PID, port, true)
			wantOwner(t, l.Group, 0, port, true)
			wantOwner(t, l.Group, p.Identity().PID, port+1, false)

			other := script(t, "exec sleep 600")
			wantOwner(t, func() cgroup.Group { mustStart(t, g, &other); return other.Group }(), 0, port, false)
		}
	})
}

func hasIPv6() bool {
	l, err := net.Listen("tcp", "[::1]:0")
	if err == nil {
		l.Close()
	}
	return err == nil
}

func TestPortOfAGrandchildBelongsToTheGeneration(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t)
		self := l.Path
		l.Path, l.Args = "/bin/sh", []string{"sh", "-c", self + " app listen 127.0.0.1:0 & wait"}
		p := mustStart(t, g, &l)
		wantOwner(t, l.Group, p.Identity().PID, listenPort(t, l), true)
	})
}

// headless waits until the main thread of a process has ended.
func headless(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "the main thread has ended", func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err == nil && strings.Contains(string(raw), ") Z ")
	})
}

// Neither its descriptors nor its directory are to be had from its main thread then.
func TestWhatAProcessListensOnIsItsOwnWhenItsMainThreadHasEnded(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t, "listen", "127.0.0.1:0", "headless")
		pid, port := mustStart(t, g, &l).Identity().PID, listenPort(t, l)
		headless(t, pid)
		wantOwner(t, l.Group, pid, port, true)

		u := app(t, "listen_unix", "sock", "headless")
		pid = mustStart(t, g, &u).Identity().PID
		output(t, u, "listening")
		headless(t, pid)
		if got, err := OwnsUnix(u.Group, pid, filepath.Join(u.Dir, "sock")); err != nil || !got {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

// What is in /proc of a thread that has ended is root's. An usher that is not root may
// not look there, and has to look at the others.
func TestAMainThreadThatHasEndedIsClosedToItsOwnUser(t *testing.T) {
	needRoot(t) // to be somebody else; all the other tests are of this if nobody is root
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t, "listen", "127.0.0.1:0", "headless")
		uid, gid := uint32(54321), uint32(54322)
		l.UID, l.GID, l.Path = &uid, &gid, "server"
		copySelf(t, l.Dir, l.Path)
		pid, port := mustStart(t, g, &l).Identity().PID, listenPort(t, l)
		headless(t, pid)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if err := unix.Setfsuid(int(uid)); err != nil {
			t.Fatal(err)
		}
		got, err := OwnsPort(l.Group, pid, port)
		if back := unix.Setfsuid(0); back != nil {
			t.Fatal(back)
		}
		if err != nil || !got {
			t.Errorf("got %v, %v", got, err)
		}
	})
}

func TestPortSharedWithAStrangerIsNotOwned(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		l := app(t, "listen", "127.0.0.1:0")
		p := mustStart(t, g, &l)
		port := listenPort(t, l)
		// 127.0.0.2 is another address: nobody who dials loopback meets it.
		aside, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer aside.Close()
		wantOwner(t, l.Group, p.Identity().PID, port, true)
		if !hasIPv6() {
			return
		}
		stranger, err := net.Listen("tcp6", fmt.Sprintf("[::1]:%d", port))
		if err != nil {
			t.Fatal(err)
		}
		defer stranger.Close()
		wantOwner(t, l.Group, p.Identity().PID, port, false)
	})
}

func TestUnixSocketBelongsToTheGenerationThatListens(t *testing.T) {
	onEachGround(t, func(t *testing.T, g *ground) {
		for _, path := range []string{"app sock", filepath.Join(t.TempDir(), "s")} {
			l := app(t, "listen_unix", path)
			p := mustStart(t, g, &l)
			output(t, l, "listening")
			full := path
			if !filepath.IsAbs(path) {
				full = filepath.Join(l.Dir, path)
			}
			pid := p.Identity().PID
			if got, err := OwnsUnix(l.Group, pid, full); err != nil || !got {
				t.Errorf("%s: got %v, %v", path, got, err)
			}
			if got, err := OwnsUnix(l.Group, pid, full+"x"); err != nil || got {
				t.Errorf("another path: got %v, %v", got, err)
			}
			if got, err := OwnsUnix(cgroup.NewSession(nil), 0, full); err != nil || got && filepath.IsAbs(path) {
				t.Errorf("another group: got %v, %v", got, err)
			}
		}
	})
}

func TestSocketTablesAreReadStrictly(t *testing.T) {
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	row := func(address, state string, inode int) string {
		return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 1 0\n", address, state, inode)
	}
	table := header +
		row("0100007F:1F90", "0A", 1) + // 127.0.0.1:8080
		row("00000000:1F90", "0A", 2) + // 0.0.0.0:8080
		row("0200007F:1F90", "0A", 3) + // 127.0.0.2:8080
		row("0100007F:1F91", "0A", 4) + // 127.0.0.1:8081
		row("00000000000000000000000000000000:1F90", "0A", 5) + // [::]:8080
		row("00000000000000000000000001000000:1F90", "0A", 6) + // [::1]:8080
		row("0000000000000000FFFF00000100007F:1F90", "0A", 7) + // [::ffff:127.0.0.1]:8080
		row("xyz:1F90", "0A", 8) +
		row("0100007F:1F90", "01", 9) + // the first that does not listen
		row("0100007F:1F90", "0A", 10)
	got := map[string]bool{}
	if err := listeners(strings.NewReader(table), 8080, got); err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{"1": true, "2": true, "5": true, "6": true, "7": true}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestPortsLieOutsideTheKernelsRange(t *testing.T) {
	tests := []struct {
		kernel, want, got PortRange
		reason            string
	}{
		{kernel: PortRange{32768, 60999}, got: PortRange{20000, 29999}},
		{kernel: PortRange{1024, 65535}, reason: "leaves no 100 ports"},
		{kernel: PortRange{10000, 65535}, got: PortRange{1024, 9999}},
		{kernel: PortRange{15000, 61000}, got: PortRange{5000, 14999}},
		{kernel: PortRange{1024, 40000}, got: PortRange{55536, 65535}},
		{kernel: PortRange{32768, 60999}, want: PortRange{5000, 5001}, got: PortRange{5000, 5001}},
		{kernel: PortRange{32768, 60999}, want: PortRange{30000, 32768}, reason: "overlaps 32768-60999"},
		{kernel: PortRange{32768, 60999}, want: PortRange{1000, 2000}, reason: "no range between"},
		{kernel: PortRange{32768, 60999}, want: PortRange{3000, 2000}, reason: "no range between"},
		{kernel: PortRange{32768, 60999}, want: PortRange{64000, 70000}, reason: "no range between"},
	}
	for _, tt := range tests {
		got, err := choosePorts(tt.want, tt.kernel)
		if tt.reason == "" && (err != nil || got != tt.got) {
			t.Errorf("kernel %v, want %v: got %v, %v", tt.kernel, tt.want, got, err)
		}
		if tt.reason != "" && (err == nil || !strings.Contains(err.Error(), tt.reason)) {
			t.Errorf("kernel %v, want %v: got %v, error %v", tt.kernel, tt.want, got, err)
		}
	}
	if _, err := parseEphemeral("32768"); err == nil {
		t.Error("one number was taken for a range")
	}
	own, err := ephemeral()
	if err != nil || own.size() < 1 {
		t.Errorf("this machine: %v, %v", own, err)
	}
}

func TestDescriptorsOfTheGoneAreNone(t *testing.T) {
	sockets := map[string]bool{"1": true}
	if err := crossOff(1<<22+1, sockets); err != nil || len(sockets) != 1 {
		t.Errorf("got %v, %v", sockets, err)
	}
}
