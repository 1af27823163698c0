package http1

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// spelled returns the lines as a head, the blanks around some values, or the
// blank that they lack, by chance.
func spelled(rnd *rand.Rand, first string, fields []string) string {
	odd := []string{":", ":  ", ":\t", ": "}
	var b strings.Builder
	b.WriteString(first + "\r\n")
	for _, f := range fields {
		name, value, _ := strings.Cut(f, ": ")
		b.WriteString(name + odd[rnd.IntN(len(odd))] + value + []string{"", "", " ", "\t "}[rnd.IntN(4)] + "\r\n")
	}
	return b.String() + "\r\n"
}

// some returns a few of the fields, in any order.
func some(rnd *rand.Rand, fields []string) []string {
	var got []string
	for _, i := range rnd.Perm(len(fields))[:rnd.IntN(len(fields))] {
		got = append(got, fields[i])
	}
	return got
}

func TestBlanksAroundAValueMakeNoDifferenceToWhatGoesOn(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	shared := []string{
		"A: 1", "b: two", "Via: 1.0 x", "Connection: keep-alive", "Connection: A, Content-Length, Via", "Keep-Alive: timeout=5",
		"TE: trailers", "Usher-X: 1", "Proxy-X: 1", "X_Real_IP: 1", "Cookie: ", "Content-Length: 7", "Trailer: X", "User-Agent: x y",
	}
	requests := append(shared[:len(shared):len(shared)], "X-Forwarded-For: 1", "X-Forwarded-Proto: https", "X-Request-Id: a", "Forwarded: for=1")
	for range 3000 {
		fields := append(some(rnd, requests), "Host: a.test:80")
		at := rnd.IntN(len(fields))
		fields[at], fields[len(fields)-1] = fields[len(fields)-1], fields[at]
		first := []string{"GET /x?y HTTP/1.1", "GET /x HTTP/1.0", "PUT http://a.test:80/z HTTP/1.1"}[rnd.IntN(3)]
		f := &Forward{ClientIP: []byte("192.0.2.1"), Proto: []byte("http"), Via: []byte("usher"), Trusted: rnd.IntN(2) == 0}
		plain := AppendRequest(nil, mustRequest(t, first+"\r\n"+strings.Join(append(fields, "", ""), "\r\n")), f)
		raw := spelled(rnd, first, fields)
		if got := AppendRequest(nil, mustRequest(t, "\r\n"+raw), f); string(got) != string(plain) {
			t.Fatalf("%q goes on as\n%q, not as\n%q", raw, got, plain)
		}
	}
	for range 3000 {
		fields := some(rnd, append(shared, "Set-Cookie: a=b", "Content-Type: text/html"))
		first := []string{"HTTP/1.1 200 OK", "HTTP/1.0 200 OK", "HTTP/1.1 304 ", "HTTP/1.1 204 No"}[rnd.IntN(4)]
		a := &Answer{Minor: 1, KeepAlive: rnd.IntN(2) == 0, Via: []byte("usher"), Extra: []byte("X: 1\r\n")}
		plain := AppendResponse(nil, mustResponse(t, "GET", first+"\r\n"+strings.Join(append(fields, "", ""), "\r\n")), a)
		raw := spelled(rnd, strings.TrimSuffix(first, " "), fields)
		if got := AppendResponse(nil, mustResponse(t, "GET", raw), a); string(got) != string(plain) {
			t.Fatalf("%q goes on as\n%q, not as\n%q", raw, got, plain)
		}
	}
}

func TestNothingThatNobodySentStandsBetweenLines(t *testing.T) {
	// A line that passes, one that does not, and one that does again: two pieces.
	q := mustRequest(t, "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nTE: x\r\nB: 2\r\nC: 3\r\n\r\n")
	if got := string(AppendRequest(nil, q, &Forward{})); got != "GET / HTTP/1.1\r\nHost: a\r\nA: 1\r\nB: 2\r\nC: 3\r\nX-Forwarded-Host: a\r\n\r\n" {
		t.Errorf("%q", got)
	}
	r := mustResponse(t, "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\nKeep-Alive: x\r\nB: 2\r\n\r\n")
	if got := string(AppendResponse(nil, r, &Answer{Minor: 1, KeepAlive: true})); got != "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nB: 2\r\n\r\n" {
		t.Errorf("%q", got)
	}
	// A length that could be shorter is not copied.
	r = mustResponse(t, "GET", "HTTP/1.1 200 OK\r\nA: 1\r\ncontent-length: 007\r\nB: 2\r\n\r\n")
	if got := string(AppendResponse(nil, r, &Answer{Minor: 1, KeepAlive: true})); got != "HTTP/1.1 200 OK\r\nA: 1\r\ncontent-length: 7\r\nB: 2\r\n\r\n" {
		t.Errorf("%q", got)
	}
}

func TestNumbersAreWrittenAsTheyAre(t *testing.T) {
	numbers := []int64{math.MaxInt64}
	for n := range int64(20_000) {
		numbers = append(numbers, n, n*5003, n*123_456_789_012)
	}
	for power := int64(1); power < 1e18; power *= 10 {
		numbers = append(numbers, power-1, power, power+1)
	}
	for _, n := range numbers {
		if got, want := string(appendDecimal([]byte("t="), n)), fmt.Sprintf("t=%d", n); got != want {
			t.Fatalf("%s, want %s", got, want)
		}
	}
}
