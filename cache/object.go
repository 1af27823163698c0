package cache

import (
	"bytes"
	"strconv"
	"time"
)

// Object is a stored response. It never changes, and neither may the bytes it
// points to; it stays usable after it was evicted.
type Object struct {
	Status    int
	Fields    []byte        // end-to-end field lines, without Age and Content-Length
	Body      []byte        // all of it
	StoredAt  time.Time     // when its head was received
	Freshness time.Duration // fresh while its age is below this (RFC 9111 §4.2)

	readers      *readers
	age          time.Duration // at StoredAt
	mark         uint64        // the cache's clock when its request was looked up
	cost         int64         // bytes booked for it
	values       []fieldValue  // what selects it, in the order of its set's names
	tag          []byte        // its entity tag; nil if none that can be compared
	lastModified time.Time     // zero if none
	strongDate   bool          // lastModified identifies the bytes (RFC 9110 §8.8.2.2)
	brief        []byte        // the field lines of a 304
}

// Reply is what to send for a hit. The caller adds Age and the framing.
type Reply struct {
	Status int
	Fields []byte // field lines of the object
	Extra  []byte // one more line on 206 and 416 (Content-Range), else nil
	Body   []byte // nil for HEAD and where there is none
	Length int64  // for Content-Length; -1: send none (204, 304)
}

// Answer turns a hit into the answer to r, which may ask for less than the
// whole: nothing if it has it already (If-None-Match, If-Modified-Since,
// RFC 9110 §13.2.2), no body (HEAD), or one range of bytes (Range, If-Range,
// RFC 9110 §14.2). Several ranges are answered with the whole, as RFC 9110
// §14.2 allows. Allocates for 206 and 416 only, dates in obsolete forms apart.
func (o *Object) Answer(r *Request) Reply {
	if o.notModified(r.Header) {
		return Reply{Status: 304, Fields: o.brief, Length: -1}
	}
	if string(r.Method) == "HEAD" {
		whole := o.whole()
		whole.Body = nil
		return whole
	}
	if asked := o.readers.single(r.Header, "range"); asked != nil && o.Status == 200 && o.rangeStands(r.Header) {
		size := int64(len(o.Body))
		switch first, last, kind := parseRange(asked, size); kind {
		case rangeInside:
			return o.part(first, last)
		case rangeOutside:
			return Reply{Status: 416, Extra: contentRange("*", size)}
		}
	}
	return o.whole()
}

func (o *Object) whole() Reply {
	if o.Status == 204 {
		return Reply{Status: 204, Fields: o.Fields, Length: -1}
	}
	return Reply{Status: o.Status, Fields: o.Fields, Body: o.Body, Length: int64(len(o.Body))}
}

func (o *Object) part(first, last int64) Reply {
	digits := strconv.AppendInt(make([]byte, 0, 40), first, 10)
	digits = strconv.AppendInt(append(digits, '-'), last, 10)
	return Reply{
		Status: 206,
		Fields: o.Fields,
		Extra:  contentRange(string(digits), int64(len(o.Body))),
		Body:   o.Body[first : last+1],
		Length: last + 1 - first,
	}
}

func contentRange(bytes string, size int64) []byte {
	line := make([]byte, 0, 80)
	line = append(append(line, "Content-Range: bytes "...), bytes...)
	line = strconv.AppendInt(append(line, '/'), size, 10)
	return append(line, "\r\n"...)
}

// ageAt is current_age of RFC 9111 §4.2.3.
func (o *Object) ageAt(now time.Time) time.Duration { return o.age + elapsed(o.StoredAt, now) }

func (o *Object) fresh(now time.Time) bool { return o.ageAt(now) < o.Freshness }

// sameVariant says whether the same requests select both, given that their
// sets name the same fields.
func (o *Object) sameVariant(p *Object) bool {
	for i := range o.values {
		if !o.values[i].equal(p.values[i]) {
			return false
		}
	}
	return true
}

// notModified evaluates the preconditions a cache may evaluate (RFC 9111
// §4.3.2). If-Modified-Since is compared with Last-Modified only; where that
// is missing, Date would be a guess about bytes that a new build may have
// changed within the same second.
func (o *Object) notModified(h Header) bool {
	if o.Status >= 300 {
		return false // RFC 9110 §13.2.1
	}
	if h.Get("if-none-match") != nil {
		return o.readers.tagged(h, "if-none-match", o.tag)
	}
	if o.lastModified.IsZero() {
		return false
	}
	since, ok := parseDate(o.readers.single(h, "if-modified-since"))
	return ok && !o.lastModified.After(since)
}

// rangeStands evaluates If-Range: the same tag, compared strongly, or the very
// date, if that is strong (RFC 9110 §13.1.5).
func (o *Object) rangeStands(h Header) bool {
	if h.Get("if-range") == nil {
		return true
	}
	value := o.readers.single(h, "if-range")
	if len(value) > 0 && value[0] == '"' {
		return bytes.Equal(value, o.tag)
	}
	date, ok := parseDate(value)
	return ok && o.strongDate && date.Equal(o.lastModified)
}

// setValidators reads ETag and Last-Modified and prepares the 304, which even
// an object without either may be answered with (If-None-Match: *).
func (o *Object) setValidators(c *Cache, h Header) {
	if tag := c.readers.single(h, "etag"); isEntityTag(tag) {
		o.tag = bytes.Clone(tag)
	}
	if modified, ok := c.dateOf(h, "last-modified"); ok {
		o.lastModified = modified
		date, dated := c.dateOf(h, "date")
		o.strongDate = dated && date.Sub(modified) >= time.Second
	}
	o.brief = o.Fields
	if o.Status >= 300 {
		return
	}
	if brief := withoutContent(o.Fields); len(brief) < len(o.Fields) {
		o.brief = brief
	}
}
