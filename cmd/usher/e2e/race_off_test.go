//go:build !race

package e2e

// underRace says that usher is built with the race detector too.
const underRace = false
