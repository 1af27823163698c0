package accesslog

import (
	"encoding/binary"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
)

// appendJSON appends e as one JSON object and a line end. Always there:
//
//	time           when the head had arrived, RFC 3339, UTC, microseconds
//	client         address
//	method, host, target (with query), protocol
//	status         what the client was sent, 0 if nothing was; 499 if it left
//	bytes_in       of the request's body
//	bytes_out      of the answer's body
//	duration_ms    from the head to the end of the answer
//	parked_ms      of that, waiting for the app
//	revision, generation   0 if no app was reached
//	retries
//	id             of the request, as in X-Request-Id
//	ending         served, cached, refused, failed, gone or own
//
// Only if there is something to say: app, build, sent_status (if the client was
// sent another status than the one logged), cache (hit, miss, stale, bypass),
// cause (why the request did not end as it should) and reason (why the app was
// not there).
func appendJSON(b []byte, e *edge.Entry, s *stamps) []byte {
	b = append(b, `{"time":"`...)
	b = appendTime(b, e.Time, s)
	if e.App != "" {
		b = word(append(b, `","app":"`...), e.App)
	}
	b = text(append(b, `","client":"`...), e.Client)
	b = text(append(b, `","method":"`...), e.Method)
	b = text(append(b, `","host":"`...), e.Host)
	b = text(append(b, `","target":"`...), e.Target)
	b = append(b, `","protocol":"`...)
	b = integer(append(b, `HTTP/1.`...), int64(e.Minor))
	status := statusOf(e)
	b = integer(append(b, `","status":`...), int64(status))
	if sent := e.Result.Status; sent != status && sent != 0 {
		b = integer(append(b, `,"sent_status":`...), int64(sent))
	}
	b = integer(append(b, `,"bytes_in":`...), e.Result.BytesIn)
	b = integer(append(b, `,"bytes_out":`...), e.Result.BytesOut)
	b = milliseconds(append(b, `,"duration_ms":`...), e.Duration)
	b = milliseconds(append(b, `,"parked_ms":`...), e.Parked)
	if e.Cache != edge.CacheOff {
		b = word(append(b, `,"cache":"`...), e.Cache.String())
		b = append(b, '"')
	}
	b = integer(append(b, `,"revision":`...), int64(e.Revision))
	b = integer(append(b, `,"generation":`...), int64(e.Generation))
	if e.Build != "" {
		b = word(append(b, `,"build":"`...), e.Build)
		b = append(b, '"')
	}
	b = integer(append(b, `,"retries":`...), int64(e.Retries))
	b = text(append(b, `,"id":"`...), e.ID)
	b = append(append(b, `","ending":"`...), e.Result.Ending.String()...)
	if e.Result.Cause != edge.CauseNone {
		b = word(append(b, `","cause":"`...), e.Result.Cause.String())
	}
	if e.Reason != "" {
		b = word(append(b, `","reason":"`...), e.Reason)
	}
	return append(b, "\"}\n"...)
}

// stamp is a second and its text, which never change.
type stamp struct {
	second int64
	length uint8
	text   [55]byte
}

// stamps keep the last second that was written, for all lines have one layout and
// most lines of a busy log fall into the same second.
type stamps struct{ last atomic.Pointer[stamp] }

// of returns t without what is less than a second.
func (a *stamps) of(t time.Time, layout string) []byte {
	s := a.last.Load()
	if second := t.Unix(); s == nil || s.second != second {
		s = &stamp{second: second}
		s.length = uint8(len(t.AppendFormat(s.text[:0], layout)))
		a.last.Store(s)
	}
	return s.text[:s.length]
}

// appendTime appends a time in UTC with microseconds.
func appendTime(b []byte, t time.Time, s *stamps) []byte {
	b = append(b, s.of(t.UTC(), "2006-01-02T15:04:05.")...)
	// Of eight digits, the first two are 0, and there is a place behind the last.
	micros := http1.Digits(uint64(t.Nanosecond()/1000))>>16 + '0'*each + ('Z'-'0')<<48
	b = binary.LittleEndian.AppendUint64(b, micros)
	return b[:len(b)-1]
}

// statusOf is the status to log: 499 for a client that left before it had the
// whole answer, so that nobody blames the app or takes the answer for delivered;
// else what the client was sent, 0 for nothing.
func statusOf(e *edge.Entry) int {
	r := &e.Result
	if r.Ending == edge.Gone {
		return r.Cause.Verdict().Status
	}
	return r.Status
}

// appendCombined appends e in the combined log format, in local time. A field
// that is not known is "-".
func appendCombined(b []byte, e *edge.Entry, s *stamps) []byte {
	if plainToken(e.Client) {
		b = append(b, e.Client...)
	} else {
		b = append(b, '-')
	}
	b = append(b, " - - "...)
	b = append(b, s.of(e.Time.Local(), `[02/Jan/2006:15:04:05 -0700] "`)...)
	if len(e.Method) == 0 {
		b = append(b, '-')
	} else {
		b = textC(b, e.Method)
		b = append(b, ' ')
		b = textC(b, e.Target)
		b = append(b, " HTTP/1."...)
		b = strconv.AppendUint(b, uint64(e.Minor), 10)
	}
	b = append(b, `" `...)
	b = orDash(b, int64(statusOf(e)))
	b = append(b, ' ')
	b = orDash(b, e.Result.BytesOut)
	b = field(b, e.Header, "referer")
	b = field(b, e.Header, "user-agent")
	return append(b, '\n')
}

// maxField is how much of a field is logged: a client chooses what is in it.
const maxField = 1 << 10

// field appends the first value of a request field in quotes.
func field(b []byte, h edge.Header, name string) []byte {
	b = append(b, ' ', '"')
	var v []byte
	if h != nil {
		v = h.Get(name)
	}
	if len(v) == 0 {
		return append(b, '-', '"')
	}
	return append(textC(b, v[:min(len(v), maxField)]), '"')
}

// textC is text in the combined format.
func textC(b, s []byte) []byte {
	if !plain(s) {
		return escape(b, s, escapeC)
	}
	return append(b, s...)
}

func orDash(b []byte, n int64) []byte {
	if n == 0 {
		return append(b, '-')
	}
	return strconv.AppendInt(b, n, 10)
}

// plainToken says that s can stand between blanks.
func plainToken(s []byte) bool {
	for _, c := range s {
		if c <= ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return false
		}
	}
	return len(s) > 0
}

// The parts of a line are written by functions that are not inlined: a copy of
// them for each part would be more code for each request to fetch, and that costs
// more than the calls. The keys are not among what they are given, and none has 16
// bytes: then they are part of the code, and not scattered over the pages on which
// the program has its strings.

// text appends a string that stands in quotes.
//
//go:noinline
func text(b, s []byte) []byte {
	if !plain(s) {
		return escape(b, s, escapeJSON)
	}
	return append(b, s...)
}

// word is text. One that needs no escape, as all but a reason do, is not copied on
// the way.
//
//go:noinline
func word(b []byte, s string) []byte {
	b = append(b, s...)
	if start := len(b) - len(s); !plain(b[start:]) {
		b = escape(b[:start], []byte(s), escapeJSON)
	}
	return b
}

//go:noinline
func integer(b []byte, n int64) []byte {
	switch {
	case uint64(n) < 10:
		return append(b, byte('0'+n))
	case uint64(n) >= 1e8:
		return strconv.AppendInt(b, n, 10)
	}
	d := http1.Digits(uint64(n))
	zeros := bits.TrailingZeros64(d) >> 3
	b = binary.LittleEndian.AppendUint64(b, (d+'0'*each)>>(8*zeros&63))
	return b[:len(b)-zeros]
}

// milliseconds has three decimals: a microsecond counts.
//
//go:noinline
func milliseconds(b []byte, d time.Duration) []byte {
	micros := max(0, d.Microseconds())
	b = integer(b, micros/1000)
	rest := micros % 1000
	return append(b, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
}

const each = 0x0101010101010101 // byte of a word

// plain says whether s is all clean and ASCII. Eight bytes are looked at in one go,
// and so are the last ones, together with some that were before.
func plain(s []byte) bool {
	if len(s) < 8 {
		return unclean(few(s)) == 0
	}
	for i := 0; i+8 < len(s); i += 8 {
		if unclean(wordAt(s, i)) != 0 {
			return false
		}
	}
	return unclean(wordAt(s, len(s)-8)) == 0
}

// few are less than eight bytes, some of them twice, with blanks for what there is not.
func few(s []byte) uint64 {
	const blanks = ' ' * each
	switch n := len(s); {
	case n >= 4:
		return uint64(binary.LittleEndian.Uint32(s)) | uint64(binary.LittleEndian.Uint32(s[n-4:]))<<32
	case n > 0:
		return blanks&^0xffffff | uint64(s[0]) | uint64(s[n/2])<<8 | uint64(s[n-1])<<16
	default:
		return blanks
	}
}

// wordAt is the eight bytes of b from i on, the first of them lowest.
func wordAt(b []byte, i int) uint64 { return binary.LittleEndian.Uint64(b[i : i+8 : i+8]) }

// unclean marks, in its high bit, each byte of a word that is not clean or not ASCII.
// Seven bits have room to be added to, so no byte changes the next: below 0x21 are
// the control characters and, with 2 turned round, the quote; one below 0x80 is DEL.
func unclean(x uint64) uint64 {
	const high = 0x80 * each
	low := x &^ high
	notControl := low ^ 2*each + (0x80-0x21)*each
	notBackslash := low ^ '\\'*each + 0x7f*each
	del := low + each
	return (x | del | ^(notControl & notBackslash)) & high
}

// clean is how many bytes at the start of s can stand between quotes as they are:
// UTF-8 that prints, without quote and backslash.
func clean(s []byte) int {
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			if c < ' ' || c == '"' || c == '\\' || c == 0x7f {
				return i
			}
			i++
			continue
		}
		r, n := utf8.DecodeRune(s[i:])
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			return i
		}
		i += n
	}
	return len(s)
}

// escape appends s; what is not clean goes through one, a character at a time.
func escape(b, s []byte, one func(b, c []byte) []byte) []byte {
	for {
		n := clean(s)
		b = append(b, s[:n]...)
		if n == len(s) {
			return b
		}
		s = s[n:]
		_, size := utf8.DecodeRune(s)
		b = one(b, s[:size])
		s = s[size:]
	}
}

const hex = "0123456789abcdef"

// escapeJSON writes a character as JSON does (RFC 8259 §7). JSON has no bytes:
// one that is no UTF-8 becomes the four characters \xNN.
func escapeJSON(b, c []byte) []byte {
	r, n := utf8.DecodeRune(c)
	switch {
	case r == '"' || r == '\\':
		return append(b, '\\', byte(r))
	case r == utf8.RuneError && n == 1:
		return append(b, '\\', '\\', 'x', hex[c[0]>>4], hex[c[0]&15])
	case r > 0xffff:
		r -= 0x10000
		return unit(unit(b, 0xd800+r>>10), 0xdc00+r&0x3ff)
	}
	return unit(b, r)
}

// unit is one code unit of UTF-16.
func unit(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hex[r>>12&15], hex[r>>8&15], hex[r>>4&15], hex[r&15])
}

// escapeC writes a character as Apache does: quote and backslash with a
// backslash, all else as bytes \xNN.
func escapeC(b, c []byte) []byte {
	if c[0] == '"' || c[0] == '\\' {
		return append(b, '\\', c[0])
	}
	for _, x := range c {
		b = append(b, '\\', 'x', hex[x>>4], hex[x&15])
	}
	return b
}
