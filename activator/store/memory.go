package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Memory is Commits without a disk, for tests. It passes the same suite.
type Memory struct {
	// Fail, if not nil, is asked before each operation and makes it fail with
	// the error it returns. op is "apps", "get", "update", "delete", "receipt",
	// "receipts" or "generations"; writes ask a second time as "update.done",
	// "delete.done", "receipt.done" and "generations.done" when they have taken effect, to play the disk
	// that fails after the fact. Set it before the first use; it may be
	// called by several goroutines at once and must not call the store.
	Fail func(op string) error

	*eventLog
	*fence
	state *memoryState

	// mu guards closed.
	mu     sync.Mutex
	closed bool
}

// memoryState is the durable part: what Reopen finds again.
type memoryState struct {
	// mu guards what follows; it stands for the write lock of a database, so
	// Update callbacks run under it.
	mu         sync.Mutex
	records    map[string][]byte
	receipts   map[string]memoryReceipts
	generation uint64
	floor      uint64
}

var _ Commits = (*Memory)(nil)

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{
		eventLog: newEventLog(0, nil),
		fence:    newFence(),
		state:    &memoryState{records: map[string][]byte{}, receipts: map[string]memoryReceipts{}},
	}
}

// Reopen closes m and returns a store that holds what was committed, as the
// start after a crash would find it. Events are lost; Fail is not taken over.
func (m *Memory) Reopen() *Memory {
	_ = m.Close() // never fails
	again := NewMemory()
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	again.state.records = maps.Clone(m.state.records)
	for app, list := range m.state.receipts {
		again.state.receipts[app] = maps.Clone(list)
	}
	again.state.generation, again.state.floor = m.state.generation, m.state.floor
	return again
}

// Owned implements Commits.
func (m *Memory) Owned() error { return m.fence.err() }

// Fence takes the state away, as an owner does who replaces a directory.
func (m *Memory) Fence() { _ = m.fall(fmt.Errorf("%w: it was taken away; %s", ErrFenced, fencedTodo)) }

// Restart gives the state to the next usher, as its start on a disk does. Nobody may
// use m meanwhile.
func (m *Memory) Restart() { m.fence = newFence() }

func (m *Memory) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

func (m *Memory) ask(op string) error {
	if m.isClosed() {
		return ErrClosed
	}
	if m.Fail != nil {
		if err := m.Fail(op); err != nil {
			return err
		}
	}
	if op == "apps" || op == "get" || op == "receipts" {
		return nil
	}
	err := m.Owned()
	if err != nil && strings.HasSuffix(op, ".done") {
		err = mayHold(err)
	}
	return err
}

// Apps implements Commits.
func (m *Memory) Apps() ([]string, error) {
	if err := m.ask("apps"); err != nil {
		return nil, err
	}
	m.state.mu.Lock()
	defer m.state.mu.Unlock()
	return slices.Sorted(maps.Keys(m.state.records)), nil
}

// Get implements Commits.
func (m *Memory) Get(app string) (App, error) {
	if err := m.ask("get"); err != nil {
		return App{}, err
	}
	m.state.mu.Lock()
	data := m.state.records[app]
	m.state.mu.Unlock()
	if data == nil {
		return App{}, notFound(app)
	}
	return decodeApp(app, data)
}

// Update implements Commits.
func (m *Memory) Update(app string, ifVersion uint64, fn func(*App) error) (App, error) {
	if err := m.ask("update"); err != nil {
		return App{}, err
	}
	a, err := m.state.update(app, ifVersion, fn)
	if err == nil {
		err = m.ask("update.done")
	}
	if err != nil {
		return App{}, err
	}
	return a, nil
}

func (s *memoryState) update(app string, ifVersion uint64, fn func(*App) error) (App, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, data, err := change(app, s.records[app], s.floor, ifVersion, fn)
	if err == nil && data != nil {
		s.records[app] = data
	}
	return a, err
}

// UpdateAll implements Commits.
func (m *Memory) UpdateAll(apps []string, fn func(*App) (bool, error)) ([]App, error) {
	if m.isClosed() {
		return nil, ErrClosed
	}
	wrote, all, err := m.state.updateAll(apps, fn, func() error { return m.ask("update") })
	if err == nil && wrote {
		err = m.ask("update.done")
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

func (s *memoryState) updateAll(apps []string, fn func(*App) (bool, error), ask func() error) (wrote bool, all []App, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, writes, err := changeAll(apps, func(name string) []byte { return s.records[name] }, s.floor, fn)
	if err != nil || len(writes) == 0 {
		return false, all, err
	}
	if err := ask(); err != nil {
		return false, nil, err
	}
	for _, w := range writes {
		s.records[w.name] = w.data
	}
	return true, all, nil
}

// Delete implements Commits.
func (m *Memory) Delete(app string, ifVersion uint64) error {
	if err := m.ask("delete"); err != nil {
		return err
	}
	if err := m.state.delete(app, ifVersion); err != nil {
		return err
	}
	return m.ask("delete.done")
}

func (s *memoryState) delete(app string, ifVersion uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data := s.records[app]
	if data == nil {
		return notFound(app)
	}
	a, err := decodeApp(app, data)
	if err != nil {
		return err
	}
	if err := compare(app, ifVersion, a.Version); err != nil {
		return err
	}
	s.floor = max(s.floor, a.Version)
	delete(s.records, app)
	delete(s.receipts, app)
	return nil
}

// Generations implements Commits.
func (m *Memory) Generations(n uint64) (uint64, error) {
	if err := m.ask("generations"); err != nil {
		return 0, err
	}
	first, err := m.state.reserve(n)
	if err == nil {
		err = m.ask("generations.done")
	}
	if err != nil {
		return 0, err
	}
	return first, nil
}

func (s *memoryState) reserve(n uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, err := reserve(s.generation, n)
	if err == nil {
		s.generation += n
	}
	return first, err
}

// RaiseGenerations implements Commits.
func (m *Memory) RaiseGenerations(above uint64) error {
	m.state.mu.Lock()
	is := m.state.generation
	m.state.mu.Unlock()
	if is >= above && !m.isClosed() {
		return nil
	}
	if err := m.ask("generations"); err != nil {
		return err
	}
	m.state.mu.Lock()
	m.state.generation = max(m.state.generation, above)
	m.state.mu.Unlock()
	return m.ask("generations.done")
}

// Close implements Commits.
func (m *Memory) Close() error {
	m.mu.Lock()
	m.closed = true
	m.mu.Unlock()
	return m.eventLog.close()
}
