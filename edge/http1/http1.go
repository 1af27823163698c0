// Package http1 reads and writes the bytes of HTTP/1.1 messages, strictly and
// in both directions. It does no I/O and knows no connection: an engine moves
// the bytes, this package says what they mean.
//
// Guarantees:
//   - A head that is not plain, unambiguous HTTP/1.0 or 1.1 is an error. There
//     is no lenient mode: what two parsers could read differently is refused.
//   - Results are slices into the caller's buffer, valid until the caller
//     changes that buffer. Order, case and repetition of fields are kept.
//   - In the steady state no call allocates. The exception is a body that
//     carries trailer fields: those are copied, within a bound.
//   - A head that arrives in pieces is read once: a later call of Parse goes
//     on where the earlier one stopped, and the verdict does not depend on how
//     the bytes were cut.
//   - What Append* functions write parses strictly again, and holds nothing
//     that nobody sent, beyond the fields their documentation names.
//
// Callers may not assume that a value is safe to use as a slice after the next
// read into the buffer, nor that an error leaves anything useful in the struct.
package http1

// Values of Length beside a byte count (RFC 9112 section 6.3).
const (
	Chunked    int64 = -1 // chunked transfer coding
	UntilClose int64 = -2 // responses only: the body ends with the connection
)

// Limits bounds a message head. A zero field means its default.
type Limits struct {
	Head   int // bytes of the whole head, final CRLF included; default 32 KiB
	Target int // bytes of the request target; default 8 KiB
	Fields int // number of fields; default 100
	Name   int // bytes of a field name; default 128
}

// Defaults of Limits.
const (
	DefaultHead   = 32 << 10
	DefaultTarget = 8 << 10
	DefaultFields = 100
	DefaultName   = 128
)

// WithDefaults returns the limits with every zero field replaced.
func (l Limits) WithDefaults() Limits {
	l.Head = orDefault(l.Head, DefaultHead)
	l.Target = orDefault(l.Target, DefaultTarget)
	l.Fields = orDefault(l.Fields, DefaultFields)
	l.Name = orDefault(l.Name, DefaultName)
	return l
}

// completed is WithDefaults for what may be nil.
func (l *Limits) completed() Limits {
	if l == nil {
		return Limits{}.WithDefaults()
	}
	return l.WithDefaults()
}

// complete says that every field is set.
func (l *Limits) complete() bool {
	return l != nil && l.Head > 0 && l.Target > 0 && l.Fields > 0 && l.Name > 0
}

func orDefault(v, d int) int {
	if v <= 0 {
		return d
	}
	return v
}

// Error says why a message was refused. All values are preallocated: they
// carry no bytes of the message and may be compared by identity.
type Error struct {
	Status int    // what to answer a client: 400, 405, 414, 417, 431, 501 or 505; 502 for responses
	Reason string // lower case, fit for a log line and for the answer
}

func (e *Error) Error() string { return "http1: " + e.Reason }

// Field is one field line, or one trailer field. Name keeps its case; Value
// has no leading or trailing blanks.
type Field struct {
	Name, Value []byte
	Known       Name

	plain bool   // its line is Name, colon, one blank, Value and CRLF, so that it can be copied as it is
	at    uint32 // where in the head its line begins
}
