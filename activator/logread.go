package activator

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// LogRequest chooses a part of an app's output.
type LogRequest struct {
	App        string
	Generation uint64 // 0 = the newest
	Lines      int    // of the past
	Follow     bool   // go on with what is written later
}

// Logs opens an app's output. With Follow and no generation it goes on to the
// next generation's when there is one. Closing the reader or ending ctx ends a
// Read that waits.
func (a *Activator) Logs(ctx context.Context, req LogRequest) (io.ReadCloser, error) {
	if _, err := a.runner(req.App); err != nil {
		return nil, err
	}
	all := a.generationsWithLogs(req.App)
	gen := req.Generation
	if gen == 0 && len(all) > 0 {
		gen = all[len(all)-1]
	}
	if req.Generation != 0 {
		if _, err := os.Stat(a.logPath(req.App, gen)); err != nil {
			return nil, Refuse(ErrNotFound, "no output of generation %d of app %s is kept", gen, req.App)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &logReader{act: a, req: req, gen: gen, ctx: ctx, cancel: cancel}
	if gen != 0 {
		past, end := tailText(a.logPath(req.App, gen), req.Lines)
		l.past, l.at = strings.NewReader(past), end
	}
	return l, nil
}

// logReader reads the past first, then follows the file. It looks for more at an
// interval: output of apps is not worth a watch of the file system.
type logReader struct {
	act    *Activator
	req    LogRequest
	gen    uint64
	past   *strings.Reader
	at     int64
	ctx    context.Context
	cancel context.CancelFunc
}

const logPoll = 200 * time.Millisecond

func (l *logReader) Read(p []byte) (int, error) {
	if l.past != nil && l.past.Len() > 0 {
		return l.past.Read(p)
	}
	for l.req.Follow {
		n, err := l.more(p)
		if n > 0 || err != nil {
			return n, err
		}
		t := time.NewTimer(logPoll)
		select {
		case <-t.C:
		case <-l.ctx.Done():
			t.Stop()
			return 0, io.EOF
		case <-l.act.closing:
			t.Stop()
			return 0, io.EOF
		}
	}
	return 0, io.EOF
}

// more reads what has been added; a file that was cut is read from its start,
// and one that a newer generation has left behind is left.
func (l *logReader) more(p []byte) (int, error) {
	f, err := os.Open(l.act.logPath(l.req.App, l.gen))
	if err == nil {
		defer f.Close()
		if fi, err := f.Stat(); err == nil && fi.Size() < l.at {
			l.at = 0
		}
		n, err := f.ReadAt(p, l.at)
		l.at += int64(n)
		if errors.Is(err, io.EOF) {
			err = nil // for now: more may be written
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
	if l.req.Generation != 0 {
		return 0, nil
	}
	for _, g := range l.act.generationsWithLogs(l.req.App) {
		if g > l.gen {
			l.gen, l.at = g, 0
			return 0, nil
		}
	}
	return 0, nil
}

// Close ends the reader.
func (l *logReader) Close() error {
	l.cancel()
	return nil
}
