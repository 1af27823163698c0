package activator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/usher-edge/usher/activator/store"
)

// The pace of health checks: pauses grow with the time that the app takes. But
// whoever is parked waits for the pause as well, so as long as somebody is they
// are shorter and stay short while nobody listens: a refused connection costs next
// to nothing, while an app that answers, but not well, has work of every try. One
// try may take long (an app that compiles on its first request), so it has a
// generous bound of its own.
const (
	firstPause = 10 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	pauseShare = 4 // a pause is this part of the time so far

	// While requests are parked and nobody listens.
	firstAwaited = 2 * time.Millisecond
	lastAwaited  = firstPause
	awaitedShare = 8

	oneTry = 10 * time.Second
)

// pauseAfter is the pause after a try that ended that long after the first began.
func pauseAfter(r probeResult, sofar time.Duration, awaited bool) time.Duration {
	if r.absent && awaited {
		return min(max(sofar/awaitedShare, firstAwaited), lastAwaited)
	}
	return min(max(sofar/pauseShare, firstPause), lastPause)
}

type probeTarget struct {
	network, address string
	dial             func(ctx context.Context, network, address string) (net.Conn, error)
	awaited          func() bool // requests are parked for it
	told             string      // how the app learns the address, for people; "": not from us
}

// probeResult says how a health check ended.
type probeResult struct {
	ok, exited bool
	absent     bool // nobody listens there yet
	status     int
	text       string // what the last try said, for people
}

// probes are what a health check has come to so far, for whoever does not wait for
// its end.
type probes struct {
	// mu guards the fields below; nothing is waited for under it.
	mu    sync.Mutex
	tries int
	last  string // answer, or why there was none
	heard bool   // it was an answer
}

func (p *probes) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries++
}

// note keeps what a try said. What the app said is worth more than that it said
// nothing.
func (p *probes) note(r probeResult) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if heard := r.status != 0; heard || !p.heard {
		p.last, p.heard = r.text, heard
	}
}

// proof is what they show; exited says that the process is known to have ended.
func (p *probes) proof(exited bool) store.HealthProof {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := store.HealthProof{Tries: p.tries, Last: p.last}
	if exited && !p.heard {
		h.Last = "it exited before it answered"
	}
	return h
}

// check asks for h.Path at the address until the answer is below 500, exited is
// closed, h.Timeout has passed or ctx ends. Redirects are not followed. What it has
// come to is in so as well, at any time.
func check(ctx context.Context, t probeTarget, h Health, exited <-chan struct{}, so *probes) (res probeResult) {
	ctx, cancel := context.WithTimeout(ctx, h.Timeout)
	defer cancel()
	for begun := time.Now(); ; {
		so.begin()
		tried := make(chan probeResult, 1)
		go func() { tried <- try(ctx, t, h) }() // ends with ctx
		select {
		case r := <-tried:
			so.note(r)
			if cut := passed(ctx); r.ok || !cut || res.text == "" { // one that the end cut says less than the one before
				res = r
			}
		case <-exited:
			cancel()
			so.note(<-tried)
			return probeResult{exited: true}
		}
		if res.ok {
			return res
		}
		select {
		case <-time.After(pauseAfter(res, time.Since(begun), t.awaited())):
		case <-exited:
			return probeResult{exited: true}
		case <-ctx.Done():
			res.text = fmt.Sprintf("not healthy within %v; last health check: %s", h.Timeout, res.text)
			if res.absent && t.told != "" {
				res.text += "; nothing listens there: an app takes its " + t.told
			}
			return res
		}
	}
}

// passed says whether the time is up. What waits until a deadline may know that
// before ctx does.
func passed(ctx context.Context) bool {
	end, bounded := ctx.Deadline()
	return ctx.Err() != nil || bounded && !time.Now().Before(end)
}

// try is one request on a connection of its own. The connection is made first:
// most tries end there, and cost little then.
func try(ctx context.Context, t probeTarget, h Health) probeResult {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	begun := time.Now()
	conn, err := t.dial(ctx, t.network, t.address)
	if err != nil {
		absent := errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist)
		return probeResult{absent: absent, text: unanswered(h, err, time.Since(begun))}
	}
	defer conn.Close()
	client := probeClient(conn)
	defer client.CloseIdleConnections()
	req, err := h.request(ctx)
	if err != nil {
		return probeResult{text: err.Error()}
	}
	resp, err := client.Do(req)
	if err != nil {
		return probeResult{text: unanswered(h, err, time.Since(begun))}
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10) // only the status matters
	text := fmt.Sprintf("GET %s answered %d", h.Path, resp.StatusCode)
	if l := resp.Header.Get("Location"); l != "" {
		text += " to " + l
	}
	return probeResult{ok: resp.StatusCode < http.StatusInternalServerError, status: resp.StatusCode, text: text}
}

// request is what a health check asks.
func (h Health) request(ctx context.Context) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://app.invalid"+h.Path, nil)
	if err != nil {
		return nil, err
	}
	req.Host = h.Host
	req.Header.Set("User-Agent", "usher-health")
	for k, v := range h.Headers {
		req.Header.Set(k, v)
	}
	return req, nil
}

// question is request as bytes, for connections that are kept. There are none if it
// makes no request; then no check has passed either.
func (h Health) question() []byte {
	var b bytes.Buffer
	if req, err := h.request(context.Background()); err != nil || req.Write(&b) != nil {
		return nil
	}
	return b.Bytes()
}

// probeClient sends one request, on conn.
func probeClient(conn net.Conn) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DisableKeepAlives:  true,
			DisableCompression: true,
			DialContext:        func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// unanswered says what became of a try without an answer.
func unanswered(h Health, err error, took time.Duration) string {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err // it names a URL that is no app's
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Sprintf("GET %s was not answered within %v", h.Path, took.Round(time.Millisecond))
	}
	return fmt.Sprintf("GET %s: %v", h.Path, err)
}

// answers is the one connect that an adopted generation must accept.
func (a *Activator) answers(run store.Run) bool {
	const patience = 2 * time.Second
	ctx, cancel := context.WithTimeout(a.life, patience)
	defer cancel()
	c, err := a.dial(ctx, run.Network, run.Address)
	if err != nil {
		return false
	}
	_ = c.Close()
	return true
}
