package bench

import (
	"errors"
	"net"
	"os"
	"strconv"
)

// Kind says how a request ended. The zero value is a request that was cut.
type Kind uint8

// Kinds of ends. Everything but Cut and Served is a failure.
const (
	// Cut: the caller ended the run before the request ended.
	Cut Kind = iota
	// Served: a whole answer below 400 that passed every check.
	Served
	// FailDial: no connection could be opened.
	FailDial
	// FailReset: the connection broke before an answer began.
	FailReset
	// FailShort: the connection broke inside an answer.
	FailShort
	// FailTimeout: the request had not ended at its scheduled time + Timeout.
	FailTimeout
	// FailProtocol: the answer is not HTTP, is too long, or has surplus bytes.
	FailProtocol
	// FailStatus: a whole answer of 400 or above.
	FailStatus
	// FailBody: a POST came back with other bytes than were sent.
	FailBody
	// FailGeneration: an older generation answered than Run.ExpectGeneration
	// allows.
	FailGeneration
	// FailCheck: Load.Check refused the answer.
	FailCheck
)

// String is the name used in JSON and reports.
func (k Kind) String() string {
	switch k {
	case Cut:
		return "cut"
	case Served:
		return "served"
	case FailDial:
		return "dial"
	case FailReset:
		return "reset"
	case FailShort:
		return "short_body"
	case FailTimeout:
		return "timeout"
	case FailProtocol:
		return "protocol"
	case FailStatus:
		return "status"
	case FailBody:
		return "wrong_body"
	case FailGeneration:
		return "wrong_generation"
	case FailCheck:
		return "check"
	}
	return "kind " + strconv.Itoa(int(k))
}

// Failed tells whether a request that ended so counts as a failure.
func (k Kind) Failed() bool { return k > Served }

// failureName is the key in Result.Failures: the kind, and for a status the
// number as well ("status_503").
func failureName(k Kind, status uint16) string {
	if k == FailStatus {
		return "status_" + strconv.Itoa(int(status))
	}
	return k.String()
}

// kindOfBreak classifies a connection that could not be used to the end.
// broken is the connection's own error; nil means that the bytes came and were
// no HTTP. began tells whether any byte of the answer had come.
func kindOfBreak(broken error, began bool) Kind {
	switch {
	case broken == nil:
		return FailProtocol
	case timedOut(broken):
		return FailTimeout
	case began:
		return FailShort
	default:
		return FailReset
	}
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}
