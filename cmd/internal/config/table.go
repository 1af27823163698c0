package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// table reads one TOML table key by key. Asking for a key makes it known; done
// reports the keys nobody asked for. A getter that meets a wrong value records
// the problem and answers as if the key were absent.
type table struct {
	r     *reader
	path  string // dotted, for messages; empty for the document
	vals  map[string]any
	node  *node
	known []string
}

// item is a value with its place in the text.
type item struct {
	text string
	off  int
}

func (t *table) get(key string) (any, *node, bool) {
	t.known = append(t.known, key)
	v, ok := t.vals[key]
	return v, t.node.child(key), ok
}

// has reports that the key is present, whatever its value.
func (t *table) has(key string) bool {
	_, ok := t.vals[key]
	return ok
}

// off is the offset of the value of key, or of the table if it is absent.
func (t *table) off(key string) int { return t.node.child(key).val }

// keyOff is the offset of the key itself.
func (t *table) keyOff(key string) int { return t.node.child(key).key }

func (t *table) full(key string) string {
	if t.path == "" {
		return key
	}
	return t.path + "." + key
}

// errorf records a problem with the value of key, named in front.
func (t *table) errorf(key string, format string, args ...any) {
	t.r.errorf(t.off(key), "%s: %s", t.full(key), fmt.Sprintf(format, args...))
}

// warnf records a doubt about the value of key, named in front.
func (t *table) warnf(key string, format string, args ...any) {
	t.r.warnf(t.off(key), "%s: %s", t.full(key), fmt.Sprintf(format, args...))
}

func (t *table) wrongType(key string, v any, want string) {
	t.errorf(key, "is %s; write %s", typeName(v), want)
}

// names returns all keys of the table in alphabetical order and makes them known.
func (t *table) names() []string {
	t.known = slices.Sorted(maps.Keys(t.vals))
	return slices.Clone(t.known)
}

// table returns the sub-table of that name. If it is absent or no table the
// result is an empty one, so that its defaults can be read all the same.
func (t *table) table(key string) (*table, bool) {
	v, n, ok := t.get(key)
	sub := &table{r: t.r, path: t.full(key), node: n}
	if !ok {
		return sub, false
	}
	m, isTable := v.(map[string]any)
	if !isTable {
		t.wrongType(key, v, "a table: ["+t.full(key)+"]")
		return sub, false
	}
	sub.vals = m
	return sub, true
}

func (t *table) str(key string) (string, bool) {
	v, _, ok := t.get(key)
	if !ok {
		return "", false
	}
	s, isString := v.(string)
	if !isString {
		t.wrongType(key, v, "a string in quotes")
		return "", false
	}
	if s == "" {
		t.errorf(key, "is empty; write a value or remove the key")
		return "", false
	}
	if strings.IndexByte(s, 0) >= 0 {
		t.errorf(key, "holds a NUL character; remove it")
		return "", false
	}
	return strings.Clone(s), true // without the whole text of the file behind it
}

// strs returns the strings of an array with their places. ok is false if the
// key is absent or no array; elements that are no strings are left out.
func (t *table) strs(key string) (items []item, ok bool) {
	v, n, ok := t.get(key)
	if !ok {
		return nil, false
	}
	list, isArray := v.([]any)
	if !isArray {
		t.wrongType(key, v, `an array of strings: ["…"]`)
		return nil, false
	}
	for i, e := range list {
		off := n.elem(i).val
		switch s, isString := e.(string); {
		case !isString:
			t.r.errorf(off, "%s: element %d is %s; write a string in quotes", t.full(key), i+1, typeName(e))
		case strings.IndexByte(s, 0) >= 0:
			t.r.errorf(off, "%s: element %d holds a NUL character; remove it", t.full(key), i+1)
		default:
			items = append(items, item{strings.Clone(s), off})
		}
	}
	return items, true
}

func (t *table) boolean(key string, def bool) bool {
	v, _, ok := t.get(key)
	if !ok {
		return def
	}
	b, isBool := v.(bool)
	if !isBool {
		t.wrongType(key, v, "true or false")
		return def
	}
	return b
}

// choice returns one of the allowed strings; the first is the default.
func (t *table) choice(key string, allowed ...string) string {
	s, ok := t.str(key)
	if !ok {
		return allowed[0]
	}
	i := slices.Index(allowed, s)
	if i < 0 {
		t.errorf(key, "%q is not known; write %s", s, orList(allowed))
		return allowed[0]
	}
	return allowed[i]
}

func (t *table) integer(key string, def, least, most int) int {
	v, _, ok := t.get(key)
	if !ok {
		return def
	}
	n, isInt := v.(int64)
	if !isInt {
		t.wrongType(key, v, "a whole number without quotes")
		return def
	}
	if n < int64(least) || n > int64(most) {
		t.errorf(key, "%d is out of range; write a number from %d to %d", n, least, most)
		return def
	}
	return int(n)
}

// size returns a number of bytes, written as a number or as "16MiB".
func (t *table) size(key string, def, least, most int64) int64 {
	v, _, ok := t.get(key)
	if !ok {
		return def
	}
	var n int64
	switch v := v.(type) {
	case int64:
		n = v
	case string:
		if n, ok = parseSize(v); !ok {
			t.errorf(key, `%q is no size; write bytes as a number, or a string with B, KiB, MiB or GiB such as "16MiB"`, v)
			return def
		}
	default:
		t.wrongType(key, v, `bytes as a number, or a string such as "16MiB"`)
		return def
	}
	if n < least || n > most {
		t.errorf(key, "%s is out of range; write a size from %s to %s", formatSize(n), formatSize(least), formatSize(most))
		return def
	}
	return n
}

// span is what a duration may be.
type span struct {
	def, least, most time.Duration
	never            bool // "never" is allowed and means zero
}

func (t *table) duration(key string, s span) time.Duration {
	v, _, ok := t.get(key)
	if !ok {
		return s.def
	}
	text, isString := v.(string)
	if !isString {
		t.wrongType(key, v, `a duration as a string with a unit, such as "30s"`)
		return s.def
	}
	if s.never && text == "never" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.errorf(key, `%q is no duration; write numbers with units (ms, s, m, h), such as "30s" or "1h30m"`, text)
		return s.def
	}
	if d < s.least || d > s.most {
		hint := ""
		if s.never {
			hint = `, or "never"`
		}
		t.errorf(key, "%s is out of range; write a duration from %s to %s%s", d, short(s.least), short(s.most), hint)
		return s.def
	}
	return d
}

// done reports the keys that nobody asked for.
func (t *table) done() {
	for _, key := range slices.Sorted(maps.Keys(t.vals)) {
		if !slices.Contains(t.known, key) {
			t.r.errorf(t.keyOff(key), "%s: unknown key; %s", t.full(key), suggest(key, t.known))
		}
	}
}

// typeName says in words what TOML type a decoded value has.
func typeName(v any) string {
	switch v.(type) {
	case string:
		return "a string"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return "a boolean"
	case time.Time:
		return "a date or time"
	case map[string]any:
		return "a table"
	default:
		return "an array"
	}
}

// orList joins quoted words: "a", "b" or "c".
func orList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	if len(quoted) == 1 {
		return quoted[0]
	}
	return strings.Join(quoted[:len(quoted)-1], ", ") + " or " + quoted[len(quoted)-1]
}

type sizeUnit struct {
	name  string
	bytes int64
}

// sizeUnits are tried longest name first: "B" ends all of them.
func sizeUnits() []sizeUnit {
	return []sizeUnit{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}
}

func parseSize(s string) (int64, bool) {
	for _, u := range sizeUnits() {
		digits, found := strings.CutSuffix(s, u.name)
		if !found {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > math.MaxInt64/u.bytes {
			return 0, false
		}
		return n * u.bytes, true
	}
	return 0, false
}

func formatSize(n int64) string {
	for _, u := range sizeUnits() {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

// short prints a duration without its zero parts: "15m", not "15m0s".
func short(d time.Duration) string {
	s := d.String()
	for _, unit := range []string{"m", "h"} {
		for _, zero := range []string{"0s", "0m"} {
			if strings.HasSuffix(s, unit+zero) {
				s = strings.TrimSuffix(s, zero)
			}
		}
	}
	return s
}
