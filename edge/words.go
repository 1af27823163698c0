//go:build !stepped

package edge

import (
	"sync"
	"sync/atomic"
	"time"
)

// What requests, switches and sleeps of one app have in common, and meet at:
// every step from one of these operations to the next is a step of its own. The
// names are there for stepped_test.go, which puts values in their place that wait
// for their turn, and so runs the code as it is in every order there is.
type (
	gateWord    = atomic.Uint64
	slotPointer = atomic.Pointer[slot]
	doorLock    = sync.Mutex
	doorSign    = atomic.Bool
)

// How parked requests are let go: see lot.go.
const (
	releaseFirst = 8
	releaseRound = 10 * time.Millisecond
)
