package activator

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// booting is an app that listens after a while, and answers well after another.
type booting struct {
	listens, well time.Time
	absence       error // of one that does not listen
}

func (b booting) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if time.Now().Before(b.listens) {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", b.absence)}
	}
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if _, err := http.ReadRequest(bufio.NewReader(far)); err != nil {
			return
		}
		status := http.StatusOK
		if time.Now().Before(b.well) {
			status = http.StatusServiceUnavailable
		}
		fmt.Fprintf(far, "HTTP/1.1 %d x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status)
	}()
	return near, nil
}

func (b booting) check(t *testing.T, awaited bool, so *probes) (res probeResult, took time.Duration) {
	begun := time.Now()
	target := probeTarget{dial: b.dial, awaited: func() bool { return awaited }}
	res = check(t.Context(), target, Health{Path: "/", Timeout: 30 * time.Second}, nil, so)
	return res, time.Since(begun)
}

// Parked requests wait for the health check, not only for the app.
func TestAnAppThatListensIsFoundAtOnceIfRequestsWaitForIt(t *testing.T) {
	for _, boot := range []time.Duration{0, 3 * time.Millisecond, 97 * time.Millisecond, 1234 * time.Millisecond, 25 * time.Second} {
		for _, absence := range []error{syscall.ECONNREFUSED, syscall.ENOENT} {
			synctest.Test(t, func(t *testing.T) {
				res, took := booting{listens: time.Now().Add(boot), absence: absence}.check(t, true, &probes{})
				if late := took - boot; !res.ok || late > min(max(boot/8, 2*time.Millisecond), 10*time.Millisecond) {
					t.Errorf("%v after %v: %+v, %v late", absence, boot, res, late)
				}
			})
		}
	}
}

// A connect that the end of the time cuts short fails with a timeout of its own,
// maybe before the context has ended.
func TestWhatTheEndOfTheTimeCutsIsNotTheLastAnswer(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			app := booting{listens: time.Now(), well: time.Now().Add(time.Hour)}
			asked := 0
			target := probeTarget{awaited: func() bool { return false }, dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				if asked++; asked < 3 {
					return app.dial(ctx, network, address)
				}
				end, _ := ctx.Deadline()
				time.Sleep(time.Until(end))
				return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
			}}
			res := check(t.Context(), target, Health{Path: "/", Timeout: time.Second}, nil, &probes{})
			if !strings.Contains(res.text, "answered 503") {
				t.Errorf("%s", res.text)
			}
		})
	}
}

func TestAnAppThatNobodyWaitsForOrThatAnswersBadlyIsAskedLessAndLessOften(t *testing.T) {
	for _, tc := range []struct {
		boot, late time.Duration
		tries      int
	}{
		{100 * time.Millisecond, 25 * time.Millisecond, 10},
		{time.Second, 250 * time.Millisecond, 20},
		{25 * time.Second, 250 * time.Millisecond, 120},
	} {
		for _, listens := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				ready := time.Now().Add(tc.boot)
				app := booting{listens: ready, absence: syscall.ECONNREFUSED}
				if listens {
					app = booting{listens: time.Now(), well: ready}
				}
				so := &probes{}
				res, took := app.check(t, listens, so)
				if late := took - tc.boot; !res.ok || late > tc.late || so.proof(false).Tries > tc.tries {
					t.Errorf("ready after %v, listens %v: %+v, %+v, %v late", tc.boot, listens, res, so.proof(false), late)
				}
			})
		}
	}
}

func TestASuccessorIsWarmedOnlyBesideWhatServes(t *testing.T) {
	warmed := func(r *rig) []string {
		r.edge.mu.Lock()
		defer r.edge.mu.Unlock()
		return slices.Clone(r.edge.slot("hello").warmed)
	}
	inBubble(t, func(r *rig) {
		app := r.app("v1")
		app.Policy.Health.Path, app.Policy.Health.Host = "/ready", "web.test"
		app.Policy.Health.Headers = map[string]string{"X-Probe": "yes"}
		r.apply(app)
		r.get("v1") // woken
		if got := warmed(r); len(got) != 0 {
			t.Fatalf("a wake: %q", got)
		}
		r.wantOp(r.deploy("v2"), OpDone)
		want := "GET /ready HTTP/1.1\r\nHost: web.test\r\nUser-Agent: usher-health\r\nX-Probe: yes\r\n\r\n"
		if got := warmed(r); !slices.Equal(got, []string{want}) {
			t.Errorf("an overlap: %q", got)
		}
		r.wantOp(r.deploy("v3 sick"), OpFailed)
		if got := warmed(r); len(got) != 1 {
			t.Errorf("a build that is not healthy: %q", got)
		}
	})
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1", hold))
		r.get("v1")
		r.wantOp(r.deploy("v2"), OpDone)
		if got := warmed(r); len(got) != 0 {
			t.Errorf("a hold: %q", got)
		}
	})
}
