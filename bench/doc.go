// Package bench drives open-loop load at a running usher, or at any other
// HTTP/1.1 server, and says what a client saw.
//
// Guarantees:
//
//   - The schedule is fixed before the first request and depends on the rate,
//     the duration and the seed alone. A server that stalls does not slow it
//     down, and latency counts from the scheduled time, not from the moment a
//     connection became free: time that a request waited inside the load tool
//     because the server was slow is part of its latency.
//   - Nothing is retried. A request that could not be sent, or whose answer did
//     not arrive whole, is a failure of its kind and is counted once.
//   - Every scheduled request is accounted for: answered, failed, or, when the
//     caller ended the run early, cut.
//   - The tool measures itself: Result.Lag says how late requests left although
//     a connection was free, so that a busy machine cannot pass for a slow
//     server.
//   - A keep-alive connection that the server has closed is noticed before a
//     request is written to it, as any careful client would; the new connection
//     is part of that request's latency.
//
// Callers may not assume that the server sees Rate requests at once while it
// stalls: at most Connections are on the wire, the others wait their turn (and
// their waiting counts).
//
// The package imports no other part of usher. What a scenario needs from the
// control plane it asks for through Admin.
package bench
