// Package process starts, names, watches, adopts and stops the main process of
// a generation. It knows pids, pidfds, credentials and exec; what holds the
// process's descendants is package cgroup.
//
// Every app starts through `usher __exec` ([child]), a copy of the usher
// binary that runs with an empty environment inside the generation's group,
// reports that it is there, and does nothing until one byte, the go-byte,
// arrives. So the caller can make the pid durable before anything of the build
// runs.
//
// Guarantees:
//
//   - Between [Prepare] and [Pending.Go] nothing of the build runs: no code, no
//     preloaded library, no variable of the app's environment. If usher dies in
//     between, the child sees the end of its channel and exits by itself.
//   - An error that wraps [ErrNotExecuted] proves that nothing of the build ran.
//   - After a failed Prepare, Go or Adopt and after [Pending.Abort] no process
//     is left behind by that call and no descriptor is open.
//   - A process is named by pid, start time and boot id ([Identity]), and
//     signalled only through its pidfd: a recycled pid is never touched.
//   - A child is reaped exactly once, by its watcher; callers must not wait for
//     it. Nothing polls by time: a watcher is a goroutine that sleeps in the
//     runtime's poller until the kernel reports the exit.
//   - The app inherits its standard descriptors (/dev/null and its log), its
//     group and its own session, and nothing else: no environment, no other
//     descriptor, no ignored or blocked signal, no supplementary group, no
//     ambient capability; its umask is 022.
//
// What callers may not assume: that a process whose Exited is true has been
// reaped already (Done says so); that the exit of the main process means that
// the generation is gone (the group says so).
package process
