package upstream

import "errors"

// Evidence is what is known about a try that failed.
type Evidence struct {
	Err        error // from Get or from a method of Conn
	Reused     bool  // the connection had served before
	Responded  bool  // at least one byte of a response came
	Idempotent bool  // the request's method is
	Body       bool  // the request has a body
	BodyLost   bool  // bytes of the body were taken from the client and are gone
	Retried    bool  // this try was already the second
}

// MayRetry decides whether the request may be sent once more: if nothing of it
// can have been processed; or if it is idempotent without a body and died on
// a reused connection without a byte of response, which is most likely the
// app's idle timeout. Never twice, and never when a part of the body is gone.
func MayRetry(e Evidence) bool {
	switch {
	case e.Err == nil, e.Retried, e.BodyLost, e.Responded, errors.Is(e.Err, ErrFull):
		return false
	case Undelivered(e.Err):
		return true
	}
	return e.Idempotent && !e.Body && e.Reused && Reset(e.Err)
}
