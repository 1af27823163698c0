package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	hybridMounts = `23 1 254:0 / / rw,relatime - ext4 /dev/root rw
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime shared:4 - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:5 - cgroup2 cgroup2 rw
`
	pureMounts = `24 30 0:22 / /proc rw,nosuid - proc proc rw
35 25 0:29 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
`
	legacyMounts = `32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
`
	readOnlyMounts = `611 600 0:29 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate
`
	// A container without a cgroup namespace of its own sees its part only.
	partMounts = `611 600 0:29 /docker/abc /sys/fs/cgroup rw,relatime - cgroup2 cgroup rw
`
	oddMounts = `35 25 0:29 / /mnt/c\040group\134x rw - cgroup2 none rw
`
)

func TestDiscoverPicksOwnCgroupFromTheMountTable(t *testing.T) {
	tests := []struct {
		name, mounts, self, base, want, reason string
	}{
		{name: "hybrid host", mounts: hybridMounts, self: "3:cpu:/x\n0::/\n", want: "/sys/fs/cgroup/unified"},
		{name: "hybrid host, in a unit", mounts: hybridMounts, self: "1:name=systemd:/u\n0::/system.slice/usher.service\n", want: "/sys/fs/cgroup/unified/system.slice/usher.service"},
		{name: "pure v2", mounts: pureMounts, self: "0::/user.slice/user-1000.slice/user@1000.service/app.slice/usher.service\n", want: "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/usher.service"},
		{name: "part of the hierarchy is mounted", mounts: partMounts, self: "0::/docker/abc/usher\n", want: "/sys/fs/cgroup/usher"},
		{name: "exactly the mounted part", mounts: partMounts, self: "0::/docker/abc\n", want: "/sys/fs/cgroup"},
		{name: "blank and backslash in the path", mounts: oddMounts, self: "0::/\n", want: `/mnt/c group\x`},
		{name: "own cgroup was removed", mounts: pureMounts, self: "0::/old (deleted)\n", want: "/sys/fs/cgroup/old"},
		{name: "a writable mount beside a read-only one", mounts: readOnlyMounts + oddMounts, self: "0::/\n", want: `/mnt/c group\x`},
		{name: "base given", mounts: hybridMounts, self: "0::/\n", base: "/sys/fs/cgroup/unified/mine/", want: "/sys/fs/cgroup/unified/mine"},

		{name: "only v1", mounts: legacyMounts, self: "3:cpu:/x\n", reason: "no cgroup2 file system"},
		{name: "v2 not in /proc/self/cgroup", mounts: pureMounts, self: "3:cpu:/x\n", reason: "no line of the unified hierarchy"},
		{name: "read-only mount", mounts: readOnlyMounts, self: "0::/\n", reason: "mounted read-only"},
		{name: "own cgroup outside the mounted part", mounts: partMounts, self: "0::/docker/abcd\n", reason: "not below any cgroup2 mount"},
		{name: "own cgroup outside the namespace", mounts: pureMounts, self: "0::/../other\n", reason: "not below any cgroup2 mount"},
		{name: "base elsewhere", mounts: pureMounts, self: "0::/\n", base: "/sys/fs/cgroupx", reason: "not below a cgroup2 mount"},
		{name: "base on a read-only mount", mounts: readOnlyMounts, self: "0::/\n", base: "/sys/fs/cgroup/a", reason: "mounted read-only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sys := system{mounts: parseMounts(tt.mounts), own: parseOwn(tt.self)}
			got, err := sys.base(tt.base)
			if tt.reason != "" {
				if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), tt.reason) {
					t.Fatalf("got %q and error %v, want ErrUnavailable that says %q", got, err, tt.reason)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Fatalf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestDiscoverRefusesARelativeBase(t *testing.T) {
	sys := system{mounts: parseMounts(pureMounts), own: "/"}
	if _, err := sys.base("usher"); err == nil || errors.Is(err, ErrUnavailable) {
		t.Fatalf("a wrong setting must be an error of its own, got %v", err)
	}
}

func TestDiscoverSaysWhyAnUnwritableBaseIsOfNoUse(t *testing.T) {
	// On a directory that is no cgroup, so that it runs everywhere.
	base := t.TempDir()
	sys := system{mounts: []mount{{root: "/", point: base, writable: true}}, own: "/"}
	dir := filepath.Join(base, "usher-x")
	err := sys.prepare(base, dir)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "cgroup.procs") {
		t.Fatalf("without cgroup.procs: %v", err)
	}
	if err := os.WriteFile(filepath.Join(base, "cgroup.procs"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	err = sys.prepare(base, dir)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "5.14") {
		t.Fatalf("without cgroup.kill: %v", err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the probe left its directory: %v", err)
	}
	err = sys.prepare(filepath.Join(base, "missing"), dir)
	if !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "Delegate=yes") {
		t.Fatalf("without the base: %v", err)
	}
}

// With DelegateSubgroup= usher is in a cgroup of its own below the one that is
// delegated, which then may have controllers for its children.
func TestTheTreeGoesIntoTheDelegatedCgroupAboveOurOwn(t *testing.T) {
	unit := newTree(t).Dir() // any cgroup we may write to
	daemon := filepath.Join(unit, "daemon")
	if err := os.Mkdir(daemon, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Rmdir(daemon) })
	sys := system{mounts: []mount{{root: "/", point: filepath.Dir(unit), writable: true}}, own: "/" + filepath.Base(unit) + "/daemon"}
	if got, err := sys.base(""); err != nil || got != daemon {
		t.Fatalf("not delegated: got %s, %v", got, err)
	}
	if err := unix.Setxattr(unit, "user.delegate", []byte("1"), 0); err != nil {
		t.Skipf("needs extended attributes of cgroups: %v", err)
	}
	if got, err := sys.base(""); err != nil || got != unit {
		t.Errorf("delegated: got %s, %v, want %s", got, err, unit)
	}
}

func TestLeafMustBeADomain(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cgroup.kill": "", "cgroup.type": "domain invalid\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := checkLeaf(dir); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "domain invalid") {
		t.Fatalf("got %v", err)
	}
}

func TestDiscoverNeedsAStateDirectory(t *testing.T) {
	if _, err := Discover(Options{}); err == nil || errors.Is(err, ErrUnavailable) {
		t.Fatalf("got %v, want a plain error", err)
	}
}

func TestTwoStateDirectoriesNeverShareATree(t *testing.T) {
	if treeName("/var/lib/usher") == treeName("/var/lib/usher2") {
		t.Fatal("one name for two state directories")
	}
	a, b := newTree(t), newTree(t)
	if a.Dir() == b.Dir() {
		t.Fatal("one directory for two state directories")
	}
}
