package http1

// Response is one response head. Its slices point into the buffer given to
// Parse. Reuse the struct: it keeps its field storage.
type Response struct {
	Minor     uint8 // 0 or 1
	Status    int   // 100 to 999
	Reason    []byte
	Fields    []Field
	Length    int64 // body bytes that follow, Chunked, or UntilClose
	KeepAlive bool  // the connection may be used again after the body

	// KeepAliveTimeout is the peer's hint in seconds (`Keep-Alive: timeout=5`),
	// 0 if it gave none.
	KeepAliveTimeout int

	// Upgrade is the value of the Upgrade field of a 101, else nil.
	Upgrade []byte

	h      head
	plain  bool // the status line can be copied as it is
	toHead bool // the answer to a HEAD
}

// Reset forgets everything, including a head read in part.
func (r *Response) Reset() {
	if !r.h.used {
		return // as good as new
	}
	clear(r.Fields)
	*r = Response{Fields: r.Fields[:0]}
}

// Parse reads a response head at the start of buf; method is that of the
// request it answers. It returns the length of the head, or 0 and no error
// when buf holds only part of it. Responses to HEAD and those with status
// 1xx, 204 or 304 have no body (RFC 9112 section 6.3). Any error is an
// *Error with status 502, and the connection is of no further use. A nil l
// means the defaults.
func (r *Response) Parse(buf, method []byte, l *Limits) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	if !l.complete() {
		all := l.completed()
		return r.Parse(buf, method, &all)
	}
	if !r.h.resumes(buf) {
		r.Reset()
		r.h.base, r.h.used = &buf[0], true
	}
	win := buf[:min(len(buf), l.Head)]
	n, bad := r.parse(win, method, l)
	if n == 0 && bad == nil && len(win) == l.Head {
		bad = faultHeadLong
	}
	if bad != nil {
		r.h.base = nil
		return 0, &bad.response
	}
	if n > 0 {
		r.h.base = nil
	}
	return n, nil
}

func (r *Response) parse(win, method []byte, l *Limits) (int, *fault) {
	if !r.h.line {
		if r.h.pending(win, len(statusForm)+1) {
			r.h.stop(win)
			return 0, nil
		}
		n, bad := r.statusLine(win)
		if n == 0 || bad != nil {
			r.h.stop(win)
			return 0, bad
		}
		r.h.pos, r.h.line = n, true
	}
	done, bad := r.h.fields(win, &r.Fields, l, responseNotes, r.note)
	if !done || bad != nil {
		return 0, bad
	}
	r.toHead = string(method) == "HEAD"
	if bad := r.finish(); bad != nil {
		return 0, bad
	}
	return r.h.pos, nil
}

const statusForm = "HTTP/1.x nnn" // see fits

// statusLine reads the status line at the start of b (RFC 9112 section 4). The
// blank before a missing reason may be missing too, as many servers have it.
// n = 0 means that b ends first.
func (r *Response) statusLine(b []byte) (n int, bad *fault) {
	const form = statusForm
	if len(b) <= len(form) || !isVersion(wordAt(b, 0)) || b[8] != ' ' || !isDigit(b[9]) || !isDigit(b[10]) || !isDigit(b[11]) {
		return 0, statusLineFault(b)
	}
	end := controlButTab(b, len(form))
	if end > len(form) && b[len(form)] != ' ' {
		return 0, faultStatusLine
	}
	if !isLineEnd(b, end) {
		return 0, lineEnd(b, end)
	}
	r.Minor = b[7] - '0'
	r.Status = int(b[9]-'0')*100 + int(b[10]-'0')*10 + int(b[11]-'0')
	if r.Status < 100 {
		return 0, faultStatusLine
	}
	r.Reason = b[min(len(form)+1, end):end]
	r.plain = r.Minor == 1 && end > len(form)
	return end + 2, nil
}

// statusLineFault says whether something is wrong with b, which is no whole
// beginning of a status line.
func statusLineFault(b []byte) *fault {
	for i := 0; i < len(b) && i < len(statusForm); i++ {
		if !fits(b[i], statusForm[i]) {
			return faultStatusLine
		}
	}
	return nil
}

// fits compares with a pattern: x is 0 or 1, n a digit, the rest itself.
func fits(c, pattern byte) bool {
	switch pattern {
	case 'x':
		return c == '0' || c == '1'
	case 'n':
		return isDigit(c)
	}
	return c == pattern
}

// responseNotes are the names that note knows.
const responseNotes nameSet = 1<<ContentLength | 1<<TransferEncoding | 1<<Connection | 1<<Upgrade | 1<<KeepAlive

func (r *Response) note(f *Field) *fault {
	switch f.Known {
	case ContentLength:
		return r.h.noteLength(f.Value)
	case TransferEncoding:
		return r.h.noteCoding(f.Value)
	case Connection:
		return r.h.noteConnection(f.Value)
	case Upgrade:
		r.h.noteUpgrade(f.Value)
	case KeepAlive:
		r.noteKeepAlive(f.Value)
	}
	return nil
}

// noteKeepAlive finds `timeout=seconds` (RFC 2068 section 19.7.1.1). What does
// not parse is no hint.
func (r *Response) noteKeepAlive(v []byte) {
	const key = "timeout="
	for v != nil {
		var p []byte
		p, v = cut(v)
		if len(p) <= len(key) || !equalFold(p[:len(key)], key) {
			continue
		}
		if n, ok := decimal(p[len(key):]); ok && n <= 1<<30 {
			r.KeepAliveTimeout = int(n)
		}
	}
}

// finish checks the head as a whole and fills in what follows from it.
func (r *Response) finish() *fault {
	if bad := r.h.framing(r.Minor); bad != nil {
		return bad
	}
	if r.Status == 101 {
		return r.finishSwitch()
	}
	r.KeepAlive = r.h.persists(r.Minor)
	switch {
	case r.bodiless():
		r.Length = 0
		// A length where there can be no body is a sign that one follows all
		// the same. HEAD and 304 may state what GET would have had.
		if !r.toHead && r.Status != 304 && (r.h.hasCoding || r.h.length > 0) {
			r.KeepAlive = false
		}
	case r.h.hasCoding:
		r.Length = Chunked
	case r.h.hasLength:
		r.Length = r.h.length
	default:
		r.Length = UntilClose
		r.KeepAlive = false
	}
	return nil
}

// finishSwitch checks a 101: the bytes after it are another protocol's, so
// nothing about its head may be in doubt.
func (r *Response) finishSwitch() *fault {
	if r.Minor == 0 || !r.h.upgrade || r.h.upgrades != 1 || len(r.h.protocol) == 0 ||
		r.h.hasCoding || r.h.length > 0 {
		return faultSwitch
	}
	r.Length, r.Upgrade = 0, r.h.protocol
	return nil
}

// bodiless applies RFC 9112 section 6.3, rule 1.
func (r *Response) bodiless() bool {
	return r.toHead || r.Status < 200 || r.Status == 204 || r.Status == 304
}

// Get returns the value of the first field of that lower-case name, or nil.
func (r *Response) Get(name string) []byte { return first(r.Fields, name) }

// Each calls yield with every value of that lower-case name, in order, until
// yield returns false.
func (r *Response) Each(name string, yield func(value []byte) bool) { each(r.Fields, name, yield) }

// Value returns the value of the first field known as n, or nil.
func (r *Response) Value(n Name) []byte { return firstKnown(r.Fields, n) }

// Switches reports whether this is a 101 that takes up an upgrade that q asked
// for: every protocol it names was offered (RFC 9110 section 7.8).
func (r *Response) Switches(q *Request) bool {
	if r.Status != 101 || q.Upgrade == nil {
		return false
	}
	for v := r.Upgrade; v != nil; {
		var protocol []byte
		if protocol, v = cut(v); !offered(q.Upgrade, protocol) {
			return false
		}
	}
	return true
}

func offered(list, protocol []byte) bool {
	for list != nil {
		var o []byte
		if o, list = cut(list); len(o) > 0 && equalFold(o, protocol) {
			return true
		}
	}
	return false
}

// ChunkedTo reports whether the body must be chunked for a client of that
// minor version: its length is not known and the client is HTTP/1.1.
func (r *Response) ChunkedTo(minor uint8) bool {
	return r.Length < 0 && minor == 1
}
