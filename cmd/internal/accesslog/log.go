// Package accesslog writes one line per ended request.
//
// Guarantees:
//
//   - Write never blocks and does no I/O: it formats the entry and puts the line
//     into a queue that one goroutine empties. What does not fit into the queue, because the disk
//     or the reader of a pipe is slow, is dropped and counted, never waited for.
//   - Once the queue has been in use for a while, Write allocates nothing for an
//     entry that brings room enough for its line.
//   - A line is whole and one line, whatever bytes the client sent: quotes,
//     control characters and everything else that does not print is escaped. A
//     line in the JSON format is always valid JSON.
//   - No field of a request or an answer is logged, so no Authorization and no
//     Cookie; but the combined format has Referer and User-Agent, 1 KiB of each at
//     most. A target is logged with its query.
//   - Lines come in the order in which Write took them, and reach the file at
//     once if they are rare, otherwise within 50 ms.
//   - Every entry is either written or counted as dropped, as long as Close is
//     called after the last Write has returned.
//   - A line that an earlier process was killed within is left as it is, and the
//     next one begins behind it on its own.
//
// Callers may not assume that lines are on the disk: nothing is synced. A process
// that is killed loses what waits, and nothing counts it.
package accesslog

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/usher-edge/usher/edge"
)

// Format is how a line is written.
type Format string

const (
	// JSON is one object per line; appendJSON has the fields.
	JSON Format = "json"
	// Combined is the format of that name that Apache and nginx write.
	Combined Format = "combined"
)

// Options of a Log. The zero value works.
type Options struct {
	// Format is JSON or Combined; empty means JSON.
	Format Format
	// Queue is how many lines may wait to be written; 0 means 8192. They may
	// hold 16 MiB together.
	Queue int
	// Log is told of dropped lines and failed writes, at most once a minute;
	// nil means that nobody is.
	Log *slog.Logger
}

const (
	defaultQueue = 8192
	maxWaiting   = 16 << 20 // bytes of lines in the queue
	patience     = 5 * time.Second
	mode         = 0o640 // targets can hold what is not meant for everybody
)

// Log is an access log. It is safe for use by many goroutines.
type Log struct {
	// What each line needs comes first.
	closed atomic.Bool
	format func([]byte, *edge.Entry, *stamps) []byte
	stamps stamps
	queue  queue
	wake   chan struct{} // holds a token when the writer should take what is in queue

	path    string // empty: it cannot be opened again
	tell    *slog.Logger
	dropped atomic.Uint64
	failure atomic.Pointer[error] // of the last write that failed since the last report
	alarm   chan struct{}         // holds a token when there is something to report

	stop     chan struct{} // closed by Close: ends the writer
	stopOnce sync.Once
	swaps    chan swap
	ended    chan struct{} // closed when the writer has ended
	reported chan struct{} // closed when the reporter has ended, after the writer
	closeErr error         // of the file; read after ended
}

// queue is what waits for the writer. Lines come as bytes behind each other, so
// that a busy log wakes nobody for a line: the writer comes by itself.
type queue struct {
	most int // lines

	mu    sync.Mutex // guards what follows; nothing is formatted, written or waited for under it
	text  []byte
	lines int
	alert bool // the writer waits for the first line
	told  bool // it has been woken and has not come yet
}

// put adds a line, unless there are too many. wake says that the writer should
// come at once.
func (q *queue) put(text []byte) (ok, wake bool) {
	q.mu.Lock()
	if q.lines >= q.most || len(q.text)+len(text) > maxWaiting {
		q.mu.Unlock()
		return false, false
	}
	q.text = append(q.text, text...)
	q.lines++
	wake = !q.told && (q.alert || len(q.text) >= fullBatch || 2*q.lines >= q.most)
	q.told = q.told || wake
	q.mu.Unlock()
	return true, wake
}

// waiting is how many bytes are in the queue.
func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.text)
}

// take empties the queue into empty. If there is nothing, the next line wakes
// the writer.
func (q *queue) take(empty []byte) (text []byte, lines int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	text, lines = q.text, q.lines
	q.text, q.lines = empty, 0
	q.told, q.alert = false, lines == 0
	return text, lines
}

// New returns a log that writes to w, whole lines at a time, several in one call
// if there are many. It does not close w, and Reopen does nothing. Close ends it.
func New(w io.Writer, o Options) (*Log, error) {
	return newLog(output{w: w}, o)
}

// Open returns a log that appends to the file at path, made with mode 0640 if it
// is not there. /dev/stdout is the standard output of this process even where
// it is a socket, which cannot be opened by that name. Close ends it.
func Open(path string, o Options) (*Log, error) {
	if path == "/dev/stdout" {
		return New(os.Stdout, o)
	}
	f, err := openFile(path)
	if err != nil {
		return nil, err
	}
	l, err := newLog(output{w: f, file: f, path: path}, o)
	if err != nil {
		// The file is new or untouched; there is nothing to lose.
		_ = f.Close()
	}
	return l, err
}

// openFile does not wait for the reader of a fifo: it fails without one.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NONBLOCK, mode)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return nil, fmt.Errorf("%w: nothing reads from it; start its reader first", err)
	case err != nil:
		return nil, fmt.Errorf("%w; usher must be able to make and write the file", err)
	}
	return f, nil
}

func newLog(out output, o Options) (*Log, error) {
	format := appendJSON
	switch o.Format {
	case "", JSON:
	case Combined:
		format = appendCombined
	default:
		return nil, fmt.Errorf("access log format %q: want %s or %s", o.Format, JSON, Combined)
	}
	if o.Queue <= 0 {
		o.Queue = defaultQueue
	}
	l := &Log{
		path: out.path, tell: o.Log, format: format,
		queue: queue{most: o.Queue, alert: true}, wake: make(chan struct{}, 1), alarm: make(chan struct{}, 1),
		stop: make(chan struct{}), swaps: make(chan swap),
		ended: make(chan struct{}), reported: make(chan struct{}),
	}
	w := &writer{l: l, out: out}
	go w.run()
	go l.report()
	return l, nil
}

// Write logs e, which the caller may reuse at once. After Close it only counts.
func (l *Log) Write(e *edge.Entry) {
	if l.closed.Load() {
		l.drop(1)
		return
	}
	ok, wake := l.queue.put(l.format(e.Room[:0], e, &l.stamps))
	if wake {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	if !ok {
		l.drop(1)
	}
}

func (l *Log) drop(lines uint64) {
	l.dropped.Add(lines)
	select {
	case l.alarm <- struct{}{}:
	default:
	}
}

// Dropped is how many entries were not written.
func (l *Log) Dropped() uint64 { return l.dropped.Load() }

// Collector returns the log's metrics.
func (l *Log) Collector() prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "usher_access_log_dropped_total",
		Help: "Requests that are missing in the access log, because it could not be written fast enough or at all.",
	}, func() float64 { return float64(l.dropped.Load()) })
}

// Reopen opens the file of Open again, for a log that was renamed. When it
// returns nil, what was written before is in the old file, which is closed, and
// all that follows goes to the new one. On an error the old file stays in use;
// if a write to it hangs, that is an error after 5 s.
func (l *Log) Reopen() error {
	if l.path == "" {
		return nil
	}
	f, err := openFile(l.path)
	if err != nil {
		return fmt.Errorf("reopen access log: %w", err)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	s := swap{file: f, done: make(chan error, 1)}
	select {
	case l.swaps <- s:
	case <-l.ended:
		_ = f.Close() // nothing was written to it
		return errors.New("reopen access log: it is closed")
	case <-late.C:
		_ = f.Close() // nothing was written to it
		return fmt.Errorf("reopen access log: a write to the old %s has not returned for %s; try again when it has", l.path, patience)
	}
	select {
	case err := <-s.done:
		return err
	case <-late.C:
		return fmt.Errorf("reopen access log: the last write to the old %s has not returned for %s; the new file is used when it has", l.path, patience)
	}
}

// Close writes what is in the queue, closes a file that Open opened and waits
// for both, but not longer than 5 s: a write that hangs cannot be ended. It may
// be called more than once.
func (l *Log) Close() error {
	l.stopOnce.Do(func() {
		l.closed.Store(true)
		close(l.stop)
	})
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-l.reported:
		return l.closeErr
	case <-late.C:
		return fmt.Errorf("close access log: a write has not returned for %s; the last lines are lost", patience)
	}
}
