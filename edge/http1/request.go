package http1

// Request is one request head. Its slices point into the buffer given to
// Parse. Reuse the struct: it keeps its field storage.
type Request struct {
	Method []byte
	Target []byte // byte for byte as received
	Path   []byte // without query; "/" for an absolute target without one; "*" for OPTIONS *
	Query  []byte // after the first `?`; nil if there is none, empty for a lone `?`

	Host     []byte // name, IPv4 or [IPv6] in the case received, no port; nil only on HTTP/1.0 without Host
	HostPort []byte // Host as received, port included
	Port     uint16 // 0 if none was given
	Absolute bool   // Target is in absolute form

	Minor     uint8 // 0 or 1
	Fields    []Field
	Length    int64 // body bytes, 0 for none, or Chunked
	KeepAlive bool  // the client lets the connection live (RFC 9112 section 9.3)
	Expect    bool  // 1.1, a body, and Expect: 100-continue (RFC 9110 section 10.1.1)

	// Upgrade is the value of the Upgrade field when this is a valid upgrade
	// request: HTTP/1.1, Connection names upgrade, no body, and no `h2c` in it.
	// Otherwise nil, and Upgrade is ignored (RFC 9110 section 7.8).
	Upgrade []byte

	h        head
	first    int   // where in the head the request line begins
	counted  bool  // OPTIONS with a Max-Forwards
	forwards int64 // its value
	hostSeen bool  // a Host field was read; HostPort may be set by the target before
	expects  bool
}

// Reset forgets everything, including a head read in part. Call it before the
// struct is used for another connection.
func (r *Request) Reset() {
	if !r.h.used {
		return // as good as new
	}
	clear(r.Fields)
	*r = Request{Fields: r.Fields[:0]}
}

// Parse reads a request head at the start of buf. It returns the length of
// the head, or 0 and no error when buf holds only part of it: call again with
// the same bytes and more after them. Limits and grammar are enforced on the
// part already there. One leading CRLF is tolerated (RFC 9112 section 2.2).
// Any error is an *Error, after which the connection must be closed: where
// the next request would begin is not known. A nil l means the defaults.
func (r *Request) Parse(buf []byte, l *Limits) (int, error) {
	if len(buf) == 0 {
		return 0, nil
	}
	if !l.complete() {
		all := l.completed()
		return r.Parse(buf, &all)
	}
	if !r.h.resumes(buf) {
		r.Reset()
		r.h.base, r.h.used = &buf[0], true
	}
	win := buf[:min(len(buf), l.Head)]
	n, bad := r.parse(win, l)
	if n == 0 && bad == nil && len(win) == l.Head {
		bad = faultHeadLong
	}
	if bad != nil {
		r.h.base = nil
		return 0, &bad.request
	}
	if n > 0 {
		r.h.base = nil
	}
	return n, nil
}

func (r *Request) parse(win []byte, l *Limits) (int, *fault) {
	if !r.h.line {
		if done, bad := r.start(win, l); !done || bad != nil {
			return 0, bad
		}
	}
	done, bad := r.h.fields(win, &r.Fields, l, requestNotes, r.note)
	if !done || bad != nil {
		return 0, bad
	}
	if bad := r.finish(); bad != nil {
		return 0, bad
	}
	return r.h.pos, nil
}

// start reads a leading CRLF, if there is one, and the request line.
func (r *Request) start(win []byte, l *Limits) (done bool, bad *fault) {
	if r.h.pos == 0 && atLineEnd(win, 0) {
		if !isLineEnd(win, 0) {
			return false, lineEnd(win, 0)
		}
		r.h.pos = 2
	}
	r.first = r.h.pos
	n, bad := r.requestLine(win[r.h.pos:], l)
	if n == 0 || bad != nil {
		r.h.stop(win)
		return false, bad
	}
	r.h.pos += n
	r.h.line = true
	return true, nil
}

// requestNotes are the names that note knows.
const requestNotes nameSet = 1<<Host | 1<<ContentLength | 1<<TransferEncoding | 1<<Connection | 1<<Upgrade |
	1<<MaxForwards | 1<<Expect

// note takes in what one field means for the message.
func (r *Request) note(f *Field) *fault {
	switch f.Known {
	case Host:
		return r.noteHost(f.Value)
	case ContentLength:
		return r.h.noteLength(f.Value)
	case TransferEncoding:
		return r.h.noteCoding(f.Value)
	case Connection:
		return r.h.noteConnection(f.Value)
	case Upgrade:
		r.h.noteUpgrade(f.Value)
	case MaxForwards:
		return r.noteForwards(f.Value)
	case Expect:
		if r.expects || !equalFold(f.Value, "100-continue") {
			return faultExpect
		}
		r.expects = true
	}
	return nil
}

// noteForwards reads the Max-Forwards of OPTIONS: 1 to 18 digits, once. Those of
// other methods may be ignored (RFC 9110 section 7.6.2), and are.
func (r *Request) noteForwards(v []byte) *fault {
	if string(r.Method) != "OPTIONS" {
		return nil
	}
	n, ok := decimal(v)
	if !ok || r.counted {
		return faultForwards
	}
	r.counted, r.forwards = true, n
	return nil
}

func (r *Request) noteHost(v []byte) *fault {
	if r.hostSeen {
		return faultHostTwice
	}
	n, port, ok := authority(v)
	if !ok {
		return faultHost
	}
	// Until now HostPort is the authority of an absolute target, if anything.
	if r.Absolute && !equalFold(v, r.HostPort) {
		return faultHostDiffers
	}
	r.hostSeen = true
	r.HostPort, r.Host, r.Port = v, v[:n], port
	return nil
}

// finish checks the head as a whole and fills in what follows from it.
func (r *Request) finish() *fault {
	if bad := r.h.framing(r.Minor); bad != nil {
		return bad
	}
	if !r.hostSeen && r.Minor == 1 {
		return faultHostMissing
	}
	r.Length = r.h.length
	if r.h.hasCoding {
		r.Length = Chunked
	}
	r.KeepAlive = r.h.persists(r.Minor)
	r.Expect = r.expects && r.Minor == 1 && r.Length != 0
	if r.Minor == 1 && r.h.upgrade && r.Length == 0 && r.h.upgrades == 1 && canUpgrade(r.h.protocol) {
		r.Upgrade = r.h.protocol
	}
	return nil
}

// canUpgrade reports whether every element of an Upgrade field is a protocol
// (token, or token/token) and none is h2c: a connection that turns into
// HTTP/2 behind the edge would carry requests that the edge never sees.
func canUpgrade(v []byte) bool {
	if len(v) == 0 {
		return false
	}
	for v != nil {
		var protocol []byte
		protocol, v = cut(v)
		if !isProtocol(protocol) || equalFold(protocol, "h2c") {
			return false
		}
	}
	return true
}

func isProtocol(b []byte) bool {
	slash := -1
	for i, c := range b {
		switch {
		case c == '/' && slash < 0:
			slash = i
		case fold[c] == 0:
			return false
		}
	}
	return len(b) > 0 && slash != 0 && slash != len(b)-1
}

// Get returns the value of the first field of that lower-case name, or nil.
func (r *Request) Get(name string) []byte { return first(r.Fields, name) }

// Each calls yield with every value of that lower-case name, in order, until
// yield returns false.
func (r *Request) Each(name string, yield func(value []byte) bool) { each(r.Fields, name, yield) }

// Value returns the value of the first field known as n, or nil.
func (r *Request) Value(n Name) []byte { return firstKnown(r.Fields, n) }

// Filled returns the first value of the fields known as n that is not empty, or nil: the
// one that is forwarded of those that a trusted peer may send.
func (r *Request) Filled(n Name) []byte {
	for i := range r.Fields {
		if f := &r.Fields[i]; f.Known == n && len(f.Value) > 0 {
			return f.Value
		}
	}
	return nil
}

// Sole returns the value of the only field known as n, or nil if there is none, or
// more than one.
func (r *Request) Sole(n Name) []byte {
	var v []byte
	found := false
	for i := range r.Fields {
		if r.Fields[i].Known != n {
			continue
		}
		if found {
			return nil
		}
		v, found = r.Fields[i].Value, true
	}
	return v
}

// Loops reports whether a Via field already names self as a recipient, which
// means that the request came round (RFC 9110 section 7.6.3).
func (r *Request) Loops(self []byte) bool {
	for i := range r.Fields {
		if r.Fields[i].Known != Via {
			continue
		}
		for v := r.Fields[i].Value; v != nil; {
			var hop []byte
			if hop, v = cut(v); equalFold(receivedBy(hop), self) {
				return true
			}
		}
	}
	return false
}

// IsLast reports whether the request may not be forwarded any further: an OPTIONS
// whose Max-Forwards is 0 (RFC 9110 section 7.6.2).
func (r *Request) IsLast() bool { return r.counted && r.forwards == 0 }

// receivedBy returns the second word of an element of Via.
func receivedBy(hop []byte) []byte {
	i := 0
	for i < len(hop) && !isBlank(hop[i]) {
		i++
	}
	hop = trim(hop[i:])
	for i, c := range hop {
		if isBlank(c) || c == '(' {
			return hop[:i]
		}
	}
	return hop
}

// IsIdempotent reports whether the method is idempotent (RFC 9110 section 9.2.2).
func (r *Request) IsIdempotent() bool {
	switch string(r.Method) {
	case "GET", "HEAD", "OPTIONS", "PUT", "DELETE", "TRACE":
		return true
	}
	return false
}
