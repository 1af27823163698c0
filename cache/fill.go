package cache

import (
	"bytes"
	"time"
)

// firstBuffer is the room a body of unknown length starts with.
const firstBuffer = 4 << 10

// Fill takes the body of a response on its way into the cache. It belongs to
// one goroutine and must be ended by Commit or Abort; after the first of them
// all methods do nothing. So they do on a nil Fill, which is what Begin returns
// for a response that is not to be stored.
type Fill struct {
	cache  *Cache
	page   *page
	object *Object
	length int64 // bytes the body must have; -1 if not known
	body   []byte
	booked int64 // bytes of the ledger that it holds
	done   bool
}

// Begin starts to store the answer to r if every rule allows it, and returns
// nil if one does not (RFC 9111 §3) or if there is no room. now is when the
// head was received.
func (s *Space) Begin(r *Request, resp *Response, now time.Time) *Fill {
	if s == nil {
		return nil
	}
	c, co := s.cache, s.core.Load()
	mark := c.mark(r)
	if co.dead.Load() || mark < co.born || !c.mayStore(r, resp) {
		return nil
	}
	fresh, age, ok := c.lifetime(r, resp, now)
	if !ok {
		return nil
	}
	vary, ok := c.varyNames(resp.Header)
	if !ok {
		return nil
	}
	fields, ok := endToEnd(resp.Fields)
	if !ok {
		return nil
	}
	page := c.newPage(co, r)
	if page == nil {
		return nil
	}
	o := &Object{
		Status: resp.Status, Fields: fields, StoredAt: now, Freshness: fresh,
		readers: c.readers, age: age, mark: mark,
	}
	o.setValidators(c, resp.Header)
	for _, name := range vary {
		o.values = append(o.values, readValue(r.Header, name))
	}
	page.set = &variants{vary: vary, objects: []*Object{o}}
	return c.newFill(page, resp)
}

// newFill books what is known of the object already.
func (c *Cache) newFill(p *page, resp *Response) *Fill {
	f := &Fill{cache: c, page: p, object: p.set.objects[0], length: resp.Length}
	if resp.Status == 204 {
		f.length = 0
	}
	if !f.book(p.weight() + heapBytes(max(0, f.length))) {
		return nil
	}
	return f
}

// weight is what a page of one object costs without its body.
func (p *page) weight() int64 {
	o := p.set.objects[0]
	n := pageOverhead + heapBytes(int64(len(p.origin)+len(p.target))) + heapBytes(int64(len(o.Fields)))
	n += heapBytes(int64(cap(o.tag)))
	if len(o.brief) != len(o.Fields) {
		n += heapBytes(int64(cap(o.brief)))
	}
	for i, name := range p.set.vary {
		const headers = 64 // a string header, a fieldValue and the growth of their slices
		n += headers + heapBytes(int64(len(name))) + heapBytes(int64(cap(o.values[i].joined)))
	}
	return n
}

// heapBytes is about what the allocator takes for n bytes: small blocks come
// in sizes up to an eighth apart, large ones in pages of 8 KiB.
func heapBytes(n int64) int64 {
	const page = 8 << 10
	switch {
	case n == 0:
		return 0
	case n <= 4*page:
		return n + n/8 + 8
	}
	return (n + page - 1) / page * page
}

// book takes n more bytes from the ledger.
func (f *Fill) book(n int64) bool {
	l := f.cache.ledger
	if !l.takeFill(n) {
		return false
	}
	if !f.cache.reserve(n) {
		l.filling.Add(-n)
		return false
	}
	f.booked += n
	return true
}

// Write adds a piece of the body. It always returns len(p) and nil: a body
// that cannot be stored ends the fill, never the stream.
func (f *Fill) Write(p []byte) (int, error) {
	if f == nil || f.done || len(p) == 0 {
		return len(p), nil
	}
	size := len(f.body) + len(p)
	tooLong := f.length >= 0 && int64(size) > f.length
	tooLarge := int64(size+len(f.object.Fields)) > f.cache.maxObject
	if tooLong || tooLarge || f.page.core.dead.Load() || !f.fit(size) {
		f.Abort()
		return len(p), nil
	}
	f.body = append(f.body, p...)
	return len(p), nil
}

// fit makes room for size bytes. Those of a known length are booked already.
func (f *Fill) fit(size int) bool {
	if size <= cap(f.body) {
		return true
	}
	room := int(f.length)
	if f.length < 0 {
		room = max(size, firstBuffer, min(2*cap(f.body), int(f.cache.maxObject)))
		if !f.book(heapBytes(int64(room)) - heapBytes(int64(cap(f.body)))) {
			return false
		}
	}
	grown := make([]byte, len(f.body), room)
	copy(grown, f.body)
	f.body = grown
	return true
}

// Commit stores the object and says whether it did. Call it only when the
// framing has proved the body complete: its length was reached, or the last
// chunk came. A body that ends with its connection proves nothing.
func (f *Fill) Commit() bool {
	if f == nil || f.done {
		return false
	}
	if f.length >= 0 && int64(len(f.body)) != f.length {
		f.Abort()
		return false
	}
	f.trim()
	f.object.Body = f.body
	f.object.cost = f.booked
	sh := f.cache.shardOf(f.page.id.hash)
	if !sh.put(f.page, f.object.StoredAt.UnixNano()) {
		f.Abort()
		return false
	}
	f.end()
	return true
}

// trim gives back the room that a body of unknown length did not need.
func (f *Fill) trim() {
	spare := heapBytes(int64(cap(f.body))) - heapBytes(int64(len(f.body)))
	if spare <= int64(len(f.body)/8) {
		return
	}
	f.body = bytes.Clone(f.body)
	f.body = f.body[:len(f.body):len(f.body)]
	f.booked -= spare
	f.cache.ledger.giveFill(spare)
}

// Abort ends the fill and stores nothing.
func (f *Fill) Abort() {
	if f == nil || f.done {
		return
	}
	f.cache.ledger.giveFill(f.booked)
	f.end()
}

// end lets go of everything: the caller may keep the Fill for long.
func (f *Fill) end() {
	*f = Fill{done: true}
}
