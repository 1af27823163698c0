package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

const mib = 1 << 20

// events is a text of memory.events as Linux 6.1 writes it.
func events(oom, killed string) string {
	return "low 0\nhigh 0\nmax 30\noom " + oom + "\noom_kill " + killed + "\noom_group_kill 0\n"
}

func TestWhoWasKilledForWantOfMemoryAndWhoseLimitItWas(t *testing.T) {
	type files map[string]string
	for _, c := range []struct {
		name            string
		generation, app files
		want            OOM
		text            string
	}{
		{
			name:       "over its own limit, and the app has the same",
			generation: files{"memory.events": events("1", "1"), "memory.events.local": events("1", "1"), "memory.max": "67108864\n"},
			app:        files{"memory.events": events("1", "1"), "memory.events.local": events("0", "0"), "memory.max": "67108864\n"},
			want:       OOM{Kills: 1, Limit: 64 * mib}, text: "out of memory (limit 64 MiB)",
		},
		{
			name:       "over the limit of the app",
			generation: files{"memory.events": events("0", "2"), "memory.events.local": events("0", "2"), "memory.max": "67108864\n"},
			app:        files{"memory.events": events("2", "2"), "memory.events.local": events("2", "0"), "memory.max": "1610612736\n"},
			want:       OOM{Kills: 2, Limit: 1536 * mib}, text: "out of memory (limit 1536 MiB)",
		},
		{
			name:       "in a cgroup that it has made in its own",
			generation: files{"memory.events": events("1", "1"), "memory.events.local": events("0", "0"), "memory.max": "67108864\n"},
			app:        files{"memory.events": events("1", "1"), "memory.events.local": events("0", "0"), "memory.max": "max\n"},
			want:       OOM{Kills: 1}, text: "out of memory (not for a limit of the app)",
		},
		{
			name:       "a neighbour in the same app",
			generation: files{"memory.events": events("0", "0"), "memory.events.local": events("0", "0"), "memory.max": "max\n"},
			app:        files{"memory.events": events("3", "3"), "memory.events.local": events("3", "0"), "memory.max": "67108864\n"},
		},
		{
			name:       "it came to the limit, and something could be freed",
			generation: files{"memory.events": events("4", "0"), "memory.events.local": events("4", "0"), "memory.max": "67108864\n"},
			app:        files{"memory.events": events("4", "0"), "memory.events.local": events("0", "0"), "memory.max": "67108864\n"},
		},
		{name: "no memory controller"},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := fakeDir(t, filepath.Join(t.TempDir(), "shop"), c.app)
			g := &v2Group{path: fakeDir(t, filepath.Join(app, "shop.1"), c.generation)}
			got := g.OOM()
			if got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			if c.text != "" && got.String() != c.text {
				t.Errorf("it says %q, want %q", got, c.text)
			}
		})
	}
}

func TestAGroupThatIsGoneAndASessionTellOfNoKills(t *testing.T) {
	dir := t.TempDir()
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if got := (&v2Group{path: dir}).OOM(); got != (OOM{}) {
		t.Errorf("gone: %+v", got)
	}
	if got := NewSession(nil).OOM(); got != (OOM{}) {
		t.Errorf("a session: %+v", got)
	}
}

func TestBytesAreToldInWholeNumbers(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 bytes", 1: "1 bytes", 4096: "4 KiB", 64 << 20: "64 MiB", 3 << 29: "1536 MiB", 2 << 30: "2 GiB", 1 << 60: "1048576 TiB"} {
		if got := bytesText(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
