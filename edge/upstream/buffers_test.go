package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/usher-edge/usher/edge/http1"
)

func TestWideBuffersAreForMuchAndBounded(t *testing.T) {
	b := NewBuffers(0)
	for _, toCome := range []int64{0, 1, defaultBuffer} {
		if n := len(*b.Get(toCome)); n != defaultBuffer {
			t.Errorf("%d bytes to come: a buffer of %d", toCome, n)
		}
	}
	var out []*[]byte
	for range mostWide {
		buf := b.Get(defaultBuffer + 1)
		if len(*buf) != wideBuffer {
			t.Fatalf("buffer %d has %d bytes", len(out), len(*buf))
		}
		out = append(out, buf)
	}
	common := b.Get(1 << 40)
	if len(*common) != defaultBuffer {
		t.Errorf("one too many has %d bytes", len(*common))
	}
	b.Put(common)
	b.Put(out[0])
	if n := len(*b.Get(1 << 40)); n != wideBuffer {
		t.Errorf("after one was given back: %d bytes", n)
	}
	if n := b.wideOut.Load(); n != mostWide {
		t.Errorf("%d are out", n)
	}
}

// begin sends a GET and reads the head of the answer.
func begin(t *testing.T, c *Conn) {
	t.Helper()
	var res http1.Response
	if err := c.Ask(request("GET", "/", ""), nil, &res, []byte("GET")); err != nil {
		t.Fatal(err)
	}
}

// waiting is how many bytes of the answer are in the socket.
func waiting(t *testing.T, c *Conn) (n int) {
	t.Helper()
	_ = c.raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }) // 0 if it fails
	return n
}

// What an app's socket holds of a large body comes in one piece, byte for byte,
// however it is framed; while the app is waited for no buffer is held.
func TestALargeBodyComesInLargePiecesAndAWaitHoldsNoBuffer(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcde\n"), 1<<16)
	half := len(body) / 2
	for name, framed := range map[string]struct{ head, end string }{
		"length":      {fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(body)), ""},
		"one chunk":   {fmt.Sprintf("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n", len(body)), "\r\n0\r\n\r\n"},
		"until close": {"HTTP/1.1 200 OK\r\n\r\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			goOn := make(chan struct{})
			p := newOrigin(t, "unix", func(c net.Conn) {
				_, _ = io.ReadAtLeast(c, make([]byte, 4096), 1)
				_, _ = io.WriteString(c, framed.head)
				<-goOn
				_, _ = c.Write(body[:half])
				<-goOn
				_, _ = c.Write(body[half:])
				_, _ = io.WriteString(c, framed.end)
				if framed.end != "" || name == "length" {
					_, _ = io.Copy(io.Discard, c)
				}
			}).pool(Options{})
			t.Cleanup(func() { close(goOn) })
			stock := p.opt.Buffers
			c := get(t, p, true)
			begin(t, c)
			goOn <- struct{}{}
			eventually(t, "the socket is full", func() bool { return waiting(t, c) > defaultBuffer })
			first, done, err := c.ReadBody(time.Time{})
			if len(first) <= defaultBuffer || done || err != nil || stock.wideOut.Load() != 1 {
				t.Fatalf("%d bytes, %t, %v; %d wide buffers are out", len(first), done, err, stock.wideOut.Load())
			}
			got := bytes.Clone(first)
			rest := make(chan string)
			go func() {
				b, err := readAll(c, time.Now().Add(20*time.Second))
				if err != nil {
					b = err.Error()
				}
				rest <- b
			}()
			eventually(t, "it waits without a buffer", func() bool {
				return waiting(t, c) == 0 && stock.wideOut.Load() == 0
			})
			goOn <- struct{}{}
			if got = append(got, <-rest...); !bytes.Equal(got, body) {
				t.Fatalf("%d bytes, want %d", len(got), len(body))
			}
			p.Put(c)
			if n := stock.wideOut.Load(); n != 0 {
				t.Errorf("%d wide buffers are out at the end", n)
			}
		})
	}
}

// An answer goes into what is lent if it is likely to fit, and leaves it as soon as
// it does not; one that is likely to be large goes into a wide buffer at once. What is behind the sealed part is never written to.
func TestASmallAnswerNeedsNoBuffer(t *testing.T) {
	p := newOrigin(t, "unix", web(func(w io.Writer, q *http.Request, _ []byte) bool {
		n, _ := strconv.Atoi(q.URL.Query().Get("n"))
		fmt.Fprintf(w, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", n, strings.Repeat("x", n))
		return true
	})).pool(Options{})
	room := make([]byte, 1<<10)
	before := 0
	for i, try := range []struct {
		size  int
		stock bool // used for the head already
	}{{10, false}, {700, false}, {5000, false}, {10, true}, {10, false}, {100000, false}, {100000, true}, {10, true}, {10, false}} {
		for j := range room {
			room[j] = '.'
		}
		c := get(t, p, true)
		c.Lend(room, false)
		var res http1.Response
		if err := c.Ask(request("GET", fmt.Sprintf("/?n=%d", try.size), ""), nil, &res, []byte("GET")); err != nil {
			t.Fatal(err)
		}
		if used := c.stocked != nil; used != try.stock {
			t.Errorf("%d: %d bytes, a buffer is used: %t", i, try.size, used)
		} else if used && (len(*c.stocked) == wideBuffer) != (before > defaultBuffer) {
			t.Errorf("%d: after an answer of %d bytes, a buffer of %d", i, before, len(*c.stocked))
		}
		before = try.size
		taken := c.Seal()
		if (taken == 0) != try.stock || taken < len(room) && try.size > len(room) && !try.stock || c.Seal() != 0 {
			t.Errorf("%d: %d bytes, %d of what is lent are taken", i, try.size, taken)
		}
		for j := taken; j < len(room); j++ {
			room[j] = '!' // it is the holder's again
		}
		if body, err := readAll(c, time.Time{}); body != strings.Repeat("x", try.size) || err != nil {
			t.Fatalf("%d: %d bytes, %v", i, len(body), err)
		}
		if n := bytes.Count(room[taken:], []byte("!")); n != len(room)-taken {
			t.Errorf("%d: %d bytes behind the sealed part are overwritten", i, len(room)-taken-n)
		}
		p.Put(c)
	}
}

// BenchmarkLargeBody is what reading 1 MiB costs here, with the writing of it.
func BenchmarkLargeBody(b *testing.B) {
	answer := append([]byte("HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n"), make([]byte, 1<<20)...)
	p := newOrigin(b, "unix", func(c net.Conn) {
		buf := make([]byte, 4096)
		for {
			if _, err := c.Read(buf); err != nil {
				return
			}
			if _, err := c.Write(answer); err != nil {
				return
			}
		}
	}).pool(Options{})
	p.opt.Buffers.spoil = false
	head, method := request("GET", "/", ""), []byte("GET")
	var res http1.Response
	b.SetBytes(1 << 20)
	b.ReportAllocs()
	for b.Loop() {
		c, err := p.Get(context.Background(), true)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Ask(head, nil, &res, method); err != nil {
			b.Fatal(err)
		}
		for done := false; !done; {
			if _, done, err = c.ReadBody(time.Time{}); err != nil {
				b.Fatal(err)
			}
		}
		p.Put(c)
	}
}
