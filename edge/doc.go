// Package edge decides what happens to every request: which app it is for,
// whether the cache answers, which generation it goes to, whether it waits or
// is refused. It moves no bytes; the engines in front of it do.
//
// The way of a request is a straight line. A front opens a lane (Edge.Open) and
// for each request calls Begin, then Decide; it does what the Decision says
// (answers, proxies, parks and decides again), and ends it with Finish:
//
//	listener → route → slot → cache → target (or the lot) → app → Finish
//
// The control plane holds the other end. It places what an app's slot holds
// (App.Place), puts it to sleep (App.TrySleep), waits until a generation is
// empty (App.Drained), ends what does not end by itself (App.CloseStreams,
// App.Cut), and has the books kept of an attempt (App.OpenAccount).
//
// Guarantees:
//   - The switch is atomic. Every try of a request loads one immutable slot and
//     goes by it: address, build, cache generation and settings are never
//     mixed. A request that begins after Place returned sees nothing older.
//   - A target's gate is one atomic word. Nobody enters a retired target, no
//     count is lost, and that it is empty for good is told exactly once. No lock
//     is taken on the way of a request that does not park.
//   - No wake-up is lost. A request parks only while the slot it met is still
//     the app's slot, checked under the lock that lets parked requests go.
//   - Parked requests are bounded by number, bytes and time, and one client's by
//     its share of the lot. Each keeps its place in the order of arrival, and
//     gives it back the moment its client leaves.
//   - A change of one app's configuration touches nothing of another's.
//   - Every request ends exactly one way. What begins and what ends is counted
//     in different places. The books of an attempt add up exactly, whatever
//     comes and goes while they are opened and closed (Account).
//   - Decide, routing and the gate allocate nothing and never block.
//
// Callers may not assume that a Target is current once they have it: it can be
// retired at any time, and what is inside may finish.
package edge
