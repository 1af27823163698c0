package engine

import (
	"bufio"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
)

// head reads one request head, byte for byte.
func (s *stage) head() (string, bool) {
	var b strings.Builder
	for !strings.HasSuffix(b.String(), "\r\n\r\n") {
		c, err := s.r.ReadByte()
		if err != nil {
			return b.String(), false
		}
		b.WriteByte(c)
	}
	s.o.heads.Add(1)
	return b.String(), true
}

// recorder is an app that keeps every byte it was sent and answers every head
// that it can tell with 200 and no body.
type recorder struct {
	bytes atomic.Int64
	mu    sync.Mutex
	heads []string
}

func (k *recorder) serve(s *stage) {
	for {
		b, err := s.r.Peek(1)
		if err != nil {
			return
		}
		k.bytes.Add(int64(len(b)))
		h, ok := s.head()
		k.mu.Lock()
		k.heads = append(k.heads, h)
		k.mu.Unlock()
		if !ok {
			return
		}
		if r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(h))); err == nil && r.ContentLength > 0 {
			if _, err := io.CopyN(io.Discard, s.r, r.ContentLength); err != nil {
				return
			}
		}
		s.ok("")
	}
}

// seen is what the app was sent so far.
func (k *recorder) seen() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return append([]string(nil), k.heads...)
}

// resetAll breaks every connection off with RST.
func (o *origin) resetAll() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for c := range o.live {
		(&stage{Conn: c}).reset()
	}
}

// finalStatus reads up to a final answer, with this status.
func (c *client) finalStatus(status int) answer {
	c.t.Helper()
	a := c.read("GET")
	for a.StatusCode < 200 {
		a = c.read("GET")
	}
	if a.StatusCode != status {
		c.t.Fatalf("%d %q, want %d", a.StatusCode, a.body, status)
	}
	return a
}
