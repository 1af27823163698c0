//go:build !race

package cache

// raceEnabled: the race detector makes sync.Pool forget at random and pads
// allocations.
const raceEnabled = false
