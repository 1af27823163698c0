// Package lifecycle decides everything that happens to one app: when it is
// woken, how it moves to a new build, when an old generation is retired, what
// a crash leads to and when the app may sleep.
//
// It is a pure, deterministic state machine:
//
//	Step(state, event) → (state, effects)
//
// What a caller may rely on:
//
//   - There is no clock, no I/O, no goroutine, no lock and no random number in
//     this package. Time and results come in as events; timers are armed by an
//     effect and fire as an event, at any time.
//   - State, Event and Effect are comparable values without pointers, so a
//     state can be a map key and every reachable state can be visited.
//   - Effects of one step are carried out in order. A fallible effect is
//     answered by exactly one event of the matching kind with the same
//     generation; until then nothing that depends on it is emitted.
//   - An answer that nobody waits for, such as one that names a generation the
//     state no longer knows, has no effect but its clean-up.
//   - The machine is level triggered: after every event it compares what is
//     wanted (the desired release unless the failure book passes over it, then
//     the good one) with what runs, and begins at most one attempt. So a newer
//     release, a restart that is owed and a wake are one rule, not three.
//
// What a caller must do:
//
//   - Feed events of one app one at a time, and give every event a Fresh
//     generation number that was never used before. Step uses it only when it
//     begins an attempt; State.Next.ID tells. Without one (0) the sweep tries
//     again, and an answer that nobody waits for does not.
//   - Carry out RaiseLimit, Intent, RecordRan, RecordSwitching, Switch, Report,
//     TrySleep, RestoreLimit and CommitFallback at once, and feed their answers
//     before any other event: requests are parked for a fallback until its answer.
//     Should something be asked between a Switch and its answer all the same, it
//     takes effect with the answer.
//   - Verify the staged bytes in Prepare, before anything else of it, if Verify was
//     not asked for that generation: in a wake it is not.
//   - Make what people ask durable before it is fed. The record of a retry also
//     clears the failure book, and lowers DownHeld to what is before Desired.
//   - Keep the DownHeld of an effect in the record that the effect is about. It is
//     recorded with a run before the go-byte, and may be taken back only by the outcome.
//   - Say Limit: LimitRaised to Recover unless it is known that the limit is that of
//     one generation.
//   - Call a drain off when RecordSwitched names its generation: the parked went
//     back to the incumbent.
//
// # Barriers
//
// A pause, a halt (shutdown, stop, remove) and a fence are asked once and hold for
// every decision after them. Each calls off what is in flight through its member:
// the attempt is abandoned for the barrier's own reason, whatever its answers say,
// executed as its go-byte says, and its generation is stopped and proven empty.
// Nothing begins beyond it, and a halt answers Gone when what it waits for has left.
//
// A fence (HaltFence) says that usher does not own its state any more, so that
// another may act on the same app. It is a shutdown that ends nothing, and the last
// word: no other halt, and nothing else that people ask, comes after it. From it on
// the only generation that is stopped is the one that it calls off, and the only
// record is that a generation which was to be ended serves on. Nothing is started,
// put to sleep, drained, switched to, committed, reported, or restored. What serves
// serves on until it ends by itself; every other request is refused (SlotFenced),
// but to an app that its owner has closed. Whoever owns the state next finds what
// runs, and a start of usher is the only way on.
//
// # One wake
//
// Wake → (Verify) → Intent → Prepare → (RecordRan) → Go → Health → RecordSwitching →
// Switch → RecordSwitched. The slot parks requests (waking) until Switch.
//
// # One overlap swap
//
// Committed → Verify → (RaiseLimit) → Intent → Prepare → RecordRan → Go → Health →
// RecordSwitching → Switch → RecordSwitched → Report → outcome done; beside it
// Drain and Stop of the generation that was switched away from, and RestoreLimit
// when it is gone.
//
// # One hold swap
//
// Committed → Verify → (RaiseLimit) → Intent → Prepare → RecordRan (everything that can
// be refused has been asked by now; the child waits at its go-byte) → Place(holding) →
// Drain and Stop of the incumbent, proven empty → Go → Health → … as above. Two
// generations never run at once.
//
// From RecordRan to the go-byte the record says more than is true: the release has not
// run, and all that is older, the incumbent's release too, is held down on record and
// not in State.
//
//   - An attempt that ends meanwhile is executed = false, and its outcome is recorded
//     with the DownHeld of State: what it was to take over from serves on, or is started
//     again, and may be woken later. That the release is marked as Ran stays, with Good
//     too if that one was to be restarted; it blames nobody, and only saves the next
//     start of it a record.
//   - If usher crashes meanwhile the child ends. The incumbent is adopted if it is not
//     on record yet that it retires, and what serves is not held down (Recover). Else
//     what is desired is started: it is newer than all that is held down. Should the
//     box refuse that one too, or nothing of it run, the older ones stay held down,
//     because nobody knows any more that it never ran. An outcome that could not be
//     recorded is the same to the next start.
//
// What may still be refused after the stop: the go-byte, if the child was killed while
// it waited or the kernel has no room to execute anything (nothing ran: the incumbent's
// release is started again), and RecordSwitching, if the run directory fills up in just
// that time (the build ran, so the app is down and tries again).
//
// # What is checked
//
// The tests visit every state that this code and a model of its environment (what
// is durable, what is alive, what is under way, one request, one cache entry) can
// reach within their bounds, and ask the invariants of the design in each; every
// invariant is shown to catch a deliberately wrong variant of Step or Recover. Every
// step is asked what the controllers of the design promise each other
// (Controllers in controllers_test.go) and whether it brings the app nearer to rest
// (Gap). The
// bounds are those of configs in explore_test.go, wider with USHER_EXPLORE=full.
// The same visit follows the rollout contract of rollout_test.go.
package lifecycle
