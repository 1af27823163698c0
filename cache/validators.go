package cache

import "bytes"

// tagMatch looks for an entity tag in the lines of If-None-Match
// (RFC 9110 §13.1.2).
type tagMatch struct {
	tag   []byte // without W/; nil is equal to no tag
	found bool
}

// next reads one line, until the tag is found or something is malformed: then
// the rest says nothing, and the whole object is sent.
func (m *tagMatch) next(line []byte) bool {
	if string(trim(line)) == "*" {
		m.found = true
		return false
	}
	for line = skipListSeparators(line); len(line) > 0; line = skipListSeparators(line) {
		tag, rest := cutEntityTag(line)
		if tag == nil {
			return false
		}
		if bytes.Equal(withoutWeak(tag), m.tag) {
			m.found = true
			return false
		}
		if rest = trimLeft(rest); len(rest) > 0 && rest[0] != ',' {
			return false
		}
		line = rest
	}
	return true
}

// cutEntityTag splits a leading entity tag off (RFC 9110 §8.8.3), nil if there
// is none.
func cutEntityTag(b []byte) (tag, rest []byte) {
	start := len(b) - len(withoutWeak(b))
	if start >= len(b) || b[start] != '"' {
		return nil, b
	}
	for i := start + 1; i < len(b); i++ {
		if b[i] == '"' {
			return b[:i+1], b[i+1:]
		}
		if b[i] <= ' ' || b[i] == 0x7f {
			break
		}
	}
	return nil, b
}

func isEntityTag(b []byte) bool {
	tag, rest := cutEntityTag(b)
	return tag != nil && len(rest) == 0
}

func withoutWeak(tag []byte) []byte { return bytes.TrimPrefix(tag, []byte("W/")) }

type rangeKind uint8

const (
	rangeIgnored rangeKind = iota // malformed, another unit, several: send all
	rangeInside
	rangeOutside
)

// parseRange reads one byte range of a body of that size (RFC 9110 §14.1.2)
// and returns its first and last position.
func parseRange(value []byte, size int64) (first, last int64, kind rangeKind) {
	unit, rest := cutToken(value)
	if !equalFold(unit, "bytes") || len(rest) == 0 || rest[0] != '=' {
		return 0, 0, rangeIgnored
	}
	from, to, ok := bytes.Cut(trim(rest[1:]), []byte("-"))
	if !ok {
		return 0, 0, rangeIgnored
	}
	if len(from) == 0 {
		return parseSuffix(to, size)
	}
	if first, ok = parseDigits(from); !ok {
		return 0, 0, rangeIgnored
	}
	last = size - 1
	if len(to) > 0 {
		n, ok := parseDigits(to)
		if !ok || n < first {
			return 0, 0, rangeIgnored
		}
		last = min(n, last)
	}
	if first >= size {
		return 0, 0, rangeOutside
	}
	return first, last, rangeInside
}

// parseSuffix reads the n of "-n": the last n bytes. Of an empty body no range
// can be named, so that is sent whole.
func parseSuffix(digits []byte, size int64) (first, last int64, kind rangeKind) {
	n, ok := parseDigits(digits)
	switch {
	case !ok:
		return 0, 0, rangeIgnored
	case n == 0:
		return 0, 0, rangeOutside
	case size == 0:
		return 0, 0, rangeIgnored
	}
	return max(0, size-n), size - 1, rangeInside
}
