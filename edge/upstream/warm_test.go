package upstream

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

func TestWarmConnectionsWaitForRequestsAsUsedOnes(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		var asked atomic.Int32
		o := newOrigin(t, network, web(func(w io.Writer, q *http.Request, body []byte) bool {
			if q.URL.Path == "/health" && q.Host == "a.test" {
				asked.Add(1)
			}
			return echo(w, q, body)
		}))
		p := o.pool(Options{})
		if err := p.Warm(t.Context(), request("GET", "/health", ""), 3); err != nil {
			t.Fatal(err)
		}
		if s := p.Stats(); s.Open != 3 || s.Idle != 3 || s.Dialled != 3 || asked.Load() != 3 {
			t.Fatalf("%+v, asked %d times", s, asked.Load())
		}
		var held []*Conn
		for range 3 {
			c := get(t, p, false)
			if answer, err := converse(c, "POST", "/", "hello"); !c.Reused || answer != "/hello" || err != nil {
				t.Errorf("reused %v, %q, %v", c.Reused, answer, err)
			}
			held = append(held, c)
		}
		if s := p.Stats(); s.Dialled != 3 {
			t.Errorf("%+v", s)
		}
		for _, c := range held {
			p.Put(c)
		}
	})
}

func TestWarmEndsWithAnAppThatItDoesNoGood(t *testing.T) {
	head := "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n"
	for name, handle := range map[string]func(net.Conn){
		"it says that it closes":    say(head+"Connection: close\r\n\r\nok", false),
		"it closes without a word":  say(head+"\r\nok", false),
		"it answers with an error":  say("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", true),
		"it answers at length":      say("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat("x", 1000000), true),
		"it speaks something else":  say("SSH-2.0\r\n", true),
		"it closes when it is made": func(net.Conn) {},
	} {
		t.Run(name, func(t *testing.T) {
			p := newOrigin(t, "tcp", handle).pool(Options{})
			err := p.Warm(t.Context(), request("GET", "/health", ""), 50)
			if s := p.Stats(); err == nil || s.Idle == 50 || s.Dialled == 50 {
				t.Errorf("%v, %+v", err, s)
			}
		})
	}
}

func TestWarmEndsWithItsTimeAndLeavesNothingHalfUsed(t *testing.T) {
	onBoth(t, func(t *testing.T, network string) {
		o := newOrigin(t, network, web(func(io.Writer, *http.Request, []byte) bool { return true }))
		p := o.pool(Options{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Warm(ctx, request("GET", "/health", ""), 3) }()
		eventually(t, "a question is under way", func() bool { return p.Stats().Open == 1 })
		cancel()
		if err := <-done; err == nil {
			t.Error("warm, and nobody answered")
		}
		if s := p.Stats(); s.Open != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestWarmLeavesARetiredPoolAlone(t *testing.T) {
	o := newOrigin(t, "tcp", web(echo))
	p := o.pool(Options{})
	p.Retire()
	if err := p.Warm(t.Context(), request("GET", "/health", ""), 1); !errors.Is(err, ErrClosed) || p.Stats().Dialled != 0 {
		t.Errorf("%v, %+v", err, p.Stats())
	}
}
