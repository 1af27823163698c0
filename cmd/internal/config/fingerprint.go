package config

import (
	"crypto/sha256"
	"encoding/json"
	"reflect"
)

// EdgeFingerprint changes iff a field changed that takes effect without a new
// process: hosts, paths, timeouts, parking, health, cache. It leaves out
// Artifact and Target, which releases own (see ReleaseValue).
func (a *App) EdgeFingerprint() Fingerprint {
	edge := *a
	edge.Artifact, edge.ArtifactValue, edge.Target = "", "", Addr{}
	edge.Command, edge.Env, edge.User, edge.Listen, edge.Swap = nil, nil, Account{}, Listen{}, ""
	edge.Limits = Limits{}
	// Maps are written in key order, so equal values give equal text. Only
	// types that JSON cannot hold make it fail, and these structs have none.
	text, err := json.Marshal(edge)
	if err != nil {
		panic("config: fingerprint: " + err.Error())
	}
	return sha256.Sum256(text)
}

// ReleaseValue is what the file says the app's first release is: "artifact X"
// with X as written, "target ADDR", or empty if it waits for a deploy. A reload
// makes a new revision only when this differs from when it was last applied.
func (a *App) ReleaseValue() string {
	switch {
	case a.External():
		return "target " + a.Target.String()
	case a.ArtifactValue != "":
		return "artifact " + a.ArtifactValue
	}
	return ""
}

// Fingerprint is equal for equal values, and for no others.
type Fingerprint [sha256.Size]byte

// ServerChanges names the keys of [server] whose values differ, so that a reload
// can say which of them it cannot apply without a restart.
func ServerChanges(old, now Server) []string {
	a, b := reflect.ValueOf(old), reflect.ValueOf(now)
	var keys []string
	for _, f := range serverKeys() {
		if !reflect.DeepEqual(a.FieldByName(f.field).Interface(), b.FieldByName(f.field).Interface()) {
			keys = append(keys, f.key)
		}
	}
	return keys
}

type serverKey struct{ field, key string }

// serverKeys lists the fields of Server with their keys in the file.
func serverKeys() []serverKey {
	return []serverKey{
		{"Listen", "listen"},
		{"ListenGroup", "listen_group"},
		{"Admin", "admin"},
		{"AdminTokenFile", "admin_token_file"},
		{"AdminGroup", "admin_group"},
		{"State", "state"},
		{"Run", "run"},
		{"TrustedProxies", "trusted_proxies"},
		{"AskListen", "ask_listen"},
		{"Cgroup", "cgroup"},
		{"PortRange", "port_range"},
		{"AccessLog", "access_log"},
		{"LogFormat", "access_log_format"},
		{"CacheBytes", "cache_bytes"},
		{"EventLoops", "event_loops"},
		{"MaxConnections", "max_connections"},
		{"MaxPerClient", "max_connections_per_client"},
		{"HeadTimeout", "head_timeout"},
		{"IdleTimeout", "idle_timeout"},
		{"BodyTimeout", "body_timeout"},
		{"WriteTimeout", "write_timeout"},
		{"MinBodyRate", "min_body_rate"},
		{"MinWriteRate", "min_write_rate"},
		{"Listeners", "listeners"},
	}
}
