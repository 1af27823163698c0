package activator

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// The steps of a receipt, in the order in which they can come.
const (
	TookStaged    = "staged"    // making sure of the staged bytes
	TookCommitted = "committed" // from the commit to the admission: it waited for something
	TookSpawn     = "spawn"     // setting the child up and letting it go
	TookHealth    = "health"
	TookSettle    = "settle"
	TookPark      = "park"   // hold: requests waited
	TookDrain     = "drain"  // of the incumbent
	TookStop      = "stop"   // hold: from SIGTERM to the proof that the incumbent is gone
	TookSwitch    = "switch" // from its record to the stored slot
	TookProof     = "proof"  // overlap: from SIGTERM to the proof that the old one is gone
)

// Receipt is the account of one attempt, as it stands.
type Receipt struct {
	store.Receipt
	// Open says that it is not final. Unless Closed is set its window is not closed yet:
	// its numbers change and need not add up. Else only the proof is missing that what
	// was switched away from is gone.
	Open bool
}

// receipt is the live side of a Receipt; its app's mailbox changes it. It only
// looks on: at the effects that the core asks for, and at the events that answer
// them. The window is open from the admission of the attempt until its outcome is
// known, the drain is over, and nobody waits who had parked by then.
type receipt struct {
	store.Receipt
	account Account              // nil: the edge does not know the app
	begun   map[string]time.Time // steps under way
	over    chan struct{}        // closed when the window is

	ended    bool // the outcome is known
	drained  bool // nothing that was switched away from drains
	released bool // nobody waits who had parked
	proven   bool // nothing more is to be learned of the stop of the old one
}

// isFrom says whether gen is what served at the admission.
func (rc *receipt) isFrom(gen lc.GenID) bool {
	return gen != 0 && uint64(gen) == rc.From.Generation
}

func (rc *receipt) begin(step string, now time.Time) {
	if _, under := rc.begun[step]; !under {
		rc.begun[step] = now
	}
}

// finish adds to a step that may have several parts.
func (rc *receipt) finish(step string, now time.Time) {
	at, under := rc.begun[step]
	if !under {
		return
	}
	delete(rc.begun, step)
	i := slices.IndexFunc(rc.Steps, func(s store.ReceiptStep) bool { return s.Name == step })
	if i < 0 {
		i = len(rc.Steps)
		rc.Steps = append(rc.Steps, store.ReceiptStep{Name: step})
	}
	rc.Steps[i].Took += now.Sub(at)
}

// cacheName is a cache generation for people.
func cacheName(k lc.CacheKey) string {
	return strconv.FormatUint(uint64(k.Rev), 10) + "." + strconv.FormatUint(uint64(k.Restart), 10)
}

// effect looks at what the core asks for, before it is carried out.
func (r *runner) effect(e lc.Effect) {
	if e.Kind == lc.Verify || e.Kind == lc.Intent {
		r.admitted(e)
	}
	rc, now := r.receipt, r.act.now()
	if rc == nil {
		return
	}
	own := uint64(e.Gen) == rc.Attempt
	switch {
	case e.Kind == lc.Verify && own:
		rc.begin(TookStaged, now)
	case (e.Kind == lc.Prepare || e.Kind == lc.Go) && own:
		rc.begin(TookSpawn, now)
	case e.Kind == lc.Health && own:
		rc.begin(TookHealth, now)
	case e.Kind == lc.Arm && e.Timer == lc.TimerSettle && own:
		rc.begin(TookSettle, now)
	case e.Kind == lc.RecordSwitching && own:
		rc.finish(TookSettle, now)
		rc.begin(TookSwitch, now)
	case e.Kind == lc.Place && e.Slot.State == lc.SlotHolding:
		rc.begin(TookPark, now)
	case e.Kind == lc.Place:
		rc.finish(TookPark, now)
	case e.Kind == lc.Drain && rc.isFrom(e.Gen):
		rc.begin(TookDrain, now)
	case e.Kind == lc.Stop && rc.isFrom(e.Gen) && rc.ended:
		rc.begin(TookProof, now)
	case e.Kind == lc.Stop && rc.isFrom(e.Gen):
		rc.begin(TookStop, now)
	}
}

// admitted opens the window of an attempt. A wake has none: what it is about is
// accepted before it begins, and it moves nobody away from anything.
func (r *runner) admitted(e lc.Effect) {
	if e.Cause == lc.CauseWake || r.receipt != nil && r.receipt.Attempt == uint64(e.Gen) {
		return
	}
	r.closeReceipt("") // its last parked requests took longer than all that came after them
	now, cur := r.act.now(), r.state.Cur
	rc := &receipt{begun: map[string]time.Time{}, over: make(chan struct{})}
	rc.Attempt, rc.Revision, rc.Cause, rc.Mode = uint64(e.Gen), uint64(e.Rel.Rev), e.Cause.String(), e.Mode.String()
	rc.Canary, rc.Opened = e.Rel.Canary, now
	rc.CacheFrom = cacheName(r.state.Cache)
	rc.CacheTo = rc.CacheFrom
	if g := r.gens[cur.ID]; g != nil {
		rc.From = store.Predecessor{Generation: uint64(cur.ID), Revision: uint64(cur.Rel.Rev), Build: g.rel.Build}
	}
	if rel, err := r.release(rc.Revision); err == nil {
		rc.Build, rc.Digest = rel.Build, rel.Digest
		if e.Cause == lc.CauseRelease || e.Cause == lc.CauseInstall || e.Cause == lc.CauseConfig {
			rc.Steps = append(rc.Steps, store.ReceiptStep{Name: TookCommitted, Took: max(now.Sub(rel.CreatedAt), 0)})
		}
	}
	rc.account = r.act.front.OpenAccount(r.name, rc.Attempt)
	r.receipt = rc
}

// hear looks at an event before the core does.
func (r *runner) hear(e lc.Event) {
	rc := r.receipt
	switch {
	case rc == nil || e.Gen == 0:
	case uint64(e.Gen) == rc.Attempt:
		r.hearOwn(rc, e)
	case rc.isFrom(e.Gen):
		r.hearFrom(rc, e)
	}
}

func (r *runner) hearOwn(rc *receipt, e lc.Event) {
	now := r.act.now()
	switch e.Kind {
	case lc.VerifyDone:
		rc.finish(TookStaged, now)
	case lc.PrepareDone, lc.GoDone:
		rc.finish(TookSpawn, now)
	case lc.HealthDone:
		rc.finish(TookHealth, now)
	case lc.SwitchDone:
		rc.finish(TookSwitch, now)
		rc.finish(TookPark, now)
		if next := r.state.Next; e.Result == lc.OK && next.ID == e.Gen {
			rc.CacheTo = cacheName(lc.CacheKey{Rev: next.Rel.Rev, Restart: next.Restart})
		}
	default:
	}
}

func (r *runner) hearFrom(rc *receipt, e lc.Event) {
	now := r.act.now()
	switch e.Kind {
	case lc.DrainDone:
		rc.finish(TookDrain, now)
		r.awaitCut(rc, e.Gen)
	case lc.StopDone:
		rc.finish(TookDrain, now) // it ended by itself
		rc.finish(TookStop, now)
		rc.finish(TookProof, now)
		switch {
		case e.Result != lc.OK:
			rc.Proof = lc.ReasonUnproven.String()
		case r.spec.Target == "": // else it is its owner's to end it
			rc.Proof = r.act.backend.Level()
		}
		rc.drained, rc.proven = true, true
		r.fileIfOver(rc)
	default:
	}
}

// cutTime is how long the requests that the end of a drain has cut may take to
// end.
const cutTime = time.Second

// awaitCut waits for what the end of a drain has cut: it is to be counted as
// that, and not as still open.
func (r *runner) awaitCut(rc *receipt, gen lc.GenID) {
	if rc.ended {
		r.await(rc, r.act.front.Drained(r.name, uint64(gen)), cutTime, func() { rc.drained = true })
	}
}

// concluded is the outcome of the attempt.
func (r *runner) concluded(o store.Outcome) {
	rc := r.receipt
	if rc == nil || rc.Attempt != o.Attempt {
		return
	}
	for step := range rc.begun {
		if step != TookDrain && step != TookProof {
			rc.finish(step, o.At)
		}
	}
	rc.Operation, rc.Health = r.latest().operation, r.gens[lc.GenID(o.Attempt)].healthProof()
	rc.Outcome, rc.Reason, rc.Executed, rc.Mode = o.Outcome, o.Reason, o.Executed, o.Mode
	rc.Tries = o.Tries
	rc.ended = true
	rc.drained = r.state.Old.ID == 0
	rc.proven = rc.drained
	var turn <-chan struct{} = closedChan()
	if rc.account != nil {
		turn = rc.account.Turn()
	}
	r.await(rc, turn, r.spec.Policy.DrainTimeout, func() { rc.released = true })
}

// await does f in the mailbox once c is closed or the time is up, at once if it
// is closed already, and never if the window is over by then.
func (r *runner) await(rc *receipt, c <-chan struct{}, limit time.Duration, f func()) {
	if isClosed(c) {
		f()
		r.fileIfOver(rc)
		return
	}
	r.act.tasks.run(func() {
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case <-c:
		case <-t.C:
		case <-rc.over:
			return
		case <-r.act.closing:
			return
		}
		r.box.post(func() {
			f()
			r.fileIfOver(rc)
		})
	})
}

// fileIfOver closes the window when all has come that it waits for, and stores
// the receipt when nothing more is to be learned.
func (r *runner) fileIfOver(rc *receipt) {
	if r.receipt != rc || !rc.ended || !rc.drained || !rc.released {
		return
	}
	r.closeWindow(rc)
	if rc.proven {
		r.file(rc)
	}
}

func (r *runner) closeWindow(rc *receipt) {
	if isClosed(rc.over) {
		return
	}
	close(rc.over)
	rc.Closed = r.act.now()
	if rc.account != nil {
		c := rc.account.Close()
		rc.Counts = &c
	}
}

// closeReceipt ends the receipt that is open, if there is one, as it stands. why
// says what is missing in it.
func (r *runner) closeReceipt(why string) {
	if rc := r.receipt; rc != nil {
		rc.Incomplete = why
		r.closeWindow(rc)
		r.file(rc)
	}
}

// file stores a receipt that is complete and says what is in it.
func (r *runner) file(rc *receipt) {
	r.receipt = nil
	r.store(rc.Receipt)
	wrong := rc.Counts != nil && len(rc.Counts.Mismatch) > 0
	r.count(func(t *tally) {
		t.receipts++
		if wrong {
			t.mismatches++
		}
	})
	text := Summary(rc.Receipt)
	if rc.Tries.N <= 1 || wrong { // else the first of them was told
		r.note("receipt", lc.GenID(rc.Attempt), text)
	}
	if wrong {
		if r.last != nil && r.last.Attempt == rc.Attempt {
			r.last.wrong = true
		}
		r.log().Error("a receipt does not add up: requests were lost or counted twice; please report it", "attempt", rc.Attempt, "receipt", text)
	}
}

// store makes a receipt durable, and those that could not be before. Until then
// they can be read from memory.
func (r *runner) store(rc store.Receipt) {
	told := func(u store.Receipt) bool { return rc.Tries.Replaced(u.Attempt, rc.Attempt) }
	r.unstored = append(slices.DeleteFunc(r.unstored, told), rc)
	for i, u := range r.unstored {
		err := r.act.commits.PutReceipt(r.name, u)
		if err != nil && !errors.Is(err, store.ErrNotFound) { // else the app has no record that it could stand beside
			r.warn("store a receipt; it is tried again with the next one", err)
			r.unstored = r.unstored[max(i, len(r.unstored)-store.KeepReceipts):]
			return
		}
	}
	r.unstored = nil
}

// lostReceipts tells of windows that were open when usher ended: their counts
// were in its memory. One is known by its outcome, which promises a receipt, or,
// if it had none yet, by the record of its generation.
func (r *runner) lostReceipts(rec *store.App, runs []store.Run) {
	stored, err := r.act.commits.Receipts(r.name)
	if err != nil {
		r.warn("read the receipts", err)
		return
	}
	var last uint64 // attempts up to here have their receipts
	if n := len(stored); n > 0 {
		last = stored[n-1].Attempt
	}
	for _, o := range rec.Outcomes {
		if o.Receipt && o.Attempt > last {
			r.lost(store.Receipt{
				Attempt: o.Attempt, Revision: o.Revision, Cause: o.Cause, Mode: o.Mode,
				Outcome: o.Outcome, Reason: o.Reason, Executed: o.Executed,
			})
		}
		last = max(last, o.Attempt)
	}
	for _, run := range runs {
		if run.Cause != "" && run.Cause != lc.CauseWake.String() && run.AttemptID > last {
			r.lost(store.Receipt{
				Attempt: run.AttemptID, Revision: run.Revision, Cause: run.Cause, Mode: run.Mode,
				Executed: run.Phase != store.PhaseIntent,
			})
		}
	}
}

func (r *runner) lost(rc store.Receipt) {
	rc.Incomplete = "usher ended while its window was open: what was counted is lost"
	if rel, err := r.release(rc.Revision); err == nil {
		rc.Build, rc.Digest, rc.Canary = rel.Build, rel.Digest, rel.Cause == causeCanary
		if rel.Cause == causeRecovered {
			rc.Incomplete = "the app's record was lost, and with it what was counted"
		}
	}
	r.store(rc)
	r.count(func(t *tally) { t.receipts++ })
	r.note("receipt", lc.GenID(rc.Attempt), Summary(rc))
}

// Receipts returns the receipts of an app, newest attempt first. One whose window
// is open comes first.
func (a *Activator) Receipts(app string) ([]Receipt, error) {
	r, err := a.runner(app)
	if err != nil {
		return nil, err
	}
	var list []Receipt
	r.box.call(func() { list, err = r.receipts() })
	return list, err
}

func (r *runner) receipts() ([]Receipt, error) {
	stored, err := r.act.commits.Receipts(r.name)
	if err != nil {
		return nil, err
	}
	var list []Receipt
	if rc := r.receipt; rc != nil {
		list = append(list, r.look(rc))
	}
	for _, u := range slices.Backward(append(stored, r.unstored...)) {
		told := func(x Receipt) bool { return x.Attempt == u.Attempt || x.Tries.Replaced(u.Attempt, x.Attempt) }
		if !slices.ContainsFunc(list, told) {
			list = append(list, Receipt{Receipt: u})
		}
	}
	return list, nil
}

// look copies a receipt that is not filed yet.
func (r *runner) look(rc *receipt) Receipt {
	out := Receipt{Receipt: rc.Receipt, Open: true}
	if !rc.ended {
		out.Health = r.gens[lc.GenID(rc.Attempt)].healthProof()
	}
	out.Steps = slices.Clone(rc.Steps)
	if rc.account != nil && out.Counts == nil {
		c := rc.account.Look()
		out.Counts = &c
	}
	return out
}

// Summary is a receipt in one line.
func Summary(rc store.Receipt) string {
	s := "revision " + strconv.FormatUint(rc.Revision, 10)
	if rc.Outcome != "" {
		s += " " + rc.Outcome
	}
	c := rc.Counts
	switch {
	case c == nil && rc.Incomplete != "":
		return s + ": " + rc.Incomplete
	case c == nil:
		return s + ": no requests are routed to the app"
	case len(c.Mismatch) > 0:
		return s + ": THE RECEIPT DOES NOT ADD UP: " + strings.Join(c.Mismatch, "; ")
	}
	s += fmt.Sprintf(": %d accepted = %d served", c.Accepted, c.Served)
	if c.Parked > 0 {
		s += fmt.Sprintf(" (%d after parking, at most %v)", c.Parked, c.ParkMax.Round(time.Millisecond))
	}
	s += fmt.Sprintf(" + %d cached + %d refused + %d failed + %d gone + %d still open", c.Cached, c.Refused, c.Failed, c.Gone, c.Open+c.Own)
	if rc.Incomplete != "" {
		s += "; " + rc.Incomplete
	}
	return s
}
