package accesslog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/usher-edge/usher/edge"
)

// entry is a served request.
func entry() *edge.Entry {
	return &edge.Entry{
		Time: time.Date(2026, 3, 1, 12, 0, 0, 123456789, time.UTC), App: "hello",
		Client: []byte("192.0.2.7"), Method: []byte("GET"), Host: []byte("hello.localhost:8080"),
		Target: []byte("/a%2Fb?q=1&x=%20"), Minor: 1, ID: []byte("01JXYZ"),
		Result: edge.Result{Ending: edge.Served, Status: 200, BytesIn: 3, BytesOut: 1234},
		Cache:  edge.CacheMiss, Revision: 2, Generation: 5, Build: "4f2a9c01d3e5",
		Parked: 1500 * time.Microsecond, Duration: 12345678 * time.Nanosecond, Retries: 1,
	}
}

func with(change func(*edge.Entry)) *edge.Entry {
	e := entry()
	change(e)
	return e
}

func jsonLine(e *edge.Entry) []byte { return appendJSON(nil, e, new(stamps)) }

func combinedLine(e *edge.Entry) []byte { return appendCombined(nil, e, new(stamps)) }

// head is the fields of a request.
type head map[string]string

func (h head) Get(name string) []byte {
	if v, ok := h[name]; ok {
		return []byte(v)
	}
	return nil
}

func (h head) Each(string, func([]byte) bool) {}

func TestTheCombinedFormatHasReferrerAndUserAgentAndNoOtherField(t *testing.T) {
	fields := head{"user-agent": `Browser "1\2"`, "authorization": "secret", "cookie": "secret", "referer": strings.Repeat("r", 5000)}
	e := with(func(e *edge.Entry) { e.Header = fields })
	line := string(combinedLine(e))
	if want := ` "` + strings.Repeat("r", 1024) + `" "Browser \"1\\2\""` + "\n"; !strings.HasSuffix(line, want) {
		t.Errorf("%s does not end with %s", line, want)
	}
	if all := line + string(jsonLine(e)); strings.Contains(all, "secret") {
		t.Errorf("a secret is logged: %s", all)
	}
	if line := string(jsonLine(e)); strings.Contains(line, "rrr") || strings.Contains(line, "Browser") {
		t.Errorf("JSON has fields: %s", line)
	}
}

func TestALineHasWhatIsKnownOfTheRequest(t *testing.T) {
	for _, tc := range []struct {
		name           string
		entry          *edge.Entry
		json, combined string
	}{
		{
			"served", entry(),
			`{"time":"2026-03-01T12:00:00.123456Z","app":"hello","client":"192.0.2.7","method":"GET","host":"hello.localhost:8080",` +
				`"target":"/a%2Fb?q=1&x=%20","protocol":"HTTP/1.1","status":200,"bytes_in":3,"bytes_out":1234,` +
				`"duration_ms":12.345,"parked_ms":1.500,"cache":"miss","revision":2,"generation":5,"build":"4f2a9c01d3e5",` +
				`"retries":1,"id":"01JXYZ","ending":"served"}`,
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /a%2Fb?q=1&x=%20 HTTP/1.1" 200 1234 "-" "-"`,
		},
		{
			"refused while it was parked",
			with(func(e *edge.Entry) {
				e.Result = edge.Result{Ending: edge.Refused, Cause: edge.CauseWakeFailed, Status: 503}
				e.Cache, e.Generation, e.Reason, e.Retries = edge.CacheOff, 0, `exited: "panic"`, 0
				e.Parked, e.Duration = 2*time.Second, 2*time.Second+time.Millisecond
			}),
			`{"time":"2026-03-01T12:00:00.123456Z","app":"hello","client":"192.0.2.7","method":"GET","host":"hello.localhost:8080",` +
				`"target":"/a%2Fb?q=1&x=%20","protocol":"HTTP/1.1","status":503,"bytes_in":0,"bytes_out":0,` +
				`"duration_ms":2001.000,"parked_ms":2000.000,"revision":2,"generation":0,"build":"4f2a9c01d3e5",` +
				`"retries":0,"id":"01JXYZ","ending":"refused","cause":"wake-failed","reason":"exited: \"panic\""}`,
			`192.0.2.7 - - [01/Mar/2026:12:00:00 +0000] "GET /a%2Fb?q=1&x=%20 HTTP/1.1" 503 - "-" "-"`,
		},
		{
			"a head that was no HTTP",
			&edge.Entry{
				Time: time.Unix(1e9, 0), Client: []byte("::1"), Duration: -time.Second,
				Result: edge.Result{Ending: edge.Refused, Cause: edge.CauseBadRequest, Status: 400},
			},
			`{"time":"2001-09-09T01:46:40.000000Z","client":"::1","method":"","host":"","target":"","protocol":"HTTP/1.0",` +
				`"status":400,"bytes_in":0,"bytes_out":0,"duration_ms":0.000,"parked_ms":0.000,"revision":0,"generation":0,` +
				`"retries":0,"id":"","ending":"refused","cause":"bad-request"}`,
			`::1 - - [09/Sep/2001:01:46:40 +0000] "-" 400 - "-" "-"`,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := string(jsonLine(tc.entry)); got != tc.json+"\n" {
				t.Errorf("json\n%swant\n%s", got, tc.json)
			}
			tc.entry.Time = tc.entry.Time.In(time.UTC)
			got := string(combinedLine(tc.entry))
			if zone := tc.entry.Time.Local().Format("[02/Jan/2006:15:04:05 -0700]"); !strings.Contains(got, zone) {
				t.Errorf("no %s in %s", zone, got)
			} else if got = strings.Replace(got, zone, tc.entry.Time.Format("[02/Jan/2006:15:04:05 -0700]"), 1); got != tc.combined+"\n" {
				t.Errorf("combined\n%swant\n%s", got, tc.combined)
			}
		})
	}
}

// A client that leaves is neither a success nor a fault of the app (M01).
func TestTheStatusOfAClientThatLeftIs499(t *testing.T) {
	for _, tc := range []struct {
		name   string
		result edge.Result
		want   []string
	}{
		{"parked", edge.Result{Ending: edge.Gone, Cause: edge.CauseClientGone}, []string{`"status":499,"bytes_in"`, `"cause":"client-gone"`}},
		{"within the body", edge.Result{Ending: edge.Gone, Cause: edge.CauseClientGone, Status: 200, BytesOut: 7}, []string{`"status":499,"sent_status":200,`, `"bytes_out":7`}},
		{"too slow", edge.Result{Ending: edge.Gone, Cause: edge.CauseSlowClient, Status: 200}, []string{`"status":499,"sent_status":200,`, `"cause":"slow-client"`}},
		{"cut before anything was sent", edge.Result{Ending: edge.Failed, Cause: edge.CauseDrainCut}, []string{`"status":0,"bytes_in"`, `"ending":"failed","cause":"drain-cut"`}},
		{"the app broke off within the body", edge.Result{Ending: edge.Failed, Cause: edge.CauseAborted, Status: 200}, []string{`"status":200,"bytes_in"`}},
	} {
		got := string(jsonLine(with(func(e *edge.Entry) { e.Result = tc.result })))
		for _, part := range tc.want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: no %s in %s", tc.name, part, got)
			}
		}
	}
}

func TestWhatDoesNotPrintIsEscaped(t *testing.T) {
	for _, tc := range []struct{ in, json, c string }{
		{"plain ü 日本 😀", "plain ü 日本 😀", "plain ü 日本 😀"},
		{"a\"b\\c", `a\"b\\c`, `a\"b\\c`},
		{"a\r\nb\x00\t\x1b[31m\x7f", `a\u000d\u000ab\u0000\u0009\u001b[31m\u007f`, `a\x0d\x0ab\x00\x09\x1b[31m\x7f`},
		{"\u009b\u2028\u202e", `\u009b\u2028\u202e`, `\xc2\x9b\xe2\x80\xa8\xe2\x80\xae`},
		{"\U000e0001", `\udb40\udc01`, `\xf3\xa0\x80\x81`},
		{"/\xff\xc3(", `/\\xff\\xc3(`, `/\xff\xc3(`},
		{"\xed\xa0\x80", `\\xed\\xa0\\x80`, `\xed\xa0\x80`},
		{"\ufffd", "\ufffd", "\ufffd"},
	} {
		if got := string(escape(nil, []byte(tc.in), escapeJSON)); got != tc.json {
			t.Errorf("json of %q: %s, want %s", tc.in, got, tc.json)
		}
		if got := string(escape(nil, []byte(tc.in), escapeC)); got != tc.c {
			t.Errorf("combined of %q: %s, want %s", tc.in, got, tc.c)
		}
	}
}

func TestACombinedLineKeepsItsFieldsApart(t *testing.T) {
	e := with(func(e *edge.Entry) {
		e.Client = []byte(`1.2.3.4 "- -`)
		e.Target = []byte(`/" 200 1 "x`)
	})
	got := string(combinedLine(e))
	if !strings.HasPrefix(got, "- - - [") || !strings.Contains(got, `"GET /\" 200 1 \"x HTTP/1.1" 200 1234`) {
		t.Error(got)
	}
}

func TestAnyBytesMakeOneLineThatPrints(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		someBytes := func(name string) []byte {
			return rapid.OneOf(
				rapid.SliceOf(rapid.Byte()),
				rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
			).Draw(rt, name)
		}
		e := with(func(e *edge.Entry) {
			e.Client, e.Method, e.Host = someBytes("client"), someBytes("method"), someBytes("host")
			e.Target, e.ID, e.Reason, e.App = someBytes("target"), someBytes("id"), string(someBytes("reason")), string(someBytes("app"))
		})
		line := jsonLine(e)
		for _, l := range [][]byte{line, combinedLine(e)} {
			if bytes.IndexByte(l, '\n') != len(l)-1 || !utf8.Valid(l) || bytes.ContainsFunc(l[:len(l)-1], func(r rune) bool { return !unicode.IsPrint(r) }) {
				rt.Fatalf("not one line that prints: %q", l)
			}
		}
		var got struct{ Host, Target, Reason, App string }
		dec := json.NewDecoder(bytes.NewReader(line))
		if err := dec.Decode(&got); err != nil {
			rt.Fatalf("%v: %s", err, line)
		}
		for in, out := range map[string]string{string(e.Host): got.Host, string(e.Target): got.Target, e.Reason: got.Reason, e.App: got.App} {
			if utf8.ValidString(in) && in != out {
				rt.Fatalf("%q came back as %q", in, out)
			}
		}
	})
}

func TestALineHasItsOwnSecond(t *testing.T) {
	at := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	var utc, local stamps
	for _, later := range []time.Duration{0, time.Millisecond, time.Second, -time.Hour, 24 * time.Hour, 0} {
		e := with(func(e *edge.Entry) { e.Time = at.Add(later) })
		if got, want := string(appendJSON(nil, e, &utc)), string(jsonLine(e)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if got, want := string(appendCombined(nil, e, &local)), string(combinedLine(e)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestTimesHaveMicroseconds(t *testing.T) {
	for _, nanos := range []int{0, 1, 999, 1000, 120_000_000, 999_999_999} {
		at := time.Date(2026, 2, 3, 4, 5, 6, nanos, time.UTC)
		if got, want := string(appendTime(nil, at, new(stamps))), at.Format("2006-01-02T15:04:05.000000Z"); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

func TestEachByteIsEscapedOrNotAtEveryPlace(t *testing.T) {
	const before = "\"\\\x00\x7f\xff" // what is there already does not count
	for size := range 26 {
		for at := range size {
			for c := range 256 {
				in := bytes.Repeat([]byte("~ "), 13)[:size]
				in[at] = byte(c)
				want := string(in)
				if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
					want = string(in[:at]) + string(escapeJSON(nil, in[at:at+1])) + string(in[at+1:])
				}
				if got := plain(in); got != (want == string(in)) {
					t.Fatalf("%q: %t", in, got)
				}
				for _, got := range [][]byte{text([]byte(before), in), word([]byte(before), string(in))} {
					if string(got) != before+want {
						t.Fatalf("%q: %q, want %q", in, got[len(before):], want)
					}
				}
			}
		}
	}
}

func TestNumbersAreWrittenAsTheyAre(t *testing.T) {
	numbers := []int64{-1, math.MinInt64, math.MaxInt64, 1e8, 1e9}
	for n := range int64(20_000) {
		numbers = append(numbers, n, n*5003)
	}
	for power := int64(10); power <= 1e8; power *= 10 {
		numbers = append(numbers, power-1, power, power+1)
	}
	for _, n := range numbers {
		if got, want := string(integer(nil, n)), strconv.FormatInt(n, 10); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		d := time.Duration(n) * time.Microsecond
		if got, want := string(milliseconds(nil, d)), fmt.Sprintf("%d.%03d", max(0, d.Microseconds())/1000, max(0, d.Microseconds())%1000); got != want {
			t.Fatalf("%v: %s, want %s", d, got, want)
		}
	}
}

func BenchmarkLine(b *testing.B) {
	e, room := entry(), make([]byte, 0, 1<<10)
	for name, line := range map[string]func([]byte, *edge.Entry, *stamps) []byte{"JSON": appendJSON, "Combined": appendCombined} {
		b.Run(name, func(b *testing.B) {
			s := new(stamps)
			for b.Loop() {
				line(room, e, s)
			}
		})
	}
}
