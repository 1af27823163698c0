package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// Kind is the class of an [Error]; it alone decides the HTTP status.
type Kind string

// Kinds of error.
const (
	NotFound     Kind = "not-found"    // 404
	Conflict     Kind = "conflict"     // 409
	Precondition Kind = "precondition" // 412, the caller's version is old
	Invalid      Kind = "invalid"      // 400
	TooLarge     Kind = "too-large"    // 413
	Unavailable  Kind = "unavailable"  // 503, starting or stopping
	Forbidden    Kind = "forbidden"    // 403
	Unauthorized Kind = "unauthorized" // 401
	BadMethod    Kind = "bad-method"   // 405
	BadMedia     Kind = "bad-media"    // 415
	NoSpace      Kind = "no-space"     // 507, the state directory cannot be written (RFC 4918 section 11.5)
	Internal     Kind = "internal"     // 500, and every error that is no *Error
)

// Codes that a caller may branch on. Others may be added; a code never changes
// its meaning.
const (
	CodeAppNotFound       = "app-not-found"
	CodeOperationNotFound = "operation-not-found"
	CodeReceiptNotFound   = "receipt-not-found"
	CodeConfigInvalid     = "config-invalid"
	CodeFileOwned         = "file-owned"
	CodeOperationRunning  = "operation-running"
	CodeVersionMismatch   = "version-mismatch"
	CodeUploadTooLarge    = "upload-too-large"
	CodePeerRefused       = "peer-refused"
	CodeHostRefused       = "host-refused"
	CodeOriginRefused     = "origin-refused"
	CodeShuttingDown      = "shutting-down"
	CodeFenced            = "fenced"
)

// Error is an error with a public face. [Control] returns it, alone or wrapped;
// the client returns it again on the other side, without its cause.
type Error struct {
	Kind Kind
	// Code is stable and machine-readable; empty is the kind's own word.
	Code string
	// Detail says what happened, Hint what to do next.
	Detail string
	Hint   string
	// Operation that stands in the way, if one does.
	Operation string
	// Findings are the single faults of an invalid config file.
	Findings []Finding
	// Cause is for the log and errors.Is; it is never sent.
	Cause error
}

// Finding is one fault in a config file. Line and Column count from 1; 0 is
// not known.
type Finding struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

// String is "file:line:column: message", shortened by what is not known.
func (f Finding) String() string {
	switch {
	case f.File == "":
		return f.Message
	case f.Line == 0:
		return fmt.Sprintf("%s: %s", f.File, f.Message)
	}
	return fmt.Sprintf("%s:%d:%d: %s", f.File, f.Line, f.Column, f.Message)
}

func (e *Error) Error() string {
	msg := e.Detail
	if msg == "" {
		msg = string(e.Kind)
	}
	if e.Hint != "" {
		msg += "; " + e.Hint
	}
	return msg
}

func (e *Error) Unwrap() error { return e.Cause }

// problem is the body of an error answer (RFC 9457 section 3), with the
// extension members code, hint, operation and findings.
type problem struct {
	Type      string    `json:"type"`
	Title     string    `json:"title"`
	Status    int       `json:"status"`
	Detail    string    `json:"detail,omitempty"`
	Kind      Kind      `json:"kind"`
	Code      string    `json:"code"`
	Hint      string    `json:"hint,omitempty"`
	Operation string    `json:"operation,omitempty"`
	Findings  []Finding `json:"findings,omitempty"`
}

// problemBase is the page that explains every code.
const problemBase = "https://github.com/usher-edge/usher/blob/main/admin/README.md#"

// problemOf is the one place where a cause becomes a status and a body.
func problemOf(err error) problem {
	e := publicError(err)
	status := statusOf(e.Kind)
	code := e.Code
	if code == "" {
		code = string(e.Kind)
	}
	return problem{
		Type:      problemBase + code,
		Title:     http.StatusText(status),
		Status:    status,
		Detail:    e.Detail,
		Kind:      e.Kind,
		Code:      code,
		Hint:      e.Hint,
		Operation: e.Operation,
		Findings:  e.Findings,
	}
}

// publicError finds the *Error in err, or makes one.
func publicError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return &Error{
			Kind: Unavailable, Code: "timed-out", Detail: "usher did not answer in time: " + err.Error(),
			Hint: "look with usher status whether the change was made", Cause: err,
		}
	}
	return &Error{Kind: Internal, Detail: err.Error(), Hint: "see usher's log", Cause: err}
}

func statusOf(k Kind) int {
	switch k {
	case NotFound:
		return http.StatusNotFound
	case Conflict:
		return http.StatusConflict
	case Precondition:
		return http.StatusPreconditionFailed
	case Invalid:
		return http.StatusBadRequest
	case TooLarge:
		return http.StatusRequestEntityTooLarge
	case Unavailable:
		return http.StatusServiceUnavailable
	case Forbidden:
		return http.StatusForbidden
	case Unauthorized:
		return http.StatusUnauthorized
	case BadMethod:
		return http.StatusMethodNotAllowed
	case BadMedia:
		return http.StatusUnsupportedMediaType
	case NoSpace:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}
