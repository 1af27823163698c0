package cache

import "time"

// Header reads the fields of a message without copying them. Names are asked
// for in lower case; values come without the white space around them. The
// bytes need to stay unchanged only until the call they were passed to returns.
type Header interface {
	// Get returns the value of the first field line with that name, not nil
	// if there is one (an empty value is an empty slice), nil if there is none.
	Get(name string) []byte
	// Each calls yield for the value of every field line with that name, in
	// the order received, until yield returns false.
	Each(name string, yield func(value []byte) bool)
}

// Request is what the cache needs to know of a request. Pass the same Request,
// unchanged, to Lookup and to the Begin that may follow: Lookup notes in it
// when it was made. A Request belongs to one goroutine at a time.
type Request struct {
	Method []byte
	Scheme []byte // "http", "https" or what else the app is told
	Host   []byte // authority, port included; compared without regard to case
	Target []byte // origin-form, path and query, compared byte for byte
	// Header holds the fields as the client sent them. Fields that the caller
	// rewrites on the way belong in Config.Unkeyed.
	Header Header
	// Sent is when the request went upstream. Zero: not known, and the time
	// the answer took does not count as age (RFC 9111 §4.2.3).
	Sent time.Time

	mark uint64 // the cache's clock at Lookup; zero before
}

// Response is the head of an answer on its way from the app.
type Response struct {
	Status int
	Header Header
	// Fields holds the end-to-end field lines, each "Name: value\r\n", in the
	// order and case received, hop-by-hop fields removed. They are copied.
	Fields []byte
	Length int64 // bytes of the body; -1 if not known
}
