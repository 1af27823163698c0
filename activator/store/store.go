package store

import (
	"encoding/json"
	"errors"
	"time"
)

// What a caller branches on. Every other error is the disk's, or the
// callback's own.
var (
	ErrNotFound = errors.New("not found")
	ErrConflict = errors.New("version conflict")
	ErrInvalid  = errors.New("invalid record")
	ErrClosed   = errors.New("store is closed")
)

// Commits is the durable class: see the package documentation for what each
// implementation guarantees. All methods may be called at any time by any
// number of goroutines.
type Commits interface {
	// Apps returns the names of all records, sorted.
	Apps() ([]string, error)

	// Get returns the record of app, or ErrNotFound.
	Get(app string) (App, error)

	// Update runs fn on the record of app and commits what fn leaves, in one
	// synced transaction; it returns the record as committed. ifVersion 0
	// means any version; another one that is not the record's own gives
	// ErrConflict (a missing record has version 0, so it conflicts with all).
	// A record that does not exist is created, unless fn leaves it empty:
	// then nothing is written and the empty record is returned. An error of
	// fn is returned as it is and nothing is written.
	//
	// fn runs inside the transaction: it must be quick and must not call the
	// store.
	Update(app string, ifVersion uint64, fn func(*App) error) (App, error)

	// UpdateAll is Update for several records at any version: fn runs on each of
	// them, in the order given, and one synced transaction commits those that it
	// says it has changed, or nothing if one cannot be committed. The others keep
	// their version, and fn must have left them as they were; if that is so for
	// all, nothing is written. It returns the records as committed, in that order.
	UpdateAll(apps []string, fn func(*App) (changed bool, err error)) ([]App, error)

	// Delete removes the record of app and its receipts in one synced
	// transaction: ErrNotFound if there is none, ErrConflict as for Update.
	Delete(app string, ifVersion uint64) error

	// PutReceipt stores a receipt of app in one synced transaction, in the place
	// of an earlier one of the same attempt, and drops those beyond KeepReceipts:
	// the lowest attempts. ErrNotFound if the app has no record.
	PutReceipt(app string, r Receipt) error

	// Receipts returns the receipts of app, oldest attempt first; none for an app
	// that is not known.
	Receipts(app string) ([]Receipt, error)

	// Generations reserves n numbers, n ≥ 1, in one synced transaction and
	// returns the first. They are above all earlier ones, and 0 is never
	// one of them; numbers that nobody used are simply lost.
	Generations(n uint64) (first uint64, err error)

	// RaiseGenerations makes every number reserved from now on greater than
	// above. Start-up calls it with the highest number found in the runtime
	// records, in case they outlived the database. If there is nothing to
	// raise, nothing is written, so that a full disk does not matter.
	RaiseGenerations(above uint64) error

	// Owned looks whether the state is still this usher's: nil, or an error that
	// wraps ErrFenced and says what became of it and what to do. What was lost once
	// stays lost, whatever comes back. Everything that writes looks by itself.
	Owned() error

	// Fenced is closed when such a look, by Owned or by a write, has found the
	// state lost.
	Fenced() <-chan struct{}

	Events

	// Close waits for what is running, writes pending events and lets go of
	// the files. Later calls of any method give ErrClosed; a second Close
	// does nothing. AppendEvent answers 0 then.
	Close() error
}

// Events is a bounded log of what happened, for people and followers. It is
// held in memory and written behind by one goroutine without syncing: losing
// the last few milliseconds in a power cut costs a line of history, while a
// sync for each would slow down the very steps that it describes. Appending
// never fails and never waits for the disk; when writing fails the events stay
// readable in memory and are written with the next one that succeeds.
type Events interface {
	// AppendEvent stores e and returns its number. Numbers grow and are never
	// reused, but may skip when usher was restarted. e.Seq is ignored.
	AppendEvent(e Event) (seq uint64)

	// EventsSince returns up to limit events (0 = all there are) numbered
	// above seq, oldest first. Older ones than the log holds are left out
	// without notice.
	EventsSince(seq uint64, limit int) []Event

	// EventsChanged returns a channel that is closed by the next append (or
	// by Close): take it before EventsSince, and wait on it when there was
	// nothing.
	EventsChanged() <-chan struct{}
}

// Event is one entry of the log.
type Event struct {
	Seq        uint64          `json:"seq"`
	At         time.Time       `json:"at,omitzero"`
	App        string          `json:"app,omitempty"` // empty: about usher itself
	Kind       string          `json:"kind"`
	Attempt    uint64          `json:"attempt,omitempty"`
	Revision   uint64          `json:"revision,omitempty"`
	Generation uint64          `json:"generation,omitempty"`
	Text       string          `json:"text,omitempty"` // for people
	Data       json.RawMessage `json:"data,omitempty"` // for machines, by kind
}

// Runs is the runtime class: one record per generation that may be alive. All
// methods may be called by any number of goroutines; two Puts of one
// generation at the same time leave one of the two whole.
type Runs interface {
	// Put writes the record, replacing an earlier one of the same generation
	// whole. BootID is stamped by the store. On an error the earlier record
	// stands.
	Put(r Run) error

	// Delete removes a record; one that is not there is no error.
	Delete(generation uint64) error

	// List returns the records of this boot, by generation. Records of an
	// earlier boot are discarded, unreadable ones are set aside; each is
	// reported as a note. A note is never a reason not to start.
	List() (runs []Run, notes []error)
}

// How far a generation has come. A phase is recorded before the effect it
// names, but for started, healthy and switched, which record what was seen.
const (
	PhaseIntent    = "intent"    // about to be spawned
	PhaseStarted   = "started"   // pid and start time are known, the go-byte may be sent
	PhaseHealthy   = "healthy"   // passed its health check
	PhaseSwitching = "switching" // from here recovery rolls forward
	PhaseSwitched  = "switched"  // the slot points to it
	PhaseRetiring  = "retiring"  // switched away from, draining
	PhaseStopping  = "stopping"  // being signalled
)

// Run is the runtime record of one generation.
type Run struct {
	Generation uint64    `json:"generation"`
	App        string    `json:"app"`
	Revision   uint64    `json:"revision"`
	Restart    uint32    `json:"restart,omitempty"` // the restart count it was started under
	Build      string    `json:"build,omitempty"`
	Digest     string    `json:"digest,omitempty"`
	Mode       string    `json:"mode,omitempty"` // effective mode, decided before anything ran
	Cause      string    `json:"cause,omitempty"`
	Phase      string    `json:"phase"`
	AttemptID  uint64    `json:"attempt_id,omitempty"`
	PID        int       `json:"pid,omitempty"`
	StartTime  uint64    `json:"start_time,omitempty"` // field 22 of /proc/PID/stat, clock ticks since boot
	BootID     string    `json:"boot_id"`
	Network    string    `json:"network,omitempty"` // "tcp" or "unix"
	Address    string    `json:"address,omitempty"`
	Cgroup     string    `json:"cgroup,omitempty"` // path, empty without one
	LogPath    string    `json:"log_path,omitempty"`
	Healthy    *Evidence `json:"healthy,omitempty"`  // nil: never passed
	Retiring   uint64    `json:"retiring,omitempty"` // the generation this one replaces, 0 = none
	UpdatedAt  time.Time `json:"updated_at,omitzero"`
}

// Evidence says that a health check passed.
type Evidence struct {
	At     time.Time `json:"at"`
	Status int       `json:"status"` // HTTP status of the answer
}
