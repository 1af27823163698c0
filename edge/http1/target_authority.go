package http1

import "bytes"

// maxHost is the longest domain name (RFC 1035 section 2.3.4), a last dot included.
const maxHost = 254

// authority checks `name | IPv4 | [IPv6]` with an optional port from 1 to
// 65535 (RFC 9110 section 7.2, without userinfo, empty hosts, percent escapes
// and IPvFuture). n is the length of the host.
func authority(b []byte) (n int, port uint16, ok bool) {
	if len(b) == 0 {
		return 0, 0, false
	}
	if b[0] == '[' {
		n = bytes.IndexByte(b, ']') + 1
		if n == 0 || !isIPv6(b[1:n-1]) {
			return 0, 0, false
		}
	} else {
		n = hostEnd(b)
		if !isName(b[:n]) {
			return 0, 0, false
		}
	}
	if n == len(b) {
		return n, 0, true
	}
	port, ok = portNumber(b[n:])
	return n, port, ok
}

// hostEnd is where the port begins, if it looks as if there was one, else len(b).
func hostEnd(b []byte) int {
	i := len(b)
	for i > 0 && isDigit(b[i-1]) {
		i--
	}
	if i > 0 && b[i-1] == ':' {
		return i - 1
	}
	return len(b)
}

// portNumber reads a colon and 1 to 65535.
func portNumber(b []byte) (uint16, bool) {
	if len(b) > 6 || b[0] != ':' {
		return 0, false
	}
	v, ok := decimal(b[1:])
	return uint16(v), ok && v >= 1 && v <= 65535
}

// isName accepts labels of letters, digits, `-` and `_`, one last dot allowed.
// If the last label is all digits the whole must be an IPv4 address, because
// others would read it as one.
func isName(b []byte) bool {
	if len(b) == 0 || len(b) > maxHost {
		return false
	}
	begins := true // a label, which must not be empty
	for _, c := range b {
		if kinds[c]&inLabel != 0 {
			begins = false
			continue
		}
		if c != '.' || begins {
			return false
		}
		begins = true
	}
	return !endsInNumber(b) || isIPv4(b)
}

// endsInNumber reports whether the last label is all digits.
func endsInNumber(b []byte) bool {
	i := len(b)
	if b[i-1] == '.' {
		i--
	}
	for i > 0 && isDigit(b[i-1]) {
		i--
	}
	return i == 0 || b[i-1] == '.'
}

// isIPv4 accepts four decimal numbers up to 255, without leading zeros.
func isIPv4(b []byte) bool {
	for part := range 4 {
		n := bytes.IndexByte(b, '.')
		if part == 3 {
			n = len(b)
		}
		if n < 1 || n > 3 || n > 1 && b[0] == '0' {
			return false
		}
		v, ok := decimal(b[:n])
		if !ok || v > 255 {
			return false
		}
		b = b[min(n+1, len(b)):]
	}
	return true
}

// isIPv6 follows RFC 3986 section 3.2.2: eight groups of up to four hex
// digits, `::` at most once for one group or more, the last two groups
// possibly as IPv4. No zone.
func isIPv6(b []byte) bool {
	groups, gap := 0, false
	if bytes.HasPrefix(b, []byte("::")) {
		gap, b = true, b[2:]
		if len(b) == 0 {
			return true
		}
	}
	for {
		n := 0
		for n < len(b) && isHex(b[n]) {
			n++
		}
		if n < len(b) && b[n] == '.' {
			return isIPv4(b) && fullIPv6(groups+2, gap)
		}
		if n < 1 || n > 4 {
			return false
		}
		groups++
		b = b[n:]
		if len(b) == 0 {
			return fullIPv6(groups, gap)
		}
		if b[0] != ':' || len(b) == 1 {
			return false
		}
		b = b[1:]
		if b[0] == ':' {
			if gap {
				return false
			}
			gap, b = true, b[1:]
			if len(b) == 0 {
				return groups < 8
			}
		}
	}
}

func fullIPv6(groups int, gap bool) bool {
	return groups < 8 && gap || groups == 8 && !gap
}
