package daemon

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/edge"
)

// apps is what the file says, as the activator wants it.
func apps(f *config.File) []activator.App {
	out := make([]activator.App, 0, len(f.Apps))
	for _, a := range f.Apps {
		out = append(out, activator.App{
			Name: a.Name, Process: processOf(a), Policy: policyOf(a), Artifact: a.Artifact,
			Target: target(a), FileValue: a.ReleaseValue(), Eager: a.Eager,
		})
	}
	return out
}

func target(a config.App) string {
	if !a.External() {
		return ""
	}
	return a.Target.String()
}

func processOf(a config.App) activator.Process {
	p := activator.Process{
		Command: a.Command, Env: a.Env, Hold: a.Swap == config.Hold, Listen: activator.ListenPort,
		Limits: cgroup.Limits{Memory: uint64(a.Limits.Memory), PIDs: uint64(a.Limits.PIDs)},
	}
	switch {
	case a.Listen.Kind == config.ListenSocket:
		p.Listen = activator.ListenSocket
	case a.Listen.Port != 0:
		p.Listen, p.Port = activator.ListenFixed, int(a.Listen.Port)
	}
	if !a.User.Own {
		p.User = strconv.FormatUint(uint64(a.User.UID), 10)
		p.Group = strconv.FormatUint(uint64(a.User.GID), 10)
	}
	return p
}

func policyOf(a config.App) activator.Policy {
	return activator.Policy{
		BestEffort: a.BestEffort, Fallback: a.FallbackToGood,
		Health:      activator.Health{Path: a.Health.Path, Host: a.Health.Host, Headers: a.Health.Headers, Timeout: a.Health.Timeout},
		IdleTimeout: a.IdleTimeout, WakeTimeout: a.WakeTimeout, DrainTimeout: a.DrainTimeout, HoldDrain: a.HoldDrain,
		CloseSpread: a.CloseSpread, StopTimeout: a.StopTimeout, Settle: a.Settle,
	}
}

// edgeApps is what the file says, as the edge wants it.
func edgeApps(f *config.File) []edge.AppConfig {
	out := make([]edge.AppConfig, 0, len(f.Apps))
	for _, a := range f.Apps {
		out = append(out, edge.AppConfig{
			Name: a.Name, Hosts: a.Hosts, Paths: a.Paths,
			ParkLimit: a.ParkLimit, ParkBytes: a.ParkBytes, ParkTimeout: a.ParkTimeout,
			ParkPerClient: a.ParkPerClient, ParkBytesPerClient: a.ParkBytesClient, MaxInFlightPerClient: a.MaxInFlightClient,
			MaintenancePage:  edge.Page{Type: a.MaintenancePage.Type, Body: a.MaintenancePage.Body},
			FirstByteTimeout: a.FirstByteTimeout, MaxBody: a.MaxBody, MaxInFlight: smaller(a.MaxInFlight, a.UpstreamConnections),
			CacheEnabled: a.Cache.Enabled && f.Server.CacheBytes > 0, ExposeBuild: a.ExposeBuild,
			TLSAsk: a.TLSAsk, KeepTrailers: a.KeepTrailers,
		})
	}
	return out
}

// smaller of two bounds where 0 is none. One request in flight is one connection
// to the app, so both bound the same.
func smaller(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// Env is the machine as the config package sees it, with the word of the cgroup
// room on whether a hold can be proven.
func Env() config.Env {
	env := config.System()
	env.CgroupProblem = func(setting, state string) string {
		if setting == config.CgroupOff {
			return "cgroup is \"off\""
		}
		if _, err := discover(setting, state); err != nil {
			return err.Error()
		}
		return ""
	}
	return env
}

// discover finds the cgroup tree that the setting asks for; nil without an error
// if it asks for none.
func discover(setting, state string) (*cgroup.Tree, error) {
	switch setting {
	case config.CgroupOff:
		return nil, nil
	case config.CgroupAuto:
		setting = ""
	}
	t, err := cgroup.Discover(cgroup.Options{StateDir: state, Base: setting})
	if errors.Is(err, cgroup.ErrUnavailable) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("find a cgroup: %w", err)
	}
	return t, nil
}
