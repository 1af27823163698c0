package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Run is a load that is under way.
type Run struct {
	load     Load
	due      []time.Duration
	start    time.Time
	alarm    *alarm
	queue    chan int32 // due requests; holds all of them, so pacing never waits
	records  []record   // one per scheduled request, written by the worker that took it
	workers  sync.WaitGroup
	paced    chan struct{} // closed when the pacer has left
	finished chan struct{} // closed when the last worker has left
	queued   int           // requests that became due; read after paced
	paceErr  error         // why pacing ended before the schedule; read after paced
	stop     chan struct{}
	stopOnce sync.Once
	stopAt   time.Duration // of the schedule; read after stop

	generation atomic.Uint64 // oldest generation that may answer from now on; 0 = any

	mu      sync.Mutex // guards what follows; nothing waits or does I/O under it
	marks   []Mark
	phases  []phaseStart
	samples []FailureSample
}

// phaseStart says that requests scheduled from at on belong to a phase.
type phaseStart struct {
	name string
	at   time.Duration
}

// Start begins a load and returns at once. The end of ctx cuts it: requests in
// flight are given up and counted as Cut, not as failures. Errors: a load that
// makes no sense (all of its faults at once), no timer from the kernel.
func Start(ctx context.Context, load Load) (*Run, error) {
	load = load.withDefaults()
	if err := load.validate(); err != nil {
		return nil, err
	}
	return startSchedule(ctx, load, load.schedule())
}

func startSchedule(ctx context.Context, load Load, due []time.Duration) (*Run, error) {
	alarm, err := newAlarm()
	if err != nil {
		return nil, err
	}
	r := &Run{
		load: load, due: due, alarm: alarm,
		queue:    make(chan int32, len(due)),
		records:  make([]record, len(due)),
		paced:    make(chan struct{}),
		finished: make(chan struct{}),
		stop:     make(chan struct{}),
		phases:   []phaseStart{{name: load.Phase}},
	}
	workers := min(load.Connections, max(len(due), 1))
	r.workers.Add(workers)
	// A context without the caller's deadline: dialling would otherwise report a
	// timeout just before that deadline shows in ctx.Err, and the server be blamed.
	cut, release := context.WithCancel(context.WithoutCancel(ctx))
	unlink := context.AfterFunc(ctx, release)
	r.ExpectGeneration(load.oldest)
	// The clock starts when everything that must be built is built.
	r.start = time.Now()
	for id := range workers {
		go newWorker(r, id).serve(cut)
	}
	go r.pace(cut)
	go func() {
		r.workers.Wait()
		<-r.paced
		unlink()
		release()
		close(r.finished)
	}()
	return r, nil
}

// Stop ends the schedule here: no further request becomes due, those that are
// already due are finished. It is idempotent and does not wait.
func (r *Run) Stop() {
	r.stopOnce.Do(func() {
		r.stopAt = r.elapsed()
		close(r.stop)
		// Closing the timer only interrupts a sleep; there is nothing to save.
		_ = r.alarm.stop()
	})
}

// Wait returns the account when the last request has ended, or the context's
// error if that is first; the run then goes on until its own context ends.
func (r *Run) Wait(ctx context.Context) (*Result, error) {
	select {
	case <-r.finished:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for load: %w", ctx.Err())
	}
	r.Stop()
	if r.paceErr != nil {
		return nil, fmt.Errorf("pace load: %w", r.paceErr)
	}
	return r.result(), nil
}

// Mark notes an instant, to be drawn as a labelled line.
func (r *Run) Mark(label string) {
	at := r.elapsed()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.marks = append(r.marks, Mark{AtMS: milliseconds(at), Label: label})
}

// Begin notes an instant from which requests belong to another phase
// (PhaseBefore, PhaseDuring, PhaseAfter or a name of the caller's). A request
// belongs to the phase in which it was scheduled. A label that is not empty is
// drawn as a line too.
func (r *Run) Begin(phase, label string) {
	at := r.elapsed()
	r.mu.Lock()
	defer r.mu.Unlock()
	if label != "" {
		r.marks = append(r.marks, Mark{AtMS: milliseconds(at), Label: label})
	}
	r.phases = append(r.phases, phaseStart{name: phase, at: at})
}

// ExpectGeneration makes it a failure when a request sent from now on is
// answered without a Usher-Generation header, or by a generation older than
// oldest. Call it when a deploy has been reported.
func (r *Run) ExpectGeneration(oldest uint64) { r.generation.Store(oldest) }

func (r *Run) elapsed() time.Duration { return time.Since(r.start) }

// at is an instant on the run's clock, ms.
func (r *Run) at(t time.Time) float64 { return milliseconds(t.Sub(r.start)) }

// pace hands requests out as they become due.
func (r *Run) pace(ctx context.Context) {
	defer close(r.paced)
	defer close(r.queue)
	interrupted := context.AfterFunc(ctx, r.Stop)
	defer interrupted()
	for i, at := range r.due {
		if wait := nap(at-r.elapsed(), len(r.queue)); wait > 0 {
			if err := r.alarm.sleep(wait); err != nil && !r.stopped() {
				r.paceErr = err
				return
			}
		}
		// What was due by then is sent, however late the pacer is: a busy machine
		// must not thin out the end of a schedule.
		if r.stopped() && at > r.stopAt {
			return
		}
		r.queue <- int32(i)
		r.queued = i + 1
	}
}

func (r *Run) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// sampleLimit bounds how many failures are kept word for word.
const sampleLimit = 20

func (r *Run) sample(s FailureSample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) < sampleLimit {
		r.samples = append(r.samples, s)
	}
}
