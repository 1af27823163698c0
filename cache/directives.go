package cache

import "time"

// maxSeconds is what larger numbers of seconds count as (RFC 9111 §1.2.2).
const maxSeconds = 1 << 31

// absent is the value of a directive that was not sent.
const absent = -1

// directives is what a message's Cache-Control lines say, as far as we heed it
// (RFC 9111 §5.2). Qualified forms (no-cache="…", private="…") count as
// unqualified, the cautious reading.
type directives struct {
	noStore, noCache, private bool
	// malformed: something could not be read, or a lifetime came twice, so
	// the rest cannot be trusted either.
	malformed                      bool
	maxAge, sharedMaxAge, minFresh int64 // seconds, or absent
}

func noDirectives() directives {
	return directives{maxAge: absent, sharedMaxAge: absent, minFresh: absent}
}

// add reads one field line.
func (d *directives) add(line []byte) {
	for {
		line = skipListSeparators(line)
		if len(line) == 0 {
			return
		}
		name, rest := cutToken(line)
		if len(name) == 0 {
			d.malformed = true
			return
		}
		var value []byte
		if len(rest) > 0 && rest[0] == '=' {
			var ok bool
			if value, rest, ok = cutArgument(rest[1:]); !ok {
				d.malformed = true
				return
			}
		}
		if rest = trimLeft(rest); len(rest) > 0 && rest[0] != ',' {
			d.malformed = true
			return
		}
		d.set(name, value)
		line = rest
	}
}

func (d *directives) set(name, value []byte) {
	switch {
	case equalFold(name, "no-store"):
		d.noStore = true
	case equalFold(name, "no-cache"):
		d.noCache = true
	case equalFold(name, "private"):
		d.private = true
	case equalFold(name, "max-age"):
		d.setSeconds(&d.maxAge, value)
	case equalFold(name, "s-maxage"):
		d.setSeconds(&d.sharedMaxAge, value)
	case equalFold(name, "min-fresh"):
		d.setSeconds(&d.minFresh, value)
	}
}

func (d *directives) setSeconds(to *int64, value []byte) {
	n, ok := parseSeconds(value)
	if !ok || *to != absent {
		d.malformed = true
		return
	}
	*to = n
}

// accept says whether a request with these directives lets o, of that age, be
// used (RFC 9111 §5.2.1). max-age=0 asks for a new answer even of an object
// that is not a second old.
func (d *directives) accept(o *Object, age time.Duration) bool {
	if d.noCache || d.malformed || d.maxAge == 0 {
		return false
	}
	if d.maxAge != absent && age > seconds(d.maxAge) {
		return false
	}
	return d.minFresh == absent || o.Freshness-age >= seconds(d.minFresh)
}

func seconds(n int64) time.Duration { return time.Duration(n) * time.Second }

// parseSeconds reads delta-seconds (RFC 9111 §1.2.2): digits only.
func parseSeconds(b []byte) (int64, bool) {
	n, ok := parseDigits(b)
	return min(n, maxSeconds), ok
}

// parseDigits reads a decimal number without sign; too large ones end at 1<<62.
func parseDigits(b []byte) (int64, bool) {
	const most = 1 << 62
	if len(b) == 0 {
		return 0, false
	}
	n := int64(0)
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (most-9)/10 {
			n = most
			continue
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// cutArgument splits what follows a directive's "=": a token-like word or a
// quoted string, whose quotes are left off (RFC 9111 §5.2 wants both taken).
func cutArgument(b []byte) (value, rest []byte, ok bool) {
	if len(b) == 0 || b[0] != '"' {
		i := 0
		for i < len(b) && b[i] != ',' && b[i] != '"' && !isSpace(b[i]) {
			i++
		}
		return b[:i], b[i:], i > 0
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return b[1:i], b[i+1:], true
		}
	}
	return nil, nil, false
}

// cutToken splits a leading token off (RFC 9110 §5.6.2), which may be empty.
func cutToken(b []byte) (token, rest []byte) {
	i := 0
	for i < len(b) && isTokenByte(b[i]) {
		i++
	}
	return b[:i], b[i:]
}

func isTokenByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	switch c {
	case '!', '#', '$', '%', '&', '\'', '*', '+', '-', '.', '^', '_', '`', '|', '~':
		return true
	}
	return false
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' }

func trimLeft(b []byte) []byte {
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	return b
}

func trim(b []byte) []byte {
	b = trimLeft(b)
	for len(b) > 0 && isSpace(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}

// skipListSeparators skips commas and white space, so empty list elements are
// taken as none (RFC 9110 §5.6.1.2).
func skipListSeparators(b []byte) []byte {
	for len(b) > 0 && (b[0] == ',' || isSpace(b[0])) {
		b = b[1:]
	}
	return b
}

// equalFold compares b with a text that is in lower case.
func equalFold(b []byte, lowerCase string) bool {
	if len(b) != len(lowerCase) {
		return false
	}
	for i, c := range b {
		if lower(c) != lowerCase[i] {
			return false
		}
	}
	return true
}
