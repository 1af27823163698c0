//go:build race

package engine

// raceDetector: sync.Pool drops things at random under it.
const raceDetector = true
