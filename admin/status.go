package admin

import "time"

// AppState is what an app is doing, as the edge sees it.
type AppState string

// States of an app.
const (
	Asleep   AppState = "asleep"   // no process; the next request wakes it
	Waking   AppState = "waking"   // a start is under way, requests park
	Awake    AppState = "awake"    // a generation serves
	Swapping AppState = "swapping" // a successor starts beside the incumbent
	Holding  AppState = "holding"  // requests park while one stops and the next starts
	Down     AppState = "down"     // nothing serves and nothing will by itself
	Paused   AppState = "paused"   // its owner holds its requests back; its process stays
	Empty    AppState = "empty"    // no release yet
	Removing AppState = "removing" // draining for good
	Fenced   AppState = "fenced"   // not to be started before usher is
)

// AppStatus is one app at one instant.
type AppStatus struct {
	Name  string   `json:"name"`
	State AppState `json:"state"`
	// Reason says why an app is down, paused or backing off, and of every app that
	// usher is fenced; empty otherwise.
	Reason string `json:"reason,omitempty"`
	// Maintenance is true for a paused app that answers with its page.
	Maintenance bool     `json:"maintenance,omitempty"`
	Hosts       []string `json:"hosts"`

	// Revision is the one that serves, or would be woken.
	Revision uint64 `json:"revision"`
	// Desired, Good and Reported are the durable pointers;
	// reported <= good <= desired.
	Desired  uint64 `json:"desired"`
	Good     uint64 `json:"good"`
	Reported uint64 `json:"reported"`

	// Generation that serves; 0 if none does.
	Generation uint64 `json:"generation"`
	// Build is the short name of the digest, as in logs and headers.
	Build  string `json:"build,omitempty"`
	Digest string `json:"digest,omitempty"`
	// PID of the generation's first process; 0 for external targets and none.
	PID     int    `json:"pid,omitempty"`
	Address string `json:"address,omitempty"`

	InFlight int64 `json:"in_flight"`
	Parked   int64 `json:"parked"`

	// Mode is the swap mode: "overlap" or "hold".
	Mode string `json:"mode"`
	// External is true for an app whose process usher does not own.
	External  bool      `json:"external,omitempty"`
	Isolation Isolation `json:"isolation"`
	// Limits of all its processes together; nil: none are set.
	Limits *Limits `json:"limits,omitempty"`
	// Proof is what "stopped" rests on: "cgroup", "session" (weaker) or empty.
	Proof string `json:"proof,omitempty"`

	LastOutcome *Outcome           `json:"last_outcome,omitempty"`
	Generations []GenerationStatus `json:"generations"`

	// Restarts asked for by operators since revision 1.
	Restarts uint64 `json:"restarts"`
	// RestartsDone is how many of them what serves has taken up; 0 if nothing does.
	RestartsDone uint64 `json:"restarts_done,omitempty"`
	// Failures in a row of the desired build.
	Failures uint64 `json:"failures"`
	// NextRetry is when a build that backs off is tried again.
	NextRetry *time.Time `json:"next_retry,omitempty"`
	// IdleInMS is the time to idle sleep, if nothing comes; nil when it will not.
	IdleInMS *int64 `json:"idle_in_ms,omitempty"`

	// Recovery is what usher found of the app at its start that was not as it had
	// been recorded, and what it did about it.
	Recovery []string `json:"recovery,omitempty"`

	// ReceiptMismatches counts receipts since usher's start that do not add up.
	ReceiptMismatches uint64 `json:"receipt_mismatches,omitempty"`

	// Version changes with every durable change of the app. It is opaque, made of
	// letters, digits, '.', '-' and '_', and is the ETag of the resource. Counters
	// and states that are not durable do not change it.
	Version string `json:"version"`
}

// Isolation says what keeps an app apart from others.
type Isolation struct {
	// Level is "cgroup", "session" or "none"; "external" for an app whose process
	// usher does not own.
	Level string `json:"level"`
	// User the app runs as; empty is usher's own.
	User string `json:"user,omitempty"`
}

// Limits bound what the processes of an app may use together. Zero is no limit.
type Limits struct {
	Memory uint64 `json:"memory,omitempty"` // bytes
	PIDs   uint64 `json:"pids,omitempty"`   // processes and threads
	// Level is "cgroup", or "none" where they are not in effect; Problem says why.
	Level   string `json:"level"`
	Problem string `json:"problem,omitempty"`
}

// GenerationStatus is one run that is not yet proven gone.
type GenerationStatus struct {
	Number    uint64     `json:"number"`
	Role      string     `json:"role"` // incumbent, successor or retiring
	Revision  uint64     `json:"revision"`
	State     string     `json:"state"`
	PID       int        `json:"pid,omitempty"`
	Address   string     `json:"address,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	InFlight  int64      `json:"in_flight"`
}

// Outcome is how the last attempt ended.
type Outcome struct {
	Attempt uint64 `json:"attempt"`
	// Operation that asked for the attempt; empty if none did.
	Operation string `json:"operation,omitempty"`
	// Outcome is done, failed, abandoned, down or restored.
	Outcome string `json:"outcome"`
	Reason  string `json:"reason,omitempty"`
	// Executed is false only if it is proven that nothing of the build ran.
	Executed   bool      `json:"executed"`
	Restart    uint64    `json:"restart,omitempty"` // how many restarts had been asked for when it began
	Cause      string    `json:"cause"`
	Mode       string    `json:"mode,omitempty"`
	Canary     bool      `json:"canary,omitempty"` // its release is one that settles before the switch
	At         time.Time `json:"at"`
	DrainMS    int64     `json:"drain_ms,omitempty"`
	Revision   uint64    `json:"revision,omitempty"`
	Generation uint64    `json:"generation,omitempty"`
	Exit       *Exit     `json:"exit,omitempty"`
	LogTail    []string  `json:"log_tail,omitempty"`
}

// Exit is how a process ended.
type Exit struct {
	Code   int    `json:"code"`
	Signal string `json:"signal,omitempty"`
	// Unknown is true for a process that usher adopted and did not start.
	Unknown bool `json:"unknown,omitempty"`
	// OOMKills is how many processes of its generation the kernel had killed for
	// want of memory, and OOMLimit the limit in bytes that was reached; 0: none of
	// the app's.
	OOMKills uint64 `json:"oom_kills,omitempty"`
	OOMLimit uint64 `json:"oom_limit,omitempty"`
	// Text is all of that in words: "exit status 3", "signal: terminated", "killed
	// by the kernel: out of memory (limit 64 MiB)".
	Text string `json:"text"`
}

// ServerStatus is the daemon itself.
type ServerStatus struct {
	Version   VersionInfo `json:"version"`
	PID       int         `json:"pid"`
	StartedAt time.Time   `json:"started_at"`
	// State is "starting", "serving", "stopping" or "fenced": what serves goes on,
	// and nothing else happens until usher is started again.
	State string `json:"state"`
	// Listen has the edge's listeners; Config and StateDir are absolute paths.
	Listen   []string `json:"listen"`
	Config   string   `json:"config,omitempty"`
	StateDir string   `json:"state_dir,omitempty"`
	// Isolation is the level that apps can get here; User is usher's own.
	Isolation Isolation `json:"isolation"`
	Apps      int       `json:"apps"`
	// Warnings are conditions that an operator should know about.
	Warnings []string `json:"warnings,omitempty"`
}

// VersionInfo names a build of usher.
type VersionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Go      string `json:"go,omitempty"`
}

// Event is something that happened. Events are for people and dashboards; the
// truth is in [AppStatus] and [Operation].
type Event struct {
	// Seq grows over the life of a state directory, restarts of usher included.
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at"`
	App string    `json:"app,omitempty"`
	// Type is a short word: operation, state, generation, recovery, config, cache.
	Type       string `json:"type"`
	Operation  string `json:"operation,omitempty"`
	Revision   uint64 `json:"revision,omitempty"`
	Generation uint64 `json:"generation,omitempty"`
	// State is the app's new state, for events of type state.
	State AppState `json:"state,omitempty"`
	// Message is one line for a person.
	Message string `json:"message"`
}
