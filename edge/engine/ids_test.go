package engine

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestEveryNumberHasItsOwnDigits(t *testing.T) {
	for _, n := range []uint32{0, 9, 10, 0x0f, 0xa0, 0x12345678, 0x9abcdef0, 0xffffffff, 0x99999999, 0xaaaaaaaa} {
		digits := binary.LittleEndian.AppendUint64(nil, hexDigits(n))
		slices.Reverse(digits)
		if want := fmt.Sprintf("%08x", n); string(digits) != want {
			t.Errorf("%q, want %q", digits, want)
		}
	}
}

func TestRequestsOfAllConnectionsHaveNumbersOfTheirOwn(t *testing.T) {
	seen := map[uint64]bool{}
	for range 100 {
		c := newConn(&Server{}, &door{}, nil, peer{})
		for range 1000 {
			n := c.ids.next()
			if seen[n] {
				t.Fatalf("%x twice", n)
			}
			seen[n] = true
		}
	}
}

// "X-Request-Id accepted only from trusted peers and only if well formed": one that comes
// twice is not, as nobody knows which of them others go by. The app and the log have
// the same one, and the app has one.
func TestARequestIDIsTakenOnlyIfTheTrustedPeerSentOne(t *testing.T) { // RFC 9110 5.3
	o := newOrigin(t, each(func(s *stage, q *http.Request) { s.ok(strings.Join(q.Header.Values("X-Request-Id"), "|")) }))
	own := regexp.MustCompile("^[0-9a-f]{16}$")
	for _, c := range []struct {
		name, fields, want string // want "": one of ours
	}{
		{"one", "X-Request-Id: a-1\r\n", "a-1"},
		{"one in another case", "x-request-ID: a-1\r\n", "a-1"},
		{"none", "", ""},
		{"empty", "X-Request-Id:\r\n", ""},
		{"not well formed", "X-Request-Id: a b\r\n", ""},
		{"a list", "X-Request-Id: a-1, a-1\r\n", ""},
		{"twice, different", "X-Request-Id: a-1\r\nX-Request-Id: b-2\r\n", ""},
		{"twice, alike", "X-Request-Id: a-1\r\nX-Request-Id: a-1\r\n", ""},
		{"twice, apart and in another case", "X-Request-Id: a-1\r\nX: y\r\nx-request-id: b-2\r\n", ""},
		{"twice, the first empty", "X-Request-Id:\r\nX-Request-Id: a-1\r\n", ""},
		{"twice, the second empty", "X-Request-Id: a-1\r\nX-Request-Id:\r\n", ""},
		{"three times", "X-Request-Id: a\r\nX-Request-Id: b\r\nX-Request-Id: c\r\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, rigOptions{unix: true}) // whose peers are trusted
			r.app.Place(o.placement(1))
			k := r.dial()
			k.send(gateGet(c.fields))
			got := k.status(200).body
			if taken := got == c.want; !taken && (c.want != "" || !own.MatchString(got)) {
				t.Errorf("the app got %q, want %q", got, c.want)
			}
			if id := string(r.last(1).ID); id != got {
				t.Errorf("the log has %q, the app got %q", id, got)
			}
		})
	}
}
