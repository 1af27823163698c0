// Package cgroup holds the whole process tree of one generation, so that it
// can be signalled, killed and proven empty as one thing.
//
// There is one interface, [Group], with two implementations. A group of level
// [LevelCgroup] is a cgroup v2 directory: the kernel keeps every descendant in
// it, whatever that descendant does. A group of level [LevelSession] is a
// process session plus marks in the environment: it needs no privileges and
// proves less, because a daemon that leaves its session and clears its
// environment and whose parent is gone can no longer be recognised.
//
// Guarantees:
//
//   - No controller is needed, and only limits switch any on: generations are
//     leaf cgroups and the directories above them hold no process, so the rule
//     against processes in inner cgroups is never met.
//   - A limit that is not in effect is an error ([ErrNotLimited]), never passed over.
//   - A process that the kernel kills because memory ran out is told of
//     ([Group.OOM]), with the limit that was reached.
//   - [Tree.New] returns a directory that was made by that very call. It never
//     hands out a directory that held, or may still hold, another generation.
//   - A signal reaches a process through a pidfd whose membership was checked
//     after the pidfd was opened. A recycled pid is never signalled.
//   - [Group.WaitEmpty] returns nil only for a group that was seen empty. For a
//     cgroup it is woken by the kernel (cgroup.events); for a session it looks
//     again at growing intervals.
//   - A session never signals a process it cannot tell from a stranger. It
//     keeps counting such a process as populated and says so in the error of
//     [Group.Kill], so doubt costs a proof, never somebody else's process.
//
// What callers may not assume: that a killed group is empty before WaitEmpty
// said so; that Procs is complete while the group still forks; that a group
// that was killed can be started in again.
package cgroup
