package child

// Step is one step of the child that can be refused.
type Step uint32

// The steps in their order.
const (
	StepChdir Step = iota + 1
	StepAccess
	StepNoNewPrivs
	StepAmbient
	StepRlimit
	StepSetgroups
	StepSetgid
	StepSetuid
	StepExec
)

// String is the step in messages.
func (s Step) String() string {
	switch s {
	case StepChdir:
		return "chdir"
	case StepAccess:
		return "access"
	case StepNoNewPrivs:
		return "no_new_privs"
	case StepAmbient:
		return "ambient"
	case StepRlimit:
		return "rlimit"
	case StepSetgroups:
		return "setgroups"
	case StepSetgid:
		return "setgid"
	case StepSetuid:
		return "setuid"
	case StepExec:
		return "exec"
	}
	return "none"
}
