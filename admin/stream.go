package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Names of the server-sent events of an operation.
const (
	// SentStep carries a [Step]; its id is the step's number, from 1.
	SentStep = "step"
	// SentOperation carries the [Operation] once it is final.
	SentOperation = "operation"
	// SentEnd carries the settled [Operation] and is the last one.
	SentEnd = "end"
)

// sse writes server-sent events (WHATWG HTML, section 9.2), each flushed at once.
type sse struct {
	w  io.Writer
	rc *http.ResponseController
}

func startSSE(w http.ResponseWriter) (*sse, error) {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // a proxy in between must not collect
	st := &sse{w: w, rc: http.NewResponseController(w)}
	setStill(w)
	w.WriteHeader(http.StatusOK)
	return st, st.put("retry: 1000\n\n")
}

func (s *sse) send(id uint64, event string, data any) error {
	body, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return s.put(fmt.Sprintf("id: %d\nevent: %s\ndata: %s\n\n", id, event, body))
}

func (s *sse) heartbeat() error { return s.put(":\n\n") }

func (s *sse) put(text string) error {
	_ = s.rc.SetWriteDeadline(time.Now().Add(stallTimeout))
	if _, err := io.WriteString(s.w, text); err != nil {
		return err
	}
	return s.rc.Flush()
}

// resumeFrom is the id after which a reader wants to go on.
func resumeFrom(r *http.Request) (uint64, error) {
	text := r.Header.Get("Last-Event-ID")
	if text == "" {
		return queryUint(r, "since", 0, 0)
	}
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil {
		return 0, &Error{
			Kind: Invalid, Code: "last-event-id-invalid", Cause: err,
			Detail: "Last-Event-ID is not a number of ours: " + strconv.Quote(text),
		}
	}
	return n, nil
}

func wantsStream(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "text/event-stream")
}

type eventList struct {
	Events []Event `json:"events"`
}

// events lists what was recorded, or streams it and what is to come if the
// reader accepts text/event-stream.
func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	since, err := resumeFrom(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.streamContext(r)
	defer cancel()
	f := EventFilter{App: r.PathValue("app"), SinceSeq: since, Follow: wantsStream(r)}
	events, err := s.control.Watch(ctx, f)
	if err != nil {
		return err
	}
	if f.Follow {
		s.streamEvents(ctx, w, events)
		return nil
	}
	list := eventList{Events: []Event{}}
	for e := range events {
		list.Events = append(list.Events, e)
	}
	return writeJSON(w, http.StatusOK, list)
}

// streamEvents ends when the reader leaves, is too slow, or usher stops.
func (s *Server) streamEvents(ctx context.Context, w http.ResponseWriter, events <-chan Event) {
	beat := time.NewTicker(s.opts.Heartbeat)
	defer beat.Stop()
	st, err := startSSE(w)
	for err == nil {
		select {
		case e, open := <-events:
			if !open {
				return
			}
			err = st.send(e.Seq, e.Type, e)
		case <-beat.C:
			err = st.heartbeat()
		case <-ctx.Done():
			return
		}
	}
}

// operationEvents streams the steps of one operation until it is settled. The
// events of the watch only say when to look: what is sent is read from the
// operation itself, so a lost event cannot hide a step or the end.
func (s *Server) operationEvents(w http.ResponseWriter, r *http.Request) error {
	seen, err := resumeFrom(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.streamContext(r)
	defer cancel()
	id := r.PathValue("id")
	changes, err := s.control.Watch(ctx, EventFilter{Operation: id, Follow: true})
	if err != nil {
		return err
	}
	op, err := s.control.Operation(ctx, id)
	if err != nil {
		return err
	}
	st, err := startSSE(w)
	if err != nil {
		return nil
	}
	s.streamOperation(ctx, &opStream{sse: st, seen: seen}, op, changes)
	return nil
}

func (s *Server) streamOperation(ctx context.Context, out *opStream, op Operation, changes <-chan Event) {
	beat := time.NewTicker(s.opts.Heartbeat)
	defer beat.Stop()
	for open := true; ; {
		if done, err := out.show(op); done || err != nil || !open {
			return
		}
		select {
		case _, open = <-changes:
			open = open && drain(changes)
		case <-beat.C:
			if out.sse.heartbeat() != nil {
				return
			}
		case <-ctx.Done():
			return
		}
		var err error
		if op, err = s.control.Operation(ctx, op.ID); err != nil {
			return
		}
	}
}

// drain takes what is waiting, so that one look serves for many changes.
func drain(changes <-chan Event) (open bool) {
	for {
		select {
		case _, open := <-changes:
			if !open {
				return false
			}
		default:
			return true
		}
	}
}

// opStream remembers what its reader has been told.
type opStream struct {
	sse   *sse
	seen  uint64 // steps
	final bool
}

// show sends what is new in op and reports whether that was all.
func (o *opStream) show(op Operation) (done bool, err error) {
	steps := uint64(len(op.Steps))
	if o.seen > steps {
		// The reader counted in an earlier life of usher.
		o.seen = 0
	}
	for ; o.seen < steps; o.seen++ {
		if err := o.sse.send(o.seen+1, SentStep, op.Steps[o.seen]); err != nil {
			return false, err
		}
	}
	if op.State.Final() && !o.final {
		o.final = true
		if err := o.sse.send(steps, SentOperation, op); err != nil {
			return false, err
		}
	}
	if !op.Settled() {
		return false, nil
	}
	return true, o.sse.send(steps, SentEnd, op)
}

const (
	defaultLogLines = 100
	maxLogLines     = 10000
)

// logs copies an app's output as plain text, flushed as it comes.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	req, err := logRequest(r)
	if err != nil {
		return err
	}
	ctx, cancel := s.streamContext(r)
	defer cancel()
	src, err := s.control.Logs(ctx, req)
	if err != nil {
		return err
	}
	closeSrc := sync.OnceFunc(func() { _ = src.Close() })
	defer closeSrc()
	defer context.AfterFunc(ctx, closeSrc)()

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	setStill(w)
	w.WriteHeader(http.StatusOK)
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	copyFlushing(w, rc, src)
	return nil
}

func copyFlushing(w io.Writer, rc *http.ResponseController, src io.Reader) {
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(time.Now().Add(stallTimeout))
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func logRequest(r *http.Request) (LogRequest, error) {
	req := LogRequest{App: r.PathValue("app")}
	lines, err := queryUint(r, "lines", 0, defaultLogLines)
	if err != nil {
		return req, err
	}
	req.Lines = int(min(lines, maxLogLines))
	if req.Generation, err = queryUint(r, "generation", 1, 0); err != nil {
		return req, err
	}
	req.Follow, err = queryBool(r, "follow")
	return req, err
}
