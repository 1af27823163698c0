// Package process starts, names, watches, adopts and stops the main process of
// a generation. It knows pids, pidfds, credentials and exec; what holds the
// process's descendants is package cgroup.
//
// Every app starts as a child that is forked inside the generation's group,
// reports that it is there, and does nothing until one byte, the go-byte,
// arrives. So the caller can make the pid durable before anything of the build
// runs.
//
// A child is forked from `usher __exec` ([child]), the forker: a copy of the usher
// binary with next to nothing in its memory, which is started for the first child
// and lives as long as usher. The usher binary needs some 300 page faults to get
// to where it could wait for a go-byte, more than most apps need to start; a fork
// of it that has done so needs fewer than ten. A start, step by step:
//
//  1. usher sends the forker three descriptors: the child's end of a new channel,
//     its log, and the directory of its cgroup, if it has one.
//  2. The forker forks, into that cgroup and as a child of usher's, and closes them.
//  3. The child closes all but its own descriptors, says over the channel who it is,
//     with its pidfd, and enters a session of its own.
//  4. usher identifies it and sends its order; the child checks it and says so.
//  5. The go-byte; the exec closes the channel.
//
// A kill -9 of usher ends all channels: the forker exits, and so does each child
// that has not got the go-byte, whatever it was given by then.
//
// Guarantees:
//
//   - Between [Forker.Prepare] and [Pending.Go] nothing of the build runs: no code,
//     no preloaded library, no variable of the app's environment. If usher dies in
//     between, the child sees the end of its channel and exits by itself.
//   - An error that wraps [ErrNotExecuted] proves that nothing of the build ran.
//   - After a failed Prepare, Go or Adopt and after [Pending.Abort] no process
//     is left behind by that call and no descriptor is open.
//   - A forker that has died, that does not answer, or that has limits, a nice value,
//     an OOM score, processors or a cgroup other than usher's is replaced by the
//     start that finds it so. Its children do not need it. It is of the binary that
//     usher itself is of, whatever has become of the file.
//   - [Launch].Yields changes nothing that the app can ask for by a system call: not
//     its nice value, nor its scheduling class.
//   - A process is named by pid, start time and boot id ([Identity]), and
//     signalled only through its pidfd: a recycled pid is never touched.
//   - A child is reaped exactly once, by its watcher; callers must not wait for
//     it. Nothing polls by time: a watcher is a goroutine that sleeps in the
//     runtime's poller until the kernel reports the exit.
//   - The forker never sees an order. So nothing that was given to one app is in the
//     memory of another's process, nor in its own.
//   - The app inherits its standard descriptors (/dev/null and its log), its
//     group and its own session, and nothing else: no environment, no other
//     descriptor, no ignored or blocked signal, no supplementary group, no
//     ambient capability; its umask is 022.
//
// What callers may not assume: that a process whose Exited is true has been
// reaped already (Done says so); that the exit of the main process means that
// the generation is gone (the group says so).
package process
