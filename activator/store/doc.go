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
// # Whose state it is
//
// The lock keeps a second usher out of a directory, but not an operator: one who
// moves it, removes it, puts a backup in its place or mounts something over it
// leaves the running usher with files that no path names any more, while another
// could lock what is there now, and both would act on the same apps. So:
//
//   - The database and the lock file must be the files that their paths name, by
//     device and inode. That is looked at right before and right after every
//     commit, and whenever a caller asks ([Commits].Owned). A write that returned
//     nil is in the database that was there. One that went to it and was not there
//     any more right after gives [ErrMayHold] with the error of the fence.
//   - What was lost once stays lost: every later write gives [ErrFenced], also
//     when the files come back, because nobody can say what was done with them
//     meanwhile. Reads go on, from what was opened. Only a new Lock and a new Open
//     end it.
//   - Only proof counts: another file, or none. A disk that does not answer, or a
//     directory that may not be read, is not another owner.
//
// A database that another usher has taken over under its own path needs no number
// to be told: the kernel's locks on both files let nobody in while this usher has
// them open. The run directory is no part of this: its records name processes of
// this boot, and its own lock stays held.
//
// # What callers may not assume
//
// An error of a write that is none of ErrConflict, ErrNotFound, ErrInvalid,
// ErrClosed, ErrFenced or the callback's own says that the disk failed, and leaves
// open whether the write took place; so does any that is ErrMayHold. Read the record
// again before deciding anything.
package store
