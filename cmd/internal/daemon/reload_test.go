package daemon

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/cmd/internal/config"
)

func TestAnAppWithOtherHostsOrLimitsCountsAsChanged(t *testing.T) {
	app := func(name string, host string, park time.Duration) config.App {
		return config.App{Name: name, Hosts: []string{host}, ParkTimeout: park}
	}
	files := func(apps ...config.App) appFiles { return remember(&config.File{Apps: apps}).apps }
	old := files(app("built", "b", 1), app("moved", "m", 1), app("same", "s", 1), app("waits", "w", 1))
	now := files(app("built", "b", 1), app("moved", "n", 1), app("same", "s", 1), app("waits", "w", 2))
	got := recount(activator.Changes{Changed: []string{"built"}, Unchanged: []string{"moved", "same", "waits"}}, old, now)
	if want := []string{"built", "moved", "waits"}; !slices.Equal(got.Changed, want) {
		t.Errorf("changed: %v, want %v", got.Changed, want)
	}
	if want := []string{"same"}; !slices.Equal(got.Unchanged, want) {
		t.Errorf("unchanged: %v, want %v", got.Unchanged, want)
	}
}

func TestAReloadThatIsRefusedIsARecordForEachFault(t *testing.T) {
	plain := &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}
	faults := config.Problems{{File: "usher.toml", Line: 3, Column: 1, Message: "unknown key"}, {File: "usher.toml", Message: "no listener"}}
	for _, c := range []struct {
		err  error
		want string
	}{
		{faults, `level=ERROR msg="usher.toml:3:1: unknown key"
level=ERROR msg="usher.toml: no listener"
level=ERROR msg="reload: the old configuration stays" problems=2
`},
		{errors.New("[server] listen cannot change"), `level=ERROR msg="reload: the old configuration stays" error="[server] listen cannot change"
`},
	} {
		var text, lines bytes.Buffer
		logRefused(slog.New(slog.NewTextHandler(&text, plain)), c.err)
		logRefused(slog.New(slog.NewJSONHandler(&lines, plain)), c.err)
		if text.String() != c.want {
			t.Errorf("the log says\n%swant\n%s", text.String(), c.want)
		}
		if strings.Contains(lines.String(), `\n`) {
			t.Errorf("several lines in one record: %s", lines.String())
		}
	}
}
