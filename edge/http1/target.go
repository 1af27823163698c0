package http1

// maxMethod bounds a method, beyond which it is not implemented (RFC 9112
// section 3). The longest registered one has 17 bytes.
const maxMethod = 64

// Where a byte may stand.
const (
	inTarget = 1 << iota // of a request, as it is
	inToken              // a method
	inLabel              // of a host name
)

// kinds has what a request line and Host need of each byte in one place, which is
// read for each request and not at hand.
var kinds = kindTable()

var star = []byte("*") // only read

func kindTable() (t [256]uint8) {
	for c := 0x21; c <= 0x7e; c++ {
		t[c] = inTarget
	}
	t['#'], t['%'] = 0, 0
	for c, lower := range foldTable() {
		switch {
		case isDigit(lower), 'a' <= lower && lower <= 'z', lower == '-':
			t[c] |= inToken | inLabel
		case lower != 0:
			t[c] |= inToken
		}
	}
	return t
}

// requestLine reads the request line at the start of b (RFC 9112 section 3).
// n = 0 means that b ends first.
func (r *Request) requestLine(b []byte, l *Limits) (n int, bad *fault) {
	m := 0
	for m < len(b) && kinds[b[m]]&inToken != 0 {
		m++
	}
	if m > maxMethod {
		return 0, faultMethod
	}
	if m == len(b) {
		return 0, nil
	}
	if m == 0 || b[m] != ' ' {
		return 0, faultRequestLine
	}
	r.Method = b[:m]
	if string(r.Method) == "CONNECT" || string(r.Method) == "TRACE" {
		return 0, faultNotAllowed
	}
	e := m + 1 + len(r.Target)
	if r.Target == nil {
		// What was seen of it before is good, but for an escape cut in two.
		seen := max(m+1, r.h.scan-r.h.pos-2)
		if e, bad = targetEnd(b, m+1, seen, l.Target); bad != nil || e == len(b) {
			return 0, bad
		}
		r.Target = b[m+1 : e]
	}
	minor, size, bad := version(b[e+1:])
	if size == 0 || bad != nil {
		return 0, bad
	}
	r.Minor = minor
	return e + 1 + size, r.splitTarget()
}

// targetEnd returns the index of the blank after the target that begins at
// b[start], or len(b) if b ends first, looking from b[i] on. It refuses what
// must not stand in a target.
func targetEnd(b []byte, start, i, limit int) (int, *fault) {
	for ; i < len(b); i++ {
		if kinds[b[i]]&inTarget == 0 {
			switch {
			case b[i] == ' ' && i == start:
				return 0, faultRequestLine
			case b[i] == ' ':
				return i, nil
			case b[i] != '%':
				return 0, targetFault(b, i)
			case !escape(b[i:]):
				return 0, faultEscape
			}
		}
		if i-start == limit {
			return 0, faultTargetLong
		}
	}
	return i, nil
}

func targetFault(b []byte, i int) *fault {
	switch b[i] {
	case '\n', '\r', '\t':
		return faultRequestLine
	}
	return faultTargetByte
}

// escape checks a percent escape as far as b goes. %00 is refused: what comes
// after it is lost on programs written in C.
func escape(b []byte) bool {
	if len(b) > 1 && !isHex(b[1]) {
		return false
	}
	if len(b) > 2 && !isHex(b[2]) {
		return false
	}
	return len(b) < 3 || b[1] != '0' || b[2] != '0'
}

// version reads `HTTP/1.x` and CRLF. size = 0 means that b ends first.
func version(b []byte) (minor uint8, size int, bad *fault) {
	if len(b) >= 10 && isVersion(wordAt(b, 0)) && isLineEnd(b, 8) {
		return b[7] - '0', 10, nil
	}
	return 0, 0, versionFault(b)
}

// isVersion compares a word with `HTTP/1.0` and `HTTP/1.1`.
func isVersion(x uint64) bool { return x&^(1<<56) == 0x302e_312f_5054_5448 }

// versionFault says what is wrong with b, which is no whole version of ours, if
// anything is.
func versionFault(b []byte) *fault {
	const prefix = "HTTP/"
	for i := 0; i < len(b) && i < len(prefix); i++ {
		if b[i] != prefix[i] {
			return faultRequestLine
		}
	}
	if len(b) < 8 {
		return nil
	}
	if !isDigit(b[5]) || b[6] != '.' || !isDigit(b[7]) {
		return faultRequestLine
	}
	if b[5] != '1' || b[7] > '1' {
		return faultVersion
	}
	if len(b) == 8 {
		return nil
	}
	if b[8] != '\r' {
		if b[8] == '\n' {
			return faultBareLF
		}
		return faultRequestLine
	}
	if len(b) == 9 {
		return nil
	}
	return faultBareCR
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// splitTarget sorts out the form of the target (RFC 9112 section 3.2).
func (r *Request) splitTarget() *fault {
	switch {
	case r.Target[0] == '/':
		r.setPath(r.Target)
		return nil
	case len(r.Target) == 1 && r.Target[0] == '*':
		if string(r.Method) != "OPTIONS" {
			return faultTarget
		}
		r.Path = r.Target
		return nil
	}
	return r.splitAbsolute()
}

func (r *Request) setPath(b []byte) {
	if i := index(b, '?'); i >= 0 {
		r.Path, r.Query = b[:i], b[i+1:]
		return
	}
	r.Path = b
}

// splitAbsolute takes `http://authority/path` apart (RFC 9112 section 3.2.2).
func (r *Request) splitAbsolute() *fault {
	t := r.Target
	i := 0
	switch {
	case len(t) > 7 && equalFold(t[:7], "http://"):
		i = 7
	case len(t) > 8 && equalFold(t[:8], "https://"):
		i = 8
	default:
		return faultTarget
	}
	end := i
	for end < len(t) && t[end] != '/' && t[end] != '?' {
		if t[end] == '@' {
			return faultUserinfo
		}
		end++
	}
	n, port, ok := authority(t[i:end])
	if !ok {
		return faultTarget
	}
	r.Absolute = true
	r.HostPort, r.Host, r.Port = t[i:end], t[i:i+n], port
	r.setPath(t[end:])
	if len(r.Path) > 0 {
		return nil
	}
	r.Path = t[i-1 : i] // the last slash of `://`: an empty path is `/`
	if end == len(t) && string(r.Method) == "OPTIONS" {
		r.Path = star
	}
	return nil
}
