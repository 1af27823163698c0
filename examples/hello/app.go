package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// app is the server's state.
type app struct {
	how      behaviour
	started  time.Time
	ballast  ballast
	cached   atomic.Int64   // pages made by /cached
	count    counter        // of /count
	upgraded sync.WaitGroup // WebSockets, which the server does not wait for

	// streams ends when endless answers must end.
	streams     context.Context
	stopStreams context.CancelFunc
}

func newApp(how behaviour) *app {
	a := &app{how: how, started: time.Now(), count: counter{path: os.Getenv("COUNT_FILE")}}
	a.streams, a.stopStreams = context.WithCancel(context.Background())
	a.ballast.take(how.allocate)
	return a
}

func (a *app) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, page := range map[string]http.HandlerFunc{
		"/{$}":      a.greet,
		"/version":  say(version),
		"/pid":      say(strconv.Itoa(os.Getpid())),
		"/echo":     a.echo,
		"/headers":  a.headers,
		"/upload":   a.upload,
		"/count":    a.count.page,
		"/sleep":    a.sleep,
		"/sse":      a.events,
		"/ws":       a.webSocket,
		"/slowbody": a.slowBody,
		"/big":      a.big,
		"/cached":   a.cachedPage,
		"/status":   a.status,
		"/early":    a.early,
		"/trailer":  a.trailer,
		"/crash":    a.crash,
		"/allocate": a.allocate,
		"/children": a.children,
	} {
		mux.HandleFunc(pattern, page)
	}
	return a.misbehaving(mux)
}

// misbehaving stands before every page.
func (a *app) misbehaving(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(a.how.delay)
		if a.how.neverHealthy || time.Since(a.started) < a.how.boot503 {
			http.Error(w, "hello "+version+" is not ready", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func say(word string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, word) }
}

func (a *app) greet(w http.ResponseWriter, _ *http.Request) {
	greeting := os.Getenv("GREETING")
	if greeting == "" {
		greeting = "hello"
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "%s from %s\n", greeting, version)
}

// crash ends the process with the request unanswered.
func (a *app) crash(http.ResponseWriter, *http.Request) {
	fmt.Fprintf(os.Stderr, "hello %s: crashes, as a request told it to\n", version)
	os.Exit(1)
}

// duration reads a query field; what is missing or wrong is the fallback.
func duration(r *http.Request, field string, fallback time.Duration) time.Duration {
	d, err := time.ParseDuration(r.FormValue(field))
	if err != nil || d <= 0 {
		return fallback
	}
	return d
}

// number reads a query field; what is missing, wrong or above most is the
// fallback.
func number(r *http.Request, field string, fallback, most int) int {
	n, err := strconv.Atoi(r.FormValue(field))
	if err != nil || n < 0 || n > most {
		return fallback
	}
	return n
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}
