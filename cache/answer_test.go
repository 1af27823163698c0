package cache

import (
	"strings"
	"testing"
)

// stored returns an object that was stored with these fields.
func stored(t *testing.T, body string, status int, texts ...string) *Object {
	t.Helper()
	_, s := newSpace(t, Config{})
	fields := append([]string{"Cache-Control: max-age=60"}, texts...)
	mustStore(t, s, get("/"), response(status, int64(len(body)), fields...), body)
	return wantHit(t, s, get("/"), t0, body)
}

const (
	modified = "Last-Modified: " + day + "10:00:00 GMT"
	dated    = "Date: " + day + "12:00:00 GMT"
)

// RFC 9110 §13.1 and §13.2.2, RFC 9111 §4.3.2.
func TestConditionalRequestsAreAnsweredFromTheStore(t *testing.T) {
	both := []string{`ETag: "v1"`, modified}
	tests := []struct {
		rule   string
		fields []string
		asks   []string
		want   int
	}{
		{"13.1.2: the same tag", both, []string{`If-None-Match: "v1"`}, 304},
		{"13.1.2: weak comparison, theirs weak", both, []string{`If-None-Match: W/"v1"`}, 304},
		{"13.1.2: weak comparison, ours weak", []string{`ETag: W/"v1"`}, []string{`If-None-Match: "v1"`}, 304},
		{"13.1.2: another tag", both, []string{`If-None-Match: "v2"`}, 200},
		{"13.1.2: tags are case-sensitive", both, []string{`If-None-Match: "V1"`}, 200},
		{"13.1.2: one of several", both, []string{`If-None-Match: "a,b" ,W/"c",, "v1"`}, 304},
		{"13.1.2: on the second line", both, []string{`If-None-Match: "a"`, `If-None-Match: "v1"`}, 304},
		{"13.1.2: star", both, []string{"If-None-Match: *"}, 304},
		{"13.1.2: star without validators", nil, []string{"If-None-Match: *"}, 304},
		{"13.1.2: a tag that holds ours", both, []string{`If-None-Match: "xv1"`}, 200},
		{"malformed: no quotes", both, []string{"If-None-Match: v1"}, 200},
		{"malformed: open quote", both, []string{`If-None-Match: "v1`}, 200},
		{"malformed: no comma", both, []string{`If-None-Match: "a" "v1"`}, 200},
		{"malformed: space in a tag", both, []string{`If-None-Match: "a b", "v1"`}, 200},
		{"no tag stored", []string{modified}, []string{`If-None-Match: "v1"`}, 200},
		{"two tags stored", []string{`ETag: "v1"`, `ETag: "v2"`}, []string{`If-None-Match: "v1"`}, 200},
		{"bare tag stored", []string{"ETag: v1"}, []string{`If-None-Match: "v1"`}, 200},
		{"13.1.3: the same date", both, []string{"If-Modified-Since: " + day + "10:00:00 GMT"}, 304},
		{"13.1.3: a later date", both, []string{"If-Modified-Since: " + day + "11:00:00 GMT"}, 304},
		{"13.1.3: an earlier date", both, []string{"If-Modified-Since: " + day + "09:59:59 GMT"}, 200},
		{"13.1.3: no date", both, []string{"If-Modified-Since: yesterday"}, 200},
		{
			"13.1.3: two dates", both,
			[]string{"If-Modified-Since: " + day + "10:00:00 GMT", "If-Modified-Since: " + day + "10:00:00 GMT"},
			200,
		},
		{"Date does not stand in for Last-Modified", []string{dated}, []string{"If-Modified-Since: " + day + "12:00:00 GMT"}, 200},
		{
			"13.2.2: the tag decides, not the date", both,
			[]string{`If-None-Match: "v2"`, "If-Modified-Since: " + day + "11:00:00 GMT"},
			200,
		},
		{"13.2.2: before Range", both, []string{`If-None-Match: "v1"`, "Range: bytes=0-0"}, 304},
	}
	for _, tt := range tests {
		t.Run(tt.rule, func(t *testing.T) {
			o := stored(t, "body", 200, tt.fields...)
			for _, method := range []string{"GET", "HEAD"} {
				reply := o.Answer(ask(method, "/", tt.asks...))
				if reply.Status != tt.want {
					t.Errorf("%s: status %d, want %d", method, reply.Status, tt.want)
				}
				if reply.Status == 304 && (reply.Body != nil || reply.Length != -1) {
					t.Errorf("%s: a 304 with content: %q, length %d", method, reply.Body, reply.Length)
				}
			}
		})
	}
}

// RFC 9110 §13.2.1: no precondition on what is no success.
func TestConditionsOnErrorsAndRedirectsAreIgnored(t *testing.T) {
	for _, status := range []int{301, 404, 410} {
		o := stored(t, "body", status, `ETag: "v1"`)
		if got := o.Answer(get("/", `If-None-Match: "v1"`, "Range: bytes=0-0")); got.Status != status || string(got.Body) != "body" {
			t.Errorf("%d became %d with %q", status, got.Status, got.Body)
		}
	}
}

// RFC 9110 §15.4.5.
func TestNotModifiedCarriesNoFieldsAboutContent(t *testing.T) {
	o := stored(t, "body", 200, "Content-Type: text/html", `ETag: "v1"`, "Content-Encoding: br",
		"Content-Language: en", "Content-Location: /x", "Vary: Accept", "X-App: 1")
	want := "Cache-Control: max-age=60\r\nETag: \"v1\"\r\nContent-Location: /x\r\nVary: Accept\r\nX-App: 1\r\n"
	if got := o.Answer(get("/", `If-None-Match: "v1"`)); string(got.Fields) != want {
		t.Errorf("fields %q, want %q", got.Fields, want)
	}
	if !strings.Contains(string(o.Fields), "Content-Type: text/html\r\n") {
		t.Errorf("the whole lost its type: %q", o.Fields)
	}
}

// C12. RFC 9110 §14.1.2, §14.2, §13.1.5.
func TestRangesAreCutExactly(t *testing.T) {
	const all = "0123456789"
	tests := []struct {
		asks   []string
		status int
		body   string
		extra  string
	}{
		{[]string{"Range: bytes=0-0"}, 206, "0", "bytes 0-0/10"},
		{[]string{"Range: bytes=0-9"}, 206, all, "bytes 0-9/10"},
		{[]string{"Range: bytes=0-"}, 206, all, "bytes 0-9/10"},
		{[]string{"Range: bytes=5-"}, 206, "56789", "bytes 5-9/10"},
		{[]string{"Range: bytes=9-9"}, 206, "9", "bytes 9-9/10"},
		{[]string{"Range: bytes=8-100"}, 206, "89", "bytes 8-9/10"},
		{[]string{"Range: bytes=-1"}, 206, "9", "bytes 9-9/10"},
		{[]string{"Range: bytes=-10"}, 206, all, "bytes 0-9/10"},
		{[]string{"Range: bytes=-11"}, 206, all, "bytes 0-9/10"},
		{[]string{"Range: bytes=-99999999999999999999"}, 206, all, "bytes 0-9/10"},
		{[]string{"Range: bytes=3-99999999999999999999"}, 206, "3456789", "bytes 3-9/10"},
		{[]string{"Range: BYTES=1-2"}, 206, "12", "bytes 1-2/10"},
		{[]string{"Range: bytes= 1-2 "}, 206, "12", "bytes 1-2/10"},
		{[]string{"Range: bytes=10-"}, 416, "", "bytes */10"},
		{[]string{"Range: bytes=10-12"}, 416, "", "bytes */10"},
		{[]string{"Range: bytes=99999999999999999999-"}, 416, "", "bytes */10"},
		{[]string{"Range: bytes=18446744073709551617-"}, 416, "", "bytes */10"},
		{[]string{"Range: bytes=-0"}, 416, "", "bytes */10"},
		{[]string{"Range: bytes=0-0,-1"}, 200, all, ""},
		{[]string{"Range: bytes=0-0,"}, 200, all, ""},
		{[]string{"Range: bytes=2-1"}, 200, all, ""},
		{[]string{"Range: bytes=12-11"}, 200, all, ""},
		{[]string{"Range: bytes=-"}, 200, all, ""},
		{[]string{"Range: bytes="}, 200, all, ""},
		{[]string{"Range: bytes"}, 200, all, ""},
		{[]string{"Range: bytes=a-b"}, 200, all, ""},
		{[]string{"Range: bytes=1-b"}, 200, all, ""},
		{[]string{"Range: bytes=+1-2"}, 200, all, ""},
		{[]string{"Range: bytes=1--2"}, 200, all, ""},
		{[]string{"Range: bytes=--2"}, 200, all, ""},
		{[]string{"Range: lines=1-2"}, 200, all, ""},
		{[]string{"Range: bytes=0-0", "Range: bytes=1-1"}, 200, all, ""},
		{[]string{"Range: bytes=0-0", `If-Range: "v1"`}, 206, "0", "bytes 0-0/10"},
		{[]string{"Range: bytes=0-0", `If-Range: "v0"`}, 200, all, ""},
		{[]string{"Range: bytes=0-0", `If-Range: W/"v1"`}, 200, all, ""},
		{[]string{"Range: bytes=99-", `If-Range: "v0"`}, 200, all, ""},
		{[]string{"Range: bytes=0-0", "If-Range: " + day + "10:00:00 GMT"}, 206, "0", "bytes 0-0/10"},
		{[]string{"Range: bytes=0-0", "If-Range: " + day + "11:00:00 GMT"}, 200, all, ""},
		{[]string{"Range: bytes=0-0", "If-Range: " + day + "09:00:00 GMT"}, 200, all, ""},
		{[]string{"Range: bytes=0-0", "If-Range:"}, 200, all, ""},
		{[]string{"Range: bytes=0-0", `If-Range: "v1"`, `If-Range: "v1"`}, 200, all, ""},
	}
	o := stored(t, all, 200, `ETag: "v1"`, modified, dated)
	for _, tt := range tests {
		t.Run(strings.Join(tt.asks, " "), func(t *testing.T) {
			got := o.Answer(get("/", tt.asks...))
			extra := tt.extra
			if extra != "" {
				extra = "Content-Range: " + extra + "\r\n"
			}
			if got.Status != tt.status || string(got.Body) != tt.body || string(got.Extra) != extra {
				t.Errorf("%d %q %q, want %d %q %q", got.Status, got.Body, got.Extra, tt.status, tt.body, extra)
			}
			if got.Length != int64(len(tt.body)) {
				t.Errorf("length %d, want %d", got.Length, len(tt.body))
			}
		})
	}
}

// RFC 9110 §14.2: Range is defined for GET; §9.3.2.
func TestHeadIgnoresRange(t *testing.T) {
	o := stored(t, "0123456789", 200)
	if got := o.Answer(ask("HEAD", "/", "Range: bytes=0-0")); got.Status != 200 || got.Length != 10 || got.Body != nil {
		t.Errorf("%d, length %d, body %q", got.Status, got.Length, got.Body)
	}
}

// RFC 9110 §13.1.5 with §8.8.2.2: a date is strong only if it is clearly older
// than the answer.
func TestIfRangeWithAWeakOrMissingValidatorSendsAll(t *testing.T) {
	tests := map[string][]string{
		"weak tag":                  {`ETag: W/"v1"`},
		"modified when it was sent": {"Last-Modified: " + day + "12:00:00 GMT", dated},
		"no Date":                   {modified},
		"no validator":              nil,
	}
	for name, fields := range tests {
		o := stored(t, "0123456789", 200, fields...)
		for _, value := range []string{`W/"v1"`, `"v1"`, day + "10:00:00 GMT", day + "12:00:00 GMT"} {
			if got := o.Answer(get("/", "Range: bytes=0-0", "If-Range: "+value)); got.Status != 200 {
				t.Errorf("%s, If-Range %s: status %d, want 200", name, value, got.Status)
			}
		}
	}
}

func TestRangeOfAnEmptyBody(t *testing.T) {
	o := stored(t, "", 200)
	for asked, want := range map[string]int{"bytes=0-": 416, "bytes=-5": 200, "bytes=-0": 416} {
		if got := o.Answer(get("/", "Range: "+asked)); got.Status != want {
			t.Errorf("%s: status %d, want %d", asked, got.Status, want)
		}
	}
}

// RFC 9110 §8.6 and §15.3.5: no Content-Length on a 204.
func TestNoContentHasNoLength(t *testing.T) {
	o := stored(t, "", 204)
	for _, method := range []string{"GET", "HEAD"} {
		if got := o.Answer(ask(method, "/", "Range: bytes=0-0")); got.Status != 204 || got.Length != -1 || got.Body != nil {
			t.Errorf("%s: %d, length %d, body %q", method, got.Status, got.Length, got.Body)
		}
	}
}
