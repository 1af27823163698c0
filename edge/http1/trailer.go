package http1

// keep copies a part of the trailer section, so that it may arrive in pieces.
func (f *Framer) keep(b []byte) *fault {
	if len(f.section)+len(b) > maxTrailer {
		return faultTrailerBig
	}
	f.section = append(f.section, b...)
	return nil
}

// trailerLine ends a line of the trailer section, or the section.
func (f *Framer) trailerLine() *fault {
	if f.line == len(f.section) {
		f.state = ended
		return f.readTrailer()
	}
	f.state = inTrailer
	if bad := f.keep([]byte("\r\n")); bad != nil {
		return bad
	}
	f.line = len(f.section)
	return nil
}

// readTrailer takes the section apart. It waits for the end because the
// section may move while it grows.
func (f *Framer) readTrailer() *fault {
	lines := 0
	for at := 0; at < len(f.section); {
		var field Field
		next, bad := field.read(f.section, at, DefaultName)
		if bad != nil {
			return bad
		}
		if lines++; lines > maxTrailers {
			return faultTrailerBig
		}
		switch trailerRule(field.Known) {
		case trailerKept:
			f.fields = append(f.fields, field)
		case trailerRefused:
			return faultTrailer
		}
		at = next
	}
	return nil
}

const (
	trailerKept = iota
	trailerDropped
	trailerRefused
)

// trailerRule says what becomes of a trailer field: framing and routing are an
// attack; what a recipient must know before the body, or only a hop may say,
// is dropped (RFC 9110 section 6.5.1).
func trailerRule(n Name) int {
	switch n {
	case ContentLength, TransferEncoding, Host:
		return trailerRefused
	case NameAlias, NameForwardedMore, NameProxy, NameUsher,
		Age, Authorization, CacheControl, CDNCacheControl, Connection, ContentEncoding, ContentRange,
		ContentType, Cookie, Date, Expect, Expires, Forwarded, HTTP2Settings, IfMatch, IfModifiedSince,
		IfNoneMatch, IfRange, IfUnmodifiedSince, KeepAlive, Location, MaxForwards, Pragma, Range,
		RetryAfter, SecWebSocketKey, SecWebSocketProtocol, SecWebSocketVersion, SetCookie,
		SurrogateControl, TE, Trailer, Upgrade, Vary, Via, WWWAuthenticate,
		XForwardedFor, XForwardedHost, XForwardedProto, XRealIP, XRequestID, XRequestStart:
		return trailerDropped
	}
	return trailerKept
}
