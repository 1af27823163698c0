package accesslog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/usher-edge/usher/edge"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// number is an entry that can be told from others.
func number(i int) *edge.Entry {
	return with(func(e *edge.Entry) { e.Target = fmt.Appendf(nil, "/%d", i) })
}

// targets are the targets of all lines, which must be whole.
func targets(t *testing.T, text string) []string {
	t.Helper()
	var all []string
	for line := range strings.Lines(text) {
		var e struct{ Target string }
		if err := json.Unmarshal([]byte(line), &e); err != nil || !strings.HasSuffix(line, "\n") {
			t.Fatalf("not a whole line: %v: %q", err, line)
		}
		all = append(all, e.Target)
	}
	return all
}

func newTestLog(t *testing.T, w io.Writer, o Options) *Log {
	t.Helper()
	l, err := New(w, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closeLog(t *testing.T, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// disk is a writer that can hang and fail.
type disk struct {
	mu    sync.Mutex // guards what follows; hang is waited for outside
	text  bytes.Buffer
	calls int
	room  int // bytes until it is full; below 0: no bound
	hang  chan struct{}
}

func (d *disk) Write(p []byte) (int, error) {
	d.mu.Lock()
	hang := d.hang
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls++
	if d.room >= 0 && len(p) > d.room {
		n := d.room
		d.text.Write(p[:n])
		d.room = 0
		return n, syscall.ENOSPC
	}
	if d.room >= 0 {
		d.room -= len(p)
	}
	return d.text.Write(p)
}

func (d *disk) setRoom(n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.room = n
}

func (d *disk) content() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.String()
}

func TestEveryEntryOfManyGoroutinesIsALineAfterClose(t *testing.T) {
	const each, writers = 500, 8
	d := &disk{room: -1}
	l := newTestLog(t, d, Options{})
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			e := entry() // reused, as the edge does
			for i := range each {
				e.Target = fmt.Appendf(e.Target[:0], "/%d/%d", w, i)
				l.Write(e)
			}
		})
	}
	all.Wait()
	closeLog(t, l)
	seen := map[string]bool{}
	next := [writers]int{}
	for _, target := range targets(t, d.content()) {
		var w, i int
		if _, err := fmt.Sscanf(target, "/%d/%d", &w, &i); err != nil || seen[target] || i != next[w] {
			t.Fatalf("%s: %v, seen %v, want number %d", target, err, seen[target], next[w])
		}
		seen[target], next[w] = true, i+1
	}
	if len(seen) != each*writers || l.Dropped() != 0 {
		t.Errorf("%d lines and %d dropped of %d", len(seen), l.Dropped(), each*writers)
	}
}

// The room of an entry is its owner's again once Write has returned, and what does
// not fit into it is whole all the same.
func TestALineIsTheSameWhateverRoomItsEntryBrings(t *testing.T) {
	var out bytes.Buffer
	l := newTestLog(t, &out, Options{})
	var want []byte
	for size := range 600 {
		room := make([]byte, size)
		e := with(func(e *edge.Entry) { e.Time, e.Room = e.Time.Add(time.Duration(size)*100*time.Millisecond), room[:0] })
		want = append(want, jsonLine(e)...)
		l.Write(e)
		clear(room)
	}
	closeLog(t, l)
	if !bytes.Equal(out.Bytes(), want) {
		t.Errorf("%d bytes were written, want %d", out.Len(), len(want))
	}
}

func TestALoneLineIsWrittenAtOnceAndManyAreGathered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		l := newTestLog(t, d, Options{})
		time.Sleep(time.Second)
		l.Write(number(0))
		synctest.Wait()
		if got := targets(t, d.content()); len(got) != 1 {
			t.Errorf("a lone line is not there: %v", got)
		}
		for i := range 100 {
			l.Write(number(1 + i))
			synctest.Wait()
		}
		time.Sleep(flushGap)
		synctest.Wait()
		if got := targets(t, d.content()); len(got) != 101 || d.calls != 2 {
			t.Errorf("%d lines in %d writes", len(got), d.calls)
		}
		closeLog(t, l)
	})
}

func TestAQueueThatIsHalfFullIsWrittenBeforeItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1}
		l := newTestLog(t, d, Options{Queue: 8})
		l.Write(number(0)) // it is written at once, and those after it are gathered
		synctest.Wait()
		for i := range 20 {
			l.Write(number(1 + i))
			synctest.Wait()
		}
		if got := targets(t, d.content()); len(got) != 21 || d.calls != 6 || l.Dropped() != 0 {
			t.Errorf("%d lines in %d writes, %d dropped", len(got), d.calls, l.Dropped())
		}
		closeLog(t, l)
	})
}

func TestAWriterThatHangsHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const queue, more = 50, 7
		d := &disk{room: -1, hang: make(chan struct{})}
		l := newTestLog(t, d, Options{Queue: queue})
		time.Sleep(time.Second)
		l.Write(number(0))
		synctest.Wait() // the writer hangs with it
		for i := range queue + more {
			l.Write(number(1 + i))
		}
		if l.Dropped() != more {
			t.Errorf("dropped %d, want %d", l.Dropped(), more)
		}
		close(d.hang)
		closeLog(t, l)
		if got := targets(t, d.content()); len(got) != 1+queue || got[queue] != fmt.Sprintf("/%d", queue) {
			t.Errorf("%d lines: %v", len(got), got)
		}
	})
}

func TestTheBytesThatWaitAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1, hang: make(chan struct{})}
		l := newTestLog(t, d, Options{})
		time.Sleep(time.Second)
		l.Write(number(0))
		synctest.Wait()
		big := with(func(e *edge.Entry) { e.Target = bytes.Repeat([]byte("x"), 1<<20) })
		for range 20 {
			l.Write(big)
		}
		if got := l.queue.waiting(); got > maxWaiting || l.Dropped() != 5 {
			t.Errorf("%d bytes wait, %d lines dropped", got, l.Dropped())
		}
		close(d.hang)
		closeLog(t, l)
		if got := targets(t, d.content()); len(got) != 16 || l.queue.waiting() != 0 {
			t.Errorf("%d lines, %d bytes wait", len(got), l.queue.waiting())
		}
	})
}

func TestLinesAfterAFullDiskBeginANewLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		line := len(jsonLine(number(0)))
		d := &disk{room: line + line/2}
		l := newTestLog(t, d, Options{})
		write := func(from, to int) {
			for i := from; i < to; i++ {
				l.Write(number(i))
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		write(0, 3) // one whole, one torn, one lost
		write(3, 5) // nothing fits
		if l.Dropped() != 4 {
			t.Errorf("dropped %d, want 4", l.Dropped())
		}
		d.setRoom(line + line/2)
		write(5, 7) // the rest of the torn line, one whole, one torn
		d.setRoom(-1)
		write(7, 9)
		closeLog(t, l)
		var whole []string
		for s := range strings.Lines(d.content()) {
			if json.Valid([]byte(s)) {
				whole = append(whole, targets(t, s)...)
			}
		}
		if got := fmt.Sprint(whole); got != "[/0 /5 /7 /8]" || l.Dropped() != 5 {
			t.Errorf("whole lines %s, dropped %d in\n%s", got, l.Dropped(), d.content())
		}
	})
}

func TestLossIsToldAtMostOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told bytes.Buffer
		d := &disk{}
		l := newTestLog(t, d, Options{Log: slog.New(slog.NewTextHandler(&told, nil))})
		for range 90 {
			l.Write(number(0))
			time.Sleep(1100 * time.Millisecond)
		}
		synctest.Wait()
		d.setRoom(-1)
		closeLog(t, l)
		got := told.String()
		for _, part := range []string{"lines=1 error=", "lines=54 error=", "lines=35 error=", "no space left on device"} {
			if !strings.Contains(got, part) {
				t.Errorf("no %q in\n%s", part, got)
			}
		}
		if n := strings.Count(got, "\n"); n != 3 { // at once, after a minute, at the end
			t.Errorf("told %d times:\n%s", n, got)
		}
	})
}

func TestDroppedLinesAreAMetric(t *testing.T) {
	l := newTestLog(t, io.Discard, Options{})
	closeLog(t, l)
	l.Write(entry())
	l.Write(entry())
	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(l.Collector())
	all, err := reg.Gather()
	if err != nil || len(all) != 1 || all[0].GetName() != "usher_access_log_dropped_total" || all[0].GetMetric()[0].GetCounter().GetValue() != 2 {
		t.Errorf("%v, %v", all, err)
	}
}

func TestCloseMayBeCalledAgainAndDoesNotWaitForAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1, hang: make(chan struct{})}
		l := newTestLog(t, d, Options{})
		time.Sleep(time.Second)
		l.Write(number(0))
		begin := time.Now()
		if err := l.Close(); err == nil || time.Since(begin) != patience {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		close(d.hang)
		closeLog(t, l)
		closeLog(t, l)
		if got := targets(t, d.content()); len(got) != 1 {
			t.Errorf("lines %v", got)
		}
	})
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReopenGoesOverToANewFileAndLosesNothing(t *testing.T) {
	dir := t.TempDir()
	path, old := filepath.Join(dir, "access.log"), filepath.Join(dir, "access.log.1")
	if err := os.WriteFile(path, jsonLine(number(0)), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.Write(number(1))
	if err := os.Rename(path, old); err != nil {
		t.Fatal(err)
	}
	l.Write(number(2))
	if err := l.Reopen(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(targets(t, readFile(t, old))); got != "[/0 /1 /2]" {
		t.Errorf("old file: %s", got)
	}
	l.Write(number(3))
	closeLog(t, l)
	if got := fmt.Sprint(targets(t, readFile(t, path))); got != "[/3]" {
		t.Errorf("new file: %s", got)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o027 != 0 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := l.Reopen(); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("reopen of a closed log: %v", err)
	}
}

// A process that was killed may have left a part of a line.
func TestLinesAfterAKilledWriterBeginANewLine(t *testing.T) {
	for _, reopened := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "access.log")
		torn := func() {
			if err := os.WriteFile(path, []byte("whole\nhal"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if !reopened {
			torn()
		}
		l, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if reopened {
			torn()
			if err := l.Reopen(); err != nil {
				t.Fatal(err)
			}
		}
		l.Write(number(0))
		closeLog(t, l)
		if l, err = Open(path, Options{}); err != nil { // it ends with a whole line now
			t.Fatal(err)
		}
		l.Write(number(1))
		closeLog(t, l)
		got, err := os.ReadFile(path)
		if want := fmt.Sprintf("whole\nhal\n%s%s", jsonLine(number(0)), jsonLine(number(1))); err != nil || string(got) != want {
			t.Errorf("reopened %t: %v, %s\nwant %s", reopened, err, got, want)
		}
	}
}

func TestAFailedReopenKeepsTheOldFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	l, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	old := path + ".1"
	if err := errors.Join(os.Rename(path, old), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("reopen: %v", err)
	}
	l.Write(number(1))
	closeLog(t, l)
	if got := targets(t, readFile(t, old)); len(got) != 1 {
		t.Errorf("old file: %v", got)
	}
}

func TestReopenDoesNotWaitForAWriteThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{room: -1, hang: make(chan struct{})}
		l, err := newLog(output{w: d, path: filepath.Join(t.TempDir(), "access.log")}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		l.Write(number(0))
		synctest.Wait()
		begin := time.Now()
		if err := l.Reopen(); err == nil || time.Since(begin) != patience {
			t.Errorf("%v after %s", err, time.Since(begin))
		}
		close(d.hang)
		if err := l.Reopen(); err != nil {
			t.Error(err)
		}
		closeLog(t, l)
	})
}

func TestReopenOfAWriterDoesNothing(t *testing.T) {
	d := &disk{room: -1}
	l := newTestLog(t, d, Options{Format: Combined})
	if err := l.Reopen(); err != nil {
		t.Error(err)
	}
	l.Write(entry())
	closeLog(t, l)
	if got := d.content(); got != string(combinedLine(entry())) {
		t.Errorf("got %q", got)
	}
}

func TestWhatCannotBeOpenedIsAnErrorThatSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		dir:                             "must be able to make and write",
		filepath.Join(dir, "gone", "a"): "must be able to make and write",
		fifo:                            "start its reader first",
	} {
		if l, err := Open(path, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", path, l, err)
		}
	}
	path := filepath.Join(dir, "access.log")
	if l, err := Open(path, Options{Format: "csv"}); err == nil || !strings.Contains(err.Error(), "want json or combined") {
		t.Errorf("%v, %v", l, err)
	}
	if l, err := Open("/dev/stdout", Options{}); err != nil || l.path != "" {
		t.Errorf("stdout: %+v, %v", l, err)
	} else {
		closeLog(t, l)
	}
}

func BenchmarkWrite(b *testing.B) {
	for _, format := range []Format{JSON, Combined} {
		b.Run(string(format), func(b *testing.B) {
			l, err := New(io.Discard, Options{Format: format})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				e := entry()
				for p.Next() {
					for l.queue.waiting() > maxWaiting/64 {
						runtime.Gosched() // measure what is written, not what is dropped
					}
					l.Write(e)
				}
			})
			b.ReportMetric(float64(l.Dropped())/float64(b.N), "dropped/op")
		})
	}
}
