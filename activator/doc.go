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
//   - Close leaves the apps running, and the next Open adopts them.
//
// What callers may not assume: a method that returns an Operation has committed
// what was asked for, not finished it. Watch the operation.
package activator
