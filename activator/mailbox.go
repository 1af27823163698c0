package activator

import "sync"

// mailbox runs functions one at a time, in order, on a goroutine that lives only
// while there is something to run.
type mailbox struct {
	owner *runner // stirs before each of them, and may rest afterwards

	// mu guards the fields below. Nothing runs under it.
	mu      sync.Mutex
	queue   []func()
	running bool
}

// post appends f. It never blocks.
func (b *mailbox) post(f func()) {
	b.mu.Lock()
	b.queue = append(b.queue, f)
	start := !b.running
	b.running = true
	b.mu.Unlock()
	if start {
		b.owner.act.tasks.run(b.run)
	}
}

func (b *mailbox) run() {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.running = false
			b.queue = nil
			b.mu.Unlock()
			return
		}
		f := b.queue[0]
		b.queue = b.queue[1:]
		b.mu.Unlock()
		b.owner.stir()
		f()
		b.owner.rest()
	}
}

// call runs f in the mailbox and waits for it.
func (b *mailbox) call(f func()) {
	done := make(chan struct{})
	b.post(func() {
		defer close(done)
		f()
	})
	<-done
}
