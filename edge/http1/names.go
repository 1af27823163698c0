package http1

import "unicode"

// Name is a field name that this package or its callers care about, found
// without regard to case. The zero value is any other name.
type Name uint8

// Known names. The first five are classes: a name of a family, or a
// look-alike, rather than one name.
const (
	NameOther         Name = iota
	NameAlias              // a known name, or family, spelled with `_` for `-`
	NameForwardedMore      // X-Forwarded-* beside For, Proto and Host
	NameProxy              // Proxy and Proxy-*, except Proxy-Status
	NameUsher              // Usher-*: only usher says these

	Accept
	AcceptEncoding
	AcceptRanges
	Age
	Authorization
	CacheControl
	CacheStatus
	CDNCacheControl
	Connection
	ContentEncoding
	ContentLanguage
	ContentLength
	ContentLocation
	ContentRange
	ContentType
	Cookie
	Date
	ETag
	Expect
	Expires
	Forwarded
	Host
	HTTP2Settings
	IfMatch
	IfModifiedSince
	IfNoneMatch
	IfRange
	IfUnmodifiedSince
	KeepAlive
	LastModified
	Location
	MaxForwards
	Pragma
	ProxyStatus
	Range
	Referer
	RetryAfter
	SecWebSocketAccept
	SecWebSocketKey
	SecWebSocketProtocol
	SecWebSocketVersion
	Server
	SetCookie
	SurrogateControl
	TE
	TraceParent
	Trailer
	TransferEncoding
	Upgrade
	UserAgent
	Vary
	Via
	WWWAuthenticate
	XForwardedFor
	XForwardedHost
	XForwardedProto
	XRealIP
	XRequestID
	XRequestStart
	nameCount
)

// nameSet is a set of known names: a test of it costs no look into a table.
type nameSet uint64

// A set has room for every name, so that &63 changes none.
func (s nameSet) has(n Name) bool { return s>>(n&63)&1 != 0 }

// One more would have no room: a name that nobody cares about has no place here.
var _ [64 - int(nameCount)]struct{}

// nameText returns the lower-case spelling of every single name.
func nameText() [nameCount]string {
	return [nameCount]string{
		Accept: "accept", AcceptEncoding: "accept-encoding", AcceptRanges: "accept-ranges", Age: "age",
		Authorization: "authorization", CacheControl: "cache-control", CacheStatus: "cache-status",
		CDNCacheControl: "cdn-cache-control", Connection: "connection", ContentEncoding: "content-encoding",
		ContentLanguage: "content-language", ContentLength: "content-length",
		ContentLocation: "content-location", ContentRange: "content-range", ContentType: "content-type",
		Cookie: "cookie", Date: "date", ETag: "etag", Expect: "expect", Expires: "expires",
		Forwarded: "forwarded", Host: "host", HTTP2Settings: "http2-settings", IfMatch: "if-match",
		IfModifiedSince: "if-modified-since", IfNoneMatch: "if-none-match", IfRange: "if-range",
		IfUnmodifiedSince: "if-unmodified-since", KeepAlive: "keep-alive", LastModified: "last-modified",
		Location: "location", MaxForwards: "max-forwards",
		Pragma: "pragma", ProxyStatus: "proxy-status", Range: "range", Referer: "referer",
		RetryAfter: "retry-after", SecWebSocketAccept: "sec-websocket-accept",
		SecWebSocketKey: "sec-websocket-key", SecWebSocketProtocol: "sec-websocket-protocol",
		SecWebSocketVersion: "sec-websocket-version", Server: "server", SetCookie: "set-cookie",
		SurrogateControl: "surrogate-control", TE: "te", TraceParent: "traceparent",
		Trailer: "trailer", TransferEncoding: "transfer-encoding", Upgrade: "upgrade",
		UserAgent: "user-agent", Vary: "vary", Via: "via", WWWAuthenticate: "www-authenticate",
		XForwardedFor: "x-forwarded-for", XForwardedHost: "x-forwarded-host",
		XForwardedProto: "x-forwarded-proto", XRealIP: "x-real-ip", XRequestID: "x-request-id",
		XRequestStart: "x-request-start",
	}
}

// The tables below are filled once and only read afterwards.
var (
	names  = nameWords(nameText())
	slots  = nameSlots(names)
	titles = nameTitles(nameText())
	fold   = foldTable()
)

// opening is how many bytes of a line are looked at for a known name and its colon.
const opening = 24

// words are a name in lower case, eight bytes in each, and its length in the last
// one's highest byte.
type words struct{ x, y, z uint64 }

func (w words) size() int { return int(w.z >> 56) }

// slot hashes a name. The factor is such that no two known names share a slot.
func (w words) slot() uint8 { return uint8((w.x + w.y + w.z) * nameFactor >> 56) }

const nameFactor = 0x9604f9cdbc012fad

func nameWords(texts [nameCount]string) (names [nameCount]words) {
	for n, text := range texts {
		var line [opening]byte
		copy(line[:], text)
		line[len(text)] = ':'
		names[n] = wordsAt(line[:], 0)
	}
	return names
}

func nameSlots(names [nameCount]words) (slots [256]Name) {
	for n := Accept; n < nameCount; n++ {
		slots[names[n].slot()] = n
	}
	return slots
}

// spelling is a name in a form that takes no second look elsewhere in memory.
type spelling struct {
	size uint8
	text [23]byte
}

func (s *spelling) name() []byte { return s.text[:s.size] }

// nameTitles returns the spelling with a capital at the start of each word, which
// most senders use.
func nameTitles(texts [nameCount]string) (titles [nameCount]spelling) {
	for n, text := range texts {
		b := []byte(text)
		for i := range b {
			if i == 0 || b[i-1] == '-' {
				b[i] = byte(unicode.ToUpper(rune(b[i])))
			}
		}
		titles[n].size = uint8(copy(titles[n].text[:], b))
	}
	return titles
}

// foldTable maps each token character (RFC 9110 section 5.6.2) to lower case,
// and `_` to `-` so that look-alikes meet; any other byte is 0.
func foldTable() (t [256]byte) {
	for _, c := range []byte("!#$%&'*+-.^`|~0123456789abcdefghijklmnopqrstuvwxyz") {
		t[c] = c
	}
	for c := byte('A'); c <= 'Z'; c++ {
		t[c] = c + 'a' - 'A'
	}
	t['_'] = '-'
	return t
}

// wordsAt are the words of the name that begins at b[i], up to a colon. All are 0 if
// it has none as near as in a known name.
func wordsAt(b []byte, i int) words {
	if i+opening > len(b) {
		return shortWords(b[i:])
	}
	x := folded(wordAt(b, i))
	if end := match(x, ':'); end != 0 {
		return words{x & below(end), 0, bytesBelow(end) << 56}
	}
	y := folded(wordAt(b, i+8))
	if end := match(y, ':'); end != 0 {
		return words{x, y & below(end), (8 + bytesBelow(end)) << 56}
	}
	z := folded(wordAt(b, i+16))
	if end := match(z, ':'); end != 0 {
		return words{x, y, z&below(end) | (16+bytesBelow(end))<<56}
	}
	return words{}
}

// shortWords are wordsAt(b, 0) for what is shorter than an opening.
func shortWords(b []byte) words {
	var line [opening]byte
	copy(line[:], b)
	return wordsAt(line[:], 0)
}

// known is the known name that these are the words of, if they are those of any.
// As a known name is a token, none of its bytes needs a look of its own.
func (w words) known() Name {
	n := slots[w.slot()]
	if w != names[n] {
		return NameOther
	}
	return n
}

// class is the class of a name that is not known as it is spelled. It must be a
// token of one byte or more.
func class(name []byte) Name {
	n := family(name)
	underscore := index(name, '_') >= 0
	if underscore && n == NameOther {
		n = dashed(name)
	}
	if underscore && n != NameOther {
		return NameAlias
	}
	return n
}

// dashed is the name that is known with `-` for `_`.
func dashed(name []byte) Name {
	var line [opening]byte
	if len(name) >= len(line) {
		return NameOther
	}
	for i, c := range name {
		line[i] = fold[c]
	}
	line[len(name)] = ':'
	return wordsAt(line[:], 0).known()
}

func family(name []byte) Name {
	switch fold[name[0]] {
	case 'x':
		if len(name) > 12 && sameFolded(name[:12], "x-forwarded-") {
			return NameForwardedMore
		}
	case 'p':
		if sameFolded(name, "proxy") || len(name) > 6 && sameFolded(name[:6], "proxy-") {
			return NameProxy
		}
	case 'u':
		if len(name) > 6 && sameFolded(name[:6], "usher-") {
			return NameUsher
		}
	}
	return NameOther
}

// sameFolded compares a token with a lower-case text, taking `_` for `-`.
func sameFolded(b []byte, text string) bool {
	if len(b) != len(text) {
		return false
	}
	for i := range b {
		if fold[b[i]] != text[i] {
			return false
		}
	}
	return true
}

// equalFold compares bytes without regard to ASCII case.
func equalFold[A, B ~[]byte | ~string](a A, b B) bool {
	if len(a) != len(b) {
		return false
	}
	if string(a) == string(b) {
		return true
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// first returns the value of the first field of that lower-case name, or nil.
// An empty value is not nil.
func first(fields []Field, name string) []byte {
	for i := range fields {
		if equalFold(fields[i].Name, name) {
			return fields[i].Value
		}
	}
	return nil
}

func firstKnown(fields []Field, n Name) []byte {
	for i := range fields {
		if fields[i].Known == n {
			return fields[i].Value
		}
	}
	return nil
}

func each(fields []Field, name string, yield func(value []byte) bool) {
	for i := range fields {
		if equalFold(fields[i].Name, name) && !yield(fields[i].Value) {
			return
		}
	}
}
