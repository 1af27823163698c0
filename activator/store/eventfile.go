package store

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// eventFile keeps events as lines of JSON, appended without syncing. A line
// that cannot be read (torn by a crash, or by a full disk) is skipped.
type eventFile struct {
	path    string
	owned   func() error // see Commits
	f       *os.File
	lines   int    // in the file, about
	written uint64 // number of the last event that is in the file
	ragged  bool   // the file may end in half a line
	loaded  []Event
}

func openEventFile(path string, owned func() error) (*eventFile, error) {
	e := &eventFile{path: path, owned: owned}
	if err := e.load(); err != nil {
		return nil, fmt.Errorf("read event log: %w", explain(err))
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open event log: %w", explain(err))
	}
	e.f = f
	return e, nil
}

func (e *eventFile) load() error {
	f, err := os.Open(e.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	var last uint64
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			e.lines++
			e.ragged = err != nil
			var ev Event
			if json.Unmarshal(line, &ev) == nil && ev.Seq > last {
				last = ev.Seq
				e.loaded = append(e.loaded, ev)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// append writes events in one call. After an error it is not known how much
// of them the file has; they are written again with the next ones, and load
// skips what it has seen.
func (e *eventFile) append(events []Event) error {
	if len(events) == 0 {
		return nil
	}
	data, err := eventLines(events)
	if err != nil {
		return err
	}
	if e.ragged {
		data = append([]byte{'\n'}, data...)
	}
	if _, err := e.f.Write(data); err != nil {
		e.ragged = true
		return fmt.Errorf("append to event log: %w", explain(err))
	}
	e.ragged = false
	e.lines += len(events)
	e.written = events[len(events)-1].Seq
	return nil
}

// rewrite replaces the file by one that holds just these events, if the state
// is still usher's.
func (e *eventFile) rewrite(events []Event) error {
	if e.owned() != nil {
		return nil // what has its name now is another's
	}
	data, err := eventLines(events)
	if err != nil {
		return err
	}
	fresh := e.path + ".new"
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("shorten event log: %w", explain(err))
	}
	if _, err = f.Write(data); err == nil {
		err = os.Rename(fresh, e.path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("shorten event log: %w", explain(err)), f.Close(), os.Remove(fresh))
	}
	old := e.f
	e.f, e.lines, e.ragged = f, len(events), false
	return old.Close()
}

func (e *eventFile) close() error { return e.f.Close() }

func eventLines(events []Event) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	for _, ev := range events {
		if err := enc.Encode(ev); err != nil {
			return nil, fmt.Errorf("encode event: %w", err)
		}
	}
	return b.Bytes(), nil
}
