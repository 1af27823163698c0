// Package upstream keeps the connections to one app, one Pool per target, and
// says after a failure what is proven about the request.
//
// Guarantees:
//   - A connection is handed out again only if the exchange before was complete
//     and clean on both sides, nothing lies unread on it. A look at the
//     socket just before the first byte shows neither a FIN nor an error nor
//     bytes that nobody asked for; otherwise nothing is sent, and the error is
//     Stale.
//   - A request that may not run twice never reuses a TCP connection that has
//     been idle for a second, nor for half as long as connections of this app
//     were seen to live: a FIN could be on its way. A unix socket refuses the
//     write of a request that its peer will never read, so there the first bound
//     does not hold.
//   - Undelivered means proven: connecting failed, or the kernel took not one
//     byte, or the peer had closed before the first write.
//   - Nothing is dialled, closed or waited for under a lock. An empty pool has
//     no goroutine; one with idle connections has a timer.
//   - There is no cap on connections unless MaxConns sets one. A Share is none: it
//     closes what is idle, and refuses only to be warmed.
//
// It holds no policy: whether a request is sent again is decided by MayRetry,
// a pure function, from what the caller knows besides.
package upstream
