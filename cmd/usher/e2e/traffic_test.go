package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/usher-edge/usher/bench"
)

// newClient is an HTTP client with connections of its own. Every name leads to
// usher. It does not follow redirects.
func (u *usher) newClient() *http.Client {
	c := &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			MaxIdleConnsPerHost: 1000,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, "tcp", u.listen)
			},
		},
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.clients = append(u.clients, c)
	return c
}

// answer is what a client got. err is set if it got no whole answer.
type answer struct {
	status     int
	generation uint64
	header     http.Header
	body       string
	last       bool // the connection ends with it
	err        error
	took       time.Duration
}

// String is for messages of tests.
func (a answer) String() string {
	if a.err != nil {
		return fmt.Sprintf("%v after %s", a.err, a.took)
	}
	return fmt.Sprintf("status %d, generation %d, after %s: %.200q", a.status, a.generation, a.took, a.body)
}

// url of a page of an app.
func url(name, path string) string { return "http://" + name + ".localhost" + path }

func (u *usher) get(name, path string) answer { return get(u.client, name, path) }

func get(c *http.Client, name, path string) answer { return send(c, http.MethodGet, name, path, "") }

func send(c *http.Client, method, name, path, body string) answer {
	req, err := http.NewRequest(method, url(name, path), strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	return do(c, req)
}

func do(c *http.Client, req *http.Request) answer {
	begun := time.Now()
	resp, err := c.Do(req)
	if err != nil {
		return answer{err: err, took: time.Since(begun)}
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(data), last: resp.Close, err: err, took: time.Since(begun)}
	a.generation, _ = strconv.ParseUint(resp.Header.Get("Usher-Generation"), 10, 64) // 0: none
	return a
}

// ok expects a good answer.
func ok(t *testing.T, a answer) answer {
	t.Helper()
	if a.err != nil || a.status != http.StatusOK {
		t.Fatalf("want status 200, got %s", a)
	}
	return a
}

// together makes n requests at once, each with f, and returns their answers.
func together(n int, f func(i int) answer) []answer {
	out := make([]answer, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { out[i] = f(i) })
	}
	all.Wait()
	return out
}

// raw opens a connection to usher that the test speaks HTTP on by itself.
func (u *usher) raw() net.Conn {
	u.t.Helper()
	c, err := net.Dial("tcp", u.listen)
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { c.Close() })
	return c
}

// webSocket opens a WebSocket to the app's echo.
func (u *usher) webSocket(name string) *websocket.Conn {
	u.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience*10*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, url(name, "/ws"), &websocket.DialOptions{HTTPClient: u.newClient()})
	if err != nil {
		u.t.Fatal(err)
	}
	u.t.Cleanup(func() { c.CloseNow() })
	return c
}

// echo sends a message and expects it back.
func echo(c *websocket.Conn, message string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience*5*time.Second)
	defer cancel()
	if err := c.Write(ctx, websocket.MessageText, []byte(message)); err != nil {
		return err
	}
	_, got, err := c.Read(ctx)
	if err == nil && string(got) != message {
		err = fmt.Errorf("sent %q, got %q", message, got)
	}
	return err
}

// closing waits until the other side ends the WebSocket and returns the status
// of its close frame.
func closing(c *websocket.Conn, limit time.Duration) (websocket.StatusCode, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience*limit)
	defer cancel()
	for {
		_, _, err := c.Read(ctx)
		if err == nil {
			continue
		}
		if code := websocket.CloseStatus(err); code != -1 {
			return code, nil
		}
		return -1, err
	}
}

// stream is an answer that goes on.
type stream struct {
	resp *http.Response
	stop context.CancelFunc
}

// open asks for an answer without an end, and returns once its head is there.
func (u *usher) open(name, path string) *stream {
	u.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url(name, path), nil)
	if err != nil {
		u.t.Fatal(err)
	}
	client := u.newClient()
	client.Timeout = 0
	resp, err := client.Do(req)
	if err != nil {
		cancel()
		u.t.Fatal(err)
	}
	s := &stream{resp, cancel}
	u.t.Cleanup(s.close)
	return s
}

func (s *stream) close() {
	s.stop()
	s.resp.Body.Close()
}

// end waits until the other side ends the stream; nil is a neat end.
func (s *stream) end(limit time.Duration) error {
	done := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, s.resp.Body)
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-time.After(patience * limit):
		s.stop()
		<-done
		return errors.New("the stream goes on")
	}
}

// load is requests at a fixed rate from clients of all kinds: a third POST, a
// fifth on connections of their own.
func (u *usher) load(rate float64, names ...string) *bench.Run {
	u.t.Helper()
	l := bench.Load{
		Rate: rate, Duration: 10 * time.Minute, Connections: 64,
		Posts: 0.33, NewConnections: 0.2, Seed: uint64(time.Now().UnixNano()),
	}
	for _, name := range names {
		l.Targets = append(l.Targets, bench.Target{Address: u.listen, Host: name + ".localhost", Path: "/version"})
	}
	return u.loadOf(l)
}

func (u *usher) loadOf(l bench.Load) *bench.Run {
	u.t.Helper()
	run, err := bench.Start(u.t.Context(), l)
	if err != nil {
		u.t.Fatal(err)
	}
	return run
}

// lossless ends the load and expects that nothing failed.
func lossless(t *testing.T, run *bench.Run) *bench.Result {
	t.Helper()
	res := finished(t, run)
	if res.Total.Failed > 0 || res.Total.Cut > 0 {
		t.Errorf("%d of %d requests failed %v, %d were cut; the first: %+v",
			res.Total.Failed, res.Total.Requests, res.Total.Failures, res.Total.Cut, res.FailureSamples)
	}
	if res.Total.Served == 0 {
		t.Error("nothing was served at all")
	}
	return res
}

func finished(t *testing.T, run *bench.Run) *bench.Result {
	t.Helper()
	run.Stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	res, err := run.Wait(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return res
}
