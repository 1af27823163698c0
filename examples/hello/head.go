package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
)

// headers answers with the request's head as it came over the wire: net/http
// keeps neither the order nor the case of fields, so the connection does.
func (a *app) headers(w http.ResponseWriter, r *http.Request) {
	t := r.Context().Value(tapeKey{}).(*tape)
	writeJSON(w, map[string]any{
		"method": r.Method, "target": r.RequestURI, "proto": r.Proto,
		"headers": t.fields(r.Method + " " + r.RequestURI + " " + r.Proto + "\r\n"),
		"remote":  r.RemoteAddr, "version": version, "pid": os.Getpid(),
		"generation": os.Getenv("USHER_GENERATION"),
	})
}

// tapeBytes is how much of a connection is remembered, more than a head.
const tapeBytes = 64 << 10

// tape is a connection that remembers the last bytes that came.
type tape struct {
	net.Conn
	mu   sync.Mutex // guards last: the server reads ahead while a handler runs
	last []byte
}

func (t *tape) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.last = append(t.last, p[:n]...)
	if over := len(t.last) - tapeBytes; over > tapeBytes {
		t.last = append(t.last[:0], t.last[over:]...)
	}
	return n, err
}

// fields are the [name, value] pairs after the newest head that begins with
// line.
func (t *tape) fields(line string) [][2]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	pairs := [][2]string{}
	at := bytes.LastIndex(t.last, []byte(line))
	if at < 0 {
		return pairs
	}
	head, _, _ := strings.Cut(string(t.last[at+len(line):]), "\r\n\r\n")
	for _, field := range strings.Split(head, "\r\n") {
		if name, value, ok := strings.Cut(field, ":"); ok {
			pairs = append(pairs, [2]string{name, strings.TrimSpace(value)})
		}
	}
	return pairs
}

// taped is a listener whose connections are tapes.
type taped struct{ net.Listener }

func (l taped) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tape{Conn: conn}, nil
}

type tapeKey struct{}

func withTape(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, tapeKey{}, conn)
}
