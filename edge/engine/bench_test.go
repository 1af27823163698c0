package engine

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// bare answers every head with the same bytes, without allocating.
func bare(response string) func(*stage) {
	raw := []byte(response)
	return func(s *stage) {
		buf := make([]byte, 4096)
		for n := 0; ; {
			k, err := s.Conn.Read(buf[n:])
			if err != nil {
				return
			}
			if n += k; !bytes.HasSuffix(buf[:n], []byte("\r\n\r\n")) {
				continue
			}
			n = 0
			if _, err := s.Conn.Write(raw); err != nil {
				return
			}
		}
	}
}

// pair is a client in front of an edge in front of a bare origin, and the
// function that makes one round trip.
func pair(t testing.TB, response string) func() {
	t.Helper()
	o := newOrigin(t, bare(response))
	r := &rig{t: t, edge: edge.New(edge.Options{})}
	if err := r.edge.SetApps([]edge.AppConfig{{Name: "app", Hosts: []string{"app.test"}}}); err != nil {
		t.Fatal(err)
	}
	r.app = r.edge.App("app")
	r.app.Place(o.placement(1))
	r.serve(Options{Edge: r.edge}, false)
	c := r.dial()
	_ = c.SetDeadline(time.Time{})
	request := []byte("GET /path?q HTTP/1.1\r\nHost: app.test\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n")
	_, body, _ := strings.Cut(response, "\r\n\r\n")
	end := []byte(body[max(0, len(body)-13):]) // chunks may come in others
	buf := make([]byte, 1<<21)
	return func() {
		if _, err := c.Conn.Write(request); err != nil {
			t.Fatal(err)
		}
		for n := 0; !bytes.HasSuffix(buf[:n], end); {
			k, err := c.Conn.Read(buf[n:])
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			n += k
		}
	}
}

const smallAnswer = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 13\r\n\r\nHello, World!"

func BenchmarkProxiedSmallGet(b *testing.B) {
	trip := pair(b, smallAnswer)
	trip()
	b.ReportAllocs()
	for b.Loop() {
		trip()
	}
}

func BenchmarkProxied64KiB(b *testing.B) {
	body := strings.Repeat("x", 1<<16-1) + "y"
	trip := pair(b, "HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n"+body)
	trip()
	b.ReportAllocs()
	b.SetBytes(1 << 16)
	for b.Loop() {
		trip()
	}
}

func BenchmarkProxiedManyChunks(b *testing.B) {
	wire, data := manyChunks(1000)
	trip := pair(b, chunkedHead+string(wire))
	trip()
	b.ReportAllocs()
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		trip()
	}
}
