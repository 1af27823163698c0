package http1

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func browserRequest() []byte {
	return []byte(crlf(
		"GET /assets/app.css?v=12 HTTP/1.1",
		"Host: hello.example.com",
		"Connection: keep-alive",
		"User-Agent: Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0 Safari/537.36",
		"Accept: text/css,*/*;q=0.1",
		"Accept-Encoding: gzip, deflate, br",
		"Accept-Language: en-GB,en;q=0.9",
		"Referer: https://hello.example.com/",
		"Cookie: session=0123456789abcdef0123456789abcdef; theme=dark",
		"Sec-Fetch-Mode: no-cors",
		""))
}

func appResponse() []byte {
	return []byte(crlf(
		"HTTP/1.1 200 OK",
		"Date: Mon, 01 Jan 2024 00:00:00 GMT",
		"Content-Type: text/css; charset=utf-8",
		"Content-Length: 1024",
		"Cache-Control: public, max-age=60",
		"ETag: \"0123456789abcdef\"",
		"Set-Cookie: a=b; Path=/; HttpOnly",
		"Vary: Accept-Encoding",
		"Keep-Alive: timeout=5",
		""))
}

func fullForward() *Forward {
	return &Forward{
		ClientIP: []byte("192.0.2.1"), Proto: []byte("http"), RequestID: []byte("0123456789abcdef0123456789abcdef"),
		RequestStart: 1700000000000, Via: []byte("usher-0123"),
	}
}

// hotPath returns what every request costs here, by name.
func hotPath() map[string]func() {
	request, response := browserRequest(), appResponse()
	chunked := AppendLastChunk(AppendChunk(AppendChunk(nil, bytes.Repeat([]byte("x"), 4096)), make([]byte, 100)), nil)
	var q Request
	var r Response
	q.Parse(request, nil)
	r.Parse(response, []byte("GET"), nil)
	parsedQ, parsedR := mustParsed(request), new(Response)
	parsedR.Parse(response, []byte("GET"), nil)
	dst := make([]byte, 0, 4096)
	forward, answer := fullForward(), &Answer{Minor: 1, KeepAlive: true, Via: []byte("usher-0123"), Extra: []byte("Usher-Generation: 7\r\n")}
	refused := []byte("GET / HTTP/1.1\nHost: x\r\n\r\n")
	head, self := []byte("GET"), []byte("usher-0123")
	var f Framer
	return map[string]func(){
		"ParseRequest":   func() { q.Parse(request, nil) },
		"ParseResponse":  func() { r.Parse(response, head, nil) },
		"ParseRefused":   func() { q.Parse(refused, nil) },
		"AppendRequest":  func() { dst = AppendRequest(dst[:0], parsedQ, forward) },
		"AppendResponse": func() { dst = AppendResponse(dst[:0], parsedR, answer) },
		"AppendFields":   func() { dst = AppendFields(dst[:0], parsedR) },
		"Get":            func() { parsedQ.Get("cookie"); parsedQ.Loops(self) },
		"Framer": func() {
			f.Reset(Chunked)
			for b := chunked; len(b) > 0; {
				_, n, _, _ := f.Next(b)
				b = b[n:]
			}
		},
	}
}

func mustParsed(b []byte) *Request {
	q := new(Request)
	q.Parse(b, nil)
	return q
}

// Four times the bytes cost four times as much; if they were read from the start each
// time, it would be sixteen times.
func TestAHeadSentByteByByteCostsNoMoreThanItsLength(t *testing.T) {
	for _, fill := range []string{"a", "\t"} {
		cost := func(n int) time.Duration {
			raw, best := []byte(get("X: "+strings.Repeat(fill, n)+"\r\n")), time.Hour
			for range 7 {
				best = min(best, trickle(t, raw))
			}
			return best
		}
		if short, long := cost(7<<10), cost(28<<10); long > 9*short {
			t.Errorf("7 KiB of %q take %v, 28 KiB %v", fill, short, long)
		}
	}
}

func trickle(t *testing.T, head []byte) time.Duration {
	begin := time.Now()
	var q Request
	for i := range head {
		if _, err := q.Parse(head[:i+1], nil); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(begin)
}

func BenchmarkHotPath(b *testing.B) {
	for name, f := range hotPath() {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				f()
			}
		})
	}
}
