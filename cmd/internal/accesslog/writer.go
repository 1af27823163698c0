package accesslog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
)

// A write to a file costs more than its bytes: the scheduler is told of it and
// looks around for milliseconds afterwards. So a busy log is written seldom.
const (
	fullBatch = 256 << 10             // bytes for which the writer is woken
	flushGap  = 50 * time.Millisecond // between writes of batches that are not full
	maxKept   = 1 << 20               // bytes of a batch that is worth keeping
	reportGap = time.Minute
)

// output is where lines go. file is w if it is ours to close, path its name.
type output struct {
	w    io.Writer
	file *os.File
	path string
}

func (o output) close() error {
	if o.file == nil {
		return nil
	}
	if err := o.file.Close(); err != nil {
		return fmt.Errorf("close access log: %w", err)
	}
	return nil
}

// swap tells the writer to go over to another file. done gets how the old one
// was closed.
type swap struct {
	file *os.File
	done chan error
}

// writer is the goroutine that owns the output. A lone line is written at once;
// lines that come faster are gathered, so that a write costs little per line.
type writer struct {
	l   *Log
	out output

	batch []byte
	lines uint64 // in batch
	torn  bool   // the output ends within a line
}

// run ends when Close was called and the queue is empty.
func (w *writer) run() {
	defer close(w.l.ended)
	w.torn = endsTorn(w.out.path)
	gather := time.NewTimer(flushGap)
	defer gather.Stop()
	for {
		select {
		case <-w.l.wake:
		case <-gather.C:
		case s := <-w.l.swaps:
			w.swap(s)
		case <-w.l.stop:
			w.flush()
			w.l.closeErr = w.out.close()
			return
		}
		if w.flush() {
			gather.Reset(flushGap)
		}
	}
}

func (w *writer) swap(s swap) {
	w.flush()
	err := w.out.close()
	w.out.w, w.out.file, w.torn = s.file, s.file, endsTorn(w.out.path)
	s.done <- err
}

// endsTorn says whether a file ends within a line, as when usher was killed while
// it wrote one.
func endsTorn(path string) bool {
	st, err := os.Stat(path)
	if err != nil || !st.Mode().IsRegular() || st.Size() == 0 {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false // it may be written and not read
	}
	defer f.Close()
	var last [1]byte
	_, err = f.ReadAt(last[:], st.Size()-1)
	return err == nil && last[0] != '\n'
}

// take makes a batch of what is in the queue.
func (w *writer) take() {
	empty := w.batch[:0]
	if cap(empty) > maxKept {
		empty = nil
	}
	text, lines := w.l.queue.take(empty)
	w.batch, w.lines = text, uint64(lines)
}

// flush writes what is in the queue, and reports whether there was anything. What
// cannot be written is dropped: the queue fills up while the disk is full, and the
// next lines have no less of a right to be tried.
func (w *writer) flush() bool {
	w.take()
	if len(w.batch) == 0 {
		return false
	}
	if w.torn {
		w.batch = slices.Insert(w.batch, 0, '\n')
	}
	n, err := w.out.w.Write(w.batch)
	if err == nil && n < len(w.batch) {
		err = io.ErrShortWrite
	}
	if err == nil {
		w.torn = false
	} else {
		failure := err // of its own, so that err stays on the stack
		w.l.failure.Store(&failure)
		w.l.drop(w.lines - w.wrote(w.batch[:max(n, 0)]))
	}
	return true
}

// wrote says how many lines are whole in a part of the batch.
func (w *writer) wrote(part []byte) uint64 {
	if len(part) == 0 {
		return 0
	}
	ends := bytes.Count(part, []byte("\n"))
	if w.torn { // the batch began with the end of a broken line
		ends--
	}
	w.torn = part[len(part)-1] != '\n'
	return uint64(ends)
}

// report tells of dropped lines: of the first at once, then once a minute, and
// once the writer has ended.
func (l *Log) report() {
	defer close(l.reported)
	var told uint64
	for {
		select {
		case <-l.alarm:
		case <-l.ended:
			l.reportDropped(told)
			return
		}
		told = l.reportDropped(told)
		again := time.NewTimer(reportGap)
		select {
		case <-again.C:
		case <-l.ended:
			again.Stop()
			l.reportDropped(told)
			return
		}
	}
}

func (l *Log) reportDropped(told uint64) uint64 {
	dropped := l.dropped.Load()
	if dropped == told || l.tell == nil {
		return dropped
	}
	lines := []any{"lines", dropped - told}
	if err := l.failure.Swap(nil); err != nil {
		l.tell.Warn("lines of the access log are lost: it cannot be written", append(lines, "error", (*err).Error())...)
	} else {
		l.tell.Warn("lines of the access log are lost: it is written too slowly", lines...)
	}
	return dropped
}
