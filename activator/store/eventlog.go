package store

import (
	"bytes"
	"encoding/json"
	"slices"
	"sort"
	"sync"
)

// DefaultEvents is how many events a log holds.
const DefaultEvents = 4096

// eventRun is the step between the numbers of two runs of usher: the first
// event after a start gets the next multiple of it plus one, so that numbers a
// follower saw are not reused even if the last events were never written. It
// is larger than any log.
const eventRun = 10_000

// eventLog is the bounded log in memory. With a file behind it, one goroutine
// writes what was appended; it ends in close.
type eventLog struct {
	keep int
	wake chan struct{} // capacity 1: there is something to write, or closed
	done chan struct{} // closed when the writer has ended

	// mu guards what follows. Nothing is written or waited for under it.
	mu      sync.Mutex
	events  []Event // ascending; trimmed to keep when it has grown to twice that
	last    uint64
	changed chan struct{}
	closed  bool
	failed  error // of the last write, nil if it succeeded
}

// newEventLog starts a log that holds keep events (≤ 0: DefaultEvents). file
// may be nil.
func newEventLog(keep int, file *eventFile) *eventLog {
	if keep <= 0 || keep > DefaultEvents {
		keep = DefaultEvents
	}
	l := &eventLog{
		keep:    keep,
		wake:    make(chan struct{}, 1),
		done:    make(chan struct{}),
		changed: make(chan struct{}),
	}
	if file == nil {
		close(l.done)
		return l
	}
	l.events = file.loaded
	file.loaded = nil
	if n := len(l.events); n > 0 {
		l.last = l.events[n-1].Seq
		file.written = l.last
		// What was never written could be as far ahead as the log is long.
		l.last = (l.last + uint64(keep) + eventRun - 1) / eventRun * eventRun
		l.events = slices.Clone(l.events[max(0, n-keep):])
	}
	go l.write(file)
	return l
}

func (l *eventLog) AppendEvent(e Event) uint64 {
	e.Data = wellFormed(e.Data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0
	}
	l.last++
	e.Seq = l.last
	l.events = append(l.events, e)
	if len(l.events) >= 2*l.keep {
		l.events = slices.Clone(l.events[len(l.events)-l.keep:])
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.poke()
	return e.Seq
}

// wellFormed copies data and makes sure that it can be encoded.
func wellFormed(data json.RawMessage) json.RawMessage {
	if len(data) == 0 {
		return nil
	}
	if json.Valid(data) {
		return bytes.Clone(data)
	}
	quoted, _ := json.Marshal(string(data)) // a string always encodes
	return quoted
}

func (l *eventLog) EventsSince(seq uint64, limit int) []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	from := max(0, len(l.events)-l.keep)
	kept := l.events[from:]
	i := sort.Search(len(kept), func(i int) bool { return kept[i].Seq > seq })
	kept = kept[i:]
	if limit > 0 && len(kept) > limit {
		kept = kept[:limit]
	}
	return slices.Clone(kept)
}

func (l *eventLog) EventsChanged() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// poke wakes the writer; a wake-up that is already waiting is enough.
func (l *eventLog) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// write is the writer goroutine: it owns file.
func (l *eventLog) write(file *eventFile) {
	defer close(l.done)
	for range l.wake {
		pending, closed := l.pending(file.written)
		err := file.append(pending)
		if err == nil && file.lines > 2*l.keep {
			err = file.rewrite(l.EventsSince(0, 0))
		}
		if closed {
			if cerr := file.close(); err == nil {
				err = cerr
			}
		}
		l.mu.Lock()
		l.failed = err
		l.mu.Unlock()
		if closed {
			return
		}
	}
}

func (l *eventLog) pending(written uint64) (events []Event, closed bool) {
	events = l.EventsSince(written, 0)
	l.mu.Lock()
	defer l.mu.Unlock()
	return events, l.closed
}

// close ends the log and waits for the writer; it returns what kept the last
// events from being written.
func (l *eventLog) close() error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.changed)
		l.poke()
	}
	l.mu.Unlock()
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}
