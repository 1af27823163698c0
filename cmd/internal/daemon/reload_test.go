package daemon

import (
	"slices"
	"testing"
	"time"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/cmd/internal/config"
)

func TestAnAppWithOtherHostsOrLimitsCountsAsChanged(t *testing.T) {
	app := func(name string, host string, park time.Duration) config.App {
		return config.App{Name: name, Hosts: []string{host}, ParkTimeout: park}
	}
	old := &config.File{Apps: []config.App{app("built", "b", 1), app("moved", "m", 1), app("same", "s", 1), app("waits", "w", 1)}}
	now := &config.File{Apps: []config.App{app("built", "b", 1), app("moved", "n", 1), app("same", "s", 1), app("waits", "w", 2)}}
	got := recount(activator.Changes{Changed: []string{"built"}, Unchanged: []string{"moved", "same", "waits"}}, old, now)
	if want := []string{"built", "moved", "waits"}; !slices.Equal(got.Changed, want) {
		t.Errorf("changed: %v, want %v", got.Changed, want)
	}
	if want := []string{"same"}; !slices.Equal(got.Unchanged, want) {
		t.Errorf("unchanged: %v, want %v", got.Unchanged, want)
	}
}
