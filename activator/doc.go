// Package activator is the control plane: it carries out what the lifecycle
// core decides. It owns processes, control groups, staged builds and durable
// state, and knows no HTTP server and no proxy.
//
// Guarantees:
//
//   - One goroutine at a time works on an app, and none while nothing happens:
//     a sleeping app costs memory only. Requests of people, answers of effects
//     and timers all pass through the app's mailbox, so every question of the
//     kind "is this still the newest" is asked in one place.
//   - Intent before effect: what is about to be done is recorded before it is
//     done, and "this release has run" is synced before its first go-byte.
//   - Nothing slow happens in the mailbox but synced commits. Starting, health
//     checks, drains and stops run beside it and come back as events.
//   - An operation outlives whoever asked for it. It is done at the switch, once
//     the report is durable.
//   - Every attempt but a wake leaves a receipt: what became of each request that
//     was accepted in its window. It looks on and decides nothing.
//   - Whoever does not own the state decides nothing: before everything that the
//     core is told, and before every commit, it is looked whether the files of the
//     state directory are still those that were opened (see package store). Lost is
//     lost: every app is fenced (see package lifecycle), changes are refused with
//     store.ErrFenced, and nothing below the state directory is touched any more. An
//     attempt's own generation is the only one that is ended. Runtime records go on:
//     the run directory has its own lock, which is held.
//   - Close leaves the apps running, and the next Open adopts them.
//
// What callers may not assume: a method that returns an Operation has committed
// what was asked for, not finished it. Watch the operation.
package activator
