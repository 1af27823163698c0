//go:build !race

package accesslog

// raceEnabled: the race detector makes sync.Pool forget at random.
const raceEnabled = false
