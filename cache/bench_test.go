package cache

import (
	"fmt"
	"testing"
	"time"
)

// browser is what a browser sends along with most requests.
var browser = []string{
	"Host: app.test", "User-Agent: Mozilla/5.0 (X11; Linux x86_64)", "Accept: text/html,*/*;q=0.8",
	"Accept-Language: en-GB,en;q=0.5", "Accept-Encoding: gzip, br", "Cookie: theme=dark",
	"Sec-Fetch-Mode: navigate", "X-Forwarded-For: 192.0.2.7",
}

func benchSpace(b *testing.B, texts ...string) (*Space, *Request) {
	s := New(Config{}).Space("app", 1)
	r := get("/page", browser...)
	if !store(s, r, okay("hello", texts...), "hello", time.Now()) {
		b.Fatal("not stored")
	}
	return s, r
}

func BenchmarkLookupHit(b *testing.B) {
	s, r := benchSpace(b)
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if s.Lookup(r, now).State != Hit {
			b.Fatal("no hit")
		}
	}
}

func BenchmarkLookupHitWithVary(b *testing.B) {
	s, r := benchSpace(b, "Vary: Accept-Encoding")
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if s.Lookup(r, now).State != Hit {
			b.Fatal("no hit")
		}
	}
}

func BenchmarkLookupHitParallel(b *testing.B) {
	s, _ := benchSpace(b)
	now := time.Now()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		r := get("/page", browser...)
		for pb.Next() {
			if s.Lookup(r, now).State != Hit {
				b.Error("no hit")
			}
		}
	})
}

func BenchmarkLookupMiss(b *testing.B) {
	s, r := benchSpace(b)
	r.Target = []byte("/another")
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		if s.Lookup(r, now).State != Miss {
			b.Fatal("no miss")
		}
	}
}

func BenchmarkAnswer(b *testing.B) {
	s, r := benchSpace(b, `ETag: "v1"`)
	o := s.Lookup(r, time.Now()).Object
	for name, asks := range map[string]string{
		"whole": "Accept: */*", "not-modified": `If-None-Match: "v1"`, "range": "Range: bytes=1-3",
	} {
		b.Run(name, func(b *testing.B) {
			r := get("/page", append(browser, asks)...)
			b.ReportAllocs()
			for b.Loop() {
				if o.Answer(r).Status == 0 {
					b.Fatal("no answer")
				}
			}
		})
	}
}

func BenchmarkStore(b *testing.B) {
	for _, size := range []int{1 << 10, 64 << 10} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) {
			s := New(Config{MaxBytes: 64 << 20}).Space("app", 1)
			body := []byte(text(size))
			resp := okay(string(body), "Content-Type: text/html", `ETag: "v1"`, "Vary: Accept-Encoding")
			r := get("/000000", browser...)
			now := time.Now()
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				r.Target = fmt.Appendf(r.Target[:0], "/%06d", i%100_000)
				f := s.Begin(r, resp, now)
				_, _ = f.Write(body)
				if !f.Commit() {
					b.Fatal("not stored")
				}
			}
		})
	}
}
