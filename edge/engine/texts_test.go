package engine

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// passage is one request and what it is answered with: how long each part is.
type passage struct{ ask, body, answer, page, framing int }

// The framings of an answer.
const (
	byLength = iota
	chunkedPage
	afterInterim
	framings
)

func passages() (all []passage) {
	for _, ask := range []int{0, 2000, inSize - 300, inSize, 20000} {
		for _, body := range []int{0, 100, 3000, 9000} {
			for _, answer := range []int{0, 1000, 5000, 12000} {
				for _, page := range []int{0, 120, smallPiece, smallPiece + 1, 9000, 70000} {
					for framing := range framings {
						all = append(all, passage{ask, body, answer, page, framing})
					}
				}
			}
		}
	}
	return all
}

// filler is text of that length that differs from other text of that length.
func filler(n, seed int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte((i*7+i/26+seed)%26)
	}
	return string(b)
}

func (p *passage) request(no int) string {
	head := fmt.Sprintf("POST /%d/%d/%d/%d/%d/%d HTTP/1.1\r\nHost: app.test\r\nX-Fill: %s\r\n",
		no, p.ask, p.body, p.answer, p.page, p.framing, filler(p.ask, no))
	body := filler(p.body, no+1)
	if no%2 == 0 {
		return fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, p.body, body)
	}
	return head + "Transfer-Encoding: chunked\r\n\r\n" + chunks(body, 1+no%7000)
}

// chunks is a body in chunks of that size.
func chunks(body string, size int) string {
	var b strings.Builder
	for len(body) > 0 {
		n := min(len(body), size)
		fmt.Fprintf(&b, "%x\r\n%s\r\n", n, body[:n])
		body = body[n:]
	}
	return b.String() + "0\r\n\r\n"
}

// passageOf reads back what request wrote, as the app does, and checks it.
func passageOf(t *testing.T, r *http.Request) (p passage, no int) {
	t.Helper()
	if _, err := fmt.Sscanf(r.URL.Path, "/%d/%d/%d/%d/%d/%d", &no, &p.ask, &p.body, &p.answer, &p.page, &p.framing); err != nil {
		t.Errorf("%q: %v", r.URL.Path, err)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil || string(body) != filler(p.body, no+1) || r.Header.Get("X-Fill") != filler(p.ask, no) {
		t.Errorf("request %d %+v came changed: %d bytes, %v", no, p, len(body), err)
	}
	return p, no
}

// write answers. Some of it comes a moment later now and then.
func (p *passage) write(w io.Writer, no int) {
	var b bytes.Buffer
	if p.framing == afterInterim {
		fmt.Fprintf(&b, "HTTP/1.1 103 Early Hints\r\nLink: %s\r\n\r\n", filler(100, no))
	}
	fmt.Fprintf(&b, "HTTP/1.1 200 OK\r\nX-Fill: %s\r\n", filler(p.answer, no+2))
	page := filler(p.page, no+3)
	if p.framing == chunkedPage {
		b.WriteString("Transfer-Encoding: chunked\r\n\r\n" + chunks(page, 1+no%5000))
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", p.page, page)
	}
	if no%5 == 0 {
		_, _ = w.Write(b.Next(b.Len() / 2))
		<-time.After(2 * time.Millisecond)
	}
	_, _ = w.Write(b.Bytes())
}

func (p *passage) check(t *testing.T, r *bufio.Reader, no int) {
	t.Helper()
	res, err := http.ReadResponse(r, nil)
	for err == nil && res.StatusCode == http.StatusEarlyHints {
		if res.Header.Get("Link") != filler(100, no) {
			t.Errorf("interim answer %d %+v came changed", no, *p)
		}
		res, err = http.ReadResponse(r, nil)
	}
	if err != nil {
		t.Fatalf("answer %d %+v: %v", no, *p, err)
	}
	page, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 || string(page) != filler(p.page, no+3) || res.Header.Get("X-Fill") != filler(p.answer, no+2) {
		t.Fatalf("answer %d %+v came changed: %d, %d bytes, %v", no, *p, res.StatusCode, len(page), err)
	}
}

// What belongs to a request lies behind each other in one array, or in buffers of
// its own if it is long. However long each part is, and whatever is pipelined
// behind it, nothing of it is overwritten by another.
func TestWhateverIsLongPassesUnchanged(t *testing.T) {
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		p, no := passageOf(t, r)
		p.write(s, no)
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	all := passages()
	rnd := rand.New(rand.NewPCG(3, 4))
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	all = all[:400] // under the race detector all of them take a minute
	for _, together := range []int{1, 4} {
		t.Run(strconv.Itoa(together)+" together", func(t *testing.T) {
			c := r.dial()
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(10 * patience))
			for at := 0; at+together <= len(all); at += together {
				var b strings.Builder
				for i := range together {
					b.WriteString(all[at+i].request(at + i))
				}
				sent := make(chan error, 1)
				go func() {
					_, err := io.WriteString(c, b.String())
					sent <- err
				}()
				for i := range together {
					all[at+i].check(t, c.r, at+i)
				}
				if err := <-sent; err != nil {
					t.Fatal(err)
				}
			}
		})
	}
	for _, e := range r.logged() {
		if !strings.HasPrefix(string(e.Target), "/") || string(e.Host) != "app.test" {
			t.Fatalf("logged: %q %q", e.Host, e.Target)
		}
	}
}

// The next request may come with the end of a body. The answer that says that the
// app has died does not overwrite it.
func TestWhatFollowsABodyOutlivesAnAnswerOfUshersOwn(t *testing.T) {
	o := newOrigin(t, func(s *stage) {
		for {
			r, ok := s.read()
			if !ok {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			if r.URL.Path == "/die" {
				return
			}
			s.ok(r.URL.Path + r.Header.Get("X-Fill"))
		}
	})
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	for i := range 3 {
		before := o.heads.Load()
		c.send("POST /die HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n")
		eventually(t, "the app has the head", func() bool { return o.heads.Load() > before })
		next := fmt.Sprintf("GET /%d HTTP/1.1\r\nHost: app.test\r\nX-Fill: %s\r\n\r\n", i, filler(500, i))
		c.send("3\r\nend\r\n0\r\n\r\n" + next)
		c.status(http.StatusBadGateway)
		c.want(200, fmt.Sprintf("/%d%s", i, filler(500, i)))
	}
}

// A small request lies on one page, with all that is known of it.
func TestASmallRequestTakesOnePage(t *testing.T) {
	const page, header = 4 << 10, 8 // what the collector puts before it
	m := reflect.TypeFor[memory]()
	texts, _ := m.FieldByName("texts")
	if room := page - header - int(texts.Offset); room < 1500 {
		t.Errorf("%d bytes are left for a small request and its answer", room)
	}
	if size := m.Size() + header; size > 3*page {
		t.Errorf("memory takes %d bytes, which is more than three pages", size)
	}
	// Of the allocator's sizes only powers of two never lie across two pages.
	if size := reflect.TypeFor[edge.Request]().Size() + header; size > 1<<10 {
		t.Errorf("a lane takes %d bytes", size)
	}
	if size := reflect.TypeFor[conn]().Size(); size > 1<<8 {
		t.Errorf("a connection takes %d bytes", size)
	}
}

// However a request ends, the next one on its memory finds nothing of its body.
func TestMemoryThatIsGivenBackHoldsNoBody(t *testing.T) {
	var s stock
	s.open(false)
	m := s.get()
	m.more, m.moreLen = s.bodies.Get(0), 5
	if s.put(m); m.more != nil || m.moreLen != 0 || len(m.gathered()) != 0 {
		t.Errorf("%d bytes of a body", m.moreLen)
	}
}
