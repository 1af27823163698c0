package lifecycle

// end is how one step of an attempt ended.
type end uint8

const (
	endOK        end = iota
	endCancelled     // the lifecycle ended it: a halt, a pause
	endStale         // a newer release or restart replaced it
	endRefused       // the box refused: no cgroup, no record, wrong bytes
	endFailed        // the build failed
)

// classify is the one place that says how a step ended. The lifecycle's end is
// asked first: a stop makes a booting app exit, and that is no failure. Only
// endFailed counts against a build.
func (m *machine) classify(e Event) (end, Reason) {
	switch why := m.stale(); why {
	case ReasonNone:
	case ReasonSuperseded:
		return endStale, why
	default:
		return endCancelled, why
	}
	switch e.Result {
	case OK:
		return endOK, ReasonNone
	case BuildFailed:
		return endFailed, e.Reason
	case Refused:
		return endRefused, e.Reason
	}
	return endRefused, e.Reason
}

// cancels says that the attempt ended because somebody wanted something else.
func cancels(why Reason) bool {
	switch why {
	case ReasonSuperseded, ReasonPaused, ReasonRemoved, ReasonStopped, ReasonShutdown:
		return true
	}
	return false
}
