package edge

import "time"

// Header reads the fields of a message without copying them. Names are asked
// for in lower case. The bytes stay valid until the request is finished.
type Header interface {
	// Get returns the first value of the field, nil if there is none.
	Get(name string) []byte
	// Each calls yield with every value in the order received, until it
	// returns false.
	Each(name string, yield func(value []byte) bool)
}

// Cache is where answers are kept. The edge only declares it; nil in Options
// means that nothing is cached.
type Cache interface {
	// Open returns the namespace of one cache generation of an app, the same one
	// for the same arguments. Called when a slot is placed, not per request.
	Open(app string, generation uint64) Space
	// NewVisit returns the memory of one lane, reused for all its requests.
	NewVisit() Visit
}

// Space is one cache generation of one app.
type Space interface {
	// Close drops all that is stored there. A store that ends later lands
	// nowhere. Called once the app's slot has moved to another generation.
	Close()
}

// Visit carries one request at a time through the cache. It belongs to one
// goroutine at a time.
type Visit interface {
	// Lookup looks q up. It must not block and should not allocate.
	Lookup(s Space, q *CacheQuery, now time.Time) Found
	// Begin offers the answer to the request that was looked up last, which went
	// upstream at sent. nil means that it is not stored; otherwise the fill must
	// be ended. Begin also drops what an unsafe method has made invalid.
	Begin(s Space, a *CacheAnswer, sent, now time.Time) Fill
}

// CacheQuery is what a cache needs to know of a request.
type CacheQuery struct {
	Method []byte
	Scheme []byte // "http" or what a trusted peer says, as the app is told
	Host   []byte // authority, port included
	Target []byte // origin-form, byte for byte
	Header Header // as the client sent it
}

// CacheAnswer is the head of an answer on its way from the app.
type CacheAnswer struct {
	Status int
	Header Header
	Fields []byte // whole end-to-end field lines, Usher-Generation included; copied
	Length int64  // bytes of the body; -1 = not known
}

// Fill takes the body of an answer that is being stored. Exactly one of Commit
// and Abort ends it.
type Fill interface {
	Write(p []byte) (int, error)
	Commit() bool // false: not stored after all
	Abort()
}

// CacheResult is what the cache had to say about a request.
type CacheResult uint8

// The results, and how Cache-Status (RFC 9211) tells them.
const (
	CacheOff    CacheResult = iota // not asked; no Cache-Status
	CacheHit                       // "hit"
	CacheMiss                      // "fwd=uri-miss"
	CacheStale                     // "fwd=stale"
	CacheBypass                    // "fwd=bypass"
	cacheResultCount
)

// String is the metric label and log field.
func (c CacheResult) String() string {
	switch c {
	case CacheHit:
		return "hit"
	case CacheMiss:
		return "miss"
	case CacheStale:
		return "stale"
	case CacheBypass:
		return "bypass"
	default:
		return "off"
	}
}

// Found is the outcome of a lookup. Only Result is set unless it is CacheHit.
type Found struct {
	Result CacheResult
	Status int
	Fields []byte // stored field lines, each with its CRLF
	Extra  []byte // field lines for this answer only, for example Content-Range
	Body   []byte // nil for HEAD and 304
	Length int64  // Content-Length to send; below 0 = none
	Age    time.Duration
	TTL    time.Duration // how long it stays fresh
}
