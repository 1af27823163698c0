package lifecycle

// end is how one step of an attempt ended.
type end uint8

const (
	endUnlisted end = iota // a pair that verdicts leaves out; there is none
	endOK
	endCancelled // the lifecycle ended it: a halt, a pause
	endStale     // a newer release or restart replaced it
	endRefused   // the box refused: no cgroup, no record, no limit, wrong bytes
	endFailed    // the build failed
)

// verdicts says how a step ended: by what has become of its attempt meanwhile
// (see stale), and by its own result. The lifecycle is asked first: a stop makes a
// booting app exit, and that is no failure. Only endFailed counts against a build.
var verdicts = [ReasonFenced + 1][Refused + 1]end{
	ReasonNone:       {OK: endOK, BuildFailed: endFailed, Refused: endRefused},
	ReasonSuperseded: {OK: endStale, BuildFailed: endStale, Refused: endStale},
	ReasonPaused:     {OK: endCancelled, BuildFailed: endCancelled, Refused: endCancelled},
	ReasonRemoved:    {OK: endCancelled, BuildFailed: endCancelled, Refused: endCancelled},
	ReasonStopped:    {OK: endCancelled, BuildFailed: endCancelled, Refused: endCancelled},
	ReasonShutdown:   {OK: endCancelled, BuildFailed: endCancelled, Refused: endCancelled},
	ReasonFenced:     {OK: endCancelled, BuildFailed: endCancelled, Refused: endCancelled},
}

// classify is the one place that says how a step ended, and why.
func (m *machine) classify(e Event) (end, Reason) {
	why := m.stale()
	end := verdicts[why][e.Result]
	if why == ReasonNone {
		why = e.Reason
	}
	return end, why
}

// cancels says that the attempt ended because somebody wanted something else.
func cancels(why Reason) bool {
	return why <= ReasonFenced && (verdicts[why][OK] == endCancelled || verdicts[why][OK] == endStale)
}
