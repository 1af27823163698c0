// Package child is what `usher __exec` is: the forker, from which the processes of
// all apps are forked, and such a process between fork and exec. That does nothing of
// the build until it has read the go-byte.
//
// The forker runs in this package's init function and never gets to main. Go
// initialises packages in the order of their import paths, each as soon as what it
// imports is ready, so a package that imports next to nothing comes before all that
// make usher a server, and what a forker has in memory stays small: it is what each
// fork copies the page tables of. Hence nothing is imported here but what os needs
// anyway; a test sees to that.
//
// A fork of a Go program has the one thread that forked and no scheduler, collector
// or lock that can be relied on. So a child lives on raw system calls and on an order
// that usher has laid out as the kernel wants it (wire.go), and all it does is in
// fork.go, under rules that a test enforces. What it reads it reads after the fork:
// the forker never sees what a child is to do, so nothing of one app can be in the
// memory of another's process.
package child
