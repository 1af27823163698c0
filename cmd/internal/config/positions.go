package config

import (
	"strings"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// The TOML decoder says where a syntax error is but keeps the positions of
// keys and values to itself, and a message without a position is of little use
// in a file with fifty apps. So the positions are found by a scan of our own.
// It runs only over text that the decoder has accepted, which is why it can be
// this small: it has to find where things begin, not whether they are right.

// node is a place of the document: a key with its value, or an array element.
type node struct {
	key   int              // byte offset of the key (of the element itself in arrays)
	val   int              // byte offset of the value; of the '[' for a table header
	kids  map[string]*node // of tables
	elems []*node          // of arrays
}

// child returns the node of a key, or n itself when there is none, so that a
// message always has the nearest place.
func (n *node) child(key string) *node {
	if k, ok := n.kids[key]; ok {
		return k
	}
	return n
}

// elem returns the node of the i-th element, or n itself when there is none.
func (n *node) elem(i int) *node {
	if i < len(n.elems) {
		return n.elems[i]
	}
	return n
}

// define returns the kid of that name, made if it is new.
func (n *node) define(key string, off int) *node {
	if k, ok := n.kids[key]; ok {
		return k
	}
	if n.kids == nil {
		n.kids = make(map[string]*node)
	}
	k := &node{key: off, val: off}
	n.kids[key] = k
	return k
}

// last returns the table that a header means when it names an array of tables.
func (n *node) last() *node {
	if len(n.elems) > 0 {
		return n.elems[len(n.elems)-1]
	}
	return n
}

type keyPart struct {
	name string
	off  int
}

type scanner struct {
	text string
	pos  int
}

// scan builds the tree of positions of a valid TOML text.
func scan(text string) *node {
	s := &scanner{text: text}
	root := &node{}
	table := root
	for {
		s.space(true)
		switch {
		case s.pos >= len(text):
			return root
		case text[s.pos] == '[':
			table = s.header(root)
		default:
			s.pair(table)
		}
	}
}

// header reads "[a.b]" or "[[a.b]]" and returns the table it opens.
func (s *scanner) header(root *node) *node {
	start := s.pos
	isArray := strings.HasPrefix(s.text[s.pos:], "[[")
	s.pos++
	if isArray {
		s.pos++
	}
	n := root
	parts := s.keyParts()
	for _, p := range parts {
		n = n.last().define(p.name, p.off)
	}
	s.pos = s.until("\n")
	if isArray {
		if len(n.elems) == 0 {
			n.val = start
		}
		n.elems = append(n.elems, &node{key: start, val: start})
		return n.last()
	}
	n.val = start
	if len(parts) > 0 {
		n.key = parts[len(parts)-1].off
	}
	return n
}

// pair reads "a.b = value" into table.
func (s *scanner) pair(table *node) {
	start := s.pos
	n := table
	for _, p := range s.keyParts() {
		n = n.define(p.name, p.off)
	}
	s.space(false)
	if s.pos < len(s.text) && s.text[s.pos] == '=' {
		s.pos++
	}
	s.space(false)
	n.val = s.pos
	s.value(n)
	if s.pos == start {
		s.pos++ // cannot happen in valid text; never loop on it
	}
}

// keyParts reads a dotted key.
func (s *scanner) keyParts() []keyPart {
	var parts []keyPart
	for {
		s.space(false)
		start := s.pos
		if start >= len(s.text) {
			return parts
		}
		switch c := s.text[start]; {
		case c == '"' || c == '\'':
			s.skipString()
			parts = append(parts, keyPart{unquote(s.text[start:s.pos]), start})
		default:
			s.pos = s.until(" \t.=]\r\n")
			if s.pos == start {
				return parts
			}
			parts = append(parts, keyPart{s.text[start:s.pos], start})
		}
		s.space(false)
		if s.pos >= len(s.text) || s.text[s.pos] != '.' {
			return parts
		}
		s.pos++
	}
}

// value skips the value at pos and records what is inside it.
func (s *scanner) value(n *node) {
	if s.pos >= len(s.text) {
		return
	}
	switch s.text[s.pos] {
	case '"', '\'':
		s.skipString()
	case '[':
		s.list(']', func() {
			e := &node{key: s.pos, val: s.pos}
			n.elems = append(n.elems, e)
			s.value(e)
		})
	case '{':
		s.list('}', func() { s.pair(n) })
	default:
		s.pos = s.until(",]}#\r\n")
	}
}

// list reads what stands between brackets, calling item at each start.
func (s *scanner) list(end byte, item func()) {
	s.pos++
	for {
		s.space(true)
		if s.pos >= len(s.text) {
			return
		}
		switch s.text[s.pos] {
		case end:
			s.pos++
			return
		case ',':
			s.pos++
		default:
			start := s.pos
			item()
			if s.pos == start {
				s.pos++ // cannot happen in valid text; never loop on it
			}
		}
	}
}

// skipString moves past the string at pos, of any of TOML's four kinds.
func (s *scanner) skipString() {
	quote := s.text[s.pos]
	long := strings.Repeat(string(quote), 3)
	if strings.HasPrefix(s.text[s.pos:], long) {
		s.skipLongString(quote, long)
		return
	}
	for s.pos++; s.pos < len(s.text); s.pos++ {
		switch c := s.text[s.pos]; {
		case c == quote:
			s.pos++
			return
		case c == '\\' && quote == '"':
			s.pos++
		}
	}
	s.pos = len(s.text)
}

// skipLongString moves past a string in triple quotes. Up to two quotes may
// stand right before the closing three.
func (s *scanner) skipLongString(quote byte, long string) {
	for s.pos += 3; s.pos < len(s.text); s.pos++ {
		if s.text[s.pos] == '\\' && quote == '"' {
			s.pos++
			continue
		}
		if strings.HasPrefix(s.text[s.pos:], long) {
			s.pos += 3
			for i := 0; i < 2 && s.pos < len(s.text) && s.text[s.pos] == quote; i++ {
				s.pos++
			}
			return
		}
	}
	s.pos = len(s.text)
}

// space skips blanks, and line ends and comments too if lines is set.
func (s *scanner) space(lines bool) {
	for s.pos < len(s.text) {
		switch c := s.text[s.pos]; {
		case c == ' ' || c == '\t':
			s.pos++
		case lines && (c == '\n' || c == '\r'):
			s.pos++
		case lines && c == '#':
			s.pos = s.until("\n")
		default:
			return
		}
	}
}

// until returns the offset of the next byte of set, or of the end.
func (s *scanner) until(set string) int {
	if i := strings.IndexAny(s.text[s.pos:], set); i >= 0 {
		return s.pos + i
	}
	return len(s.text)
}

// unquote decodes a quoted key. The decoder does it, so that both agree.
func unquote(raw string) string {
	var v struct{ K string }
	if _, err := toml.Decode("K = "+raw, &v); err != nil {
		return raw
	}
	return v.K
}

// lineColumn turns a byte offset into line and column, both from 1; columns
// count characters.
func lineColumn(text string, off int) (line, column int) {
	off = max(0, min(off, len(text)))
	before := text[:off]
	start := strings.LastIndexByte(before, '\n') + 1
	return strings.Count(before, "\n") + 1, utf8.RuneCountInString(before[start:]) + 1
}
