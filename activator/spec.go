package activator

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
)

// ListenKind is how an app is told where to listen.
type ListenKind string

// The kinds.
const (
	ListenPort   ListenKind = "port"   // PORT, chosen by usher for every generation
	ListenFixed  ListenKind = "fixed"  // PORT, the same one always: two generations cannot overlap
	ListenSocket ListenKind = "socket" // SOCKET, a unix socket path for every generation
)

// Process is the part of an app's spec that belongs to a release: a change of
// it is a new revision.
type Process struct {
	Command []string          `json:"command,omitempty"` // empty: the artifact itself
	Env     map[string]string `json:"env,omitempty"`
	Listen  ListenKind        `json:"listen"`
	Port    int               `json:"port,omitempty"` // ListenFixed
	User    string            `json:"user,omitempty"` // name or number; empty: usher's own
	Group   string            `json:"group,omitempty"`
	Hold    bool              `json:"hold,omitempty"` // swap = "hold"
	Limits  cgroup.Limits     `json:"limits,omitzero"`
}

// Policy is the part of an app's spec that can change while it runs. Zero
// durations mean what the fields say.
type Policy struct {
	BestEffort   bool // a hold may rest on the weaker proof of a session
	Fallback     bool // after a failed hold, commit the good build again
	Health       Health
	IdleTimeout  time.Duration // 0 = never sleeps
	WakeTimeout  time.Duration // how long a wake may take to become healthy
	DrainTimeout time.Duration
	HoldDrain    time.Duration
	CloseSpread  time.Duration
	StopTimeout  time.Duration
	Settle       time.Duration
}

// Health is how a generation proves that it can serve.
type Health struct {
	Path    string
	Host    string            // the Host field of the check
	Headers map[string]string // further fields of the check
	Timeout time.Duration     // for the whole check, not one try
}

// App is what the config file says of one app.
type App struct {
	Name     string
	Process  Process
	Policy   Policy
	Artifact string // path of the first release's bytes; empty: waits for a deploy
	Target   string // address of a process that usher does not own
	// FileValue is the artifact or target as the file spells it. Only a value that
	// differs from when it was last applied makes a new revision.
	FileValue string
	Eager     bool // start with usher instead of on the first request
}

func (p Process) encode() json.RawMessage {
	b, err := json.Marshal(p)
	if err != nil {
		panic(fmt.Sprintf("process spec does not marshal: %v", err)) // strings, ints and maps of strings always do
	}
	return b
}

func decodeProcess(raw json.RawMessage) (Process, error) {
	p := Process{Listen: ListenPort}
	if len(raw) == 0 {
		return p, nil
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return p, fmt.Errorf("read the process spec of a release: %w", err)
	}
	return p, nil
}
