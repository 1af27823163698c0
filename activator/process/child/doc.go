// Package child is what `usher __exec` is: the process of an app between fork
// and exec. It does nothing of the build until it has read the go-byte.
//
// It runs in this package's init function. Go initialises packages in the order
// of their import paths, each as soon as what it imports is ready, so a package
// that imports next to nothing comes before all that make usher a server, and the
// child never pays for those. That is more than half of what a start costs
// usher's machine. Hence:
//
//   - A binary that imports this package, however deep, is a child when its first
//     argument is [Verb], and never gets to its main.
//   - Nothing is imported here but what os needs anyway; a test sees to that. If
//     the order were another one, children would be slower and as right.
package child
