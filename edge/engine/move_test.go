package engine

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

// noise is a body in which no piece is like another.
func noise(n int) []byte {
	b := make([]byte, n)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(b)
	return b
}

// sending answers with as much of body as the path says.
func sending(body []byte) func(*stage) {
	return each(func(s *stage, r *http.Request) {
		n, err := strconv.Atoi(strings.TrimPrefix(r.URL.Path, "/"))
		if err != nil {
			s.ok(r.URL.Path)
			return
		}
		_, _ = s.Write(append(fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n), body[:n]...))
	})
}

// gets reads a whole answer and compares its body.
func (c *client) gets(target string, want []byte) {
	c.t.Helper()
	c.get(target)
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	got, err := io.ReadAll(res.Body)
	if err != nil || !bytes.Equal(got, want) {
		c.t.Fatalf("%s: %d bytes, %v; want %d, and these", target, len(got), err, len(want))
	}
}

func TestAnswersOfAnySizeAreExactMovedOrNot(t *testing.T) {
	const most = 3 << 20
	body := noise(most)
	sizes := []int{0, 1, 8 << 10, 9_500, 32 << 10, 40_000, 41_000, 64 << 10, 100_000, 208 << 10, 256<<10 + 1, 1 << 20, most}
	for _, c := range []struct {
		name  string
		app   func(testing.TB, func(*stage)) *origin
		rig   rigOptions
		moved bool
	}{
		{"an app on a socket", newOrigin, rigOptions{}, true},
		{"an app on a port", newTCPOrigin, rigOptions{}, true},
		{"to a unix socket", newOrigin, rigOptions{unix: true}, false},
		{"kept by the cache", newOrigin, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := c.app(t, sending(body))
			r := newRig(t, c.rig)
			r.app.Place(o.placement(1))
			d, requests := r.dial(), 0
			for range 2 {
				for i, n := range sizes {
					d.gets(fmt.Sprint("/", n), body[:n])
					d.gets(fmt.Sprint("/", sizes[len(sizes)-1-i]), body[:sizes[len(sizes)-1-i]])
					d.gets(fmt.Sprintf("/small%d", i), fmt.Appendf(nil, "/small%d", i))
					requests += 3
					if n := r.last(requests - 2).Result; n.BytesOut != int64(sizes[i]) || n.Status != 200 || n.Ending == edge.Failed {
						t.Errorf("%+v", n)
					}
				}
			}
			if made := r.srv.stock.pipes.Made(); (made > 0) != c.moved {
				t.Errorf("%d pipes were made, want some: %v", made, c.moved)
			}
		})
	}
}

// A kernel that moves nothing, as some sandboxes are, copies.
func TestWhatCannotBeMovedIsCopied(t *testing.T) {
	body := noise(1 << 20)
	o := newOrigin(t, sending(body))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	if !r.srv.stock.pipes.Refused(syscall.EINVAL) {
		t.Fatal("not refused")
	}
	c := r.dial()
	for range 3 {
		c.gets("/1048576", body)
	}
	if made := r.srv.stock.pipes.Made(); made != 0 {
		t.Errorf("%d pipes were made", made)
	}
}

// It may also refuse a client's socket when a piece is under way.
func TestAPieceThatCannotBePouredIsCopied(t *testing.T) {
	body := noise(1 << 20)
	o := newOrigin(t, sending(body))
	r := newRig(t, rigOptions{})
	p := o.placement(1)
	pool := upstream.NewPool(upstream.Options{Network: p.Network, Address: p.Address})
	t.Cleanup(pool.Close)
	up, err := pool.Get(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { pool.Discard(up) })
	var res http1.Response
	if err := up.Ask([]byte("GET /1048576 HTTP/1.1\r\nHost: a\r\n\r\n"), nil, &res, []byte("GET")); err != nil {
		t.Fatal(err)
	}
	got, _, err := up.Piece()
	if err != nil {
		t.Fatal(err)
	}
	at := len(got)
	pipe, _, err := up.Move(&r.srv.stock.pipes)
	if err != nil || pipe == nil {
		t.Fatal(pipe, err)
	}
	size := pipe.Held()
	f, err := os.OpenFile(filepath.Join(t.TempDir(), "f"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600) // splice(2) refuses these
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	c := &conn{srv: r.srv, fd: int32(f.Fd())}
	left, cause := c.pour(up, pipe)
	if cause != edge.CauseNone || size == 0 || !bytes.Equal(left, body[at:at+size]) {
		t.Errorf("%d bytes are left of %d, %s", len(left), size, cause)
	}
	if r.srv.stock.pipes.Put(pipe); r.srv.stock.pipes.Get() != nil {
		t.Error("the next one would be tried")
	}
}

func TestSmallPiecesAreCopiedUntilTheyAreLarge(t *testing.T) {
	small, fair, large := slices.Repeat([]int{200}, 4), slices.Repeat([]int{smallMoved}, 4), []int{1, 1, 1, 208 << 10}
	var p pieces
	for i, c := range []struct {
		sizes []int
		small bool
	}{{small[:3], false}, {small[:1], true}, {small[:3], true}, {small[:1], true}, {fair[:3], true}, {fair[:1], false}, {large, false}, {small, true}, {large, false}} {
		for _, size := range c.sizes {
			p.add(size)
		}
		if p.small != c.small {
			t.Errorf("%d: after %v: small %v, want %v", i, c.sizes, p.small, c.small)
		}
	}
}

// A client that reads slowly is waited for, and the app with it.
func TestALargeAnswerWaitsForASlowClientAndIsExact(t *testing.T) {
	const size = 24 << 20 // more than both sockets hold
	body := noise(size)
	var sent atomic.Int64
	o := newOrigin(t, each(func(s *stage, r *http.Request) {
		if r.URL.Path != "/" {
			s.ok(r.URL.Path)
			return
		}
		s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
		for piece := range slices.Chunk(body, 64<<10) {
			if _, err := s.Write(piece); err != nil {
				return
			}
			sent.Add(int64(len(piece)))
		}
	}))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	c := r.dial()
	c.get("/")
	res, err := http.ReadResponse(c.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, size)
	at := 0
	for _, n := range []int{1000, 300_000, 5, 4 << 20} {
		if _, err := io.ReadFull(res.Body, got[at:at+n]); err != nil {
			t.Fatal(err)
		}
		at += n
		before := int64(-1)
		eventually(t, "the app waits", func() bool {
			now := sent.Load()
			waits := now == before && now > 0
			before = now
			return waits
		})
		if before == size {
			t.Fatal("the app did not have to wait")
		}
	}
	if _, err := io.ReadFull(res.Body, got[at:]); err != nil || !bytes.Equal(got, body) {
		t.Fatalf("%v, equal: %v", err, bytes.Equal(got, body))
	}
	c.gets("/next", []byte("/next"))
}

// The app ends within what is being moved, or goes on behind it: the client sees no
// neat end, and nobody sees what is surplus.
func TestAMovedAnswerThatIsTooShortOrTooLongEndsInAReset(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		name string
		send int
		tail string
	}{
		{"too short", size - 1, ""},
		{"far too short", size / 2, ""},
		{"too long", size, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL"},
	} {
		for name, app := range map[string]func(testing.TB, func(*stage)) *origin{"socket": newOrigin, "port": newTCPOrigin} {
			t.Run(c.name+"/"+name, func(t *testing.T) {
				body := noise(size)
				o := app(t, func(s *stage) {
					for {
						r, ok := s.read()
						if !ok {
							return
						}
						if r.URL.Path != "/broken" {
							s.ok(r.URL.Path)
							continue
						}
						s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", size)
						_, _ = s.Write(append(body[:c.send:c.send], c.tail...))
						if c.tail == "" {
							return
						}
					}
				})
				r := newRig(t, rigOptions{})
				r.app.Place(o.placement(1))
				for i := range 20 {
					b := r.dial()
					b.get("/broken")
					got, err := io.ReadAll(b.r)
					if c.tail == "" && (err == nil || isTimeout(err)) {
						t.Fatalf("%d bytes, %v; want a reset", len(got), err)
					}
					if bytes.Contains(got, []byte("EVIL")) {
						t.Fatal("a client gets what is surplus")
					}
					d := r.dial()
					d.gets(fmt.Sprint("/x", i), fmt.Appendf(nil, "/x%d", i))
					b.Close()
					d.Close()
				}
			})
		}
	}
}

// Clients that leave within a large answer leave no pipe behind that is open or has
// something in it.
func TestClientsThatLeaveWithinAMovedAnswerLeaveNothingBehind(t *testing.T) {
	const size = 8 << 20
	body := noise(size)
	o := newOrigin(t, sending(body))
	r := newRig(t, rigOptions{})
	r.app.Place(o.placement(1))
	leave := func(i int) {
		c := r.dial()
		c.get(fmt.Sprint("/", size))
		_, _ = io.CopyN(io.Discard, c.r, int64(i*50_000))
		if i%2 == 0 {
			c.rst()
		}
		c.Close()
	}
	for i := range 100 {
		leave(i)
		c := r.dial()
		c.gets("/300000", body[:300_000])
		c.Close()
	}
	eventually(t, "nothing in flight", func() bool { return r.app.Activity().InFlight == 0 })
	eventually(t, "no more pipes than goroutines had use for", func() bool { return openPipes(t) < 40 })
}

func openPipes(t *testing.T) (n int) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, "pipe:") {
			n++
		}
	}
	return n
}
