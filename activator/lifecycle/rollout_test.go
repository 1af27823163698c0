package lifecycle

// The rollout contract: what people may rely on who deploy an app, restart it
// and send it requests, as an abstract machine of four values. It knows one
// node, and no generation, process, record or slot.
//
// The exploration follows it: every edge of the core and its environment must be
// a sequence of its actions, or none at all (rollout_map_test.go). That the
// machine has its properties is asked of itself, and of what was explored.

// node is the state of the one node that the contract knows.
type node uint8

const (
	nodeStopped  node = iota
	nodeStarting      // it has loaded a version and is not ready
	nodeServing
	nodeDraining // told to end, or its main process is dead; not proven empty
	nodeCount
)

var nodeNames = [...]string{"stopped", "starting", "serving", "draining"}

func (n node) String() string { return nodeNames[n] }

// contract is a state of the machine. That a node which neither starts nor
// serves has loaded nothing is ours: nobody can tell.
type contract struct {
	committed uint8 // the newest revision that was committed
	reported  uint8 // the newest that was reported, 0 = none
	node      node
	version   uint8 // what the node has loaded
	served    uint8 // the revision whose process answered last
}

// action is something that the machine does.
type action uint8

const (
	actCommit action = iota
	actBeginDrain
	actExit
	actStart
	actBecomeReady
	actServe
	actReport
	actStartFailed
	actCrash      // of the app or of usher: nothing serves, something may be left
	actCacheServe // a hit, in the cache of a revision
	actCount
)

var actionNames = [...]string{
	"Commit", "BeginDrain", "Exit", "Start", "BecomeReady", "Serve", "Report", "StartFailed", "Crash", "CacheServe",
}

func (a action) String() string { return actionNames[a] }

// do takes an action with revision v, and says whether the contract allows it.
func (c *contract) do(a action, v uint8) bool {
	from := *c
	switch a {
	case actCommit:
		c.committed = v
		return v > from.committed
	case actBeginDrain:
		c.node, c.version = nodeDraining, 0
		return from.node == nodeServing
	case actExit:
		c.node = nodeStopped
		return from.node == nodeDraining
	case actStart:
		c.node, c.version = nodeStarting, v
		return from.node == nodeStopped && from.reported <= v && v <= from.committed
	case actBecomeReady:
		c.node = nodeServing
		return from.node == nodeStarting
	case actServe:
		c.served = v
		return from.node == nodeServing && v == from.version
	case actReport:
		c.reported = v
		return from.node == nodeServing && v == from.version && v == from.committed
	case actStartFailed:
		c.node, c.version = nodeDraining, 0
		return from.node == nodeStarting
	case actCrash:
		c.node, c.version = nodeDraining, 0
		return from.node == nodeServing || from.node == nodeStarting
	case actCacheServe:
		return from.reported <= v && v <= from.committed
	}
	return false
}

// The properties; rollout_props_test.go says what they are.
const (
	refinement               = "Refinement"
	typeOK                   = "TypeOK"
	reportedVersionIsServing = "ReportedVersionIsServing"
	servedAfterReport        = "ServedAfterReport"
	noServeWhileNotServing   = "NoServeWhileNotServing"
	reportedIsCommitted      = "ReportedIsCommitted"
	reportIsNewest           = "ReportIsNewest"
	answersFollowReports     = "AnswersFollowReports"
)

func rolloutProperties() []string {
	return []string{
		typeOK, reportedVersionIsServing, servedAfterReport, noServeWhileNotServing, reportedIsCommitted, reportIsNewest, answersFollowReports,
	}
}

// brokenIn names the properties of a state that c does not have. top is the
// newest revision there can be.
func (c *contract) brokenIn(top uint8, broken func(property string)) {
	if c.committed > top || c.reported > top || c.version > top || c.served > top || c.node >= nodeCount {
		broken(typeOK)
	}
	if c.reported != 0 && c.node == nodeServing && c.version < c.reported {
		broken(reportedVersionIsServing)
	}
	if c.reported > c.committed {
		broken(reportedIsCommitted)
	}
}

// brokenBy names the properties of an action that a, taken in c, does not have.
func (c *contract) brokenBy(a action, v uint8, broken func(property string)) {
	switch a {
	case actServe:
		if v < c.reported {
			broken(servedAfterReport)
		}
		if c.node != nodeServing {
			broken(noServeWhileNotServing)
		}
	case actReport:
		if v != c.committed {
			broken(reportIsNewest)
		}
	}
}
