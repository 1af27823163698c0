package bench

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// five is a load of five requests, which have all the time that a busy machine
// may want.
func five(target Target) Load {
	return Load{
		Targets: []Target{target}, Rate: 100, Duration: 50 * time.Millisecond,
		Connections: 2, Timeout: limit,
	}
}

func TestBrokenAnswersAreCountedByKindAndNeverRetried(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		reset  bool
		kind   string
	}{
		"closed without an answer":  {"", false, "reset"},
		"reset without an answer":   {"", true, "reset"},
		"closed inside the head":    {"HTTP/1.1 200 OK\r\nContent-Le", false, "short_body"},
		"closed inside the body":    {"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", false, "short_body"},
		"closed inside a chunk":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\na\r\nabc", false, "short_body"},
		"closed before last chunk":  {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", false, "short_body"},
		"not HTTP":                  {"SSH-2.0-OpenSSH\r\n\r\n", false, "protocol"},
		"bytes after the answer":    {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\n", false, "protocol"},
		"a body longer than wanted": {"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\nok", false, "protocol"},
		"a server error":            {"HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n", false, "status_503"},
		"not found":                 {"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false, "status_404"},
	} {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int32
			target := serveRaw(t, func(_ int, conn *net.TCPConn, _ *bufio.Reader) {
				connections.Add(1)
				if c.answer != "" {
					write(t, conn, c.answer)
				}
				if c.reset {
					_ = conn.SetLinger(0)
				}
			})
			load := five(target)
			load.MaxAnswerBytes = 1000
			result := steady(t, load)
			wantFailures(t, result, map[string]int{c.kind: 5})
			if n := connections.Load(); n != 5 {
				t.Errorf("%d connections for 5 requests", n)
			}
		})
	}
}

func TestARefusedConnectionIsADialFailure(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	result := steady(t, five(Target{Address: listener.Addr().String()}))
	wantFailures(t, result, map[string]int{"dial": 5})
}

func TestASilentServerIsATimeout(t *testing.T) {
	target := serveRaw(t, func(_ int, conn *net.TCPConn, in *bufio.Reader) { _, _ = in.ReadByte() })
	load := five(target)
	load.Timeout = 300 * time.Millisecond
	wantFailures(t, steady(t, load), map[string]int{"timeout": 5})
}

func TestInterimAnswersAreNotTheAnswer(t *testing.T) {
	target := serveRaw(t, func(_ int, conn *net.TCPConn, _ *bufio.Reader) {
		write(t, conn, "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	})
	wantFailures(t, steady(t, five(target)), nil)
}

func TestAPostThatComesBackChangedIsAWrongBody(t *testing.T) {
	target := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		body[len(body)-1]++
		_, _ = w.Write(body)
	}))
	load := five(target)
	load.Posts = 1
	wantFailures(t, steady(t, load), map[string]int{"wrong_body": 5})
}

func TestAnotherRequestsPostBodyIsAWrongBody(t *testing.T) {
	first := make(chan []byte, 1)
	target := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		select {
		case first <- body:
		default:
			body = <-first
			first <- body
		}
		_, _ = w.Write(body)
	}))
	load := five(target)
	load.Posts = 1
	load.Connections = 1
	wantFailures(t, steady(t, load), map[string]int{"wrong_body": 4})
}

func TestAnEarlyAnswerToAPostIsTakenAsItIs(t *testing.T) {
	target := serveRaw(t, func(_ int, conn *net.TCPConn, in *bufio.Reader) {
		write(t, conn, "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		_, _ = io.Copy(io.Discard, in)
	})
	load := five(target)
	load.Posts = 1
	load.BodyBytes = 100
	wantFailures(t, steady(t, load), map[string]int{"status_413": 5})
}

func TestARefusedCheckIsAFailure(t *testing.T) {
	target := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Version", "v1")
		_, _ = io.WriteString(w, "body")
	}))
	load := five(target)
	load.Check = func(a Answer) error {
		if a.Status != 200 || string(a.Body) != "body" || a.Header("x-version") != "v1" {
			return errors.New("answer is not passed on whole")
		}
		return nil
	}
	wantFailures(t, steady(t, load), nil)
	load.Check = func(a Answer) error { return errors.New("version " + a.Header("X-Version")) }
	result := steady(t, load)
	wantFailures(t, result, map[string]int{"check": 5})
	if d := result.FailureSamples[0].Detail; d != "version v1" {
		t.Errorf("detail %q", d)
	}
}

func TestAnOlderGenerationThanExpectedIsAFailure(t *testing.T) {
	var generation atomic.Value
	generation.Store("4")
	target := serveHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Usher-Generation", generation.Load().(string))
	}))
	for _, c := range []struct {
		answered string
		expected uint64
		failures map[string]int
	}{
		{"4", 0, nil},
		{"4", 4, nil},
		{"5", 4, nil},
		{"3", 4, map[string]int{"wrong_generation": 5}},
		{"", 4, map[string]int{"wrong_generation": 5}},
	} {
		generation.Store(c.answered)
		load := five(target)
		load.oldest = c.expected
		wantFailures(t, steady(t, load), c.failures)
	}
}
