package cache

import "bytes"

// endToEnd copies serialised field lines for an object, less those that every
// answer gets anew (Age, framing). False: the lines cannot be replayed as they
// are, and the response is not stored.
func endToEnd(fields []byte) (kept []byte, ok bool) {
	kept = make([]byte, 0, len(fields))
	for len(fields) > 0 {
		line, name, rest, ok := cutLine(fields)
		if !ok || equalFold(name, "set-cookie") {
			return nil, false
		}
		fields = rest
		if !writtenAnew(name) {
			kept = append(kept, line...)
		}
	}
	return kept, true
}

// cutLine splits the first field line off, with its CRLF, and finds its name.
func cutLine(fields []byte) (line, name, rest []byte, ok bool) {
	end := bytes.IndexByte(fields, '\n')
	if end < 1 || fields[end-1] != '\r' {
		return nil, nil, nil, false
	}
	line = fields[:end+1]
	name, after := cutToken(line)
	if len(name) == 0 || after[0] != ':' || bytes.IndexByte(after, '\r') != len(after)-2 {
		return nil, nil, nil, false
	}
	return line, name, fields[end+1:], true
}

func writtenAnew(name []byte) bool {
	return equalFold(name, "age") || equalFold(name, "content-length") ||
		equalFold(name, "transfer-encoding") || equalFold(name, "connection") ||
		equalFold(name, "keep-alive")
}

// withoutContent drops the lines that describe a body, for a 304
// (RFC 9110 §15.4.5). Its input came from endToEnd.
func withoutContent(fields []byte) []byte {
	kept := make([]byte, 0, len(fields))
	for {
		line, name, rest, ok := cutLine(fields)
		if !ok {
			return kept // the end
		}
		fields = rest
		if !describesContent(name) {
			kept = append(kept, line...)
		}
	}
}

func describesContent(name []byte) bool {
	return equalFold(name, "content-type") || equalFold(name, "content-encoding") ||
		equalFold(name, "content-language")
}
