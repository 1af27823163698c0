package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// fakeEnv turns the test binary into an usher that does what the value says:
// "good", or one of the faults that are spelled out below.
const fakeEnv = "DEMO_TEST_USHER"

func TestMain(m *testing.M) {
	if how := os.Getenv(fakeEnv); how != "" {
		if err := fakeUsher(how, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "fake usher:", err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

func fakeUsher(how string, args []string) error {
	switch {
	case args[0] == "serve" && how == "refuses":
		return errors.New("the configuration does not please")
	case args[0] == "serve":
		return serveFake(how, args[2])
	}
	socket := strings.TrimPrefix(args[1], "unix:")
	verb, app := args[2], args[3]
	if verb == "receipts" {
		_, err := fmt.Println("attempt 2: release of revision 2")
		return err
	}
	if verb == "status" {
		return fakeCall(socket, "/status/"+app, os.Stdout)
	}
	fmt.Fprintln(os.Stderr, app+": starting")
	return fakeCall(socket, "/deploy/"+app+"?mode="+args[6], io.Discard)
}

func fakeCall(socket, path string, to io.Writer) error {
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	response, err := (&http.Client{Transport: transport}).Get("http://usher" + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	_, err = io.Copy(to, response.Body)
	return err
}

// fakeApp is an app without a process.
type fakeApp struct {
	name string
	how  string

	mu         sync.Mutex // guards what follows
	state      string
	version    int
	generation uint64
	last       time.Time
	ready      chan struct{}
	parked     int
}

func (a *fakeApp) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.state == "asleep" {
		a.hold("awake")
	}
	a.last = time.Now()
	ready := a.ready
	select {
	case <-ready:
	default:
		a.parked++
	}
	a.mu.Unlock()
	<-ready
	a.mu.Lock()
	version, generation, parked := a.version, a.generation, a.parked
	a.mu.Unlock()
	if a.how == "drops" && version == 3 && parked > 0 && r.Method == http.MethodPost {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Usher-Generation", fmt.Sprint(generation))
	if r.Method == http.MethodPost {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		return
	}
	fmt.Fprintf(w, "hi from v%d\n", version)
}

// hold parks requests for a moment, until the next generation. The lock must
// be held.
func (a *fakeApp) hold(then string) {
	ready := make(chan struct{})
	a.state, a.ready = "holding", ready
	time.AfterFunc(60*time.Millisecond, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.generation++
		a.state, a.last = then, time.Now()
		close(ready)
	})
}

func (a *fakeApp) status(w http.ResponseWriter, _ *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.state == "awake" && time.Since(a.last) > time.Second && a.how != "sleepless" {
		a.state = "asleep"
	}
	s := status{State: a.state}
	if s.State != "asleep" {
		s.Generation, s.PID = a.generation, 1000+int(a.generation)
	}
	_ = json.NewEncoder(w).Encode(s)
}

func (a *fakeApp) deploy(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	if a.how == "fails" {
		a.mu.Unlock()
		http.Error(w, "the build does not get healthy", http.StatusBadGateway)
		return
	}
	a.version++
	if r.FormValue("mode") == "overlap" || a.how == "overlaps" {
		a.generation++
		a.mu.Unlock()
		return
	}
	a.hold("awake")
	ready := a.ready
	a.mu.Unlock()
	<-ready
}

func serveFake(how, config string) error {
	toml, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	value := func(pattern string) string { return string(regexp.MustCompile(pattern).FindSubmatch(toml)[1]) }
	edge, err := net.Listen("tcp", value(`listen = \["(.*?)"\]`))
	if err != nil {
		return err
	}
	control, err := net.Listen("unix", value(`admin = "unix:(.*?)"`))
	if err != nil {
		return err
	}
	awake := make(chan struct{})
	close(awake)
	hosts, verbs := http.NewServeMux(), http.NewServeMux()
	var metrics []func() string
	for _, name := range []string{"hello", "notes"} {
		a := &fakeApp{name: name, how: how, state: "asleep", version: 1, ready: awake}
		hosts.Handle(name+".localhost/", a)
		verbs.HandleFunc("/status/"+name, a.status)
		verbs.HandleFunc("/deploy/"+name, a.deploy)
		metrics = append(metrics, a.metrics)
	}
	verbs.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		for _, m := range metrics {
			fmt.Fprint(w, m())
		}
	})
	term, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() { _ = http.Serve(edge, hosts) }()
	go func() { _ = http.Serve(control, verbs) }()
	<-term.Done()
	return nil
}

func (a *fakeApp) metrics() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var b bytes.Buffer
	fmt.Fprintf(&b, "usher_park_duration_seconds_sum{app=%q} %g\n", a.name, float64(a.parked)*0.03)
	fmt.Fprintf(&b, "usher_park_duration_seconds_count{app=%q} %d\n", a.name, a.parked)
	return b.String()
}
