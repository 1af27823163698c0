package http1

// Forward says what usher adds to a request on its way to the app. Empty
// values are not written.
type Forward struct {
	ClientIP     []byte // of the peer, no port, no brackets; X-Forwarded-For
	Proto        []byte // "http" or "https"; X-Forwarded-Proto
	Host         []byte // Host to write; empty means the request's own
	RequestID    []byte // X-Request-Id; the client's own is never passed on, see ValidRequestID
	RequestStart int64  // unix time in milliseconds, written as X-Request-Start: t=seconds.millis; 0 = none
	Via          []byte // our pseudonym

	// Trusted says that the peer is a proxy of ours: X-Forwarded-For is appended
	// to, its X-Forwarded-Proto, -Host and X-Request-Start are kept if it sent
	// them, and other X-Forwarded-*, Forwarded and X-Real-IP pass. Otherwise all
	// of these are dropped or overwritten.
	Trusted bool

	Trailers bool // the app takes request trailers: keep the Trailer field
	Close    bool // ask the app to close the connection afterwards
}

// What happens to a field on its way to the app.
const (
	pass        = iota // unless Connection names it
	drop               // hop-by-hop, written by us, or not for apps
	passTrusted        // from trusted peers only
	passAlways         // even if Connection names it
	special            // see forwardSpecial
)

var (
	requestRules  = requestRuleTable()
	requestPasses = passing(requestRules)
)

func requestRuleTable() (t [nameCount]uint8) {
	for _, n := range []Name{
		NameAlias, NameProxy, ProxyStatus, Connection, Expect, Host, HTTP2Settings, KeepAlive, TE, Upgrade, XRequestID,
	} {
		t[n] = drop
	}
	for _, n := range []Name{NameForwardedMore, Forwarded, XRealIP} {
		t[n] = passTrusted
	}
	for _, n := range []Name{
		ContentLength, MaxForwards, TransferEncoding, Trailer, XForwardedFor, XForwardedProto, XForwardedHost, XRequestStart,
	} {
		t[n] = special
	}
	t[Via] = passAlways
	return t
}

// passing are the names whose rule is pass.
func passing(rules [nameCount]uint8) (s nameSet) {
	for n, rule := range rules {
		if rule == pass {
			s |= 1 << n
		}
	}
	return s
}

// forwarder holds what the loop over the fields has found out.
type forwarder struct {
	r *Request
	f *Forward

	proto, host, start bool // kept from a trusted peer
}

// AppendRequest appends the head to send to the app: an HTTP/1.1 request line
// with the target byte for byte (an absolute target becomes its origin form,
// RFC 9112 section 3.2.1), Host first, then the fields in their order and case
// without hop-by-hop fields and those that Connection names, then what f adds.
// Framing is ours. An HTTP/1.0 request without Host gets an empty one unless
// f.Host is set.
func AppendRequest(dst []byte, r *Request, f *Forward) []byte {
	w := forwarder{r: r, f: f}
	p := passage{head: &r.h, fields: r.Fields, names: requestPasses, with: r.h.withLength(r.Length >= 0)}
	if w.opensPlainly() {
		p.from, p.fields = r.first, r.Fields[1:]
	} else {
		dst = w.opening(dst)
		p.from = p.lineAt(0)
	}
	dst = p.append(dst, w.field)
	dst = w.additions(dst)
	return append(dst, "\r\n"...)
}

// opensPlainly says that the head begins as it should go on: with our version and
// with Host.
func (w *forwarder) opensPlainly() bool {
	r := w.r
	return r.Minor == 1 && !r.Absolute && len(w.f.Host) == 0 && r.Fields[0].Known == Host && r.Fields[0].plain
}

// opening writes the request line and Host.
func (w *forwarder) opening(dst []byte) []byte {
	dst = append(dst, w.r.Method...)
	dst = append(dst, ' ')
	dst = AppendTarget(dst, w.r)
	dst = append(dst, " HTTP/1.1\r\n"...)
	if len(w.f.Host) > 0 {
		return appendField(dst, Host, w.f.Host)
	}
	return appendField(dst, Host, w.r.HostPort)
}

// AppendTarget appends the target in origin form: byte for byte as received, or
// path and query of an absolute one.
func AppendTarget(dst []byte, r *Request) []byte {
	if !r.Absolute {
		return append(dst, r.Target...)
	}
	dst = append(dst, r.Path...)
	if r.Query != nil {
		dst = append(dst, '?')
		dst = append(dst, r.Query...)
	}
	return dst
}

func (w *forwarder) field(dst []byte, f *Field) []byte {
	switch requestRules[f.Known] {
	case pass:
		if w.r.h.drops(w.r.Fields, f) {
			return dst
		}
	case drop:
		return dst
	case passTrusted:
		if !w.f.Trusted {
			return dst
		}
	case special:
		return w.special(dst, f)
	}
	return appendLine(dst, f.Name, f.Value)
}

// special writes framing and Max-Forwards where the client had them, and keeps what only a
// trusted peer may say, once.
func (w *forwarder) special(dst []byte, f *Field) []byte {
	kept := &w.start
	switch f.Known {
	case ContentLength:
		return appendInt(dst, f.Name, w.r.Length)
	case MaxForwards:
		return w.maxForwards(dst, f)
	case TransferEncoding:
		return appendLine(dst, f.Name, chunkedCoding)
	case Trailer:
		if !w.f.Trailers || w.r.Length != Chunked {
			return dst
		}
		return appendLine(dst, f.Name, f.Value)
	case XForwardedFor:
		return dst // joined into one line at the end
	case XForwardedProto:
		kept = &w.proto
	case XForwardedHost:
		kept = &w.host
	}
	if !w.f.Trusted || *kept || len(f.Value) == 0 {
		return dst
	}
	*kept = true
	return appendLine(dst, f.Name, f.Value)
}

// maxForwards counts down that of OPTIONS, even if Connection names it: without it
// the request could go round for ever. Others pass as they are.
func (w *forwarder) maxForwards(dst []byte, f *Field) []byte {
	switch {
	case w.r.counted:
		return appendInt(dst, f.Name, max(w.r.forwards-1, 0))
	case w.r.h.drops(w.r.Fields, f):
		return dst
	}
	return appendLine(dst, f.Name, f.Value)
}

// additions writes what f adds, in the order of its fields, and Connection.
func (w *forwarder) additions(dst []byte) []byte {
	f := w.f
	dst = w.forwardedFor(dst)
	if !w.proto && len(f.Proto) > 0 {
		dst = appendField(dst, XForwardedProto, f.Proto)
	}
	if !w.host && len(w.r.HostPort) > 0 {
		dst = appendField(dst, XForwardedHost, w.r.HostPort)
	}
	if len(f.RequestID) > 0 {
		dst = appendField(dst, XRequestID, f.RequestID)
	}
	if !w.start && f.RequestStart > 0 {
		dst = appendStart(dst, f.RequestStart)
	}
	if len(f.Via) > 0 {
		dst = appendVia(dst, w.r.Minor, f.Via)
	}
	switch {
	case w.r.Upgrade != nil:
		dst = append(dst, "Connection: upgrade\r\n"...)
		dst = appendField(dst, Upgrade, w.r.Upgrade)
	case f.Close:
		dst = append(dst, "Connection: close\r\n"...)
	}
	return dst
}

// forwardedFor writes X-Forwarded-For: what a trusted peer sent, and the peer.
func (w *forwarder) forwardedFor(dst []byte) []byte {
	if !w.f.Trusted {
		if len(w.f.ClientIP) == 0 {
			return dst
		}
		return appendField(dst, XForwardedFor, w.f.ClientIP)
	}
	was := len(dst)
	dst = append(dst, "X-Forwarded-For: "...)
	bare := len(dst)
	for i := range w.r.Fields {
		if f := &w.r.Fields[i]; f.Known == XForwardedFor && len(f.Value) > 0 {
			dst = append(dst, f.Value...)
			dst = append(dst, ", "...)
		}
	}
	switch {
	case len(w.f.ClientIP) > 0:
		dst = append(dst, w.f.ClientIP...)
	case len(dst) > bare:
		dst = dst[:len(dst)-2]
	default:
		return dst[:was]
	}
	return append(dst, "\r\n"...)
}

func appendStart(dst []byte, millis int64) []byte {
	dst = append(dst, titles[XRequestStart].name()...)
	dst = append(dst, ": t="...)
	dst = appendDecimal(dst, millis/1000)
	ms := millis % 1000
	return append(dst, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), '\r', '\n')
}

// ValidRequestID reports whether a peer's X-Request-Id is fit to be passed on:
// 1 to 128 letters, digits or `-_.:=+/@`.
func ValidRequestID(id []byte) bool {
	for _, c := range id {
		switch {
		case isDigit(c), 'a' <= lower(c) && lower(c) <= 'z':
		case c == '-', c == '_', c == '.', c == ':', c == '=', c == '+', c == '/', c == '@':
		default:
			return false
		}
	}
	return len(id) > 0 && len(id) <= 128
}
