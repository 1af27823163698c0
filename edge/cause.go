package edge

import "time"

// Cause is why a request was answered by usher itself, or why it ended without
// a complete answer. It decides the status, the Proxy-Status error type, the
// Retry-After, and the label in log and metrics: there is no second place that
// does.
type Cause uint8

// The causes. CauseNone is a request that ended as it should.
const (
	CauseNone Cause = iota

	// What the client sent.
	CauseBadRequest
	CauseHeadTooLarge
	CauseTargetTooLong
	CauseVersion
	CauseMethod
	CauseExpectation
	CauseBodyTooLarge
	CauseHeadTimeout
	CauseBodyTimeout
	CauseLoop

	// What usher found.
	CauseNoSuchHost
	CauseNoRelease
	CauseWakeFailed
	CauseCrashed
	CauseMaintenance
	CauseFenced
	CauseParkFull
	CauseParkTimeout
	CauseAtCapacity
	CauseClientParkFull
	CauseClientAtCapacity
	CauseClientConnections
	CauseDraining
	CauseNoDescriptors

	// What the app did.
	CauseConnectRefused
	CauseConnectTimeout
	CauseNoSuchName
	CauseDiedBeforeResponse
	CauseBadResponse
	CauseFirstByteTimeout
	CauseDrainCut // it had not answered by the end of its drain

	// Endings that no client reads: log and metrics only.
	CauseClientGone
	CauseSlowClient
	CauseAborted
	CauseHalfOpen

	causeCount
)

// Verdict is all that follows from a cause.
type Verdict struct {
	Status int    // RFC 9110 §15; 499 is for the log only
	Error  string // Proxy-Status error type, RFC 9209 §2.3; "" = none
	Label  string // log field and metric label
	Text   string // what the client reads, one sentence
	Retry  Retry  // what Retry-After goes by
}

// Retry is what a client that is refused is told about coming back.
type Retry uint8

// The kinds of Retry-After. RetryNever: there is none.
const (
	RetryNever  Retry = iota
	RetryStart        // the app can be there when its back-off ends, else after one start
	RetryPerson       // somebody has to do something first, and a start says nothing about that
)

// Verdict maps the cause to what the client, the log and the metrics see.
func (c Cause) Verdict() Verdict {
	switch {
	case c < CauseNoSuchHost:
		return c.clientVerdict()
	case c < CauseConnectRefused:
		return c.usherVerdict()
	default:
		return c.appVerdict()
	}
}

// Ending is how a request ended that this cause kept from its answer.
func (c Cause) Ending() Ending {
	switch c {
	case CauseNone:
		return Served
	case CauseConnectRefused, CauseConnectTimeout, CauseNoSuchName, CauseDiedBeforeResponse, CauseBadResponse, CauseFirstByteTimeout, CauseAborted, CauseHalfOpen, CauseDrainCut:
		return Failed
	case CauseClientGone, CauseSlowClient:
		return Gone
	default:
		return Refused
	}
}

// String is the label of the cause.
func (c Cause) String() string { return c.Verdict().Label }

func (c Cause) clientVerdict() Verdict {
	const malformed = "http_request_error"
	switch c {
	case CauseBadRequest:
		return Verdict{400, malformed, "bad-request", "The request is not valid HTTP/1.1.", RetryNever}
	case CauseHeadTooLarge:
		return Verdict{431, malformed, "head-too-large", "The request head is too large.", RetryNever}
	case CauseTargetTooLong:
		return Verdict{414, malformed, "target-too-long", "The request target is too long.", RetryNever}
	case CauseVersion:
		return Verdict{505, malformed, "version", "Only HTTP/1.0 and HTTP/1.1 are spoken here.", RetryNever}
	case CauseMethod:
		return Verdict{405, malformed, "method", "This method is not allowed here.", RetryNever}
	case CauseExpectation:
		return Verdict{417, malformed, "expectation", "Only 100-continue can be expected.", RetryNever}
	case CauseBodyTooLarge:
		return Verdict{413, malformed, "body-too-large", "The request body is too large.", RetryNever}
	case CauseHeadTimeout:
		return Verdict{408, "http_request_error", "head-timeout", "The request head took too long.", RetryNever}
	case CauseBodyTimeout:
		return Verdict{408, "http_request_error", "body-timeout", "The request body came too slowly.", RetryNever}
	case CauseLoop:
		return Verdict{508, "proxy_loop_detected", "loop", "This request has passed here before.", RetryNever}
	default:
		return Verdict{Label: "none"}
	}
}

func (c Cause) usherVerdict() Verdict {
	const (
		unavailable = "destination_unavailable"
		denied      = "http_request_denied" // by a limit, which is no fault of the app
	)
	switch c {
	case CauseNoSuchHost:
		return Verdict{404, "destination_not_found", "no-such-host", "Nothing is hosted here.", RetryNever}
	case CauseNoRelease:
		return Verdict{503, unavailable, "no-release", "This app has no release yet.", RetryStart}
	case CauseWakeFailed:
		return Verdict{503, unavailable, "wake-failed", "This app could not be started.", RetryStart}
	case CauseCrashed:
		return Verdict{503, unavailable, "crashed", "This app has crashed and waits to be started again.", RetryStart}
	case CauseMaintenance:
		return Verdict{503, unavailable, "maintenance", "This app is down for maintenance.", RetryPerson}
	case CauseFenced:
		return Verdict{503, unavailable, "fenced", "This server may not start the app now.", RetryPerson}
	case CauseParkFull:
		return Verdict{503, "connection_limit_reached", "park-full", "Too many requests wait for this app.", RetryStart}
	case CauseParkTimeout:
		return Verdict{504, "connection_timeout", "park-timeout", "This app took too long to become ready.", RetryNever}
	case CauseAtCapacity:
		return Verdict{503, "connection_limit_reached", "at-capacity", "Too many requests at once.", RetryStart}
	case CauseClientParkFull:
		return Verdict{429, denied, "client-park-full", "Too many of your requests wait for this app.", RetryStart}
	case CauseClientAtCapacity:
		return Verdict{429, denied, "client-at-capacity", "Too many of your requests at once.", RetryStart}
	case CauseClientConnections: // no request yet: it is in no app's books
		return Verdict{429, denied, "client-connections", "Too many connections of yours.", RetryStart}
	case CauseNoDescriptors:
		return Verdict{503, "proxy_internal_error", "no-descriptors", "This server cannot open more connections now.", RetryStart}
	default: // CauseDraining
		return Verdict{503, "proxy_internal_response", "draining", "This server is shutting down.", RetryStart}
	}
}

func (c Cause) appVerdict() Verdict {
	switch c {
	case CauseConnectRefused:
		return Verdict{502, "connection_refused", "connect-refused", "The app does not accept connections.", RetryNever}
	case CauseConnectTimeout:
		return Verdict{504, "connection_timeout", "connect-timeout", "The app took too long to accept a connection.", RetryNever}
	case CauseNoSuchName:
		return Verdict{502, "dns_error", "no-such-name", "The app's address cannot be found.", RetryNever}
	case CauseDiedBeforeResponse:
		return Verdict{502, "connection_terminated", "died-before-response", "The app closed the connection without an answer.", RetryNever}
	case CauseBadResponse:
		return Verdict{502, "http_protocol_error", "bad-response", "The app's answer is not valid HTTP/1.1.", RetryNever}
	case CauseFirstByteTimeout:
		return Verdict{504, "http_response_timeout", "first-byte-timeout", "The app took too long to answer.", RetryNever}
	case CauseDrainCut:
		return Verdict{502, "connection_terminated", "drain-cut", "This request was ended before the app had answered it.", RetryNever}
	case CauseClientGone:
		return Verdict{499, "", "client-gone", "", RetryNever}
	case CauseSlowClient:
		return Verdict{499, "", "slow-client", "", RetryNever}
	case CauseAborted:
		return Verdict{502, "http_response_incomplete", "upstream-aborted", "The app broke off its answer.", RetryNever}
	default: // CauseHalfOpen
		return Verdict{504, "", "half-open", "", RetryNever}
	}
}

const (
	defaultRetryAfter = 5 * time.Second  // when nobody knows better
	personRetryAfter  = 30 * time.Second // nobody knows when, and it is not soon
)

// RetryAfter is the value of the Retry-After field in whole seconds (RFC 9110
// §10.2.3), rounded up and at least 1, or 0 if there is no such field. known is
// Request.RetryAfter, 0 if there is none.
func (v Verdict) RetryAfter(known time.Duration) int {
	switch {
	case v.Retry == RetryNever:
		return 0
	case v.Retry == RetryPerson:
		known = personRetryAfter
	case known <= 0:
		known = defaultRetryAfter
	}
	return int((known + time.Second - 1) / time.Second)
}
