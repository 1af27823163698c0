package activator

import "sync"

// tasks counts goroutines for whoever waits for all of them to end. Unlike with
// a sync.WaitGroup, more may be started while somebody waits, and afterwards.
type tasks struct {
	// mu guards the fields below.
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n is 0 again; nil while nobody waits
}

// run runs f on a goroutine of its own.
func (t *tasks) run(f func()) {
	t.mu.Lock()
	t.n++
	t.mu.Unlock()
	go func() {
		defer t.done()
		f()
	}()
}

func (t *tasks) done() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.n--; t.n == 0 && t.idle != nil {
		close(t.idle)
		t.idle = nil
	}
}

// wait returns at an instant at which no task runs.
func (t *tasks) wait() {
	t.mu.Lock()
	if t.n == 0 {
		t.mu.Unlock()
		return
	}
	if t.idle == nil {
		t.idle = make(chan struct{})
	}
	idle := t.idle
	t.mu.Unlock()
	<-idle
}
