package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs the app on a socket and returns how to dial it.
func start(t *testing.T, how behaviour) (*app, *http.Server, func() net.Conn) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	t.Setenv("SOCKET", path)
	listener, err := listen()
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(how)
	server := &http.Server{Handler: a.handler(), ConnContext: withTape}
	served := make(chan error, 1)
	go func() { served <- server.Serve(taped{listener}) }()
	t.Cleanup(func() { a.stopStreams(); server.Close(); <-served })
	return a, server, func() net.Conn {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
}

func client(t *testing.T, dial func() net.Conn) *http.Client {
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil }}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestBehavioursOfBuildAndEnvironmentAddUp(t *testing.T) {
	got, err := parseBehaviour("slow-start=2s, ignore-term", "crash=1s,fork=3")
	want := behaviour{slowStart: 2 * time.Second, ignoreTerm: true, crash: true, crashAfter: time.Second, fork: 3}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err = parseBehaviour("dance,slow-start=soon", "crash-once")
	if err == nil || strings.Count(err.Error(), "behaviour") < 3 {
		t.Errorf("want three faults, got %v", err)
	}
}

func TestHeadersComeBackInOrderAndCase(t *testing.T) {
	_, _, dial := start(t, behaviour{})
	conn := dial()
	in := bufio.NewReader(conn)
	for i := range 2 { // the second on the same connection
		fmt.Fprintf(conn, "GET /headers?i=%d HTTP/1.1\r\nHOST: a\r\nx-B:  two\r\nX-a: one\r\n\r\n", i)
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got struct {
			Target  string
			Headers [][2]string
		}
		if err := json.NewDecoder(response.Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		want := [][2]string{{"HOST", "a"}, {"x-B", "two"}, {"X-a", "one"}}
		if got.Target != fmt.Sprintf("/headers?i=%d", i) || !reflect.DeepEqual(got.Headers, want) {
			t.Errorf("got %+v", got)
		}
	}
}

func TestPagesAnswer(t *testing.T) {
	t.Setenv("GREETING", "hi")
	t.Setenv("COUNT_FILE", filepath.Join(t.TempDir(), "count"))
	_, _, dial := start(t, behaviour{})
	c := client(t, dial)
	for path, want := range map[string]string{
		"/":                      "hi from v1",
		"/version":               "v1",
		"/big?n=30":              "abcdefghijklmnopqrstuvwxyzabcd",
		"/status?code=418":       "status 418 from v1",
		"/sleep?d=1ms":           "slept 1ms in v1",
		"/slowbody?n=2&every=1s": "line 2 of 2",
		"/sse?every=1ms&n=2":     "data: event 2 from v1",
		"/cached":                "page 1 from v1",
		"/early":                 "hints came before this",
		"/trailer":               "part 3 from v1",
		"/count?id=7":            "GET 7 ",
	} {
		response, err := c.Get("http://app" + path)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !strings.Contains(string(body), want) {
			t.Errorf("%s: got %q, %v; want %q in it", path, body, err, want)
		}
	}
	const sum = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of hello
	response, err := c.Post("http://app/echo", "", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, _ := io.ReadAll(response.Body); string(body) != "hello" || response.Header.Get("X-Body-Sha256") != sum {
		t.Errorf("echo: %q, sum %q", body, response.Header.Get("X-Body-Sha256"))
	}
}

func TestAnUnhealthyAppAnswers503(t *testing.T) {
	_, _, dial := start(t, behaviour{neverHealthy: true})
	response, err := client(t, dial).Get("http://app/")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("status %d", response.StatusCode)
	}
}

func TestLeavingFinishesRequestsAndSaysGoodbyeToWebSockets(t *testing.T) {
	a, server, dial := start(t, behaviour{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	socket, _, err := websocket.Dial(ctx, "ws://app/ws", &websocket.DialOptions{HTTPClient: client(t, dial)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.CloseNow()
	if err := socket.Write(ctx, websocket.MessageText, []byte("ping")); err != nil {
		t.Fatal(err)
	}
	if _, message, err := socket.Read(ctx); err != nil || string(message) != "ping" {
		t.Fatalf("echo %q, %v", message, err)
	}
	conn := dial()
	in := bufio.NewReader(conn)
	fmt.Fprintf(conn, "GET /slowbody?n=3&every=50ms HTTP/1.1\r\nHost: a\r\n\r\n")
	if _, err := in.Peek(1); err != nil { // the handler is at work
		t.Fatal(err)
	}
	left := make(chan error, 1)
	go func() { left <- a.leave(server) }()
	_, _, err = socket.Read(ctx)
	if websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the WebSocket ended with %v, want going away", err)
	}
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), "line 3 of 3") {
		t.Errorf("the request in flight got %q, %v", body, err)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
}
