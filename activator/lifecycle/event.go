package lifecycle

// EventKind names what happened.
type EventKind uint8

// The kinds of event: first what people and the world ask, then answers to
// effects (same generation), then timers.
const (
	EventNone EventKind = iota

	Committed    // a release became desired: Release
	RestartAsked // Retry: and lifts a held or backed-off app
	WakeAsked
	SleepAsked // by the idle timer or an owner
	PauseAsked // Maintenance says which kind
	ResumeAsked
	HaltAsked // Halt says which kind
	Exited    // a process ended by itself; Quick: soon after its start

	VerifyDone
	RaiseDone
	IntentDone
	PrepareDone
	RanDone
	GoDone
	HealthDone
	SwitchingDone
	SwitchDone
	ReportDone
	DrainDone
	StopDone // OK = proven empty
	SleepDone
	RestoreDone  // of the app's limit; there is at most one under way
	FallbackDone // not OK: the good build was not committed again; there is at most one under way

	TimerFired // Timer says which
)

// Result is how a fallible effect ended.
type Result uint8

// The results. Only BuildFailed counts against a build.
const (
	OK Result = iota
	BuildFailed
	Refused // not the build's fault; nothing of it ran because of this
)

// Timer names the timers of an app.
type Timer uint8

// The timers.
const (
	TimerNone Timer = iota
	TimerBackoff
	TimerSweep
	TimerSettle
	TimerIdle // fires as SleepAsked, after the runner has looked at the edge
)

// Event is one input of Step.
type Event struct {
	Kind        EventKind
	Gen         GenID   // answers, Exited, TimerSettle
	Result      Result  // answers
	Reason      Reason  // answers that are not OK
	Release     Release // Committed
	Halt        Halt    // HaltAsked
	Timer       Timer   // TimerFired
	Fresh       GenID   // a number never used before; needed on every event
	Maintenance bool    // PauseAsked
	Retry       bool    // RestartAsked
	Quick       bool    // Exited
	MayHaveRun  bool    // GoDone, not OK: it is not proven that the child never passed its go-byte
}
