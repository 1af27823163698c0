package http1

import "strconv"

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

var requestRules = requestRuleTable()

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
	dst = append(dst, r.Method...)
	dst = append(dst, ' ')
	dst = AppendTarget(dst, r)
	dst = append(dst, " HTTP/1.1\r\nHost: "...)
	if len(f.Host) > 0 {
		dst = append(dst, f.Host...)
	} else {
		dst = append(dst, r.HostPort...)
	}
	dst = append(dst, "\r\n"...)
	w := forwarder{r: r, f: f}
	for i := range r.Fields {
		dst = w.field(dst, &r.Fields[i])
	}
	dst = w.additions(dst)
	return append(dst, "\r\n"...)
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
	return appendField(dst, f.Name, f.Value)
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
		return appendField(dst, f.Name, "chunked")
	case Trailer:
		if !w.f.Trailers || w.r.Length != Chunked {
			return dst
		}
		return appendField(dst, f.Name, f.Value)
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
	return appendField(dst, f.Name, f.Value)
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
	return appendField(dst, f.Name, f.Value)
}

// additions writes what f adds, in the order of its fields, and Connection.
func (w *forwarder) additions(dst []byte) []byte {
	f := w.f
	dst = w.forwardedFor(dst)
	if !w.proto && len(f.Proto) > 0 {
		dst = appendField(dst, "X-Forwarded-Proto", f.Proto)
	}
	if !w.host && len(w.r.HostPort) > 0 {
		dst = appendField(dst, "X-Forwarded-Host", w.r.HostPort)
	}
	if len(f.RequestID) > 0 {
		dst = appendField(dst, "X-Request-Id", f.RequestID)
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
		dst = appendField(dst, "Upgrade", w.r.Upgrade)
	case f.Close:
		dst = append(dst, "Connection: close\r\n"...)
	}
	return dst
}

// forwardedFor writes X-Forwarded-For: what a trusted peer sent, and the peer.
func (w *forwarder) forwardedFor(dst []byte) []byte {
	const name = "X-Forwarded-For: "
	was := len(dst)
	dst = append(dst, name...)
	bare := len(dst)
	if w.f.Trusted {
		for i := range w.r.Fields {
			if f := &w.r.Fields[i]; f.Known == XForwardedFor && len(f.Value) > 0 {
				dst = append(dst, f.Value...)
				dst = append(dst, ", "...)
			}
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
	dst = append(dst, "X-Request-Start: t="...)
	dst = strconv.AppendInt(dst, millis/1000, 10)
	ms := millis % 1000
	return append(dst, '.', byte('0'+ms/100), byte('0'+ms/10%10), byte('0'+ms%10), '\r', '\n')
}

func appendVia(dst []byte, minor uint8, self []byte) []byte {
	dst = append(dst, "Via: 1."...)
	dst = append(dst, '0'+minor, ' ')
	dst = append(dst, self...)
	return append(dst, "\r\n"...)
}

func appendField[A, B ~[]byte | ~string](dst []byte, name A, value B) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = append(dst, value...)
	return append(dst, "\r\n"...)
}

func appendInt(dst, name []byte, n int64) []byte {
	dst = append(dst, name...)
	dst = append(dst, ": "...)
	dst = strconv.AppendInt(dst, n, 10)
	return append(dst, "\r\n"...)
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
