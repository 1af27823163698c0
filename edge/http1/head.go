package http1

// maxOptions bounds the work that Connection can cause: each option is
// compared with each field.
const maxOptions = 64

// head is what requests and responses share: where reading stopped, and what
// the framing fields said.
type head struct {
	base *byte // first byte of the buffer that pos and scan refer to
	pos  int   // start of the line to read next
	scan int   // bytes that were seen; those of the current line hold no line end
	line bool  // the first line has been read
	used bool  // something has been read since the last Reset

	lines []byte // of a head that is complete: all of it

	hasLength, hasCoding bool
	exact                bool // the length has no digits that it could do without
	close, keepAlive     bool
	upgrade              bool // Connection names upgrade
	named                bool // Connection names further fields
	options              int
	upgrades             int
	length               int64
	protocol             []byte // value of the last Upgrade field
}

// resumes reports whether buf continues what was read before. A buffer that
// moved is read again from its start: what points into the old one is void.
func (h *head) resumes(buf []byte) bool {
	return h.base == &buf[0] && len(buf) >= h.scan
}

// stop remembers that all of win was seen and more is needed. A last CR is
// looked at again together with what follows it.
func (h *head) stop(win []byte) {
	h.scan = len(win)
	if h.scan > 0 && win[h.scan-1] == '\r' {
		h.scan--
	}
}

// pending reports whether the line at pos, of which more than opening bytes
// were seen and found good, still goes on. Then only new bytes need a look, so
// that a line sent byte by byte costs no more than its length.
func (h *head) pending(win []byte, opening int) bool {
	return h.scan-h.pos > opening && controlButTab(win, h.scan) == len(win)
}

// read reads the field line that begins at b[at]. next is where the line after it
// begins; 0 without a fault means that b ends first.
func (f *Field) read(b []byte, at, nameLimit int) (next int, bad *fault) {
	w := wordsAt(b, at)
	known, colon := w.known(), at+w.size()
	if known == NameOther || w.size() > nameLimit {
		if colon, bad = nameEnd(b, at, nameLimit); colon == 0 {
			return 0, bad
		}
		known = class(b[at:colon])
	}
	end := control(b, colon+1)
	if !isLineEnd(b, end) {
		if end, bad = valueEnd(b, end); end == 0 {
			return 0, bad
		}
	}
	next = end + len("\r\n")
	from := colon + len(": ")
	plain := b[from-1] == ' ' && b[from] > ' ' && b[end-1] > ' '
	if !plain {
		from, end = trimmed(b, from-1, end)
	}
	f.Name, f.Value = b[at:colon], b[from:end]
	f.Known, f.plain, f.at = known, plain, uint32(at)
	return next, nil
}

// nameEnd is where the colon after the name at b[at] is. 0 without a fault means
// that b ends first.
func nameEnd(b []byte, at, limit int) (int, *fault) {
	i := at
	for i < len(b) && fold[b[i]] != 0 {
		i++
	}
	switch {
	case i-at > limit:
		return 0, faultNameLong
	case i == len(b):
		return 0, nil
	case b[i] != ':' || i == at:
		return 0, nameFault(b[at:], i-at)
	}
	return i, nil
}

// valueEnd is where the value ends in which b[i] stands, if it is good. 0 without a
// fault means that b ends first.
func valueEnd(b []byte, i int) (int, *fault) {
	i = controlButTab(b, i)
	if !isLineEnd(b, i) {
		return 0, lineEnd(b, i)
	}
	return i, nil
}

// nameFault says what is wrong with a line whose name stops at b[i].
func nameFault(b []byte, i int) *fault {
	switch {
	case isBlank(b[i]) && i == 0:
		return faultFold
	case isBlank(b[i]):
		return faultNameBlank
	case b[i] == '\n':
		return faultBareLF
	case b[i] == '\r':
		return faultNoColon
	}
	return faultName
}

// atLineEnd says that at b[i] there is what begins the end of a line, or ought to.
func atLineEnd(b []byte, i int) bool { return i < len(b) && (b[i] == '\r' || b[i] == '\n') }

// isLineEnd says that there is a CRLF at b[i].
func isLineEnd(b []byte, i int) bool {
	return i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n'
}

// lineEnd checks that the control character at b[i] is the CR of a CRLF, as
// far as b goes.
func lineEnd(b []byte, i int) *fault {
	switch {
	case i == len(b):
		return nil
	case b[i] == '\n':
		return faultBareLF
	case b[i] != '\r':
		return faultControl
	case i+1 < len(b) && b[i+1] != '\n':
		return faultBareCR
	}
	return nil
}

// fields reads field lines from pos on and the empty line after them. It
// calls note with each whose name is in noted. done means that the head is
// complete and pos behind it.
func (h *head) fields(win []byte, out *[]Field, l *Limits, noted nameSet, note func(*Field) *fault) (done bool, bad *fault) {
	if h.pending(win, l.Name+1) {
		h.stop(win)
		return false, nil
	}
	fields, pos := *out, h.pos
	for pos < len(win) && !atLineEnd(win, pos) {
		k := len(fields)
		if k == l.Fields {
			bad = faultFieldCount
			break
		}
		if k == cap(fields) {
			fields = append(fields, Field{})[:k]
		}
		f := &fields[:k+1][k]
		var next int
		if next, bad = f.read(win, pos, l.Name); next == 0 {
			break
		}
		fields, pos = fields[:k+1], next
		if noted.has(f.Known) {
			if bad = note(f); bad != nil {
				break
			}
		}
	}
	*out, h.pos = fields, pos
	switch {
	case bad != nil:
		return false, bad
	case isLineEnd(win, pos):
		h.pos = pos + 2
		h.lines = win[:h.pos]
		return true, nil
	case atLineEnd(win, pos):
		bad = lineEnd(win, pos)
	}
	h.stop(win)
	return false, bad
}

// noteLength reads Content-Length: 1 to 18 digits, once (RFC 9112 section 6.3
// would allow a repeated equal value; two parsers may not).
func (h *head) noteLength(v []byte) *fault {
	if h.hasLength {
		return faultLengthTwice
	}
	n, ok := decimal(v)
	if !ok {
		return faultLength
	}
	h.hasLength, h.length = true, n
	h.exact = v[0] != '0' || len(v) == 1
	return nil
}

// noteCoding reads Transfer-Encoding: chunked, once, and nothing else
// (RFC 9112 section 6.1).
func (h *head) noteCoding(v []byte) *fault {
	if h.hasCoding {
		return faultCodingTwice
	}
	if !equalFold(v, "chunked") {
		return faultCoding
	}
	h.hasCoding = true
	return nil
}

// noteConnection reads the options of a Connection field (RFC 9110 section 7.6.1).
func (h *head) noteConnection(v []byte) *fault {
	for v != nil {
		var option []byte
		option, v = cut(v)
		if len(option) == 0 {
			continue
		}
		if h.options++; h.options > maxOptions {
			return faultOptions
		}
		switch {
		case equalFold(option, "close"):
			h.close = true
		case equalFold(option, "keep-alive"):
			h.keepAlive = true
		case equalFold(option, "upgrade"):
			h.upgrade = true
		default:
			h.named = true
		}
	}
	return nil
}

func (h *head) noteUpgrade(v []byte) {
	h.upgrades++
	h.protocol = v
}

// framing checks what only the whole head can tell (RFC 9112 section 6.1).
func (h *head) framing(minor uint8) *fault {
	switch {
	case h.hasLength && h.hasCoding:
		return faultBoth
	case h.hasCoding && minor == 0:
		return faultCoding10
	}
	return nil
}

// persists applies RFC 9112 section 9.3.
func (h *head) persists(minor uint8) bool {
	return !h.close && (minor == 1 || h.keepAlive)
}

// drops reports whether a Connection field names f.
func (h *head) drops(fields []Field, f *Field) bool {
	if !h.named {
		return false
	}
	for i := range fields {
		if fields[i].Known != Connection {
			continue
		}
		for v := fields[i].Value; v != nil; {
			var option []byte
			if option, v = cut(v); equalFold(option, f.Name) {
				return true
			}
		}
	}
	return false
}
