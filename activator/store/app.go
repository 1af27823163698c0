package store

import (
	"encoding/json"
	"time"
)

// How much history a record keeps. The releases that a pointer names are kept
// beyond it.
const (
	KeepReleases = 20
	KeepOutcomes = 20
)

// What a release runs.
const (
	KindArtifact = "artifact" // a build that usher staged and starts
	KindTarget   = "target"   // an address whose process usher does not own
)

// App is the durable record of one app. The zero value, but for its name, is
// an app that nothing was ever committed for.
type App struct {
	// Name and Version belong to the store: what an Update callback writes
	// into them is ignored. Version grows by one with every Update.
	Name    string `json:"name"`
	Version uint64 `json:"version"`

	// The three pointers are revisions, 0 = none yet. Always
	// Reported ≤ Good ≤ Desired; Desired and Reported never shrink. Each
	// names a release in Releases.
	Desired  uint64 `json:"desired,omitempty"`  // last committed
	Good     uint64 `json:"good,omitempty"`     // last that served or settled
	Reported uint64 `json:"reported,omitempty"` // last that was reported as done

	// Releases is ordered by revision, oldest first, and bounded: the last
	// KeepReleases and whatever a pointer names.
	Releases []Release `json:"releases,omitempty"`

	// FileValue is the artifact or target that the config file named when it
	// was last applied; only a different value there makes a new revision.
	FileValue string `json:"file_value,omitempty"`

	// Failures is the failure book, by revision; entries whose release has
	// left the history leave with it.
	Failures map[uint64]Failure `json:"failures,omitempty"`

	// Restarts counts the restarts that were acknowledged, RestartsDone how
	// many of them were carried out; the difference is owed.
	Restarts     uint64 `json:"restarts,omitempty"`
	RestartsDone uint64 `json:"restarts_done,omitempty"`

	// DownHeld is a revision. Nothing up to it is started: a newer one has run in
	// hold mode and may have changed what only one may write, or it has failed in
	// that mode itself. A retry lowers it to what is before Desired.
	DownHeld uint64 `json:"held_down_to,omitempty"`

	Paused      bool `json:"paused,omitempty"`
	Maintenance bool `json:"maintenance,omitempty"`
	Removed     bool `json:"removed,omitempty"` // taken out, to be deleted once it has drained

	// Outcomes holds the last KeepOutcomes, oldest first.
	Outcomes []Outcome `json:"outcomes,omitempty"`
}

// Release is one revision of an app's desired state. Revision, Kind, Digest,
// Target and DemandHold never change once committed.
type Release struct {
	Revision     uint64          `json:"revision"`
	Kind         string          `json:"kind"` // KindArtifact or KindTarget
	Digest       string          `json:"digest,omitempty"`
	Build        string          `json:"build,omitempty"`         // short name for people
	ArtifactKind string          `json:"artifact_kind,omitempty"` // "file" or "dir"
	Target       string          `json:"target,omitempty"`        // address, for KindTarget
	Spec         json.RawMessage `json:"spec,omitempty"`          // opaque here
	DemandHold   bool            `json:"demand_hold,omitempty"`
	Cause        string          `json:"cause,omitempty"`
	CreatedAt    time.Time       `json:"created_at,omitzero"`
	By           string          `json:"by,omitempty"`

	// Ran says that bytes of this release may have run: it may have touched
	// data. It is set before the first go-byte and never cleared.
	Ran bool `json:"ran,omitempty"`

	// Restarts is how many restarts had been asked for when usher committed it by
	// itself: who has asked for one since has asked for this release.
	Restarts uint64 `json:"restarts,omitempty"`

	// WasGood says that Good has pointed to this release. The store sets it with
	// the transaction that moves the pointer; it is never cleared.
	WasGood bool `json:"was_good,omitempty"`
}

// Failure is what the failure book knows about one revision.
type Failure struct {
	Count    int       `json:"count"`
	Last     time.Time `json:"last,omitzero"`
	Reason   string    `json:"reason,omitempty"`
	HeldDown bool      `json:"held_down,omitempty"` // not started again by itself
}

// Outcome is how one attempt ended.
type Outcome struct {
	Attempt    uint64        `json:"attempt"`
	Revision   uint64        `json:"revision"`
	Generation uint64        `json:"generation,omitempty"` // 0 = none was numbered
	Restart    uint64        `json:"restart,omitempty"`    // how many restarts had been asked for when it began
	Cause      string        `json:"cause,omitempty"`
	Mode       string        `json:"mode,omitempty"`   // the mode it really ran in
	Canary     bool          `json:"canary,omitempty"` // its release is one that settles before the switch
	Outcome    string        `json:"outcome"`
	Reason     string        `json:"reason,omitempty"`
	Executed   bool          `json:"executed"` // false only if proven that nothing of the build ran
	At         time.Time     `json:"at,omitzero"`
	Drain      time.Duration `json:"drain,omitempty"` // nanoseconds
	// Receipt says that a receipt of the attempt is stored later: without one its
	// window was lost.
	Receipt bool  `json:"receipt,omitempty"`
	Tries   Tries `json:"tries,omitzero"`
}

// Tries tells of attempts in a row that ended alike and are told as one, the newest
// of them. The zero value: there was only that.
type Tries struct {
	N     int       `json:"n"`
	First uint64    `json:"first"` // attempt
	Since time.Time `json:"since"` // when the first of them ended
}

// Replaced says whether an attempt is one of those before newest that are told with
// it.
func (t Tries) Replaced(attempt, newest uint64) bool {
	return t.N > 1 && t.First <= attempt && attempt < newest
}

// Release returns the release with that revision, and whether the history has
// it. The pointer is into a.Releases.
func (a *App) Release(revision uint64) (*Release, bool) {
	for i := range a.Releases {
		if a.Releases[i].Revision == revision {
			return &a.Releases[i], true
		}
	}
	return nil, false
}
