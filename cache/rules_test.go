package cache

import (
	"strings"
	"testing"
	"time"
)

// storedAfter stores one answer and says whether a plain GET then hits.
func storedAfter(t *testing.T, r *Request, resp *Response) bool {
	t.Helper()
	_, s := newSpace(t, Config{Unkeyed: []string{"X-Forwarded-For"}})
	body := text(int(max(0, resp.Length)))
	stored := store(s, r, resp, body, t0)
	plain := get(string(r.Target))
	plain.Header = head("Accept: */*")
	found := s.Lookup(plain, t0)
	if stored != (found.State == Hit || found.Reason == reasonVaryMiss) {
		t.Fatalf("commit said %v, the lookup after it %d %q", stored, found.State, found.Reason)
	}
	return stored
}

func TestResponsesAreStoredOnlyWhenAllowed(t *testing.T) {
	const fresh = "Cache-Control: max-age=60"
	tests := []struct {
		rule   string
		status int
		fields []string
		want   bool
	}{
		{"RFC 9111 3: 200 with a lifetime", 200, []string{fresh}, true},
		{"RFC 9111 3: 203", 203, []string{fresh}, true},
		{"RFC 9111 3: 204", 204, []string{fresh}, true},
		{"RFC 9111 3: 301", 301, []string{fresh, "Location: /x"}, true},
		{"RFC 9111 3: 308", 308, []string{fresh, "Location: /x"}, true},
		{"RFC 9111 3: 404", 404, []string{fresh}, true},
		{"RFC 9111 3: 410", 410, []string{fresh}, true},
		{"temporary redirects are left out: 302", 302, []string{fresh}, false},
		{"temporary redirects are left out: 307", 307, []string{fresh}, false},
		{"RFC 9111 3.3: 206 is part of something", 206, []string{fresh, "Content-Range: bytes 0-0/9"}, false},
		{"RFC 9111 4.3.3: 304 has no content", 304, []string{fresh}, false},
		{"RFC 9111 3: 500", 500, []string{fresh}, false},
		{"RFC 9111 3: 503", 503, []string{fresh}, false},
		{"RFC 9111 3: a status nobody knows", 299, []string{fresh}, false},
		{"200 that says it is a part", 200, []string{fresh, "Content-Range: bytes 0-0/9"}, false},
		{"no heuristics, RFC 9111 4.2.2", 200, []string{"Last-Modified: " + day + "10:00:00 GMT"}, false},
		{"public alone is no lifetime", 200, []string{"Cache-Control: public"}, false},
		{"RFC 9111 5.2.2.5: no-store", 200, []string{"Cache-Control: max-age=60, no-store"}, false},
		{"RFC 9111 5.2.2.5: no-store on another line", 200, []string{fresh, "Cache-Control: No-Store"}, false},
		{"RFC 9111 5.2.2.7: private", 200, []string{"Cache-Control: private, max-age=60"}, false},
		{"RFC 9111 5.2.2.7: private for one field", 200, []string{`Cache-Control: max-age=60, private="x-user"`}, false},
		{"RFC 9111 5.2.2.4: no-cache", 200, []string{"Cache-Control: max-age=60,no-cache"}, false},
		{"RFC 9111 5.2.2.4: no-cache for one field", 200, []string{`Cache-Control: no-cache="set-cookie", max-age=60`}, false},
		{"private beats public", 200, []string{"Cache-Control: public, private, s-maxage=60"}, false},
		{
			"RFC 9111 5.2.2.3: must-understand does not lift no-store", 200,
			[]string{"Cache-Control: must-understand, no-store, max-age=60"},
			false,
		},
		{"RFC 9111 5.2.3: unknown directives are skipped", 200, []string{`Cache-Control: foo, bar=b/z, max-age=60, x="a, no-store"`}, true},
		{
			"RFC 9110 5.6.4: an escaped quote does not end a string", 200,
			[]string{`Cache-Control: max-age=60, x="a\", no-store"`},
			true,
		},
		{"a string that never ends", 200, []string{`Cache-Control: max-age=60, x="a\"`}, false},
		{"RFC 9110 5.6.1: empty list elements", 200, []string{"Cache-Control: ,, max-age=60 ,"}, true},
		{"must-revalidate is stored while fresh", 200, []string{"Cache-Control: max-age=60, must-revalidate"}, true},
		{"RFC 9111 7.3: Set-Cookie", 200, []string{"Cache-Control: public, max-age=60", "Set-Cookie: a=b"}, false},
		{"event stream", 200, []string{fresh, "Content-Type: text/event-stream"}, false},
		{"event stream with a parameter", 200, []string{fresh, "Content-Type: Text/Event-Stream ; charset=utf-8"}, false},
		{"a type that begins like an event stream", 200, []string{fresh, "Content-Type: text/event-streams"}, true},
		{"RFC 9111 4.1: Vary: *", 200, []string{fresh, "Vary: *"}, false},
		{"RFC 9111 4.1: * among names", 200, []string{fresh, "Vary: accept , *"}, false},
		{"RFC 9111 4.1: * on another line", 200, []string{fresh, "Vary: accept", "Vary:*"}, false},
		{"Vary that is no list of names", 200, []string{fresh, "Vary: accept encoding"}, false},
		{"Vary with too many names", 200, []string{fresh, "Vary: a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}, false},
		{"Vary on what the caller rewrites", 200, []string{fresh, "Vary: X-FORWARDED-FOR"}, false},
		{"Vary on names is fine", 200, []string{fresh, "Vary: Accept-Encoding, Accept"}, true},
		{"Vary with one name many times", 200, []string{fresh, "Vary: " + strings.Repeat("accept,", 20)}, true},
		{"empty Vary", 200, []string{fresh, "Vary:"}, true},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			length := int64(9)
			if tt.status == 204 {
				length = 0
			}
			if got := storedAfter(t, get("/"), response(tt.status, length, tt.fields...)); got != tt.want {
				t.Errorf("stored: %v, want %v", got, tt.want)
			}
		})
	}
}

// RFC 9111 §3 and §5.2.1.
func TestRequestsDecideWhatTheirAnswersMayBeUsedFor(t *testing.T) {
	tests := []struct {
		rule string
		r    *Request
		want bool
	}{
		{"GET", get("/"), true},
		{"HEAD has no content to store", ask("HEAD", "/"), false},
		{"POST", ask("POST", "/"), false},
		{"methods are case-sensitive", ask("get", "/"), false},
		{"Authorization", get("/", "Authorization: Bearer x"), false},
		{"empty Authorization", get("/", "Authorization:"), false},
		{"5.2.1.5: no-store", get("/", "Cache-Control: no-store"), false},
		{"no-cache is about the lookup", get("/", "Cache-Control: no-cache"), true},
		{"max-age=0 is about the lookup", get("/", "Cache-Control: max-age=0"), true},
		{"Pragma is about the lookup", get("/", "Pragma: no-cache"), true},
		{"conditional", get("/", `If-None-Match: "x"`), true},
		{"a range that was answered with all", get("/", "Range: bytes=0-1"), true},
		{"upgrade", get("/", "Upgrade: websocket"), false},
		{"GET with a body", get("/", "Content-Length: 3"), false},
		{"GET with a chunked body", get("/", "Transfer-Encoding: chunked"), false},
		{"GET with an empty body", get("/", "Content-Length: 0"), true},
		{"target too long to be a key", get("/" + text(maxTarget)), false},
		{"no target", get(""), false},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			if got := storedAfter(t, tt.r, okay("123456789")); got != tt.want {
				t.Errorf("stored: %v, want %v", got, tt.want)
			}
		})
	}
}

// RFC 9111 §4.2.1 and §4.2.3: what is left of the lifetime on arrival.
func TestLifetimeIsReadFromWhatTheAppSaid(t *testing.T) {
	date := "Date: " + day + "12:00:00 GMT"
	tests := []struct {
		rule   string
		fields []string
		want   int // seconds fresh from t0; 0: not stored
	}{
		{"max-age", []string{"Cache-Control: max-age=60"}, 60},
		{"in any case", []string{"Cache-Control: MAX-AGE=60"}, 60},
		{"quoted", []string{`Cache-Control: max-age="60"`}, 60},
		{"leading zeros", []string{"Cache-Control: max-age=0060"}, 60},
		{"on a second line", []string{"Cache-Control: public", "Cache-Control: max-age=60"}, 60},
		{"s-maxage wins", []string{"Cache-Control: max-age=60, s-maxage=5"}, 5},
		{"s-maxage wins in front too", []string{"Cache-Control: s-maxage=60, max-age=5"}, 60},
		{"s-maxage=0 wins", []string{"Cache-Control: s-maxage=0, max-age=5"}, 0},
		{"max-age wins over Expires", []string{"Cache-Control: max-age=5", date, "Expires: " + day + "13:00:00 GMT"}, 5},
		{"max-age=0 wins over Expires", []string{"Cache-Control: max-age=0", date, "Expires: " + day + "13:00:00 GMT"}, 0},
		{"Expires less Date", []string{date, "Expires: " + day + "12:01:00 GMT"}, 60},
		{"Expires without Date counts from now", []string{"Expires: " + day + "12:01:00 GMT"}, 60},
		{"Expires with an older Date", []string{"Date: " + day + "11:59:50 GMT", "Expires: " + day + "12:01:00 GMT"}, 60},
		{"Expires equal to Date", []string{date, "Expires: " + day + "12:00:00 GMT"}, 0},
		{"5.3: Expires: 0", []string{date, "Expires: 0"}, 0},
		{"5.3: two Expires", []string{date, "Expires: " + day + "12:01:00 GMT", "Expires: " + day + "12:01:00 GMT"}, 0},
		{"Expires with a bad Date", []string{"Date: soon", "Expires: " + day + "12:01:00 GMT"}, 0},
		{"Age counts", []string{"Cache-Control: max-age=60", "Age: 20"}, 40},
		{"Age of all the lifetime", []string{"Cache-Control: max-age=60", "Age: 60"}, 0},
		{"5.1: the first of two Ages", []string{"Cache-Control: max-age=60", "Age: 20, 30"}, 40},
		{"5.1: a malformed Age is ignored", []string{"Cache-Control: max-age=60", "Age: -20"}, 60},
		{"an old Date counts as age", []string{"Cache-Control: max-age=60", "Date: " + day + "11:59:30 GMT"}, 30},
		{"the larger of both ages", []string{"Cache-Control: max-age=60", "Age: 50", "Date: " + day + "11:59:30 GMT"}, 10},
		{"a Date ahead of us is no age", []string{"Cache-Control: max-age=60", "Date: " + day + "12:00:30 GMT"}, 60},
		{"4.2.1: repeated", []string{"Cache-Control: max-age=60, max-age=60"}, 0},
		{"4.2.1: conflicting on two lines", []string{"Cache-Control: max-age=60", "Cache-Control: max-age=5"}, 0},
		{"no number", []string{"Cache-Control: max-age=sixty"}, 0},
		{"no argument", []string{"Cache-Control: max-age"}, 0},
		{"empty argument", []string{"Cache-Control: max-age="}, 0},
		{"negative", []string{"Cache-Control: max-age=-60"}, 0},
		{"fraction", []string{"Cache-Control: max-age=60.5"}, 0},
		{"space before the argument", []string{"Cache-Control: max-age= 60"}, 0},
		{"space before the sign", []string{"Cache-Control: max-age =60"}, 0},
		{"words without a comma", []string{"Cache-Control: public max-age=60"}, 0},
		{"open quote", []string{`Cache-Control: max-age=60, x="y`}, 0},
		{"a broken max-age beside s-maxage", []string{"Cache-Control: s-maxage=60, max-age=x"}, 0},
		{"no directive", []string{"Cache-Control: max-age=60, =5"}, 0},
		{"1.2.2: more than fits", []string{"Cache-Control: max-age=99999999999999999999"}, maxSeconds},
		{"1.2.2: one more than fits 64 bits", []string{"Cache-Control: max-age=18446744073709551617"}, maxSeconds},
		{"Expires in the far future", []string{date, "Expires: Fri, 31 Dec 9999 23:59:59 GMT"}, maxSeconds},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, s := newSpace(t, Config{})
			stored := store(s, get("/"), response(200, 1, tt.fields...), "x", t0)
			if stored != (tt.want > 0) {
				t.Fatalf("stored: %v, want a lifetime of %d s", stored, tt.want)
			}
			if !stored {
				return
			}
			wantHit(t, s, get("/"), at(tt.want).Add(-time.Nanosecond), "x")
			wantNone(t, s, get("/"), at(tt.want), Expired, reasonStale)
		})
	}
}

// RFC 9111 §4.2.3: the time the answer took counts if it is known.
func TestTimeOnTheWayCountsAsAge(t *testing.T) {
	_, s := newSpace(t, Config{})
	r := get("/")
	r.Sent = at(-10)
	mustStore(t, s, r, okay("x", "Age: 5"), "x")
	found := s.Lookup(get("/"), at(7))
	if found.State != Hit || found.Age != 22*time.Second {
		t.Errorf("state %d, age %v, want a hit of 22s", found.State, found.Age)
	}
}

func TestAgeNeverShrinksWhenTheClockIsSetBack(t *testing.T) {
	_, s := newSpace(t, Config{})
	mustStore(t, s, get("/"), okay("x", "Age: 5"), "x")
	if found := s.Lookup(get("/"), at(-3600)); found.Age != 5*time.Second {
		t.Errorf("age %v, want 5s", found.Age)
	}
}

// RFC 9111 §5.2.1, §5.4 and RFC 9211 §2.2.
func TestRequestDirectivesLimitWhatMayAnswer(t *testing.T) {
	tests := []struct {
		rule   string
		r      *Request
		state  State
		reason string
	}{
		{"nothing asked", get("/"), Hit, ""},
		{"no-cache", get("/", "Cache-Control: no-cache"), Miss, reasonRequest},
		{"no-cache on the second line", get("/", "Cache-Control: foo", "Cache-Control: No-Cache"), Miss, reasonRequest},
		{"Pragma", get("/", "Pragma: no-cache"), Miss, reasonRequest},
		{"Pragma beside Cache-Control", get("/", "Cache-Control: foo", "Pragma: no-cache"), Miss, reasonRequest},
		{"max-age=0", get("/", "Cache-Control: max-age=0"), Miss, reasonRequest},
		{"max-age below the age", get("/", "Cache-Control: max-age=9"), Miss, reasonRequest},
		{"max-age of the age", get("/", "Cache-Control: max-age=10"), Hit, ""},
		{"min-fresh that is left", get("/", "Cache-Control: min-fresh=50"), Hit, ""},
		{"min-fresh beyond what is left", get("/", "Cache-Control: min-fresh=51"), Miss, reasonRequest},
		{"max-stale changes nothing", get("/", "Cache-Control: max-stale=1000"), Hit, ""},
		{"malformed", get("/", "Cache-Control: max-age=x"), Miss, reasonRequest},
		{"no-store", get("/", "Cache-Control: no-store"), Bypass, reasonBypass},
		{"Authorization", get("/", "Authorization: Basic x"), Bypass, reasonBypass},
		{"upgrade", get("/", "Upgrade: websocket"), Bypass, reasonBypass},
		{"body", get("/", "Content-Length: 2"), Bypass, reasonBypass},
		{"If-Match is for the origin", get("/", `If-Match: "x"`), Miss, reasonRequest},
		{"If-Unmodified-Since is for the origin", get("/", "If-Unmodified-Since: "+day+"12:00:00 GMT"), Miss, reasonRequest},
		{"POST", ask("POST", "/"), Bypass, reasonMethod},
		{"OPTIONS", ask("OPTIONS", "/"), Bypass, reasonMethod},
		{"HEAD", ask("HEAD", "/"), Hit, ""},
		{"another URI", get("/other", "Cache-Control: no-cache"), Miss, reasonURIMiss},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			_, s := newSpace(t, Config{})
			mustStore(t, s, get("/"), okay("x"), "x")
			if tt.state == Hit {
				wantHit(t, s, tt.r, at(10), "x")
				return
			}
			wantNone(t, s, tt.r, at(10), tt.state, tt.reason)
		})
	}
}

func TestMaxAgeZeroRefusesEvenWhatWasJustStored(t *testing.T) {
	_, s := newSpace(t, Config{})
	mustStore(t, s, get("/"), okay("x"), "x")
	wantNone(t, s, get("/", "Cache-Control: max-age=0"), t0, Miss, reasonRequest)
}

// RFC 9111 §2: the key is the URI, host compared without case, path with.
func TestKeyIsSchemeHostAndTarget(t *testing.T) {
	_, s := newSpace(t, Config{})
	mustStore(t, s, get("/a?b=c"), okay("x"), "x")
	change := func(f func(*Request)) *Request {
		r := get("/a?b=c")
		f(r)
		return r
	}
	same := []*Request{
		get("/a?b=c"), ask("HEAD", "/a?b=c"),
		change(func(r *Request) { r.Host = []byte("APP.Test") }),
		change(func(r *Request) { r.Scheme = []byte("HTTP") }),
	}
	for i, r := range same {
		if s.Lookup(r, t0).State != Hit {
			t.Errorf("same key %d: no hit", i)
		}
	}
	other := []*Request{
		get("/A?b=c"), get("/a?b=C"), get("/a"), get("/a?b=c&"), get("/%61?b=c"), get("//a?b=c"),
		change(func(r *Request) { r.Scheme = []byte("https") }),
		change(func(r *Request) { r.Host = []byte("app.test:80") }),
		change(func(r *Request) { r.Host = []byte("app.tes"); r.Target = []byte("t/a?b=c") }),
		change(func(r *Request) { r.Host = nil }),
	}
	for _, r := range other {
		wantNone(t, s, r, t0, Miss, reasonURIMiss)
	}
	long := change(func(r *Request) { r.Host = []byte(strings.Repeat("h", maxOrigin)) })
	wantNone(t, s, long, t0, Bypass, reasonBypass)
}

// Two URIs may share a hash; the page found must still be the one asked for.
func TestHashCollisionIsAMissAndTheNewerPageStays(t *testing.T) {
	c, s := newSpace(t, Config{})
	first, second := get("/first"), get("/second")
	f := s.Begin(first, okay("1"), t0)
	_, _ = f.Write([]byte("1"))
	f.page.id = c.newPage(s.core.Load(), second).id
	if !f.Commit() {
		t.Fatal("not stored")
	}
	wantNone(t, s, second, t0, Miss, reasonURIMiss)
	s.Invalidate(second) // must not touch what is not its page
	if got := c.Stats().Objects; got != 1 {
		t.Fatalf("%d objects, want 1", got)
	}
	mustStore(t, s, second, okay("2"), "2")
	wantHit(t, s, second, t0, "2")
	if got := c.Stats().Objects; got != 1 {
		t.Errorf("%d objects, want 1: the newer of the two", got)
	}
}

func TestFieldLinesThatCannotBeReplayedAreNotStored(t *testing.T) {
	for _, fields := range []string{
		"Broken", "Broken\r\n", ": x\r\n", "A: b", "A: b\n", "A: b\rc\r\n", "A : b\r\n",
		"A: b\r\n folded\r\n", "Set-Cookie: a=b\r\n", "\r\n",
	} {
		_, s := newSpace(t, Config{})
		resp := okay("x")
		resp.Fields = []byte("Cache-Control: max-age=60\r\n" + fields)
		if store(s, get("/"), resp, "x", t0) {
			t.Errorf("stored with the lines %q", fields)
		}
	}
}

func TestStoredFieldLinesKeepOrderAndCase(t *testing.T) {
	_, s := newSpace(t, Config{})
	resp := okay("x")
	resp.Fields = []byte("X-b: 1\r\nContent-Length: 1\r\nAGE: 3\r\nx-A:  2 \r\nTransfer-Encoding: x\r\nX-b:\r\n")
	mustStore(t, s, get("/"), resp, "x")
	resp.Fields[0] = '!' // the caller's buffer is its own
	o := wantHit(t, s, get("/"), t0, "x")
	if got, want := string(o.Fields), "X-b: 1\r\nx-A:  2 \r\nX-b:\r\n"; got != want {
		t.Errorf("fields %q, want %q", got, want)
	}
}

// RFC 9110 §5.6.7.
func TestDatesAreReadInAllThreeForms(t *testing.T) {
	want := time.Date(1994, time.November, 6, 8, 49, 37, 0, time.UTC)
	for _, good := range []string{
		"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994",
	} {
		if got, ok := parseDate([]byte(good)); !ok || !got.Equal(want) {
			t.Errorf("%q: %v, %v", good, got, ok)
		}
	}
	for _, bad := range []string{
		"", "0", "-1", "now", "Sun, 06 Nov 1994 08:49:37 UTC", "Sun, 06 Nov 1994 08:49:37 +0000",
		"Mon, 06 Nov 1994 08:49:37 GMT", "Sun, 06 nov 1994 08:49:37 GMT", "Sun, 06 Xxx 1994 08:49:37 GMT", "Mon, 06 Xxx 1994 08:49:37 GMT",
		"Wed, 30 Feb 1994 08:49:37 GMT", "Sun, 06 Nov 1994 24:49:37 GMT", "Sun, 06 Nov 1994 08:60:37 GMT",
		"Sun, 6 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GMTx", "Sun, 06 Nov 1994 08-49-37 GMT",
		"Sun, x6 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:37 GXT", "Sunday, 06-Nov-94 08:49:37 CET",
	} {
		if got, ok := parseDate([]byte(bad)); ok {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}
