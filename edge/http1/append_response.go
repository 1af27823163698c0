package http1

// Answer says how a response is sent on to a client.
type Answer struct {
	Minor     uint8  // of the client's request
	KeepAlive bool   // the client's connection lives on
	Chunked   bool   // the engine will chunk the body; see Response.ChunkedTo
	Via       []byte // our pseudonym; empty = no Via
	Extra     []byte // whole field lines, each with its CRLF
}

// Rules for fields of a response; pass, drop and special as for requests.
var (
	responseRules  = responseRuleTable()
	responsePasses = passing(responseRules)
)

func responseRuleTable() (t [nameCount]uint8) {
	for _, n := range []Name{
		NameProxy, NameUsher, Connection, HTTP2Settings, KeepAlive, TE,
	} {
		t[n] = drop
	}
	for _, n := range []Name{ContentLength, TransferEncoding, Trailer, Upgrade} {
		t[n] = special
	}
	t[Via] = passAlways
	return t
}

// AppendResponse appends the head for the client: status line, end-to-end
// fields in their order and case, Extra, and framing and Connection of ours. A
// body of unknown length that is not to be chunked, or goes to HTTP/1.0, is
// sent close-delimited, whatever KeepAlive says. On a 101 it writes the
// upgrade and no framing. Dropped are hop-by-hop fields, what Connection names,
// and Usher-*, which only usher says.
func AppendResponse(dst []byte, r *Response, a *Answer) []byte {
	chunked := a.Chunked && a.Minor == 1 && r.Length < 0
	p := passage{head: &r.h, fields: r.Fields, names: responsePasses, with: r.h.withLength(r.keepsLength())}
	if !r.plain {
		dst = appendStatus(dst, r)
		p.from = p.lineAt(0)
	}
	w := answerer{r: r, a: a, chunked: chunked}
	dst = p.append(dst, w.field)
	if chunked && !w.framed {
		dst = append(dst, "Transfer-Encoding: chunked\r\n"...)
	}
	dst = append(dst, a.Extra...)
	if len(a.Via) > 0 {
		dst = appendVia(dst, r.Minor, a.Via)
	}
	dst = r.appendConnection(dst, a, chunked)
	return append(dst, "\r\n"...)
}

// answerer holds what the loop over the fields needs and has found out.
type answerer struct {
	r *Response
	a *Answer

	chunked bool // the body will be
	framed  bool // and that has been said
}

// field writes framing where the app had it, and what is not plain.
func (w *answerer) field(dst []byte, f *Field) []byte {
	r := w.r
	switch f.Known {
	case ContentLength:
		if r.keepsLength() {
			return appendInt(dst, f.Name, r.h.length)
		}
	case TransferEncoding:
		if w.chunked || r.toHead && w.a.Minor == 1 {
			w.framed = true
			return appendLine(dst, f.Name, chunkedCoding)
		}
	case Trailer:
		if w.chunked && r.Length == Chunked {
			return appendLine(dst, f.Name, f.Value)
		}
	default:
		return r.appendPassed(dst, f)
	}
	return dst
}

var chunkedCoding = []byte("chunked") // only read

// appendConnection writes Connection, and Upgrade where it has a meaning: on
// 101, and on 426, which must name what is required (RFC 9110 section 15.5.22).
func (r *Response) appendConnection(dst []byte, a *Answer, chunked bool) []byte {
	closes := !a.KeepAlive || r.Length < 0 && !chunked
	upgrade := r.Status == 101 || r.Status == 426 && len(r.h.protocol) > 0
	if upgrade {
		dst = appendField(dst, Upgrade, r.h.protocol)
	}
	switch {
	case r.Status == 101:
		dst = append(dst, "Connection: upgrade\r\n"...)
	case upgrade && closes:
		dst = append(dst, "Connection: upgrade, close\r\n"...)
	case closes:
		dst = append(dst, "Connection: close\r\n"...)
	case upgrade && a.Minor == 1:
		dst = append(dst, "Connection: upgrade\r\n"...)
	case upgrade:
		dst = append(dst, "Connection: upgrade, keep-alive\r\n"...)
	case a.Minor == 0:
		dst = append(dst, "Connection: keep-alive\r\n"...)
	}
	return dst
}

// keepsLength reports whether Content-Length goes to the client: as framing,
// or as what HEAD and 304 say about GET (RFC 9110 section 8.6).
func (r *Response) keepsLength() bool {
	return !r.bodiless() || r.Status == 304 || r.toHead && r.Status >= 200 && r.Status != 204
}

func appendStatus(dst []byte, r *Response) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = append(dst, byte('0'+r.Status/100), byte('0'+r.Status/10%10), byte('0'+r.Status%10), ' ')
	dst = append(dst, r.Reason...)
	return append(dst, "\r\n"...)
}

// appendPassed appends a field that is neither framing nor an upgrade, unless
// it is for one hop only.
func (r *Response) appendPassed(dst []byte, f *Field) []byte {
	switch responseRules[f.Known] {
	case drop, special:
		return dst
	case pass:
		if r.h.drops(r.Fields, f) {
			return dst
		}
	}
	return appendLine(dst, f.Name, f.Value)
}

// AppendInterim appends a 1xx other than 101 for an HTTP/1.1 client; for an
// HTTP/1.0 client it appends nothing (RFC 9110 section 15.2).
func AppendInterim(dst []byte, r *Response, a *Answer) []byte {
	if a.Minor == 0 {
		return dst
	}
	dst = appendStatus(dst, r)
	dst = AppendFields(dst, r)
	return append(dst, "\r\n"...)
}

// AppendFields appends the end-to-end field lines alone, for a cache: no
// status line, framing, Connection or empty line.
func AppendFields(dst []byte, r *Response) []byte {
	for i := range r.Fields {
		dst = r.appendPassed(dst, &r.Fields[i])
	}
	return dst
}
