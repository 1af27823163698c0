// Package store keeps what must survive: commits (releases, the three
// pointers, outcomes, the failure book, generation numbers) and runtime
// records (what is running right now), plus the lock that makes one usher the
// only owner of a state directory.
//
// The two classes of durability are two interfaces, because they need to
// survive different things:
//
//   - [Commits] survive a power cut. Every Update, Delete and Generations call
//     that returned nil was synced to the disk before it returned.
//   - [Runs] survive kill -9 of usher, not a power cut: processes die with the
//     machine. One small file per generation, replaced by rename, never synced,
//     stamped with the boot id and discarded when that differs.
//
// Guarantees of Commits, each held by the conformance suite in storetest:
//
//   - An Update is one transaction: a reader sees the record before it or
//     after it, and so does the next start after a crash.
//   - Writers compare: a version that is not the current one gives
//     [ErrConflict] and changes nothing. Versions of one name never repeat, not
//     even after a Delete.
//   - Reported ≤ Good ≤ Desired always; Desired, Reported and Restarts never
//     shrink; a release that has run stays marked so; what a revision runs
//     never changes. A record that breaks a rule gives [ErrInvalid] and changes
//     nothing.
//   - Generation numbers are never handed out twice.
//   - The last KeepReceipts receipts of an app are kept beside its record, which
//     therefore stays small. A damaged receipt is left out and costs nothing else.
//   - A record that was read may be changed freely by its reader: nothing is
//     shared with the store.
//   - A damaged database is moved aside, never overwritten, and a fresh one is
//     opened; [Bolt.Damage] says so until usher is restarted. A database that
//     cannot be opened for another reason (permission, full disk, written by a
//     newer usher) is left alone and is an error.
//
// What callers may not assume: an error of a write that is none of
// ErrConflict, ErrNotFound, ErrInvalid, ErrClosed or the callback's own says
// that the disk failed, and leaves open whether the write took place. Read the
// record again before deciding anything.
package store
