// Package peers runs the same load against usher and against the proxies that
// are installed beside it, and says what each request costs in each of them.
//
// Guarantees:
//
//   - All stand in front of one origin on a unix socket (kamal-proxy, which
//     knows no other, over TCP) and get the same bytes from one client.
//   - Rounds are interleaved: within a round every work is done by every peer
//     before the next round, in an order that moves on with each round. Ratios
//     are taken within a round, so that what the machine does to a round it
//     does to both sides of a ratio.
//   - The CPU time of a peer is that of its whole process tree, with children
//     that were reaped; the client's and the origin's are not in it.
//   - A peer is asked once before its first load whether it answers right
//     (status, length; for the cached work, a hit). One that cannot be started
//     is left out with the reason, and the others go on.
//   - Whatever was started is ended, on success, on failure and when the
//     context ends, and the directory of the run is removed.
//   - A bar is missed only if the lower confidence bound of the ratio is above
//     it.
//
// Callers may not assume that figures of two runs compare: machines are noisy.
// Ratios within one run do.
package peers
