package lifecycle

import (
	"fmt"
	"strings"
)

var eventNames = [...]string{
	"none", "Committed", "RestartAsked", "WakeAsked", "SleepAsked", "PauseAsked", "ResumeAsked", "HaltAsked", "Exited",
	"VerifyDone", "RaiseDone", "IntentDone", "PrepareDone", "RanDone", "GoDone", "HealthDone", "SwitchingDone", "SwitchDone", "ReportDone",
	"DrainDone", "StopDone", "SleepDone", "RestoreDone", "FallbackDone", "TimerFired",
}

var effectNames = [...]string{
	"none", "Verify", "RaiseLimit", "Intent", "Prepare", "RecordRan", "Go", "Health", "RecordSwitching", "Switch", "RecordSwitched", "Report",
	"Place", "CloseStreams", "Drain", "CutDrain", "Stop", "TrySleep", "Forget", "RestoreLimit", "Arm", "Disarm",
	"RecordOutcome", "CommitFallback", "Gone",
}

var (
	timerNames  = [...]string{"none", "back-off", "sweep", "settle", "idle"}
	resultNames = [...]string{"ok", "build failed", "refused"}
	haltNames   = [...]string{"none", "shutdown", "stop", "remove", "fence"}
)

// String is for the traces of the tests.
func (e Event) String() string {
	s := eventNames[e.Kind]
	switch {
	case e.Kind == Committed:
		s += fmt.Sprintf(" r%d", e.Release.Rev)
	case e.Kind == HaltAsked:
		s += " " + haltNames[e.Halt]
	case e.Kind == TimerFired:
		s += " " + timerNames[e.Timer]
	case e.Gen != 0:
		s += fmt.Sprintf(" g%d", e.Gen)
	}
	switch {
	case e.Result != OK:
		s += " " + resultNames[e.Result] + ": " + e.Reason.String()
	case e.Quick:
		s += " quickly"
	case e.Maintenance:
		s += " maintenance"
	case e.Retry:
		s += " retry"
	}
	return s
}

// String is for the traces of the tests.
func (e Effect) String() string {
	s := effectNames[e.Kind]
	if e.Gen != 0 {
		s += fmt.Sprintf(" g%d", e.Gen)
	}
	if e.Rel.Rev != 0 {
		s += fmt.Sprintf(" r%d", e.Rel.Rev)
	}
	switch e.Kind {
	case Place, Switch, TrySleep:
		s += " " + e.Slot.String()
	case Arm, Disarm:
		s += " " + timerNames[e.Timer]
	case RecordOutcome:
		s += fmt.Sprintf(" %s %s: %s", e.Mode, e.Cause, e.Outcome)
		if e.Reason != ReasonNone {
			s += " (" + e.Reason.String() + ")"
		}
		if e.Held {
			s += " held"
		}
		if e.Executed {
			s += " executed"
		}
	}
	if e.Level != 0 {
		s += fmt.Sprintf(" level %d", e.Level)
	}
	if e.Kill {
		s += " kill"
	}
	if e.Short {
		s += " short"
	}
	if e.Quiet {
		s += " quiet"
	}
	return s
}

// String is for the traces of the tests.
func (s Slot) String() string {
	t := s.State.String()
	if s.Gen != 0 {
		t += fmt.Sprintf(" g%d", s.Gen)
	}
	if s.Cache.Rev != 0 {
		t += fmt.Sprintf(" cache r%d.%d", s.Cache.Rev, s.Cache.Restart)
	}
	if s.Reason != ReasonNone {
		t += " (" + s.Reason.String() + ")"
	}
	return t
}

func (e *Effects) String() string {
	parts := make([]string, e.n)
	for i := range e.n {
		parts[i] = e.list[i].String()
	}
	return strings.Join(parts, "; ")
}

var procNames = [...]string{"no process", "waiting", "running", "exited"}

func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "desired r%d good r%d reported r%d", w.d.desired, w.d.good, w.d.reported)
	if !w.up {
		b.WriteString("; usher is down")
	}
	fmt.Fprintf(&b, "; edge: %s", w.slot)
	for i := range w.ng {
		g := &w.gens[i]
		fmt.Fprintf(&b, "; g%d r%d %s, recorded %s", g.id, g.rev, procNames[g.proc], phaseNames[g.phase])
	}
	fmt.Fprintf(&b, "\n  core: %+v", w.s)
	return b.String()
}
