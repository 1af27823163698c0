package activator

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	lc "github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/activator/store"
)

// Every test with a scripted world records what its runners were told and what
// the core decided, and this is replayed against a model of the environment of
// one app: what is alive, what is recorded, what the edge holds. The model
// follows effects and answers alone and knows nothing of the runner.
//
// What is looked at, and what carries the promise, the core (a decision that is
// wrong in itself) or the environment (a decision that does not fit what is so):
//
//	I1  core         pointers do not shrink, reported ≤ good ≤ desired
//	I2  environment  the slot at the edge is the one the core believes in, and joins
//	                 a generation with the cache of its own release
//	I3  environment  only what passed its check, recorded the switch and was not
//	                 told to end is switched to
//	I4  both         what is reported serves at that moment (environment); nothing
//	                 below it is ever placed again (core)
//	I5  both         only an answer that names the build's fault blames it (core); what
//	                 is said not to have executed got no go-byte (environment)
//	I6  core         no effect of an overlap touches the incumbent before the switch
//	I7  environment  the go-byte of a hold comes when everything else is proven empty
//	F   core         after a fence nothing begins, moves or ends but the attempt
//	I8  environment  what may be alive has a place in the state; it is forgotten only
//	                 when proven empty
//
// The exploration of the core looks at the same promises in every state that its
// own model can reach; the replay ties the runner to it: an effect that the runner
// answers in a way that the exploration does not know shows here.
type trace struct {
	mu    sync.Mutex // guards the fields below
	steps []traced
	told  []string // what people should have been told, over all lives
}

// traced is one decision.
type traced struct {
	app          string
	found        []lc.Found // of a recovery
	fresh        lc.GenID
	recovery     bool
	before, next lc.State
	event        lc.Event
	effects      lc.Effects
}

func (tr *trace) begin() {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.steps = nil
}

func (tr *trace) add(s traced) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.steps = append(tr.steps, s)
	before := s.before
	if s.recovery {
		before = lc.State{}
		if len(s.found) == 0 && s.next.Slot.State == lc.SlotAsleep {
			before.Slot.State = lc.SlotAsleep // that is no news
		}
	}
	ofAll := s.event.Kind == lc.HaltAsked && s.event.Halt != lc.HaltRemove // that is told once, and not here
	if s.next.Slot.State != before.Slot.State && !ofAll {
		tr.told = append(tr.told, s.app+" state "+s.next.Slot.State.String())
	}
	for i := range s.effects.Len() {
		if e := s.effects.At(i); e.Kind == lc.RecordOutcome {
			tr.told = append(tr.told, fmt.Sprintf("%s outcome %s of revision %d: %s", s.app, e.Cause, e.Rel.Rev, e.Outcome))
		}
	}
}

func (tr *trace) stepped(app string, before lc.State, e lc.Event, next lc.State, effects lc.Effects) {
	tr.add(traced{app: app, before: before, event: e, next: next, effects: effects})
}

func (tr *trace) recovered(app string, durable lc.State, found []lc.Found, fresh lc.GenID, next lc.State, effects lc.Effects) {
	tr.add(traced{app: app, recovery: true, before: durable, found: append([]lc.Found(nil), found...), fresh: fresh, next: next, effects: effects})
}

// compare holds what people were told against what was decided.
func (tr *trace) compare(t *testing.T, events []store.Event) {
	t.Helper()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	var said []string
	for _, e := range events {
		if e.Kind == "state" || e.Kind == "outcome" {
			text, _, _ := strings.Cut(e.Text, " (") // the reason, in words
			said = append(said, e.App+" "+e.Kind+" "+text)
		}
	}
	if len(said) != len(tr.told) {
		t.Errorf("people were told %d things, %d were decided:\n%q\n%q", len(said), len(tr.told), said, tr.told)
		return
	}
	for i, want := range tr.told {
		if said[i] != want && !manyApps(tr.told) {
			t.Errorf("people were told %q, the core decided %q", said[i], want)
		}
	}
}

// manyApps: mailboxes run beside each other, so there is no order to compare.
func manyApps(told []string) bool {
	for _, s := range told {
		if !strings.HasPrefix(s, "hello ") {
			return true
		}
	}
	return false
}

// replay plays one life of usher again.
func (tr *trace) replay(t *testing.T) {
	t.Helper()
	tr.mu.Lock()
	steps := tr.steps
	tr.steps = nil
	tr.mu.Unlock()
	models := map[string]*model{}
	for i, s := range steps {
		m := models[s.app]
		if m == nil || s.recovery {
			m = &model{gens: map[lc.GenID]*modelGen{}}
			models[s.app] = m
		}
		if m.step(s); m.broken != "" {
			t.Errorf("step %d of the replay: %s\n%s", i, m.broken, tail16(steps[:i+1]))
			return
		}
	}
}

// tail16 is the end of a trace for people.
func tail16(steps []traced) string {
	var b strings.Builder
	for _, s := range steps[max(0, len(steps)-16):] {
		fmt.Fprintf(&b, "  %s %v gen %d: slot %s, cur %d %s, next %d %s, old %d %s ->", s.app, s.event.Kind, s.event.Gen, s.next.Slot.State,
			s.next.Cur.ID, s.next.Cur.Stage, s.next.Next.ID, s.next.Next.Stage, s.next.Old.ID, s.next.Old.Stage)
		for i := range s.effects.Len() {
			fmt.Fprintf(&b, " %v(%d)", s.effects.At(i).Kind, s.effects.At(i).Gen)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// model is the environment of one app as effects and answers make it.
type model struct {
	last   lc.State
	known  bool
	gens   map[lc.GenID]*modelGen
	slot   lc.Slot
	event  lc.Event
	before lc.State
	broken string
}

// modelGen is a generation outside the core.
type modelGen struct {
	rel       lc.Release
	hold      bool
	prepared  bool // a process may exist
	ran       bool // its go-byte may have been sent
	healthy   bool
	switching bool // recorded
	ended     bool // it was told to end
	empty     bool // proven
}

func (m *model) fail(format string, args ...any) {
	if m.broken == "" {
		m.broken = fmt.Sprintf(format, args...)
	}
}

func (m *model) step(s traced) {
	m.before, m.event = s.before, s.event
	if s.recovery {
		m.recover(s)
	} else {
		if m.known && m.last != s.before {
			m.fail("the state changed between two steps")
		}
		if next, effects := lc.Step(s.before, s.event); next != s.next || effects != s.effects {
			m.fail("the core decides otherwise the second time")
		}
		m.answered(s.event)
	}
	for i := range s.effects.Len() {
		m.effect(s.effects.At(i), &s.next)
	}
	m.last, m.known = s.next, true
	m.check(&s.next, s.recovery)
}

func (m *model) recover(s traced) {
	if next, effects := lc.Recover(s.before, s.found, s.fresh); next != s.next || effects != s.effects {
		m.fail("the core recovers otherwise the second time")
	}
	for _, f := range s.found {
		m.gens[f.ID] = &modelGen{rel: f.Rel, hold: f.Rel.Hold, prepared: true, ran: true, healthy: f.Alive, switching: true}
	}
	if c := s.next.Cur; c.Rel.External && m.gens[c.ID] == nil && c.ID != 0 {
		m.gens[c.ID] = &modelGen{rel: c.Rel, healthy: true, switching: true} // on its owner's word
	}
}

// answered takes in what an answer says of the world.
func (m *model) answered(e lc.Event) {
	g := m.gens[e.Gen]
	if g == nil {
		return
	}
	switch {
	case e.Kind == lc.HealthDone && e.Result == lc.OK:
		g.healthy = true
	case e.Kind == lc.SwitchingDone && e.Result == lc.OK:
		g.switching = true
	case e.Kind == lc.StopDone && e.Result == lc.OK:
		g.empty = true
	case e.Kind == lc.PrepareDone && e.Result != lc.OK, e.Kind == lc.GoDone && e.Result != lc.OK && !e.MayHaveRun:
		g.ran = false
	case e.Kind == lc.SwitchDone && e.Result == lc.OK:
		m.slot = lc.Slot{State: lc.SlotServing, Gen: e.Gen, Cache: lc.CacheKey{Rev: g.rel.Rev, Restart: m.before.Next.Restart}}
	case e.Kind == lc.SleepDone && e.Result == lc.OK:
		m.slot = lc.Slot{State: lc.SlotAsleep, Cache: m.before.Cache}
	}
}

func (m *model) effect(e lc.Effect, next *lc.State) {
	g := m.gens[e.Gen]
	if next.Halt == lc.HaltFence {
		m.checkFenced(e, next)
	}
	switch e.Kind {
	case lc.Verify, lc.Intent:
		if g == nil {
			m.gens[e.Gen] = &modelGen{rel: e.Rel, hold: e.Mode == lc.Hold}
		}
	case lc.Prepare:
		g.prepared = true
	case lc.Go:
		m.checkGo(e, g)
		g.ran = true
	case lc.Switch:
		if g == nil || !g.healthy || !g.switching || g.ended {
			m.fail("I3: generation %d is switched to: %+v", e.Gen, g)
		}
	case lc.Report:
		if m.slot.State != lc.SlotServing || m.slot.Gen != e.Gen || e.Rel.Rev > next.Desired.Rev {
			m.fail("I4: revision %d is reported while the slot is %+v", e.Rel.Rev, m.slot)
		}
	case lc.Place:
		m.slot = e.Slot
	case lc.Stop, lc.Drain, lc.CloseStreams:
		m.checkTouch(e)
		if g != nil && e.Kind == lc.Stop {
			g.ended = true
		}
	case lc.RecordOutcome:
		m.checkOutcome(e, g)
	case lc.Forget:
		if g != nil && g.prepared && !g.empty && !g.rel.External {
			m.fail("I8: generation %d is forgotten and not proven empty", e.Gen)
		}
		delete(m.gens, e.Gen)
	}
}

// checkFenced: whoever does not own the state ends nothing but what it starts.
func (m *model) checkFenced(e lc.Effect, next *lc.State) {
	switch e.Kind {
	case lc.Place, lc.Forget, lc.RecordSwitched, lc.RecordOutcome, lc.Disarm, lc.Arm, lc.Gone:
	case lc.Stop:
		if e.Gen == next.Cur.ID || e.Gen == next.Old.ID {
			m.fail("F: generation %d is stopped after a fence", e.Gen)
		}
	default:
		m.fail("F: after a fence the runner is asked for %v of generation %d", e.Kind, e.Gen)
	}
}

func (m *model) checkGo(e lc.Effect, g *modelGen) {
	for id, other := range m.gens {
		if id != e.Gen && other.ran && !other.empty && !other.rel.External && (g.hold || g.rel.Hold || other.rel.Hold) {
			m.fail("I7: generation %d begins and generation %d is not proven empty", e.Gen, id)
		}
	}
}

// checkTouch: until its switch an overlap leaves the incumbent alone.
func (m *model) checkTouch(e lc.Effect) {
	a, cur := m.before.Attempt, m.before.Cur
	if a.Gen != 0 && a.Mode == lc.Overlap && !a.Reporting && e.Gen == cur.ID && cur.Stage == lc.Serving && m.event.Kind != lc.SwitchDone &&
		m.event.Gen == a.Gen {
		m.fail("I6: %v touches the incumbent, generation %d, during an overlap", e.Kind, e.Gen)
	}
}

func (m *model) checkOutcome(e lc.Effect, g *modelGen) {
	if !e.Executed && g != nil && g.ran {
		m.fail("I5: generation %d is said not to have executed, and its go-byte was sent", e.Gen)
	}
	blamed := e.Outcome != lc.Done && e.Reason != lc.ReasonNone && e.Reason <= lc.ReasonUnhealthy
	if blamed && m.event.Result != lc.BuildFailed && m.event.Kind != lc.Exited {
		m.fail("I5: a build is blamed and nothing said that it failed")
	}
	if blamed && m.before.Attempt.Desired != m.before.Desired.Rev {
		m.fail("I5: a superseded attempt is held against its build")
	}
}

// check looks at the state and at what it believes of the world.
func (m *model) check(s *lc.State, recovery bool) {
	b := &m.before
	if s.Reported > s.Good.Rev && s.Good.Rev != 0 || s.Good.Rev > s.Desired.Rev && !recovery {
		m.fail("I1: reported %d, good %d, desired %d", s.Reported, s.Good.Rev, s.Desired.Rev)
	}
	if !recovery && (s.Reported < b.Reported || s.Desired.Rev < b.Desired.Rev || s.Good.Rev < b.Good.Rev) {
		m.fail("I1: a pointer shrinks")
	}
	if m.slot != s.Slot {
		m.fail("I2: the edge holds %+v and the core believes in %+v", m.slot, s.Slot)
	}
	if s.Slot.State == lc.SlotServing {
		g := m.gens[s.Slot.Gen]
		switch {
		case g == nil || g.ended:
			m.fail("I3: the slot names generation %d, which has ended", s.Slot.Gen)
		case s.Slot.Cache.Rev != g.rel.Rev:
			m.fail("I2: the slot joins generation %d with the cache of revision %d", s.Slot.Gen, s.Slot.Cache.Rev)
		case g.rel.Rev < s.Reported:
			m.fail("I4: the slot names revision %d after revision %d was reported", g.rel.Rev, s.Reported)
		}
	}
	for id, g := range m.gens {
		if g.prepared && !g.empty && id != s.Cur.ID && id != s.Next.ID && id != s.Old.ID {
			m.fail("I8: generation %d has no place in the state and may be alive", id)
		}
	}
}
