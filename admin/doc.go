// Package admin is the administration surface of usher: an HTTP API under /v1
// on a unix socket, with a typed client in the sub-package client.
//
// It decides nothing. Everything it can do is in [Control], which the composing
// program implements; this package turns HTTP into calls of it and errors into
// problem details (RFC 9457).
//
// Guarantees:
//
//   - Every mutating call is answered with 202, a Location and an [Operation],
//     or with a problem; it is never cancelled by a client that goes away.
//   - Writers compare: an If-Match header reaches [Control] unchanged as the
//     IfMatch of the request, and a mismatch is 412 (RFC 9110 section 13.1.1).
//   - A request body with an unknown field, trailing data or another content
//     type than application/json is refused before [Control] is asked.
//   - A peer that runs under the uid of an app, and not under usher's own, is
//     refused on the unix socket. A TCP listener is served only with a token.
//   - No answer carries a CORS header; a foreign Origin, and over TCP a Host
//     that is not ours, is refused.
//   - Streams end with [Server.Shutdown]; a reader resumes with Last-Event-ID.
//
// Callers may not assume that an event stream is complete: a slow reader loses
// events. Operations are read from [Control] each time and do not suffer from it.
package admin
