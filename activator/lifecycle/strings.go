package lifecycle

var modeNames = [...]string{"overlap", "hold"}

func (m Mode) String() string { return modeNames[m] }

var causeNames = [...]string{"", "release", "install", "retry", "restart", "config", "wake"}

func (c Cause) String() string { return causeNames[c] }

var outcomeNames = [...]string{"", "done", "failed", "abandoned", "down", "restored"}

func (o Outcome) String() string { return outcomeNames[o] }

var reasonNames = [...]string{
	"",
	"exec failed", "exited", "unhealthy",
	"superseded", "paused", "removed", "stopped", "shutdown", "fenced",
	"digest mismatch", "not started", "not recorded", "limit not applied", "cgroup not fresh", "not reported",
	"stop unproven", "crashed", "backing off", "held down",
	"vanished", "listener not owned",
}

func (r Reason) String() string { return reasonNames[r] }

var stageNames = [...]string{
	"none", "verifying", "raising", "intending", "preparing", "recording", "waiting", "going",
	"checking", "settling", "switching", "switched", "serving", "draining", "stopping", "unproven", "",
}

func (s Stage) String() string { return stageNames[s] }

var slotNames = [...]string{
	"empty", "asleep", "waking", "serving", "holding", "paused", "maintenance", "down", "removed", "fenced",
}

func (s SlotState) String() string { return slotNames[s] }
