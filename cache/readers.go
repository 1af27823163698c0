package cache

import (
	"bytes"
	"sync"
)

// readers walks repeated field lines without allocating: a function value that
// is passed through an interface lives on the heap, so each reader makes its
// own once, and readers are used again.
type readers struct{ pool sync.Pool }

type reader struct {
	control directives
	match   valueMatch
	tags    tagMatch
	only    onlyLine

	addControl, matchValue, matchTags, takeOnly func([]byte) bool
}

func newReaders() *readers {
	return &readers{pool: sync.Pool{New: func() any {
		rd := new(reader)
		rd.addControl = func(line []byte) bool { rd.control.add(line); return true }
		rd.matchValue = rd.match.next
		rd.matchTags = rd.tags.next
		rd.takeOnly = rd.only.next
		return rd
	}}}
}

func (rs *readers) get() *reader { return rs.pool.Get().(*reader) }

// put forgets what the reader saw: those bytes belong to somebody's buffer.
func (rs *readers) put(rd *reader) {
	rd.match, rd.tags, rd.only = valueMatch{}, tagMatch{}, onlyLine{}
	rs.pool.Put(rd)
}

// requestControl reads Cache-Control and Pragma of a request. Pragma: no-cache
// counts beside a Cache-Control too, though RFC 9111 §5.4 asks for it only
// without one.
func (rs *readers) requestControl(h Header) directives {
	hasControl, hasPragma := h.Get("cache-control") != nil, h.Get("pragma") != nil
	if !hasControl && !hasPragma {
		return noDirectives()
	}
	rd := rs.get()
	rd.control = noDirectives()
	if hasControl {
		h.Each("cache-control", rd.addControl)
	}
	if hasPragma {
		h.Each("pragma", rd.addControl)
	}
	d := rd.control
	rs.put(rd)
	return d
}

// responseControl reads Cache-Control of a response.
func (rs *readers) responseControl(h Header) directives {
	rd := rs.get()
	rd.control = noDirectives()
	h.Each("cache-control", rd.addControl)
	d := rd.control
	rs.put(rd)
	return d
}

// match returns the newest object of the set that the request selects
// (RFC 9111 §4.1), nil if there is none.
func (rs *readers) match(set *variants, h Header) *Object {
	if len(set.vary) == 0 {
		return set.objects[0]
	}
	rd := rs.get()
	defer rs.put(rd)
	for _, o := range set.objects {
		if rd.selects(set.vary, o, h) {
			return o
		}
	}
	return nil
}

func (rd *reader) selects(vary []string, o *Object, h Header) bool {
	for i, name := range vary {
		rd.match = valueMatch{want: o.values[i]}
		h.Each(name, rd.matchValue)
		if !rd.match.complete() {
			return false
		}
	}
	return true
}

// tagged says whether a line with that name names the entity tag, compared
// weakly (RFC 9110 §8.8.3.2), or is "*".
func (rs *readers) tagged(h Header, name string, tag []byte) bool {
	rd := rs.get()
	defer rs.put(rd)
	rd.tags = tagMatch{tag: withoutWeak(tag)}
	h.Each(name, rd.matchTags)
	return rd.tags.found
}

// single returns the value of a field that must not be repeated, nil if there
// is none or more than one.
func (rs *readers) single(h Header, name string) []byte {
	if h.Get(name) == nil {
		return nil
	}
	rd := rs.get()
	defer rs.put(rd)
	h.Each(name, rd.takeOnly)
	if rd.only.count != 1 {
		return nil
	}
	return rd.only.value
}

type onlyLine struct {
	value []byte
	count int
}

func (l *onlyLine) next(value []byte) bool {
	l.value = trim(value)
	l.count++
	return l.count < 2
}

// fieldValue is what a request said in one field: its lines joined by commas
// in the order sent (RFC 9110 §5.3). A field without lines is another value
// than an empty one.
type fieldValue struct {
	present bool
	joined  []byte
}

const joint = ", "

func readValue(h Header, name string) fieldValue {
	var v fieldValue
	h.Each(name, func(line []byte) bool {
		if v.present {
			v.joined = append(v.joined, joint...)
		}
		v.present = true
		v.joined = append(v.joined, trim(line)...)
		return true
	})
	return v
}

func (v fieldValue) equal(w fieldValue) bool {
	return v.present == w.present && bytes.Equal(v.joined, w.joined)
}

// valueMatch compares a request's lines, one by one, with a value.
type valueMatch struct {
	want   fieldValue
	at     int // bytes of want that were matched
	seen   bool
	differ bool
}

func (m *valueMatch) next(line []byte) bool {
	if m.seen {
		m.skip(joint)
	}
	m.seen = true
	line = trim(line)
	if m.differ || !bytes.HasPrefix(m.want.joined[m.at:], line) {
		m.differ = true
		return false
	}
	m.at += len(line)
	return true
}

func (m *valueMatch) skip(s string) {
	if rest := m.want.joined[m.at:]; len(rest) < len(s) || string(rest[:len(s)]) != s {
		m.differ = true
		return
	}
	m.at += len(s)
}

func (m *valueMatch) complete() bool {
	return !m.differ && m.seen == m.want.present && m.at == len(m.want.joined)
}
