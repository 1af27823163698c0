package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/usher-edge/usher/admin"
)

// silence is the longest pause between two lines of a stream of a daemon that
// is alive: it sends a comment every 15 seconds.
const silence = 45 * time.Second

// maxLine bounds one line of a stream, in bytes.
const maxLine = 4 << 20

// message is one server-sent event.
type message struct {
	id    string
	event string
	data  []byte
}

// errStop ends a stream from inside the reader of its messages.
var errStop = errors.New("stop")

// reader takes what a stream delivers. Opened may be nil.
type reader struct {
	opened func()
	each   func(message) error
}

// stream reads one connection's events after lastID until it breaks, which is
// an error that wraps ErrUnreachable, or the reader returns an error.
func (c *Client) stream(ctx context.Context, k call, lastID string, r reader) error {
	live, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet := time.AfterFunc(c.silence, cancel)
	defer quiet.Stop()

	k.header = http.Header{"Accept": {"text/event-stream"}}
	if lastID != "" {
		k.header.Set("Last-Event-ID", lastID)
	}
	err := c.readStream(live, k, func() { quiet.Reset(c.silence) }, r)
	switch {
	case errors.Is(err, errStop):
		return err
	case ctx.Err() != nil:
		return ctx.Err()
	case live.Err() != nil:
		return fmt.Errorf("%w at %s: silent for %s", ErrLost, c.addr, c.silence)
	}
	return err
}

func (c *Client) readStream(ctx context.Context, k call, alive func(), r reader) error {
	res, err := c.open(ctx, k)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if !isStream(res) {
		return &admin.Error{Kind: admin.Internal, Detail: "the answer is no event stream", Hint: "check the admin address"}
	}
	if r.opened != nil {
		r.opened()
	}
	return scan(res.Body, alive, r.each)
}

// Passing reports whether err is of a daemon that is gone, starting or stopping,
// so that another try to read makes sense.
func Passing(err error) bool {
	var e *admin.Error
	return errors.Is(err, ErrUnreachable) || errors.As(err, &e) && e.Kind == admin.Unavailable
}

// scan splits an event stream into messages. The end of the stream is an error.
func scan(r io.Reader, alive func(), each func(message) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxLine)
	var m message
	for lines.Scan() {
		alive()
		name, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			m.id = value
		case "event":
			m.event = value
		case "data":
			m.data = append(m.data, value...)
		case "":
			if value != "" || len(m.data) == 0 {
				continue // a comment, or the end of nothing
			}
			if err := each(m); err != nil {
				return err
			}
			m = message{}
		}
	}
	err := lines.Err()
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: the stream ended: %w", ErrLost, err)
}

// backoff is the pause before a stream is opened again.
type backoff struct {
	first, next time.Duration
}

// wait pauses and returns the error of ctx if that ends first.
func (b *backoff) wait(ctx context.Context) error {
	t := time.NewTimer(b.next)
	defer t.Stop()
	b.next = min(2*b.next, 10*b.first)
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *backoff) reset() { b.next = b.first }

func (c *Client) newBackoff() *backoff { return &backoff{first: c.retry, next: c.retry} }

// Watcher is told what happens while [Client.Follow] waits. Nil funcs are not
// called.
type Watcher struct {
	// Step is called for every step, once and in order.
	Step func(admin.Step)
	// Lost is called when the daemon goes away, Found when it is back.
	Lost  func(error)
	Found func()
}

// Follow waits for an operation: until it is final, or with settled until its
// predecessor is proven gone too. If the daemon goes away it connects again,
// for as long as ctx lasts. A daemon that does not know the operation any more
// answers with a NotFound error.
func (c *Client) Follow(ctx context.Context, id string, settled bool, w Watcher) (admin.Operation, error) {
	f := follower{watcher: w, settled: settled, told: map[stepKey]bool{}}
	pause := c.newBackoff()
	for {
		err := c.stream(ctx, get("operations", id, "events"), f.lastID, reader{
			opened: func() { pause.reset(); f.found() },
			each:   f.take,
		})
		if errors.Is(err, errStop) {
			return f.op, nil
		}
		if !Passing(err) {
			return f.op, err
		}
		f.gone(err)
		if err := pause.wait(ctx); err != nil {
			return f.op, err
		}
	}
}

type stepKey struct {
	name string
	at   int64
}

type follower struct {
	watcher Watcher
	settled bool
	lastID  string
	told    map[stepKey]bool
	lost    bool
	op      admin.Operation
}

func (f *follower) gone(err error) {
	if !f.lost && f.watcher.Lost != nil {
		f.watcher.Lost(err)
	}
	f.lost = true
}

func (f *follower) found() {
	if f.lost && f.watcher.Found != nil {
		f.watcher.Found()
	}
	f.lost = false
}

// take handles one message and returns errStop after the awaited one.
func (f *follower) take(m message) error {
	if m.id != "" {
		f.lastID = m.id
	}
	if m.event == admin.SentStep {
		var s admin.Step
		if err := json.Unmarshal(m.data, &s); err != nil {
			return fmt.Errorf("read step: %w", err)
		}
		f.tell(s)
		return nil
	}
	if m.event != admin.SentOperation && m.event != admin.SentEnd {
		return nil
	}
	var op admin.Operation // a fresh one: a field left out is a zero, not the value before
	if err := json.Unmarshal(m.data, &op); err != nil {
		return fmt.Errorf("read operation: %w", err)
	}
	f.op = op
	if f.op.Settled() || !f.settled {
		return errStop
	}
	return nil
}

// tell passes a step on, unless it was told before: a daemon that was started
// again may begin from the first one.
func (f *follower) tell(s admin.Step) {
	key := stepKey{s.Name, s.At.UnixNano()}
	if f.told[key] {
		return
	}
	f.told[key] = true
	if f.watcher.Step != nil {
		f.watcher.Step(s)
	}
}

// Recorded returns the events that are kept.
func (c *Client) Recorded(ctx context.Context, f admin.EventFilter) ([]admin.Event, error) {
	var list struct {
		Events []admin.Event `json:"events"`
	}
	k := eventsCall(f)
	if f.SinceSeq != 0 {
		k.query = url.Values{"since": {strconv.FormatUint(f.SinceSeq, 10)}}
	}
	_, err := c.do(ctx, k, &list)
	return list.Events, err
}

// Events calls each for every event, recorded ones first, until ctx ends, each
// fails, or the daemon refuses or cannot be reached to begin with. When it goes
// away later, lost is called once and the stream goes on where it broke as soon
// as that is possible. With f.SinceSeq it has been there before, so that this is
// later already.
func (c *Client) Events(ctx context.Context, f admin.EventFilter, lost func(error), each func(admin.Event) error) error {
	pause := c.newBackoff()
	seq, begun, open := f.SinceSeq, f.SinceSeq != 0, f.SinceSeq != 0
	r := reader{
		opened: func() { begun, open = true, true; pause.reset() },
		each: func(m message) error {
			var e admin.Event
			if err := json.Unmarshal(m.data, &e); err != nil {
				return fmt.Errorf("read event: %w", err)
			}
			seq = e.Seq
			return each(e)
		},
	}
	for {
		err := c.stream(ctx, eventsCall(f), strconv.FormatUint(seq, 10), r)
		if !Passing(err) || !begun {
			return err
		}
		if open && lost != nil {
			lost(err)
		}
		open = false
		if err := pause.wait(ctx); err != nil {
			return err
		}
	}
}

func eventsCall(f admin.EventFilter) call {
	if f.App == "" {
		return get("events")
	}
	return get("apps", f.App, "events")
}
