// Package daemon puts the rooms together into a running usher: it opens the
// state directory, takes over what runs, places every slot, and only then lets
// requests in. It also adapts the rooms to each other, which import no sibling:
// the edge as the activator's front, the cache as the edge's, the activator as
// the control plane of the admin API.
//
// Guarantees:
//
//   - An invalid file, a second usher on the same state directory or a listener
//     that cannot be opened ends Run before anything of an app is touched.
//   - No request is accepted before every slot is placed.
//   - A reload takes effect whole or not at all.
//   - Run returns after in-flight requests have ended or the drain time is up;
//     apps keep running unless Options.StopApps.
package daemon
