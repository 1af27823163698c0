package lifecycle

// EffectKind names what the runner is asked to do.
type EffectKind uint8

// The kinds of effect. The comment says which event answers it; none where
// nothing is said.
const (
	EffectNone EffectKind = iota

	Verify          // hash the staged bytes → VerifyDone
	RaiseLimit      // raise the limit that the app's generations share to that of Cur and Gen → RaiseDone
	Intent          // record the intent (runtime) → IntentDone
	Prepare         // set the child up, up to its go-byte → PrepareDone
	RecordRan       // "this release has run", and DownHeld (commit, synced) → RanDone
	Go              // send the go-byte → GoDone
	Health          // check health at the generation's own address → HealthDone
	RecordSwitching // from here recovery rolls forward (runtime) → SwitchingDone
	Switch          // look at the process a last time, store the slot, retire the other target → SwitchDone
	RecordSwitched  // runtime; best effort
	Report          // good = reported = Rev; Quiet: good = Rev and nobody is told (commit, synced) → ReportDone

	Place        // store Slot
	CloseStreams // end upgraded connections and event streams of Gen
	Drain        // wait until nothing is in flight on Gen, bounded → DrainDone
	CutDrain     // a newer attempt waits: bound the drain that runs to 5 s
	Stop         // cancel what is under way for Gen, then TERM, grace, kill, prove empty → StopDone
	TrySleep     // retire Gen's target if nothing is in flight, storing Slot → SleepDone
	Forget       // remove Gen's record and its leftovers
	RestoreLimit // lower the limit that the app's generations share to that of Gen → RestoreDone

	Arm    // Timer, Level
	Disarm // Timer

	RecordOutcome  // an attempt ended: Outcome, Reason, Cause, Mode, Executed, Held, DownHeld
	CommitFallback // commit the good build as a new revision → Committed, or FallbackDone if it is not
	Gone           // nothing is left of a halted app
)

// Effect is one thing to do, in the order given.
type Effect struct {
	Kind     EffectKind
	Gen      GenID
	Rel      Release
	Mode     Mode
	Cause    Cause
	Slot     Slot
	Outcome  Outcome
	Reason   Reason
	Timer    Timer
	Level    uint8
	Restart  uint32   // RecordOutcome: the restart count it was started under
	Executed bool     // RecordOutcome: false = proven that nothing of the build ran
	Held     bool     // RecordOutcome: the failure book holds the release from now on
	DownHeld Revision // RecordRan, RecordOutcome: nothing up to it may be started from now on
	Fallback bool     // RecordOutcome: CommitFallback follows
	Kill     bool     // Stop: no grace
	Short    bool     // Drain: hold_drain instead of drain_timeout
	Quiet    bool     // Report: a newer release is desired, and only that one is reported from now on
}

// maxEffects bounds the effects of one step.
const maxEffects = 16

// Effects is the ordered list that a step returns, without an allocation.
type Effects struct {
	list [maxEffects]Effect
	n    int
}

// Len says how many effects there are.
func (f *Effects) Len() int { return f.n }

// At returns effect i of 0 ≤ i < Len.
func (f *Effects) At(i int) Effect { return f.list[i] }

func (f *Effects) add(e Effect) {
	f.list[f.n] = e
	f.n++
}
