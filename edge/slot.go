package edge

import (
	"strconv"
	"time"
)

// State is what an app's slot says about it.
type State uint8

// The states. What a request meets in each is in Decide.
const (
	Empty       State = iota // no release yet: refused
	Asleep                   // no process: parks and wakes the app
	Waking                   // a process boots: parks
	Serving                  // proxied to the slot's target
	Holding                  // a hold swap is under way: parks
	Paused                   // parks until resumed, wakes nothing
	Maintenance              // refused with the app's page
	Down                     // refused with Retry-After
	Removed                  // as if it had never been there
	Fenced                   // refused with Retry-After: usher may start nothing
)

// String names the state as status and logs do.
func (s State) String() string {
	switch s {
	case Empty:
		return "empty"
	case Asleep:
		return "asleep"
	case Waking:
		return "waking"
	case Serving:
		return "serving"
	case Holding:
		return "holding"
	case Paused:
		return "paused"
	case Maintenance:
		return "maintenance"
	case Down:
		return "down"
	case Fenced:
		return "fenced"
	default:
		return "removed"
	}
}

// refusal is the cause with which a placement turns requests away, or CauseNone if
// it serves them or lets them wait.
func (p *Placement) refusal() Cause {
	switch p.State {
	case Empty:
		return CauseNoRelease
	case Maintenance:
		return CauseMaintenance
	case Down:
		if p.Down != CauseNone {
			return p.Down
		}
		return CauseWakeFailed
	case Removed:
		return CauseNoSuchHost
	case Fenced:
		return CauseFenced
	default:
		return CauseNone
	}
}

// Placement is what the control plane puts into the slot of an app. It is copied.
type Placement struct {
	Revision   uint64
	Generation uint64 // of the target; 0 if there is none
	Build      string
	CacheGen   uint64 // 0: nothing is looked up or stored
	State      State
	Network    string // "tcp" or "unix"
	Address    string // "" = no target

	// Boot is how long a start of the app takes, as learned. 0 means unknown.
	Boot time.Duration
	// RetryAt is when its back-off ends; zero: it has none.
	RetryAt time.Time
	// Down is why an app that is Down refuses; CauseNone: it could not be started.
	Down Cause
	// Reason says why, for the log.
	Reason string
}

// slot is one immutable value: everything that one try of a request may see of
// its app. It is loaded once per try, so address, build, cache generation and
// settings are never mixed.
type slot struct {
	Placement
	cfg    AppConfig // of its own: a try touches one object, not two
	target *Target   // nil: none
	space  Space     // nil: the cache is not asked
	lines  []byte    // "Usher-Generation: 7\r\n…", stamped on every answer of this slot
}

func newSlot(p Placement, cfg *AppConfig, t *Target, c Cache) *slot {
	s := &slot{Placement: p, cfg: *cfg, target: t}
	if c != nil && cfg.CacheEnabled && p.CacheGen != 0 {
		s.space = c.Open(cfg.Name, p.CacheGen)
	}
	if p.Generation != 0 {
		s.lines = append(s.lines, "Usher-Generation: "...)
		s.lines = strconv.AppendUint(s.lines, p.Generation, 10)
		s.lines = append(s.lines, "\r\n"...)
	}
	if cfg.ExposeBuild && p.Build != "" {
		s.lines = append(s.lines, "Usher-Build: "+p.Build+"\r\n"...)
	}
	return s
}

// serves says that requests are let in at its target.
func (s *slot) serves() bool { return s.State == Serving && s.target != nil && !s.target.Retired() }
