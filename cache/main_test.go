package cache

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// t0 is the time at which most tests begin: a whole second, as Date has.
var t0 = time.Date(2026, time.March, 2, 12, 0, 0, 0, time.UTC)

const day = "Mon, 02 Mar 2026 " // t0's

func at(seconds int) time.Time { return t0.Add(time.Duration(seconds) * time.Second) }

// lines is a head that allocates nothing when read.
type lines struct {
	names  []string
	values [][]byte
}

// head makes a Header of "name: value" texts.
func head(texts ...string) *lines {
	h := new(lines)
	for _, text := range texts {
		name, value, ok := strings.Cut(text, ":")
		if !ok {
			panic("header line without a colon: " + text)
		}
		h.names = append(h.names, strings.ToLower(name))
		h.values = append(h.values, append([]byte{}, strings.Trim(value, " \t")...))
	}
	return h
}

func (h *lines) Get(name string) []byte {
	for i, n := range h.names {
		if n == name {
			return h.values[i]
		}
	}
	return nil
}

func (h *lines) Each(name string, yield func([]byte) bool) {
	for i, n := range h.names {
		if n == name && !yield(h.values[i]) {
			return
		}
	}
}

// get makes a GET request of a target on one host.
func get(target string, texts ...string) *Request { return ask("GET", target, texts...) }

func ask(method, target string, texts ...string) *Request {
	return &Request{
		Method: []byte(method), Scheme: []byte("http"), Host: []byte("app.test"),
		Target: []byte(target), Header: head(texts...),
	}
}

// response makes a response head whose fields are what it was given.
func response(status int, length int64, texts ...string) *Response {
	return &Response{
		Status: status, Header: head(texts...), Length: length,
		Fields: []byte(strings.Join(append(texts, ""), "\r\n")),
	}
}

// okay is a storable response of a body.
func okay(body string, texts ...string) *Response {
	return response(200, int64(len(body)), append([]string{"Cache-Control: max-age=60"}, texts...)...)
}

// store runs a response through lookup and fill and says if it was stored.
func store(s *Space, r *Request, resp *Response, body string, now time.Time) bool {
	s.Lookup(r, now)
	f := s.Begin(r, resp, now)
	f.Write([]byte(body))
	return f.Commit()
}

func mustStore(t *testing.T, s *Space, r *Request, resp *Response, body string) {
	t.Helper()
	if !store(s, r, resp, body, t0) {
		t.Fatalf("%s %s was not stored", r.Method, r.Target)
	}
}

func wantHit(t *testing.T, s *Space, r *Request, now time.Time, body string) *Object {
	t.Helper()
	found := s.Lookup(r, now)
	if found.State != Hit {
		t.Fatalf("%s %s: state %d, reason %q, want a hit", r.Method, r.Target, found.State, found.Reason)
	}
	if string(found.Object.Body) != body {
		t.Fatalf("%s %s: body %q, want %q", r.Method, r.Target, found.Object.Body, body)
	}
	return found.Object
}

func wantNone(t *testing.T, s *Space, r *Request, now time.Time, state State, reason string) {
	t.Helper()
	found := s.Lookup(r, now)
	if found.State != state || found.Reason != reason || found.Object != nil {
		t.Fatalf("%s %s: state %d, reason %q, object %v, want %d, %q and none",
			r.Method, r.Target, found.State, found.Reason, found.Object, state, reason)
	}
}

// newSpace makes a small cache with one open space, and checks the
// books when the test ends.
func newSpace(t *testing.T, cfg Config) (*Cache, *Space) {
	t.Helper()
	if cfg.Shards == 0 {
		cfg.Shards = 2
	}
	c := New(cfg)
	t.Cleanup(func() { wantConsistent(t, c) })
	return c, c.Space("app", 1)
}

// wantConsistent compares the ledger with what is really there. Nothing else
// may be going on, and every fill must have ended.
func wantConsistent(t testing.TB, c *Cache) {
	t.Helper()
	if err := inconsistency(c); err != nil {
		t.Error(err)
	}
}

func inconsistency(c *Cache) error {
	byApp := map[*usage]*Usage{}
	var total Usage
	for i, sh := range c.shards {
		listed := 0
		seen := map[*core]bool{}
		for _, p := range sh.pages.Values() {
			if p.core.dead.Load() {
				return fmt.Errorf("shard %d holds a page of a dead core", i)
			}
			if !seen[p.core] {
				seen[p.core] = true
				listed += listLength(p.core.pages[i])
			}
			if byApp[p.core.usage] == nil {
				byApp[p.core.usage] = new(Usage)
			}
			for _, o := range p.set.objects {
				if least := int64(len(o.Body) + len(o.Fields)); o.cost < least {
					return fmt.Errorf("an object of %d bytes is booked with %d", least, o.cost)
				}
				for _, u := range []*Usage{&total, byApp[p.core.usage]} {
					u.Bytes += o.cost
					u.Objects++
				}
			}
		}
		if listed != sh.pages.Len() {
			return fmt.Errorf("shard %d: %d pages in lists, %d in the LRU", i, listed, sh.pages.Len())
		}
	}
	return booksDiffer(c, total, byApp)
}

func booksDiffer(c *Cache, total Usage, byApp map[*usage]*Usage) error {
	l := c.ledger
	if got := l.filling.Load(); got != 0 {
		return fmt.Errorf("%d bytes are booked for fills that ended", got)
	}
	if got := l.used.Load(); got != total.Bytes || got > l.limit {
		return fmt.Errorf("%d bytes are booked, %d are there, %d are allowed", got, total.Bytes, l.limit)
	}
	byApp[&l.total] = &total
	for u, want := range byApp {
		if got := u.read(); got.Bytes != want.Bytes || got.Objects != want.Objects {
			return fmt.Errorf("the books say %+v, there are %+v", got, *want)
		}
	}
	return nil
}

func listLength(p *page) int {
	n := 0
	for ; p != nil; p = p.next {
		n++
	}
	return n
}

// text is n bytes that differ from place to place.
func text(n int) string {
	return string(bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n])
}
