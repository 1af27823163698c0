package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/usher-edge/usher/edge/http1"
)

// Sentinels of Get, wrapped in *Error.
var (
	ErrClosed = errors.New("pool is closed")
	ErrFull   = errors.New("connection limit reached")
)

// Why a connection cannot be written to or read from.
var (
	errPeerClosed  = errors.New("app closed the connection before the request was sent")
	errPeerSpoke   = errors.New("app sent bytes that nobody asked for")
	errBroken      = errors.New("the connection has failed before")
	errNoResponse  = errors.New("app closed the connection without a response")
	errCutHead     = errors.New("app closed the connection within the response head")
	errCutBody     = errors.New("app closed the connection within the response body")
	errInterrupted = errors.New("interrupted")
	errUnmoved     = errors.New("nothing can be moved") // told to nobody

	errSurplus = &http1.Error{Status: 502, Reason: "app sent more than its answer"}
)

// Error is what Get and the methods of Conn return, io.EOF of Read apart. It
// wraps an *http1.Error when the app's bytes are not valid HTTP.
type Error struct {
	Op  string // "dial", "write", "read head", "read body" or "read"
	Err error

	undelivered bool
	stale       bool
}

func (e *Error) Error() string { return "upstream " + e.Op + ": " + e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Undelivered reports whether err proves that nothing of the request can have
// been processed: connecting failed, or not one byte was accepted, or the
// peer had closed before the first write.
func Undelivered(err error) bool {
	if err == nil {
		return false
	}
	var e *Error
	return errors.As(err, &e) && e.undelivered
}

// Stale reports whether err says that a connection from the pool had ended, or
// been spoken on, before anything was sent: take another one. That is no try of
// the request.
func Stale(err error) bool {
	if err == nil {
		return false // without an allocation
	}
	var e *Error
	return errors.As(err, &e) && e.stale
}

// Reset reports whether the app closed or reset the connection, at whatever
// point of the exchange.
func Reset(err error) bool {
	for _, cause := range []error{
		errPeerClosed, errNoResponse, errCutHead, errCutBody, syscall.ECONNRESET, syscall.EPIPE, io.EOF,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// NoSuchName reports whether the app's address is a name that does not resolve.
func NoSuchName(err error) bool {
	var d *net.DNSError
	return errors.As(err, &d) && !d.IsTimeout
}

// Timeout reports whether a deadline passed: of the dial or of the caller.
func Timeout(err error) bool {
	var n net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.As(err, &n) && n.Timeout()
}
