package admin_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
)

// sse reads one event stream by hand, as any client would.
type sse struct {
	t     *testing.T
	res   *http.Response
	lines *bufio.Scanner
	leave context.CancelFunc
}

func (a *api) stream(path string, header ...string) *sse {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	a.t.Cleanup(cancel)
	req, _ := http.NewRequestWithContext(ctx, "GET", a.base+path, nil)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := a.http.Do(req)
	if err != nil {
		a.t.Fatalf("stream %s: %v", path, err)
	}
	a.t.Cleanup(func() { _ = res.Body.Close() })
	return &sse{t: a.t, res: res, lines: bufio.NewScanner(res.Body), leave: cancel}
}

// next returns "id event" and the data of the next event; "" at the end.
func (s *sse) next() (head, data string) {
	var id, event string
	for s.lines.Scan() {
		name, value, _ := strings.Cut(s.lines.Text(), ": ")
		switch name {
		case "id":
			id = value
		case "event":
			event = value
		case "data":
			data = value
		case "":
			if data != "" {
				return id + " " + event, data
			}
		}
	}
	return "", ""
}

func (s *sse) expect(heads ...string) (last string) {
	s.t.Helper()
	for _, want := range heads {
		head, data := s.next()
		if head != want {
			s.t.Fatalf("got event %q (%s), want %q", head, data, want)
		}
		last = data
	}
	return last
}

func startDeploy(t *testing.T, c *admintest.Control, a *api) string {
	t.Helper()
	return decode[admin.Operation](t, a.post("/v1/apps/hello/deploy", `{"digest":"sha256:aa"}`)).ID
}

func TestOperationEventsShowEveryStepAndEndWhenTheDrainIsOver(t *testing.T) {
	c := admintest.New(hello())
	addr, _ := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	id := startDeploy(t, c, a)
	c.Step(id, admin.StepStaged, "")
	s := a.stream("/v1/operations/" + id + "/events")
	if ct := s.res.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("content type %q", ct)
	}
	s.expect("1 step")
	c.Step(id, admin.StepCommitted, "revision 3")
	if data := s.expect("2 step"); !strings.Contains(data, `"detail":"revision 3"`) {
		t.Errorf("step: %s", data)
	}
	c.Finish(id, admin.OpDone, func(op *admin.Operation) { op.Draining = true })
	s.expect("2 operation")
	c.Step(id, admin.StepRetired, "")
	s.expect("3 step")
	c.Finish(id, admin.OpDone, func(op *admin.Operation) { op.Draining = false })
	var op admin.Operation
	if err := json.Unmarshal([]byte(s.expect("3 end")), &op); err != nil || !op.Settled() {
		t.Errorf("end: %+v %v", op, err)
	}
	if head, _ := s.next(); head != "" {
		t.Errorf("the stream goes on with %q", head)
	}
}

func TestOperationEventsResumeAfterTheLastOneSeen(t *testing.T) {
	c := admintest.New(hello())
	addr, _ := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	id := startDeploy(t, c, a)
	for _, name := range []string{admin.StepStaged, admin.StepCommitted, admin.StepStarting} {
		c.Step(id, name, "")
	}
	path := "/v1/operations/" + id + "/events"
	s := a.stream(path, "Last-Event-ID", "2")
	if data := s.expect("3 step"); !strings.Contains(data, admin.StepStarting) {
		t.Errorf("resumed at %s", data)
	}
	s.leave()
	c.Finish(id, admin.OpFailed, nil)
	a.stream(path, "Last-Event-ID", "3").expect("3 operation", "3 end")
	// Steps that were counted in an earlier life of usher: all are told again.
	a.stream(path, "Last-Event-ID", "9").expect("1 step", "2 step", "3 step", "3 operation", "3 end")
	a.problem(a.send("GET", "/v1/operations/op-9/events", ""), 404, admin.CodeOperationNotFound)
}

// deafControl delivers no event, as to a reader who was too slow for all.
type deafControl struct{ *admintest.Control }

func (deafControl) Watch(ctx context.Context, _ admin.EventFilter) (<-chan admin.Event, error) {
	return make(chan admin.Event), ctx.Err()
}

func TestALostEventHidesNoStep(t *testing.T) {
	c := admintest.New(hello())
	addr, _ := admintest.Start(t, deafControl{c}, admin.Options{Heartbeat: 10 * time.Millisecond})
	a := newAPI(t, addr)
	id := startDeploy(t, c, a)
	s := a.stream("/v1/operations/" + id + "/events")
	c.Step(id, admin.StepStaged, "")
	c.Finish(id, admin.OpDone, nil)
	s.expect("1 step", "1 operation", "1 end")
}

// closingControl closes every watch after the events that are recorded.
type closingControl struct{ *admintest.Control }

func (c closingControl) Watch(ctx context.Context, f admin.EventFilter) (<-chan admin.Event, error) {
	f.Follow = false
	return c.Control.Watch(ctx, f)
}

func TestAClosedWatchEndsTheStreamAfterALastLook(t *testing.T) {
	c := admintest.New(hello())
	addr, _ := admintest.Start(t, closingControl{c}, admin.Options{})
	a := newAPI(t, addr)
	id := startDeploy(t, c, a)
	c.Step(id, admin.StepStaged, "")
	s := a.stream("/v1/operations/" + id + "/events")
	s.expect("1 step")
	if head, _ := s.next(); head != "" {
		t.Errorf("the stream goes on with %q", head)
	}
}

func TestEventsAreListedStreamedAndResumed(t *testing.T) {
	other := hello()
	other.Name = "other"
	c := admintest.New(hello(), other)
	addr, _ := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	c.Emit(admin.Event{App: "hello", Type: "state", State: admin.Waking, Message: "waking"})
	c.Emit(admin.Event{App: "other", Type: "state", State: admin.Asleep, Message: "asleep"})
	c.Emit(admin.Event{App: "hello", Type: "state", State: admin.Awake, Message: "awake"})

	list := decode[struct{ Events []admin.Event }](t, a.send("GET", "/v1/events?since=1", ""))
	if len(list.Events) != 2 || list.Events[0].Seq != 2 {
		t.Errorf("since=1: %+v", list.Events)
	}
	list = decode[struct{ Events []admin.Event }](t, a.send("GET", "/v1/apps/hello/events", ""))
	if len(list.Events) != 2 || list.Events[1].Message != "awake" {
		t.Errorf("of hello: %+v", list.Events)
	}
	s := a.stream("/v1/apps/hello/events", "Last-Event-ID", "1")
	s.expect("3 state")
	c.Emit(admin.Event{App: "hello", Type: "cache", Message: "purged"})
	if data := s.expect("4 cache"); !strings.Contains(data, `"message":"purged"`) {
		t.Errorf("event: %s", data)
	}
}

func TestAQuietStreamSendsHeartbeats(t *testing.T) {
	addr, _ := admintest.Start(t, admintest.New(hello()), admin.Options{Heartbeat: 5 * time.Millisecond})
	s := newAPI(t, addr).stream("/v1/events")
	for beats := 0; beats < 3; {
		if !s.lines.Scan() {
			t.Fatalf("the stream ended: %v", s.lines.Err())
		}
		if s.lines.Text() == ":" {
			beats++
		}
	}
}

func TestShutdownEndsStreams(t *testing.T) {
	c := admintest.New(hello())
	c.OpenLog = func(context.Context, admin.LogRequest) (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, "line\n") }() // ended by the reader's Close
		return r, nil
	}
	addr, stop := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	id := startDeploy(t, c, a)
	streams := []*sse{
		a.stream("/v1/events"), a.stream("/v1/operations/" + id + "/events"), a.stream("/v1/apps/hello/logs?follow=1"),
	}
	stop()
	for _, s := range streams {
		if _, err := io.ReadAll(s.res.Body); err != nil {
			t.Errorf("%s: %v", s.res.Request.URL.Path, err)
		}
	}
}

func TestLogsAreFlushedAsTheyComeAndClosedWithTheReader(t *testing.T) {
	c := admintest.New(hello())
	asked := make(chan admin.LogRequest, 1)
	r, w := io.Pipe()
	c.OpenLog = func(_ context.Context, req admin.LogRequest) (io.ReadCloser, error) {
		asked <- req
		return r, nil
	}
	addr, _ := admintest.Start(t, c, admin.Options{})
	s := newAPI(t, addr).stream("/v1/apps/hello/logs?follow&lines=20000&generation=5")
	want := admin.LogRequest{App: "hello", Generation: 5, Lines: 10000, Follow: true}
	if got := <-asked; got != want {
		t.Errorf("asked for %+v, want %+v", got, want)
	}
	for _, line := range []string{"one", "two"} {
		_, _ = io.WriteString(w, line+"\n")
		if !s.lines.Scan() || s.lines.Text() != line {
			t.Fatalf("got %q, want %q", s.lines.Text(), line)
		}
	}
	if ct := s.res.Header.Get("Content-Type"); ct != "text/plain; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	s.leave()
	// Only closing the reader makes a write fail.
	for {
		if _, err := io.WriteString(w, "more\n"); err != nil {
			return
		}
	}
}
