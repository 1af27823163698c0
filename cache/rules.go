package cache

import (
	"slices"
	"strings"
	"time"
)

// maxVaryNames bounds the request fields that may choose between variants.
const maxVaryNames = 16

// notForUs says why the cache has no part in a request, as a reason of
// RFC 9211 §2.2; empty if it has.
func notForUs(r *Request) string {
	switch string(r.Method) {
	case "GET", "HEAD":
	default:
		return reasonMethod
	}
	h := r.Header
	if h.Get("authorization") != nil || h.Get("upgrade") != nil {
		return reasonBypass
	}
	// A GET with a body may be answered by what is in it, which no key covers.
	if h.Get("transfer-encoding") != nil {
		return reasonBypass
	}
	if n := h.Get("content-length"); n != nil && string(trim(n)) != "0" {
		return reasonBypass
	}
	return ""
}

// preconditionsForOrigin says whether a request carries preconditions that
// only the origin can decide (RFC 9111 §4.3.2).
func preconditionsForOrigin(h Header) bool {
	return h.Get("if-match") != nil || h.Get("if-unmodified-since") != nil
}

// storableStatus: final statuses whose meaning does not depend on the request
// beyond its URI (RFC 9111 §3).
func storableStatus(status int) bool {
	switch status {
	case 200, 203, 204, 301, 308, 404, 410:
		return true
	}
	return false
}

// mayStore applies every rule about what is stored but those on Vary and
// lifetime (RFC 9111 §3).
func (c *Cache) mayStore(r *Request, resp *Response) bool {
	if string(r.Method) != "GET" || notForUs(r) != "" || !storableStatus(resp.Status) {
		return false
	}
	if resp.Status == 204 && resp.Length > 0 {
		return false
	}
	if max(0, resp.Length) > c.maxObject-int64(len(resp.Fields)) {
		return false
	}
	if asks := c.readers.requestControl(r.Header); asks.noStore {
		return false
	}
	h := resp.Header
	return h.Get("set-cookie") == nil && h.Get("content-range") == nil && !isEventStream(h)
}

func isEventStream(h Header) bool {
	found := false
	h.Each("content-type", func(line []byte) bool {
		kind := trim(line)
		if i := slices.Index(kind, ';'); i >= 0 {
			kind = trim(kind[:i])
		}
		found = equalFold(kind, "text/event-stream")
		return !found
	})
	return found
}

// lifetime returns for how long a response is fresh from now on, plus the age
// it came with (RFC 9111 §4.2.1), and that age. False: it may not be stored.
func (c *Cache) lifetime(r *Request, resp *Response, now time.Time) (fresh, age time.Duration, ok bool) {
	d := c.readers.responseControl(resp.Header)
	if d.noStore || d.noCache || d.private || d.malformed {
		return 0, 0, false
	}
	date := now // RFC 9110 §6.6.1: without Date, when it was received
	sent, dated := c.dateOf(resp.Header, "date")
	if dated {
		date = sent
	}
	switch {
	case d.sharedMaxAge != absent:
		fresh = seconds(d.sharedMaxAge)
	case d.maxAge != absent:
		fresh = seconds(d.maxAge)
	default:
		expires, valid := c.dateOf(resp.Header, "expires")
		if !valid || (!dated && resp.Header.Get("date") != nil) {
			return 0, 0, false
		}
		fresh = min(expires.Sub(date), seconds(maxSeconds))
	}
	age = initialAge(r, resp.Header, date, now)
	return fresh, age, age < fresh
}

// initialAge is corrected_initial_age of RFC 9111 §4.2.3.
func initialAge(r *Request, h Header, date, now time.Time) time.Duration {
	age := time.Duration(0)
	if n, ok := parseSeconds(firstMember(h.Get("age"))); ok {
		age = seconds(n)
	}
	if !r.Sent.IsZero() {
		age += elapsed(r.Sent, now)
	}
	return max(age, elapsed(date, now))
}

// firstMember is the first of what may be a list (RFC 9111 §5.1).
func firstMember(value []byte) []byte {
	if i := slices.Index(value, ','); i >= 0 {
		value = value[:i]
	}
	return trim(value)
}

// dateOf reads a field that holds one date. False: absent, repeated or
// malformed.
func (c *Cache) dateOf(h Header, name string) (time.Time, bool) {
	return parseDate(c.readers.single(h, name))
}

// varyNames reads every Vary line: names in lower case, sorted, each once.
// False: no request can be known to select this response, or it selects by a
// field that we do not see as the app does (RFC 9111 §4.1).
func (c *Cache) varyNames(h Header) ([]string, bool) {
	var names []string
	ok := true
	h.Each("vary", func(line []byte) bool {
		for line = skipListSeparators(line); len(line) > 0; line = skipListSeparators(line) {
			token, rest := cutToken(line)
			rest = trimLeft(rest)
			name := strings.ToLower(string(token))
			if name == "" || name == "*" || c.unkeyed[name] || (len(rest) > 0 && rest[0] != ',') {
				ok = false
				return false
			}
			names = append(names, name)
			line = rest
		}
		return true
	})
	slices.Sort(names)
	names = slices.Compact(names)
	return names, ok && len(names) <= maxVaryNames
}
