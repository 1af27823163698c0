package accesslog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"
)

const (
	fullBatch = 64 << 10              // bytes that are written without waiting for more
	flushGap  = 10 * time.Millisecond // between writes of batches that are not full
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

	batch   []byte
	lines   uint64    // in batch
	torn    bool      // the output ends within a line
	flushed time.Time // last write
}

// run ends when Close was called and the queue is empty.
func (w *writer) run() {
	defer close(w.l.ended)
	gather := time.NewTimer(flushGap)
	defer gather.Stop()
	waits := true // for gather
	for {
		select {
		case n := <-w.l.queue:
			w.take(n)
			w.takeQueued()
			rest := flushGap - time.Since(w.flushed)
			switch {
			case rest <= 0:
				w.flush()
			case !waits:
				gather.Reset(rest)
				waits = true
			}
		case <-gather.C:
			waits = false
			w.flush()
		case s := <-w.l.swaps:
			w.swap(s)
		case <-w.l.stop:
			w.takeQueued()
			w.flush()
			w.l.closeErr = w.out.close()
			return
		}
	}
}

// takeQueued takes the lines that are in the queue now. Those that come
// meanwhile must wait, or a busy log would never look at anything else.
func (w *writer) takeQueued() {
	for range len(w.l.queue) {
		w.take(<-w.l.queue)
	}
}

func (w *writer) take(n *line) {
	if len(w.batch) == 0 && w.torn {
		w.batch = append(w.batch, '\n')
	}
	w.batch = append(w.batch, n.text...)
	w.lines++
	w.l.recycle(n)
	if len(w.batch) >= fullBatch {
		w.flush()
	}
}

func (w *writer) swap(s swap) {
	w.takeQueued()
	w.flush()
	err := w.out.close()
	w.out.w, w.out.file, w.torn = s.file, s.file, false
	s.done <- err
}

// flush writes the batch. What cannot be written is dropped: the queue fills up
// while the disk is full, and the next lines have no less of a right to be tried.
func (w *writer) flush() {
	if len(w.batch) == 0 {
		return
	}
	n, err := w.out.w.Write(w.batch)
	if err == nil && n < len(w.batch) {
		err = io.ErrShortWrite
	}
	if err == nil {
		w.torn = false
	} else {
		w.l.failure.Store(&err)
		w.l.drop(w.lines - w.wrote(w.batch[:max(n, 0)]))
	}
	w.batch, w.lines, w.flushed = w.batch[:0], 0, time.Now()
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
