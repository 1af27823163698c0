package admin

import (
	"context"
	"io"
)

// Control is what the admin surface needs from the rest of usher.
//
// Methods that change something check the request, admit the work and return
// its operation; the work outlives the call and the context. IfMatch is compared
// in the same transaction that makes the change (version mismatch: an [*Error]
// of kind [Precondition]). A RequestID that was seen before returns the
// operation it made then.
//
// All methods may be called at the same time and return when ctx ends. Errors
// that wrap an [*Error] keep their kind; any other error is a 500.
type Control interface {
	// Server describes the running daemon.
	Server(ctx context.Context) (ServerStatus, error)
	// Apps lists every app, sorted by name.
	Apps(ctx context.Context) ([]AppStatus, error)
	// App describes one app; unknown names are of kind [NotFound].
	App(ctx context.Context, name string) (AppStatus, error)

	// Upload stages a build of app from body and returns it; the digest is the
	// handle for Deploy. Body is read to its end or not at all. A read error of
	// body is returned wrapped.
	Upload(ctx context.Context, up UploadRequest) (Build, error)

	Deploy(ctx context.Context, req DeployRequest) (Operation, error)
	Rollback(ctx context.Context, req RollbackRequest) (Operation, error)
	Restart(ctx context.Context, req RestartRequest) (Operation, error)
	Wake(ctx context.Context, req Change) (Operation, error)
	Sleep(ctx context.Context, req Change) (Operation, error)
	Pause(ctx context.Context, req PauseRequest) (Operation, error)
	Resume(ctx context.Context, req Change) (Operation, error)
	Remove(ctx context.Context, req Change) (Operation, error)

	// Operation returns one operation as it stands; unknown ids are of kind
	// [NotFound].
	Operation(ctx context.Context, id string) (Operation, error)
	// Operations returns what is kept of app, newest first.
	Operations(ctx context.Context, app string) ([]Operation, error)

	// Receipts returns what is kept of app, newest first; one that is open is the
	// first.
	Receipts(ctx context.Context, app string) ([]Receipt, error)
	// Receipt returns that of one attempt; an unknown one is of kind [NotFound]
	// with code [CodeReceiptNotFound].
	Receipt(ctx context.Context, app string, attempt uint64) (Receipt, error)

	// Watch delivers events in order of Seq until ctx ends, or, without Follow,
	// until those already recorded are through; then the channel is closed. It is
	// also closed early for a reader too slow to keep up, who may resume with
	// SinceSeq. A watch with Operation set delivers at least one event after
	// every change of that operation.
	Watch(ctx context.Context, f EventFilter) (<-chan Event, error)

	// Logs opens what the app wrote to stdout and stderr. Closing the reader
	// unblocks a Read that waits for more.
	Logs(ctx context.Context, req LogRequest) (io.ReadCloser, error)

	// Purge drops everything the cache holds of app.
	Purge(ctx context.Context, app string) error
	// Reload reads the config file again: all of it takes effect or none. An
	// invalid file is of kind [Invalid] with code [CodeConfigInvalid] and one
	// finding per fault.
	Reload(ctx context.Context) (ReloadResult, error)
}

// Change is the part that all requests about one app share. App comes from the
// path and IfMatch from the header of that name, so neither is in the body.
type Change struct {
	App string `json:"-"`
	// IfMatch is the [AppStatus.Version] the caller has seen; empty compares
	// nothing.
	IfMatch string `json:"-"`
	// RequestID, if set, makes a repeated request return the first operation.
	RequestID string `json:"request_id,omitempty"`
}

// DeployRequest asks for a new revision. Exactly one of Digest and Target is set.
type DeployRequest struct {
	Change
	// Digest names a build staged by an upload or kept from an earlier release.
	Digest string `json:"digest,omitempty"`
	// Target is the new address of an external app: "host:port" or "unix:/path".
	Target string `json:"target,omitempty"`
	// Mode overrides the app's swap mode: "overlap", "hold" or empty.
	Mode string `json:"mode,omitempty"`
	// Canary makes the successor stay alive for the settle time before the switch.
	Canary bool `json:"canary,omitempty"`
}

// RollbackRequest asks for a new revision with the build of an older one.
type RollbackRequest struct {
	Change
	// To is the revision whose build is wanted; 0 is the one before the current.
	To uint64 `json:"to,omitempty"`
}

// RestartRequest asks for a new generation of the current release.
type RestartRequest struct {
	Change
	// Retry also clears the failure book, so that a build that was given up is
	// tried again.
	Retry bool `json:"retry,omitempty"`
}

// PauseRequest asks to stop serving an app.
type PauseRequest struct {
	Change
	// Maintenance answers 503 at once; without it requests
	// are parked.
	Maintenance bool `json:"maintenance,omitempty"`
}

// Kinds of upload.
const (
	// KindFile is one executable file, sent as its bytes.
	KindFile = "file"
	// KindDir is a directory, sent as a tar stream.
	KindDir = "dir"
)

// UploadRequest carries the bytes of one build.
type UploadRequest struct {
	App  string
	Kind string // KindFile or KindDir
	Body io.Reader
}

// Build is a staged artifact.
type Build struct {
	Digest string `json:"digest"`
	Kind   string `json:"kind"`
	// Size in bytes as staged.
	Size int64 `json:"size"`
}

// EventFilter chooses events. Empty fields choose all.
type EventFilter struct {
	App       string
	Operation string
	// SinceSeq delivers only events with a greater Seq; 0 starts at the oldest kept.
	SinceSeq uint64
	// Follow keeps the watch open for events to come.
	Follow bool
}

// LogRequest chooses a part of an app's output.
type LogRequest struct {
	App string
	// Generation 0 is the newest one that has written anything.
	Generation uint64
	// Lines of the past to start with; 0 is none.
	Lines int
	// Follow goes on with what is written later, over generations if none is named.
	Follow bool
}

// ReloadResult says what a changed config file changed. Names are sorted.
type ReloadResult struct {
	Added     []string `json:"added"`
	Changed   []string `json:"changed"`
	Removed   []string `json:"removed"`
	Unchanged []string `json:"unchanged"`
	// Warnings are faults that do not keep the file from working.
	Warnings []Finding `json:"warnings,omitempty"`
}
