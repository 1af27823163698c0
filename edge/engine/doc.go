// Package engine stands before the edge's core and moves the bytes: listeners,
// client connections, request and response bodies, upgrades.
//
// Event loops serve what is quick (loop.go), a goroutine each all other connections,
// with edge/http1 as their parser. It is not a general HTTP server, because four things
// a proxy needs cannot be had from one
// (fasthttp's was looked at, see docs/architecture.md): strictness about the
// very bytes of a head; interim answers (1xx) passed on; news of a client that
// leaves while its request waits for an app; a half-close that is not taken for
// leaving. fasthttp answers where usher speaks for itself (ServeAsk).
//
// Guarantees:
//   - Nothing is forwarded that http1 does not accept, and the connection ends
//     with the first thing it does not.
//   - Bodies stream both ways with back-pressure; nothing is buffered whole.
//   - An answer that is not valid HTTP, breaks off, or is followed by surplus
//     bytes is 502 if its head has not gone out; else it ends in a reset, never
//     in a neat ending. It is never stored, and its connection never used again.
//   - Answers to pipelined requests go out in order, each at once.
//   - A request is sent a second time only on proof that the first try delivered
//     nothing, or if it is idempotent, without a body, and met a connection that
//     had gone stale. No byte of a body that was dropped is ever needed again.
//   - A client that leaves while its request is parked is never forwarded. The end
//     of its sending side is no leaving, except for event streams. The two look
//     alike; so while its app is waited for, a client is sent bytes that mean
//     nothing (knock.go), and who has left answers with a reset. HTTP/1.0 has none,
//     so a request that is parked is left with the end, and one that the app has
//     when TCP's keep-alive fails.
//   - 100 Continue is sent at most once, and to a client that waits for it not
//     before an app has the head.
//   - A stream that others wait for, as in a hold, ends at once: neither its client
//     nor its app can put that off by saying or taking nothing.
//   - An idle connection holds no buffer, and no goroutine, at the latest after a
//     moment.
//   - A loop never waits for anything but events.
//   - No request arms a timer: one sweeper per server looks at all deadlines, so
//     they are met within sweepEvery.
//   - Who is connected is bounded, for all, for a listener and for each client.
//     What is beyond waits to be accepted, or is refused if its client has too
//     many; what is connected already is never closed for it.
//   - A client that sends or takes too little is given up. What counts is the time
//     in which the client is waited for: nobody pays for an app that is slow.
//   - Shutdown returns by its context's end with no goroutine left.
//
// What Shutdown does not do: wait for upgraded connections and event streams;
// they are ended politely at its beginning.
package engine
