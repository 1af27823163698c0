package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// K03: nothing but what the operator asks for bounds the requests inside an app.
func TestManyRequestsAtOnceAreAllServed(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{artifact: hello(t, "v1", "delay=1s")}}})
	u.must("wake", "hello")
	n := rounds(400, 2000)
	failed := 0
	for _, a := range together(n, func(int) answer { return u.get("hello", "/version") }) {
		if a.err != nil || a.status != http.StatusOK {
			failed++
			t.Log(a)
		}
	}
	if failed > 0 {
		t.Errorf("%d of %d requests failed", failed, n)
	}
}

// K04: however requests end, the places they had are free afterwards.
func TestPlacesAreFreeAfterOddEndingsInEveryPhase(t *testing.T) {
	t.Parallel()
	const most = 4
	u := start(t, options{apps: []app{{
		artifact: hello(t, "v1", "slow-start=300ms"),
		lines:    []string{fmt.Sprintf("max_in_flight = %d\nmax_in_flight_per_client = %[1]d\npark_limit = %[1]d\npark_limit_per_client = %[1]d", most)},
	}}})
	const head = " HTTP/1.1\r\nHost: hello.localhost\r\n"
	phases := map[string]string{
		"parked, or waiting for the answer": "GET /sleep?d=5s" + head + "\r\n",
		"within the head":                   "GET / HTTP/1.1\r\nHost: hel",
		"within the body":                   "POST /upload" + head + "Content-Length: 1000000\r\n\r\nsome of it",
		"within a chunk":                    "POST /upload" + head + "Transfer-Encoding: chunked\r\n\r\nffff\r\nsome of it",
		"with the handshake of a WebSocket": "GET /ws" + head + "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
		"within an event stream":            "GET /sse?every=20ms" + head + "\r\n",
		"within a long answer":              "GET /slowbody?n=1000000&every=20ms" + head + "\r\n",
	}
	for round := range rounds(6, 150) {
		if round%3 == 0 { // these meet a sleeping app
			u.sleep("hello")
		}
		for phase, text := range phases {
			conn := u.raw()
			fmt.Fprint(conn, text)
			if round%2 == 1 { // after the answer has begun, where one begins
				_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
				_, _ = bufio.NewReader(conn).ReadByte() // whether one came does not matter
			}
			if round%3 != 1 {
				if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
					t.Fatalf("%s: %v", phase, err)
				}
			}
			conn.Close()
		}
	}
	u.eventually(20*time.Second, "all places are free", func() error {
		m, err := u.metrics()
		if err != nil {
			return err
		}
		if inside, parked := m.sum("usher_requests_in_flight"), m.sum("usher_requests_parked"); inside+parked != 0 {
			return fmt.Errorf("%v inside, %v parked", inside, parked)
		}
		return nil
	})
	for _, a := range together(most, func(int) answer { return u.get("hello", "/version") }) {
		ok(t, a)
	}
	u.sleep("hello")
	u.awaitState("hello", admin.Asleep, 10*time.Second)
}

// S06: with everything on that could stand between an app and its client.
func TestUpgradesAndEventsPassWithEverythingOn(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{})
	u.configure(options{
		server: []string{fmt.Sprintf("access_log = %q", u.accessLog()), "max_connections_per_client = 50", `write_timeout = "1s"`, `idle_timeout = "1s"`},
		apps: []app{{cache: true, lines: []string{
			"max_in_flight = 10", "max_in_flight_per_client = 10", `max_body = "1MiB"`, `first_byte_timeout = "1s"`, "expose_build = true", "keep_trailers = true",
		}}},
	})
	u.begin()
	c := u.webSocket("hello")
	if err := echo(c, "first"); err != nil {
		t.Fatal(err)
	}
	s := u.open("hello", "/sse?every=300ms")
	events := bufio.NewReader(s.resp.Body)
	begun, got := time.Now(), 0
	for time.Since(begun) < 3*time.Second {
		line, err := events.ReadString('\n')
		if err != nil {
			t.Fatalf("the stream ended after %d events: %v", got, err)
		}
		if strings.HasPrefix(line, "data:") {
			got++
		}
	}
	if got < 3 {
		t.Errorf("%d events in 3 s: they do not come one by one", got)
	}
	if s.resp.Header.Get("Usher-Build") == "" {
		t.Error("the settings are not in force")
	}
	if err := echo(c, "after three seconds of silence"); err != nil { // longer than any limit above
		t.Error(err)
	}
	s.close()
	if err := c.CloseNow(); err != nil {
		t.Log(err)
	}
	for _, target := range []string{"/ws", "/sse?every=300ms"} {
		if e := u.logged(target); e.App != "hello" {
			t.Errorf("%+v", e)
		}
	}
}
