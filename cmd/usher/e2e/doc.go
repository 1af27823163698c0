// Package e2e tests usher from outside: the real binary, real processes, real
// sockets. It has no code of its own.
//
// What every test that uses the harness (harness_test.go) also proves when it
// ends:
//
//   - every request that was accepted has ended in exactly one way, and nothing
//     is in flight, parked or streaming any more;
//   - every receipt adds up;
//   - no process of an app is left, none is a zombie, and there is no control
//     group without one;
//   - the run directory holds no socket and no record, the state directory no
//     unfinished file;
//   - usher has as many goroutines and descriptors as before the first request;
//   - usher stops with exit status 0 when it is asked to.
//
// USHER_PROGRAMS names a directory with usher and the builds of examples/hello that
// the chosen tests use, for a machine that cannot build them (.ci/vm).
//
// USHER_E2E=long makes the loops as long as the reports that the tests come from
// ask for.
package e2e
