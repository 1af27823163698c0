package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
	"golang.org/x/sys/unix"
)

// Answer is one answer as Load.Check sees it. It may not be kept.
type Answer struct {
	Status int
	Header func(name string) string // first value; "" if there is none
	Body   []byte
}

// record is one request's account. The zero value was never sent.
type record struct {
	free       time.Duration // when a connection became free for it
	taken      time.Duration // when that connection took it up
	ended      time.Duration
	generation uint64
	status     uint16
	kind       Kind
	post       bool
}

// worker owns at most one connection and does one request at a time. Waiting
// workers take requests in turn, so connections are used round robin and old
// ones stay in use.
type worker struct {
	run    *Run
	conn   *wire
	target int                      // of conn
	live   atomic.Pointer[net.Conn] // conn for the one who cuts the run
	freed  time.Duration
	req    fasthttp.Request
	resp   fasthttp.Response
	body   []byte
}

// wire is a connection that remembers how it broke, because the parser above
// it flattens errors.
type wire struct {
	net.Conn
	in     *bufio.Reader
	out    *bufio.Writer
	broken error
	began  bool // a byte came since the last request
	raw    syscall.RawConn
}

func (c *wire) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.began = c.began || n > 0
	if err != nil {
		c.broken = err
	}
	return n, err
}

func (c *wire) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.broken = err
	}
	return n, err
}

func newWorker(r *Run, id int) *worker {
	w := &worker{run: r, body: make([]byte, r.load.BodyBytes)}
	for i := range w.body {
		w.body[i] = byte('a' + (i+id)%26)
	}
	return w
}

// serve does due requests until there are no more. Stopped by the end of the
// schedule, Run.Stop or the end of ctx.
func (w *worker) serve(ctx context.Context) {
	defer w.run.workers.Done()
	defer w.drop()
	cut := context.AfterFunc(ctx, func() {
		if conn := w.live.Load(); conn != nil {
			// Only interrupts; the owner closes.
			_ = (*conn).SetDeadline(time.Unix(1, 0))
		}
	})
	defer cut()
	for i := range w.run.queue {
		if ctx.Err() != nil {
			continue
		}
		w.do(ctx, int(i))
		w.freed = w.run.elapsed()
	}
}

// do performs request i and writes its record.
func (w *worker) do(ctx context.Context, i int) {
	due := w.run.due[i]
	rec := &w.run.records[i]
	what := w.run.load.choose(i)
	rec.post = what.post
	rec.free = max(due, w.freed)
	oldest := w.run.generation.Load()
	rec.taken = w.run.elapsed()

	kind, err := w.exchange(ctx, i, what)
	whole := err == nil
	switch {
	case whole:
		rec.status = uint16(w.resp.StatusCode())
		rec.generation = parseGeneration(w.resp.Header.Peek("Usher-Generation"))
		kind, err = w.judge(rec, oldest)
	case ctx.Err() != nil:
		kind = Cut
	}
	rec.kind = kind
	rec.ended = w.run.elapsed()
	if kind.Failed() {
		w.run.sample(FailureSample{
			AtMS: milliseconds(due), LatencyMS: milliseconds(rec.ended - due),
			Kind: failureName(kind, rec.status), Detail: err.Error(),
		})
	}
	// Only a connection that is still in step may carry another request.
	if !whole || what.newConn || w.resp.ConnectionClose() {
		w.drop()
	}
}

// exchange sends request i and reads the answer, once.
func (w *worker) exchange(ctx context.Context, i int, what choice) (Kind, error) {
	w.resp.Reset()
	w.resp.SetStatusCode(0)
	deadline := w.run.start.Add(w.run.due[i] + w.run.load.Timeout)
	if time.Now().After(deadline) {
		return FailTimeout, errors.New("no connection became free in time")
	}
	if kind, err := w.connect(ctx, deadline, what); err != nil {
		return kind, err
	}
	if err := w.conn.SetDeadline(deadline); err != nil {
		return FailReset, err
	}
	// A cut between dialling and SetDeadline would otherwise be overwritten.
	if ctx.Err() != nil {
		return Cut, ctx.Err()
	}
	w.conn.began = false
	w.prepare(i, what)
	writeErr := w.req.Write(w.conn.out)
	if writeErr == nil {
		writeErr = w.conn.out.Flush()
	}
	// A server may answer and close before it has read everything: what it
	// said counts for more than the broken pipe.
	err := w.resp.ReadLimitBody(w.conn.in, w.run.load.MaxAnswerBytes)
	if err != nil && writeErr != nil {
		err = writeErr
	}
	if err != nil {
		if w.conn.broken != nil {
			err = fmt.Errorf("%w (%w)", err, w.conn.broken)
		}
		return kindOfBreak(w.conn.broken, w.conn.began), fmt.Errorf("read answer: %w", err)
	}
	if n := w.conn.in.Buffered(); n > 0 {
		return FailProtocol, fmt.Errorf("%d surplus bytes after the answer", n)
	}
	return Served, nil
}

// prepare fills in the request. The first bytes of a POST body are the
// request's number, so that no two bodies of a run are equal.
func (w *worker) prepare(i int, what choice) {
	target := &w.run.load.Targets[what.target]
	w.req.Reset()
	w.req.Header.SetNoDefaultContentType(true)
	w.req.UseHostHeader = true
	w.req.Header.SetHost(target.Host)
	w.req.Header.SetUserAgent("usher-bench")
	if what.newConn {
		w.req.SetConnectionClose()
	}
	w.req.Header.SetRequestURI(target.Path)
	if what.post {
		binary.BigEndian.PutUint64(w.body, uint64(i))
		w.req.Header.SetMethod(fasthttp.MethodPost)
		w.req.Header.SetRequestURI(w.run.load.PostPath)
		w.req.Header.SetContentType("application/octet-stream")
		w.req.SetBodyRaw(w.body)
	}
}

// judge decides whether a whole answer is the right one.
func (w *worker) judge(rec *record, oldest uint64) (Kind, error) {
	status, body := w.resp.StatusCode(), w.resp.Body()
	switch {
	case status >= 400:
		return FailStatus, fmt.Errorf("status %d: %.120q", status, body)
	case oldest > 0 && rec.generation < oldest:
		return FailGeneration, fmt.Errorf("answered by generation %q, not by %d or newer",
			w.resp.Header.Peek("Usher-Generation"), oldest)
	case rec.post && !bytes.Equal(body, w.body):
		return FailBody, fmt.Errorf("sent %d bytes, got other %d bytes back", len(w.body), len(body))
	case w.run.load.Check == nil:
		return Served, nil
	}
	header := func(name string) string { return string(w.resp.Header.Peek(name)) }
	if err := w.run.load.Check(Answer{Status: status, Header: header, Body: body}); err != nil {
		return FailCheck, err
	}
	return Served, nil
}

// connect makes sure of a connection to the right target.
func (w *worker) connect(ctx context.Context, deadline time.Time, what choice) (Kind, error) {
	if w.conn != nil && (what.newConn || w.target != what.target || !w.conn.quiet()) {
		w.drop()
	}
	if w.conn != nil {
		return Served, nil
	}
	target := &w.run.load.Targets[what.target]
	dialer := net.Dialer{Deadline: deadline}
	conn, err := dialer.DialContext(ctx, target.Network, target.Address)
	if err != nil {
		if timedOut(err) {
			return FailTimeout, err
		}
		return FailDial, err
	}
	w.conn, err = newWire(conn)
	if err != nil {
		return FailDial, err
	}
	w.target = what.target
	w.live.Store(&conn)
	return Served, nil
}

func newWire(conn net.Conn) (*wire, error) {
	raw, err := conn.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	c := &wire{Conn: conn, raw: raw}
	c.in = bufio.NewReaderSize(c, 16<<10)
	c.out = bufio.NewWriterSize(c, 4<<10)
	return c, nil
}

func (w *worker) drop() {
	if w.conn == nil {
		return
	}
	w.live.Store(nil)
	// A client that leaves has nothing to do about a close that failed.
	_ = w.conn.Close()
	w.conn = nil
}

// quiet tells whether an idle connection is fit for a request: neither closed
// by the peer nor holding bytes that nobody asked for.
func (c *wire) quiet() bool {
	var peeked error
	err := c.raw.Control(func(fd uintptr) {
		var one [1]byte
		_, _, peeked = unix.Recvfrom(int(fd), one[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	})
	return err == nil && errors.Is(peeked, unix.EAGAIN)
}

func parseGeneration(value []byte) uint64 {
	n, err := strconv.ParseUint(string(value), 10, 64)
	if err != nil {
		return 0
	}
	return n
}
