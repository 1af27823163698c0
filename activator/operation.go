package activator

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/usher-edge/usher/activator/lifecycle"
)

// OpState is how far an operation is.
type OpState string

// The states of an operation; all but OpRunning are final.
const (
	OpRunning    OpState = "running"
	OpDone       OpState = "done"
	OpCommitted  OpState = "committed" // durable, not started: the app is paused
	OpFailed     OpState = "failed"
	OpAbandoned  OpState = "abandoned"
	OpSuperseded OpState = "superseded"
	OpDown       OpState = "down"
	OpRestored   OpState = "restored" // the build failed in hold mode; the good one, committed again, serves
)

// The steps of an operation.
const (
	StepStaged    = "staged"
	StepCommitted = "committed"
	StepStarting  = "starting"
	StepHealthy   = "healthy"
	StepParked    = "parked"
	StepStopped   = "stopped"
	StepSwitched  = "switched"
	StepReleased  = "released"
	StepRetired   = "retired"
)

// Step is one thing that was reached.
type Step struct {
	Name   string
	At     time.Time
	Detail string
}

// Operation is something that was asked for, and what became of it. It is a
// copy: it does not change after it was returned.
type Operation struct {
	ID, App, Kind, RequestID string

	State      OpState
	Draining   bool // done, and the predecessor is not proven gone yet
	Steps      []Step
	Outcome    string
	Reason     string
	Exit       *Exit
	LogTail    []string
	StartedAt  time.Time
	EndedAt    time.Time
	Revision   uint64
	Generation uint64
	Digest     string
	Restart    uint64 // kind restart: the count that must be reached
}

// operation is the live side of an Operation; its app's mailbox changes it.
type operation struct {
	Operation
	// fallback is the revision that restores what was good after the asked for one
	// failed; falling: its commit is about to follow.
	fallback uint64
	falling  bool
	// ended looks at the state after every step and says whether the operation
	// is over; nil: the outcome of an attempt ends it.
	ended func(*lifecycle.State) bool
}

// keptOperations is how many operations are remembered, over all apps.
const keptOperations = 1000

// operations is the book of all operations.
type operations struct {
	// mu guards the fields below; nothing is waited for under it.
	mu    sync.Mutex
	byID  map[string]Operation
	byReq map[string]string // app + request id → operation id
	order []string
}

func newOperations() *operations {
	return &operations{byID: map[string]Operation{}, byReq: map[string]string{}}
}

func newID() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails (crypto/rand since Go 1.24)
	return "op-" + hex.EncodeToString(b[:])
}

func reqKey(app, id string) string { return app + "\x00" + id }

// put stores a copy of o.
func (b *operations) put(o Operation) {
	o.Steps = slices.Clone(o.Steps)
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, known := b.byID[o.ID]; !known {
		b.order = append(b.order, o.ID)
		if o.RequestID != "" {
			b.byReq[reqKey(o.App, o.RequestID)] = o.ID
		}
	}
	b.byID[o.ID] = o
	if len(b.order) > keptOperations {
		old := b.byID[b.order[0]]
		delete(b.byReq, reqKey(old.App, old.RequestID))
		delete(b.byID, b.order[0])
		b.order = b.order[1:]
	}
}

func (b *operations) get(id string) (Operation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.byID[id]
	return o, ok
}

func (b *operations) byRequest(app, id string) (Operation, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.byID[b.byReq[reqKey(app, id)]]
	return o, ok && id != ""
}

// of returns the operations of app, newest first.
func (b *operations) of(app string) []Operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Operation
	for _, id := range slices.Backward(b.order) {
		if o := b.byID[id]; o.App == app {
			out = append(out, o)
		}
	}
	return out
}

// step notes that o has reached something.
func (o *operation) step(name, detail string, now time.Time) {
	o.Steps = append(o.Steps, Step{Name: name, At: now, Detail: detail})
}

func (o *operation) end(st OpState, reason string, now time.Time) {
	o.State, o.Reason, o.EndedAt = st, reason, now
}

func (o *operation) running() bool { return o.State == OpRunning }
