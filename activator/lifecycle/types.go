package lifecycle

// Revision numbers the releases of one app. It only grows; 0 means none.
type Revision uint64

// GenID numbers generations across the box. It is never reused; 0 means none.
type GenID uint64

// Mode is how an app moves from one generation to the next.
type Mode uint8

// The swap modes.
const (
	Overlap Mode = iota // the successor starts beside the incumbent
	Hold                // requests are parked; the incumbent is proven gone before the successor runs
)

// Cause is why an attempt exists.
type Cause uint8

// The causes of an attempt.
const (
	CauseNone    Cause = iota
	CauseRelease       // a new revision was committed
	CauseInstall       // the first revision of an app
	CauseRetry         // an earlier attempt was put off or failed, and its time has come or its owner asks again
	CauseRestart       // the owner asked for a fresh process of the same release
	CauseConfig        // the config file changed what is desired
	CauseWake          // a request, or an owner, wants a sleeping app
)

// Outcome is how an attempt ended.
type Outcome uint8

// The outcomes.
const (
	OutcomeNone Outcome = iota
	Done                // the attempt's generation is current
	Failed              // the build failed; an incumbent still serves
	Abandoned           // superseded or refused; not the build's fault
	Down                // nothing serves
	Restored            // the good build, committed again by usher itself after a failed hold, serves; nobody had asked for that
)

// Reason says in one word why something ended as it did.
type Reason uint8

// The reasons. Those up to ReasonUnhealthy are the build's fault.
const (
	ReasonNone Reason = iota

	ReasonExecFailed // the artifact could not be executed
	ReasonExited     // the process ended before it was healthy
	ReasonUnhealthy  // no good health check in time

	ReasonSuperseded   // a newer release or restart replaced the attempt
	ReasonPaused       // the app was paused
	ReasonRemoved      // the app was removed
	ReasonStopped      // the app was told to stop
	ReasonShutdown     // usher is shutting down
	ReasonFenced       // usher does not own its state any more
	ReasonMismatch     // the staged bytes are not the bytes that were committed
	ReasonNotStarted   // the process could not be set up (cgroup, user, port, fork)
	ReasonNotRecorded  // a durable record could not be written
	ReasonNotLimited   // a limit could not be applied
	ReasonNotFresh     // the generation's group held something before it began
	ReasonNotReported  // switched and serving, but the report could not be recorded yet
	ReasonUnproven     // a stop could not be proven; a process may still be alive
	ReasonCrashed      // a serving process ended by itself
	ReasonBackoff      // repeated failures; the next start waits
	ReasonHeld         // what is desired has failed, and what is good may not be started in its place
	ReasonVanished     // a process that waited at its go-byte is gone
	ReasonUnsupervised // the listening socket does not belong to the generation
)

// Stage is where a generation stands. The order is the order of a start
// followed by the order of an end.
type Stage uint8

// The stages of a generation.
const (
	StageNone     Stage = iota
	Verifying           // the staged bytes are being hashed
	Raising             // the limit that the app's generations share is being raised for two
	Intending           // the intent is being recorded
	Preparing           // the child is being set up
	Recording           // "this release has run" is being recorded
	Waiting             // the child waits at its go-byte while the incumbent stops (hold)
	Going               // the go-byte is being sent
	Checking            // the health check runs
	Settling            // it must stay alive a while (canary)
	Switching           // the point of no return is being recorded
	Switched            // the slot is being stored
	Serving             // it is current
	Draining            // switched away from; requests finish
	Stopping            // told to end; being proven empty
	Unproven            // the proof of empty is missing; the sweep goes on
	stageSentinel       // one past the last, for tables
)

// Release is what the core knows of one revision.
type Release struct {
	Rev      Revision
	Hold     bool   // every attempt to it or from it runs as hold
	External bool   // a target whose process usher does not own
	Ran      bool   // recorded: bytes of it may have run
	Own      bool   // committed by usher itself as a fallback
	Canary   bool   // must settle before the switch
	Fallback bool   // if it fails in hold mode, commit the good build again
	Limited  bool   // its generations have limits of memory or processes
	Config   bool   // committed because the config file changed
	Restarts uint32 // Own: how many restarts had been asked for when it was committed
}

// Gen is one generation. The zero value means none.
type Gen struct {
	ID       GenID
	Rel      Release
	Restart  uint32 // the restart count it was started under
	Stage    Stage
	Ran      bool // the go-byte was sent, or that is not known
	Prepared bool // a process exists, or that is not known
	Hurried  bool // its drain was cut short
}

// Attempt is one try at moving the app to a generation (State.Next, then
// State.Cur once switched). The zero value means none is in flight.
type Attempt struct {
	Gen       GenID
	Cause     Cause
	Mode      Mode
	Desired   Revision // what was desired when it began; another now: superseded
	Stopped   bool     // hold: the incumbent was told to end
	Reporting bool     // switched; the report is being recorded
}

// SlotState is what the edge does with a request of the app.
type SlotState uint8

// The slot states.
const (
	SlotEmpty       SlotState = iota // no release yet: refused
	SlotAsleep                       // park and wake
	SlotWaking                       // park
	SlotServing                      // acquire the target
	SlotHolding                      // park
	SlotPaused                       // park
	SlotMaintenance                  // refused with the owner's page
	SlotDown                         // refused with Retry-After
	SlotRemoved                      // refused
	SlotFenced                       // refused with Retry-After: usher may start nothing any more
)

// CacheKey names a cache generation of the app: that of a release, or of one
// restart of it.
type CacheKey struct {
	Rev     Revision
	Restart uint32
}

// Slot mirrors what the edge's pointer of the app holds.
type Slot struct {
	State  SlotState
	Gen    GenID    // SlotServing only
	Cache  CacheKey // also while nothing runs: hits do not wake
	Reason Reason   // SlotDown
	Level  uint8    // SlotDown: back-off level, 0 = until something is done about it
}

// Limit is how far the limit that the app's generations share is from that of
// the one that is current.
type Limit uint8

// The limits.
const (
	LimitOne       Limit = iota // that of the current generation
	LimitRaised                 // it may be that of two
	LimitRestoring              // it is being restored
	LimitStuck                  // the restore failed; the sweep tries again
)

// Halt is a barrier that cancels what is in flight and starts nothing more. A later
// one outdoes those before it.
type Halt uint8

// The halts.
const (
	HaltNone     Halt = iota
	HaltShutdown      // usher ends; the app keeps running
	HaltStop          // usher ends and takes its apps with it
	HaltRemove        // the app is removed
	HaltFence         // usher does not own its state any more; the app is left as it is
)

// ends says that the app is to end, too.
func (h Halt) ends() bool { return h == HaltStop || h == HaltRemove }

// maxBackoff is where the back-off level saturates.
const maxBackoff = 3

// State is everything the core knows of one app.
type State struct {
	Desired  Release  // last committed
	Good     Release  // last that served
	Reported Revision // last that was reported

	Held     Revision // the failure book passes over it
	DownHeld Revision // nothing up to it is started: a newer one has run in hold mode, or it failed in it itself
	Deferred Revision // passed over until the back-off timer fires
	Stalled  bool     // while one was deferred the other one failed too: both wait for the timer
	Restarts uint32   // restarts asked for
	Cache    CacheKey // the cache generation of what served last

	Cur     Gen // serving, or on its way out with nothing in its place yet
	Next    Gen // being started, or an attempt's remains
	Old     Gen // retiring
	Attempt Attempt
	Slot    Slot
	Limit   Limit

	Why         Cause // why the next attempt will exist; none = a wake
	WakeWanted  bool  // somebody waits for the app
	StartWanted bool  // a release or a retry wants it started once
	FallsBack   bool  // the good build is being committed again: nobody is turned away before that is answered
	SweepArmed  bool
	ReportOwed  bool // serving, but the report is not recorded yet
	Paused      bool
	Maintenance bool
	Gone        bool // halted and nothing is left
	Halt        Halt
	Backoff     uint8 // failures in a row, saturating at maxBackoff
}
