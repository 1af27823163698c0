package engine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// storm is an app of every kind: what it does is the first element of the path, and the
// last one is the body of its answer.
func storm(s *stage) {
	for {
		q, ok := s.read()
		if !ok {
			return
		}
		b, err := io.ReadAll(q.Body)
		if err != nil {
			return
		}
		e := strings.Split(q.URL.Path, "/")
		kind, id := e[1], e[2]
		if len(b) > 0 && !strings.HasPrefix(string(b), id+"-") {
			id = "the body of another request: " + string(b)
		}
		switch kind {
		case "part":
			s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", len(id))
			<-time.After(time.Millisecond)
			s.say("%s", id)
		case "split":
			s.say("HTTP/1.1 200 OK\r\nContent-Le")
			<-time.After(time.Millisecond)
			s.say("ngth: %d\r\n\r\n%s", len(id), id)
		case "big":
			s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s%s", len(id)+100_000, id, strings.Repeat("x", 100_000))
		case "chunk":
			s.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(id), id)
		case "close":
			s.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(id), id)
			return
		case "until":
			s.say("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n%s", id)
			return
		case "fin":
			s.ok(id)
			return
		case "surplus":
			s.say("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong", len(id), id)
		case "info":
			s.say("HTTP/1.1 103 Early Hints\r\nLink: <x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(id), id)
		case "die":
			return
		case "reset":
			s.reset()
			return
		case "empty":
			s.say("HTTP/1.1 204 No Content\r\n\r\n")
		case "long":
			<-time.After(1300 * time.Millisecond)
			s.ok(id)
		default:
			s.ok(id)
		}
	}
}

// tryDial is dial where that may fail.
func (r *rig) tryDial() (*client, error) {
	network := "tcp"
	if strings.HasPrefix(r.addr, "/") {
		network = "unix"
	}
	c, err := net.Dial(network, r.addr)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(3 * patience))
	return &client{Conn: c, t: r.t, r: bufio.NewReader(c)}, nil
}

var stormKinds = []string{
	"q", "q", "q", "q", "q", "q", "page", "page", "part", "split", "big", "chunk", "close", "until", "fin", "surplus", "info",
	"die", "reset", "empty", "long", "ours",
}

func TestAStormOfClientsGetsItsOwnAnswers(t *testing.T) {
	for _, unix := range []bool{false, true} {
		t.Run(fmt.Sprint("unix ", unix), func(t *testing.T) { weather(t, unix) })
	}
}

func weather(t *testing.T, unix bool) {
	if os.Getenv("USHER_TEST_LOOPS") == "" {
		t.Setenv("USHER_TEST_LOOPS", "2")
	}
	over := 3 * time.Second
	if s, err := strconv.Atoi(os.Getenv("STORM")); err == nil {
		over = time.Duration(s) * time.Second
	}
	var o *origin
	if unix {
		o = newOrigin(t, storm)
	} else {
		o = newTCPOrigin(t, storm)
	}
	r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}, server: Options{grace: 20 * time.Millisecond}})
	r.app.Place(o.placement(1))
	end := time.Now().Add(over)
	var wg sync.WaitGroup
	var ids, right, cut atomic.Int64
	for range 24 {
		wg.Go(func() {
			for time.Now().Before(end) {
				stormClient(t, r, end, &ids, &right, &cut)
			}
		})
	}
	wg.Go(func() {
		for g := uint64(2); time.Now().Before(end); g++ {
			<-time.After(time.Duration(20+rand.IntN(60)) * time.Millisecond)
			r.app.Place(o.placement(g))
			if g%4 == 0 {
				<-time.After(time.Duration(rand.IntN(20)) * time.Millisecond)
				r.app.Cut(g - 1)
			}
			select {
			case <-r.app.Drained(g - 1):
			case <-time.After(patience):
				t.Errorf("generation %d is not drained: %+v", g-1, r.app.Stats())
				return
			}
		}
	})
	wg.Wait()
	t.Logf("%d requests, %d answered right, %d connections cut", ids.Load(), right.Load(), cut.Load())
	eventually(t, "all have left", func() bool { return r.srv.Connections() == 0 })
	r.counted("all requests have ended", func(s edge.Stats) bool { return s.InFlight == 0 && s.Parked == 0 })
}

// Shutdown in the middle of it ends, whatever each connection is at.
func TestShutdownEndsAStorm(t *testing.T) {
	if os.Getenv("USHER_TEST_LOOPS") == "" {
		t.Setenv("USHER_TEST_LOOPS", "2")
	}
	times := 8
	if s, err := strconv.Atoi(os.Getenv("STORM")); err == nil {
		times = 2 * s
	}
	for i := range times {
		t.Run("", func(t *testing.T) {
			o := newTCPOrigin(t, storm)
			r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}, server: Options{grace: 20 * time.Millisecond}})
			r.app.Place(o.placement(1))
			end := time.Now().Add(200 * time.Millisecond)
			var wg sync.WaitGroup
			var ids, right, cut atomic.Int64
			for range 24 {
				wg.Go(func() {
					for time.Now().Before(end) {
						stormClient(t, r, end, &ids, &right, &cut)
					}
				})
			}
			<-time.After(time.Until(end))
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%4)*40*time.Millisecond)
			defer cancel()
			down := make(chan struct{})
			go func() {
				defer close(down)
				_ = r.srv.Shutdown(ctx)
			}()
			select {
			case <-down:
			case <-time.After(patience):
				t.Fatalf("not shut down: %d connections, %+v", r.srv.Connections(), r.app.Stats())
			}
			wg.Wait()
			r.counted("all requests have ended", func(s edge.Stats) bool { return s.InFlight == 0 && s.Parked == 0 })
		})
	}
}

// Without descriptors some are reset, but nobody gets what is not his, and nothing is
// left behind.
func TestAStormWithoutDescriptors(t *testing.T) {
	if os.Getenv(fewDescriptors) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAStormWithoutDescriptors$", "-test.v")
		cmd.Env = append(os.Environ(), fewDescriptors+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	t.Setenv("USHER_TEST_LOOPS", "2")
	o := newTCPOrigin(t, storm)
	r := newRig(t, rigOptions{cache: newShelf(), app: edge.AppConfig{CacheEnabled: true}, server: Options{grace: 20 * time.Millisecond}})
	r.app.Place(o.placement(1))
	var ids, right, cut atomic.Int64
	end := time.Now().Add(4 * time.Second)
	leave := limitDescriptors(t, len(descriptors())+90)
	var wg sync.WaitGroup
	for range 24 {
		wg.Go(func() {
			for time.Now().Before(end) {
				stormClient(t, r, end, &ids, &right, &cut)
			}
		})
	}
	var held []int
	for time.Now().Before(end) {
		for {
			fd, err := syscall.Dup(0)
			if err != nil {
				break
			}
			held = append(held, fd)
		}
		<-time.After(20 * time.Millisecond)
		for _, fd := range held {
			syscall.Close(fd)
		}
		held = held[:0]
		<-time.After(20 * time.Millisecond)
	}
	leave()
	wg.Wait()
	t.Logf("%d requests, %d answered right, %d connections cut", ids.Load(), right.Load(), cut.Load())
	eventually(t, "all have left", func() bool { return r.srv.Connections() == 0 })
	r.counted("all requests have ended", func(s edge.Stats) bool { return s.InFlight == 0 && s.Parked == 0 })
}

func stormClient(t *testing.T, r *rig, end time.Time, ids, right, cut *atomic.Int64) {
	c, err := r.tryDial()
	if err != nil {
		<-time.After(time.Millisecond)
		return
	}
	defer c.Close()
	for range 1 + rand.IntN(20) {
		type sent struct{ kind, id string }
		var all []sent
		var b strings.Builder
		var last bool
		for range 1 + rand.IntN(1+rand.IntN(6)) {
			k := stormKinds[rand.IntN(len(stormKinds))]
			if k == "long" && rand.IntN(4) > 0 {
				k = "q"
			}
			id := fmt.Sprint("id", ids.Add(1))
			if k == "page" {
				id = fmt.Sprint("page", rand.IntN(3))
			}
			all = append(all, sent{k, id})
			switch {
			case k == "ours":
				fmt.Fprintf(&b, "OPTIONS * HTTP/1.1\r\nHost: app.test\r\n\r\n")
			case k != "page" && rand.IntN(3) == 0:
				body := id + "-" + strings.Repeat("b", rand.IntN(1+rand.IntN(40_000)))
				fmt.Fprintf(&b, "PUT /%s/%s HTTP/1.1\r\nHost: app.test\r\nContent-Length: %d\r\n\r\n%s", k, id, len(body), body)
			case rand.IntN(30) == 0:
				fmt.Fprintf(&b, "GET /%s/%s HTTP/1.1\r\nHost: app.test\r\nConnection: close\r\n\r\n", k, id)
				last = true
			default:
				fmt.Fprintf(&b, "GET /%s/%s HTTP/1.1\r\nHost: app.test\r\n\r\n", k, id)
			}
			if last {
				break
			}
		}
		text := b.String()
		half := rand.IntN(20) == 0
		gone := make(chan struct{})
		go func() {
			defer close(gone)
			for len(text) > 0 {
				n := len(text)
				if rand.IntN(3) == 0 {
					n = 1 + rand.IntN(n)
				}
				if _, err := io.WriteString(c, text[:n]); err != nil {
					return
				}
				text = text[n:]
				if rand.IntN(2) == 0 {
					<-time.After(time.Duration(rand.IntN(3)) * time.Millisecond)
				}
			}
			if half {
				_ = c.Conn.(interface{ CloseWrite() error }).CloseWrite()
			}
		}()
		if rand.IntN(25) == 0 {
			<-time.After(time.Duration(rand.IntN(3)) * time.Millisecond)
			if rand.IntN(2) == 0 && !strings.HasPrefix(r.addr, "/") {
				c.rst()
			} else {
				c.Close()
			}
			<-gone
			return
		}
		for _, s := range all {
			a, err := c.tryRead("GET")
			for err == nil && a.StatusCode < 200 {
				a, err = c.tryRead("GET")
			}
			if err != nil || a.err != nil {
				if err == nil {
					err = a.err
				}
				if isTimeout(err) {
					t.Errorf("no answer to %s/%s: %v", s.kind, s.id, err)
				} else if !errors.Is(err, io.EOF) {
					cut.Add(1)
				}
				c.Close()
				<-gone
				return
			}
			switch body := strings.TrimRight(a.body, "x"); {
			case a.StatusCode == http.StatusOK && s.kind != "ours" && body != s.id:
				t.Errorf("%s/%s is answered %q", s.kind, s.id, body)
			case a.StatusCode >= 400 && a.StatusCode < 500:
				t.Errorf("%s/%s is answered %d %s", s.kind, s.id, a.StatusCode, a.body)
			default:
				right.Add(1)
			}
			if a.Close {
				c.Close()
				<-gone
				return
			}
		}
		<-gone
		if half || last {
			return
		}
		if rand.IntN(3) == 0 {
			<-time.After(time.Duration(rand.IntN(250)) * time.Millisecond)
		}
	}
}
