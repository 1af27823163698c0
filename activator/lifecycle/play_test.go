package lifecycle

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// play feeds the core events that are written as text, one a line:
//
//	event → effect; effect
//
// and compares the effects. "…" in front of an event answers everything that is
// under way with success first, until nothing is left to be answered.
type play struct {
	t    *testing.T
	s    State
	next GenID
	todo []Event // the answers, all of them successes, of what is under way
}

// script runs the lines and returns the player, for more questions.
func (p *play) script(text string) *play {
	p.t.Helper()
	for line := range strings.Lines(strings.TrimSpace(text)) {
		ev, want, _ := strings.Cut(strings.TrimSpace(line), "→")
		ev = strings.TrimSpace(ev)
		if rest, ok := strings.CutPrefix(ev, "…"); ok {
			p.finish()
			ev = strings.TrimSpace(rest)
		}
		if ev == "" {
			continue
		}
		f := p.feed(p.event(ev))
		if got := f.String(); got != strings.TrimSpace(want) {
			p.t.Fatalf("%s\n got %s\nwant %s", ev, got, strings.TrimSpace(want))
		}
	}
	return p
}

func (p *play) feed(e Event) Effects {
	e.Fresh = p.next + 1
	s, f := Step(p.s, e)
	p.take(s, &f)
	p.todo = slices.DeleteFunc(p.todo, func(a Event) bool { return a.Kind == e.Kind && a.Gen == e.Gen })
	return f
}

func (p *play) take(s State, f *Effects) {
	p.s = s
	p.next = max(p.next, s.Next.ID, s.Cur.ID)
	for i := range f.Len() {
		if k := answerTo[f.At(i).Kind]; k != EventNone {
			p.todo = append(p.todo, Event{Kind: k, Gen: f.At(i).Gen})
		}
	}
}

// answerTo says which event answers an effect.
var answerTo = map[EffectKind]EventKind{
	Verify: VerifyDone, Intent: IntentDone, Prepare: PrepareDone, RecordRan: RanDone, Go: GoDone, Health: HealthDone,
	RaiseLimit: RaiseDone, RestoreLimit: RestoreDone, RecordSwitching: SwitchingDone, Switch: SwitchDone, Report: ReportDone, Drain: DrainDone, Stop: StopDone, TrySleep: SleepDone,
}

// finish answers everything that is under way.
func (p *play) finish() {
	for len(p.todo) > 0 {
		e := p.todo[0]
		p.todo = p.todo[1:]
		p.feed(e)
	}
}

// event reads what Event.String writes; a release may be followed by its
// attributes.
func (p *play) event(text string) Event {
	p.t.Helper()
	words := strings.Fields(text)
	e := Event{Kind: EventKind(slices.Index(eventNames[:], words[0]))}
	for i, w := range words[1:] {
		var n uint64
		switch {
		case w == "build" || w == "refused:":
			e.Result = Refused
			if w == "build" {
				e.Result = BuildFailed
			}
			_, why, _ := strings.Cut(text, ": ")
			e.Reason = Reason(slices.Index(reasonNames[:], why))
			return e
		case scan(w, "g%d", &n):
			e.Gen = GenID(n)
		case scan(w, "r%d", &n):
			e.Release.Rev = Revision(n)
		case w == "hold":
			e.Release.Hold = true
		case w == "canary":
			e.Release.Canary = true
		case w == "external":
			e.Release.External = true
		case w == "fallback":
			e.Release.Fallback = true
		case w == "limited":
			e.Release.Limited = true
		case w == "config":
			e.Release.Config = true
		case w == "own":
			e.Release.Own = true
		case w == "quickly":
			e.Quick = true
		case w == "retry":
			e.Retry = true
		case w == "maintenance":
			e.Maintenance = true
		case e.Kind == TimerFired:
			e.Timer = Timer(slices.Index(timerNames[:], w))
			if e.Timer == TimerSettle {
				e.Gen = p.s.Next.ID
			}
		case e.Kind == HaltAsked:
			e.Halt = Halt(slices.Index(haltNames[:], w))
		default:
			p.t.Fatalf("word %d of %q is not understood", i+1, text)
		}
	}
	return e
}

func scan(w, format string, n *uint64) bool {
	k, err := fmt.Sscanf(w, format, n)
	return k == 1 && err == nil
}

// serving is an app with revision 1 awake in generation 1.
func serving(t *testing.T, attributes string) *play {
	t.Helper()
	p := &play{t: t}
	p.feed(p.event("Committed r1 " + attributes))
	p.finish()
	if p.s.Cur.Stage != Serving || p.s.Reported != 1 || p.s.Attempt.Gen != 0 {
		t.Fatalf("revision 1 does not serve: %+v", p.s)
	}
	return p
}

// asleep is the same app, put to sleep.
func asleep(t *testing.T, attributes string) *play {
	t.Helper()
	p := serving(t, attributes)
	p.feed(Event{Kind: SleepAsked})
	p.finish()
	if p.s.Slot.State != SlotAsleep || p.s.Cur.ID != 0 {
		t.Fatalf("it does not sleep: %+v", p.s)
	}
	return p
}
