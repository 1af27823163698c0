// Package artifact stages the bytes that run, by digest.
//
// A [Depot] is a directory of builds. A build is an executable file or a
// directory tree. Guarantees:
//
//   - A build gets its name only when it is complete: copied into fresh
//     inodes (never linked), hashed while it was copied and again from the
//     staged bytes, synced, closed, made read-only, and then renamed in one
//     step. A crash before that leaves a temporary entry that the next Open
//     removes.
//   - The digest of a file is the SHA-256 of its bytes. The digest of a
//     directory is the SHA-256 of its manifest: one line for every regular
//     file and symbolic link, sorted by path, with type, mode & 0111, size and
//     content hash or link text. Nothing else is staged: empty directories are
//     left out, devices, sockets and pipes are refused, owners, times, set-id
//     bits and extended attributes are dropped. A file with any execute bit is
//     staged with all three.
//   - Symbolic links stay inside the tree however they are followed, through
//     other links as well.
//   - Staged files are 0444 or 0555 and directories 0555, in a depot of mode
//     0755 owned by usher: any user may read and run a build, none but usher's
//     own can change it. (Its parents must let them pass.)
//   - Verify hashes the staged bytes, or proves from the change times of their
//     inodes that they are those that it hashed last.
//   - Staging one digest twice, at the same time too, leaves one copy.
//   - When Stage or Receive has returned, no descriptor that could write to
//     the build is open in this process or in a child on its way to exec, so
//     running it does not fail with "text file busy".
//   - What Stage and Receive return is pinned: Collect leaves it alone until
//     Collect has seen it referenced once, or Unpin was called.
//
// One process owns a depot; the lock of the state directory sees to that.
package artifact
