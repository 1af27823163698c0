package activator

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"
)

// LogRequest chooses a part of an app's output.
type LogRequest struct {
	App        string
	Generation uint64 // 0 = the newest that has written anything
	Lines      int    // of the past
	Follow     bool   // go on with what is written later
}

// Logs opens an app's output. With Follow and no generation it goes on with what
// any generation writes: the one that serves, and those that come after it or
// fail beside it. Closing the reader or ending ctx ends a Read that waits.
func (a *Activator) Logs(ctx context.Context, req LogRequest) (io.ReadCloser, error) {
	if _, err := a.runner(req.App); err != nil {
		return nil, err
	}
	all := []uint64{req.Generation}
	if req.Generation == 0 {
		all = a.generationsWithLogs(req.App)
	} else if _, err := os.Stat(a.logPath(req.App, req.Generation)); err != nil {
		return nil, Refuse(ErrNotFound, "no output of generation %d of app %s is kept", req.Generation, req.App)
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &logReader{act: a, req: req, gen: req.Generation, at: map[uint64]int64{}, ctx: ctx, cancel: cancel}
	for _, gen := range slices.Backward(all) {
		past, end := tailText(a.logPath(req.App, gen), req.Lines)
		if l.at[gen] = end; end > 0 && (l.gen == 0 || l.gen == gen) {
			l.past, l.gen = past, gen
		}
	}
	return l, nil
}

// logReader reads the past first, then follows the files. It looks for more at an
// interval: output of apps is not worth a watch of the file system.
type logReader struct {
	act    *Activator
	req    LogRequest
	past   string
	gen    uint64           // that the last bytes are from
	at     map[uint64]int64 // what has been read of each
	ctx    context.Context
	cancel context.CancelFunc
}

const logPoll = 200 * time.Millisecond

func (l *logReader) Read(p []byte) (int, error) {
	if l.past != "" {
		n := copy(p, l.past)
		l.past = l.past[n:]
		return n, nil
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

// more reads what has been added to any of the files, beginning with the one that
// was read last, so that lines are not mixed as long as it has more.
func (l *logReader) more(p []byte) (int, error) {
	if n, err := l.added(l.gen, p); n > 0 || err != nil || l.req.Generation != 0 {
		return n, err
	}
	for _, gen := range l.act.generationsWithLogs(l.req.App) {
		if n, err := l.added(gen, p); n > 0 || err != nil {
			l.gen = gen
			return n, err
		}
	}
	return 0, nil
}

// added reads what has been added to one file; one that was cut is read from its
// start.
func (l *logReader) added(gen uint64, p []byte) (int, error) {
	f, err := os.Open(l.act.logPath(l.req.App, gen))
	if err != nil {
		return 0, nil // it is not kept any more
	}
	defer f.Close()
	if fi, err := f.Stat(); err == nil && fi.Size() < l.at[gen] {
		l.at[gen] = 0
	}
	n, err := f.ReadAt(p, l.at[gen])
	l.at[gen] += int64(n)
	if errors.Is(err, io.EOF) {
		err = nil // for now: more may be written
	}
	return n, err
}

// Close ends the reader.
func (l *logReader) Close() error {
	l.cancel()
	return nil
}
