// Package cache is a shared HTTP cache after RFC 9111, kept in memory and cut
// into spaces, one per app and cache generation. It knows no proxy and no HTTP
// framework: a caller shows it heads through [Header] and bodies as bytes.
//
// Guarantees:
//
//   - Isolation. An object is found only through the space it was stored in. A
//     closed space answers nothing and takes nothing; a store that ends after
//     its space was closed lands nowhere.
//   - Purge is a line in time. What was fetched for a request that was looked
//     up before a purge (or before an invalidation of its URI) is not stored
//     after it, even if its head arrives later. This needs the same *Request
//     for Lookup and Begin.
//   - Bounded in bytes. Stored objects and unfinished fills together never
//     exceed Config.MaxBytes, overhead included; unfinished fills alone never
//     exceed a quarter of it. The least recently used go first. Bytes of an
//     evicted object that an answer still holds are no longer counted.
//   - Whole bodies only. A body that is short, long, or larger than
//     Config.MaxObjectBytes is not stored.
//   - Explicit freshness only (s-maxage, max-age, Expires with Date; RFC 9111
//     §4.2.1), the age a response arrived with counted against it. No heuristics, and
//     nothing stale is ever served: expired means fetch again.
//   - Conservative. Never stored: an answer to a request with Authorization,
//     with a body, or for an upgrade; an answer with Set-Cookie, private,
//     no-store or no-cache (qualified forms too), Vary: *, an event stream, a
//     malformed or repeated lifetime, or a status other than 200, 203, 204,
//     301, 308, 404 and 410.
//   - No coalescing. Requests never wait for each other: concurrent misses are
//     all misses.
//   - Lookup and Answer allocate nothing, 206 and 416 excepted. A lookup takes
//     one lock out of Config.Shards, for one map access.
//
// Callers may not assume that a committed object is found later (it may have
// been evicted), may not change the bytes of an [Object], and must end every
// [Fill] with Commit or Abort, else its bytes stay reserved.
//
// Not done, on purpose: serving stale, revalidating what has expired, storing
// 206 or joining partial contents, the request directives max-stale and
// only-if-cached, and invalidating the URIs in Location and Content-Location
// (RFC 9111 §4.4 allows leaving them).
package cache
