package store

import (
	"slices"
	"sync"
)

// MemoryRuns is Runs without a disk, for tests. It passes the same suite.
type MemoryRuns struct {
	// Fail, if not nil, is asked before each write and makes it fail with the
	// error it returns. op is "put" or "delete", and "put.done" or
	// "delete.done" when it has taken effect. Set it before the first use; it
	// may be called by several goroutines at once.
	Fail func(op string) error

	// mu guards what follows.
	mu     sync.Mutex
	bootID string
	runs   map[uint64][]byte // encoded, so that nothing is shared
}

var _ Runs = (*MemoryRuns)(nil)

// NewMemoryRuns returns an empty store of the given boot.
func NewMemoryRuns(bootID string) *MemoryRuns {
	return &MemoryRuns{bootID: bootID, runs: map[uint64][]byte{}}
}

// Reboot makes all records so far those of an earlier boot.
func (m *MemoryRuns) Reboot(bootID string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.bootID = bootID
}

func (m *MemoryRuns) ask(op string) error {
	if m.Fail == nil {
		return nil
	}
	return m.Fail(op)
}

// Put implements Runs.
func (m *MemoryRuns) Put(run Run) error {
	if err := m.ask("put"); err != nil {
		return err
	}
	m.mu.Lock()
	data, err := encodeRun(run, m.bootID)
	if err == nil {
		m.runs[run.Generation] = data
	}
	m.mu.Unlock()
	if err != nil {
		return err
	}
	return m.ask("put.done")
}

// Delete implements Runs.
func (m *MemoryRuns) Delete(generation uint64) error {
	if err := m.ask("delete"); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.runs, generation)
	m.mu.Unlock()
	return m.ask("delete.done")
}

// List implements Runs.
func (m *MemoryRuns) List() (runs []Run, notes []error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for generation, data := range m.runs {
		run, err := decodeRun(data, generation)
		switch {
		case err != nil:
			notes = append(notes, err)
		case run.BootID != m.bootID:
			notes = append(notes, otherBoot(run))
			delete(m.runs, generation)
		default:
			runs = append(runs, run)
		}
	}
	slices.SortFunc(runs, byGeneration)
	return runs, notes
}
