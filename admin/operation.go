package admin

import "time"

// OpState is how far an operation is.
type OpState string

// States of an operation. All but OpRunning are final.
const (
	OpRunning OpState = "running"
	// OpDone: what was asked for is in effect. A deploy is done at the switch; see
	// Draining.
	OpDone OpState = "done"
	// OpCommitted: durable, but not started, because the app is paused.
	OpCommitted OpState = "committed"
	// OpFailed: the build's fault; the incumbent still serves.
	OpFailed OpState = "failed"
	// OpAbandoned: refused or cut short, not the build's fault.
	OpAbandoned OpState = "abandoned"
	// OpSuperseded: abandoned because a newer change took its place.
	OpSuperseded OpState = "superseded"
	// OpDown: a hold failed and nothing serves.
	OpDown OpState = "down"
	// OpRestored: a hold failed, and the good build of before, committed again as a
	// new revision, serves.
	OpRestored OpState = "restored"
)

// Final reports whether s will not change any more.
func (s OpState) Final() bool { return s != OpRunning && s != "" }

// Names of steps, in the order in which a swap takes them. Not every operation
// takes all.
const (
	StepStaged    = "staged"    // the build is on disk and verified
	StepCommitted = "committed" // the release is durable
	StepParked    = "parked"    // hold: new requests wait
	StepStopped   = "stopped"   // hold or sleep: the old one is proven empty
	StepStarting  = "starting"  // a process was spawned
	StepHealthy   = "healthy"   // it passed its health check
	StepSwitched  = "switched"  // new requests go to it
	StepReleased  = "released"  // parked requests were let go
	StepRetired   = "retired"   // the predecessor is proven gone
)

// Step is one stage that an operation has reached.
type Step struct {
	Name   string    `json:"name"`
	At     time.Time `json:"at"`
	Detail string    `json:"detail,omitempty"`
}

// Operation is one change asked for through the API, and what became of it.
type Operation struct {
	ID        string `json:"id"`
	App       string `json:"app"`
	Kind      string `json:"kind"` // the verb: deploy, rollback, restart, wake, ...
	RequestID string `json:"request_id,omitempty"`

	State OpState `json:"state"`
	// Draining is true while a done operation's predecessor is not yet proven
	// gone. It is set in the same instant as OpDone, or never.
	Draining bool `json:"draining,omitempty"`
	// Step is the name of the last of Steps. Steps only grow.
	Step  string `json:"step,omitempty"`
	Steps []Step `json:"steps"`

	// Outcome of the attempt: done, failed, abandoned or down; empty while running.
	Outcome string `json:"outcome,omitempty"`
	Reason  string `json:"reason,omitempty"`
	// Exit and LogTail tell of the process that failed.
	Exit    *Exit    `json:"exit,omitempty"`
	LogTail []string `json:"log_tail,omitempty"`

	StartedAt  time.Time  `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at,omitempty"`
	Revision   uint64     `json:"revision,omitempty"`
	Generation uint64     `json:"generation,omitempty"`
	Digest     string     `json:"digest,omitempty"`
	Restart    uint64     `json:"restart,omitempty"` // of a restart: which one it is
}

// Settled reports whether nothing more will happen to o.
func (o Operation) Settled() bool { return o.State.Final() && !o.Draining }
