//go:build stepped

package edge

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Every order in which two requests, a switch and a sleep can take their steps,
// on the code that runs: Decide, Finish, the lot, Place and TrySleep. A step goes
// from one operation on the words of words.go to the next.
//
//	I3        nobody is counted into a retired target, or inside one that was called empty
//	I4        a request that comes after a switch was reported gets the new target
//	I6        nobody parks for a switch
//	sleep     what was put to sleep has nobody inside, then or later
//	zero      a retired target is called empty when the last one has left it, and not before
//	twice     nothing is ended twice: a target called empty
//	lost      a target that left the slot was retired
//	parked    nobody waits on while the app serves, or for a sleeping app that nobody wakes
//	full      no more are inside than may be, who was parked is not refused for it, and room that nobody waits for is kept for nobody
//	stuck     whoever is not parked gets on

// scene is what is on stage beside the two requests.
type scene struct {
	name     string
	requests int
	switch2  bool // to generation 2
	again    bool // and to generation 3, whichever comes first
	sleep    bool // of generation 1
	asleep   bool // it sleeps before anybody comes
	most     int  // inside at once; 0: as many as come
	cfg      *AppConfig
}

const (
	aSwitch = iota
	aSleep
	aSleepAndASwitch
	twoSwitches
	aWake
	aWakeOfOne
	aWakeOfOneAndASwitch
)

func scenes() []scene {
	return []scene{
		aSwitch:              {name: "a switch", requests: 2, switch2: true},
		aSleep:               {name: "a sleep", requests: 2, sleep: true},
		aSleepAndASwitch:     {name: "a sleep and a switch", requests: 2, switch2: true, sleep: true},
		twoSwitches:          {name: "two switches", requests: 1, switch2: true, again: true},
		aWake:                {name: "a wake", requests: 3, switch2: true, asleep: true},
		aWakeOfOne:           {name: "a wake of an app for one at a time", requests: 3, switch2: true, asleep: true, most: 1},
		aWakeOfOneAndASwitch: {name: "a wake of an app for one at a time and a switch", requests: 2, switch2: true, again: true, asleep: true, most: 1},
	}
}

// run is one order, or the beginning of one.
type run struct {
	fault   fault
	only    string
	scene   scene
	edge    *Edge
	app     *App
	first   *Target
	threads []*thread
	current *thread
	placed  bool // the switch was reported
	slept   bool
	woken   int
	broken  string
	why     string
}

// Wake counts.
func (r *run) Wake(string) { r.woken++ }

func (r *run) fail(name, format string, args ...any) {
	if r.broken == "" && (r.only == "" || r.only == name) {
		r.broken, r.why = name, fmt.Sprintf(format, args...)
	}
}

// turn lets t take one step.
func (r *run) turn(t *thread) {
	r.current = t
	t.resume()
	r.current = nil
	r.look()
}

// look asks what must hold between any two steps.
func (r *run) look() {
	word := r.first.gate.word.v
	if t := r.app.slot.s.target; t != nil && r.scene.most > 0 && t.gate.word.v&^retiredBit > uint64(r.scene.most) {
		r.fail("full", "the gate is at %x", t.gate.word.v)
	}
	if (r.slept || r.app.slot.s.State == Asleep) && word != retiredBit {
		r.fail("sleep", "the app sleeps with the gate at %x", word)
	}
	if isClosed(r.app.Drained(1)) && word != retiredBit {
		r.fail("zero", "the target is called empty with the gate at %x", word)
	}
}

// end asks what must hold when nobody can take a step any more.
func (r *run) end() {
	for _, t := range r.threads {
		if !t.done && !t.waitsInLot() {
			r.fail("stuck", "%s waits for ever: %s", t.name, t.doing)
		}
	}
	waiting := 0
	for _, t := range r.threads {
		if !t.done {
			waiting++
		}
	}
	switch s := r.app.slot.s; {
	case waiting > 0 && s.State == Serving:
		r.fail("parked", "%d requests wait though the app serves", waiting)
	case waiting > 0 && r.woken == 0:
		r.fail("parked", "%d requests wait and nobody wakes the app", waiting)
	}
	if t := r.app.slot.s.target; t != nil && waiting == 0 && (t.owed.v || t.behind.v || t.gate.word.v&^retiredBit != 0) {
		r.fail("full", "nobody waits or is inside, and newcomers find: owed %v, behind %v, gate %x", t.owed.v, t.behind.v, t.gate.word.v)
	}
	if r.first.gate.word.v&retiredBit != 0 && !isClosed(r.app.Drained(1)) {
		r.fail("zero", "the target is retired and empty, and nobody was told")
	}
	for gen, crowd := range r.app.crowds.open {
		for _, t := range crowd.targets {
			if t != r.app.slot.s.target {
				r.fail("lost", "generation %d is in the slot no more, and its target was never retired", gen)
			}
		}
	}
}

func (t *thread) waitsInLot() bool { return t.doing == "parks" }

// request is one request from its head to its end.
func (r *run) request(t *thread) {
	q := r.edge.Open(&peer{})
	defer q.Close()
	begin(q)
	q.app, q.counters = r.app, r.app.counting()
	t.step("has a complete head")
	late := r.placed
	t.sawWhether(late)
	for {
		kept := uint64(0)
		if q.target != nil {
			kept = q.target.generation
		}
		t.forgets("late %v, granted %v, ticket %d, counted into %d", late, q.granted, q.parking.ticket, kept)
		d := r.edge.Decide(q)
		if d.Kind == Park {
			if r.scene.switch2 && !r.scene.sleep && !r.scene.asleep {
				r.fail("I6", "%s parks for a switch", t.name)
			}
			r.park(t, q)
			continue
		}
		if d.Cause == CauseAtCapacity && r.scene.most > 0 {
			if q.parking.ticket != 0 {
				r.fail("full", "%s was parked and is refused", t.name)
			}
			r.edge.Finish(q, Result{Ending: Refused, Cause: d.Cause, Status: 503})
			return
		}
		if d.Kind != Proxy {
			r.fail("stuck", "%s is answered %v", t.name, d.Cause)
			return
		}
		if isClosed(r.app.Drained(d.Target.generation)) {
			r.fail("I3", "%s is inside generation %d, which is called empty", t.name, d.Target.generation)
		}
		if late && d.Target.generation == 1 {
			r.fail("I4", "%s came after the switch was reported and goes to generation 1", t.name)
		}
		t.forgets("inside %d, granted %v", d.Target.generation, q.granted)
		r.edge.Finish(q, Result{Ending: Served, Status: 200})
		return
	}
}

// park is Request.Park, which waits on a channel, for a thread on stage.
func (r *run) park(t *thread, q *Request) {
	in, refused := r.app.lot.enter(q, q.slot, q.start)
	if refused != CauseNone {
		r.fail("stuck", "%s is refused: %v", t.name, refused)
	}
	t.sawWhether(in)
	if !in {
		return
	}
	if q.slot.State == Asleep {
		r.edge.wake(r.app)
	}
	t.wait("parks", func() bool { return len(q.parking.verdict) == 0 })
	t.saw(uint64(<-q.parking.verdict))
}

func (r *run) place(t *thread, generation uint64) {
	if r.fault == faultReportFirst {
		r.placed = true
		t.step("comes after its report")
	}
	r.app.Place(serving(generation))
	r.placed = true
}

// begin puts the scene on stage.
func (s scene) begin(e *Edge, w *run) *run {
	r := w
	stage = nil
	r.scene, r.edge = s, e
	e.opt.Waker = r
	r.app = newApp(e, s.cfg)
	r.app.Place(serving(1))
	r.first = r.app.slot.s.target
	if s.asleep {
		r.app.TrySleep(1, Placement{State: Asleep})
	}
	stage = r
	for i := range s.requests {
		r.spawn("request "+string(rune('A'+i)), r.request)
	}
	if s.switch2 {
		r.spawn("the switch", func(t *thread) { r.place(t, 2) })
	}
	if s.again {
		r.spawn("the next switch", func(t *thread) { r.place(t, 3) })
	}
	if s.sleep {
		r.spawn("the sleep", func(t *thread) { r.slept = r.app.TrySleep(1, Placement{State: Asleep}) })
	}
	return r
}

func (r *run) close() {
	for _, t := range r.threads {
		r.current = nil
		t.stop()
	}
	stage = nil
	r.app.lot.close()
}

// ready are the threads that can take a step.
func (r *run) ready() (can []int) {
	for i, t := range r.threads {
		if !t.done && (t.blocked == nil || !t.blocked()) {
			can = append(can, i)
		}
	}
	return can
}

// state is all that what can still happen depends on.
func (r *run) state() string {
	var b strings.Builder
	s := r.app.slot.s
	fmt.Fprintf(&b, "%s%d %x %v %v %v %v %d %v", s.State, s.Generation, r.first.gate.word.v, r.app.mu.held, r.app.lot.mu.held, r.placed, r.slept, r.app.lot.n, isClosed(r.app.Drained(1)))
	if s.target != nil {
		fmt.Fprintf(&b, " %x %v %v %v", s.target.gate.word.v, s.target.behind.v, s.target.owed.v, r.app.lot.paced == s.target)
	}
	each := make([]string, len(r.threads))
	for i, t := range r.threads {
		each[i] = t.state()
	}
	slices.Sort(each[:r.scene.requests]) // one request is like the other
	for _, s := range each {
		b.WriteString(s)
	}
	return b.String()
}

func (t *thread) state() string {
	if t.done {
		return "|"
	}
	if t.blocked != nil && t.blocked() {
		return "|waits " + t.doing + string(t.seen)
	}
	return "|" + t.doing + string(t.seen)
}

// outcome is what was found in a scene.
type outcome struct {
	states, orders int
	broken, why    string
	trace          []string
}

// explore visits every state that any order leads to. An order is run from the
// start again whenever another way is taken somewhere. only, if it is set, is all
// that is asked for.
func explore(s scene, f fault, only string) outcome {
	var o outcome
	e := New(Options{})
	defer e.Close()
	cfg, err := AppConfig{Name: "app", Hosts: []string{"*"}, MaxInFlight: s.most}.complete()
	if err != nil {
		panic(err)
	}
	s.cfg = cfg
	seen := map[string]bool{}
	todo := [][]int{nil}
	for len(todo) > 0 {
		order := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		o.orders++
		r := s.begin(e, &run{fault: f, only: only})
		var trace []string
		for _, i := range order {
			trace = append(trace, r.threads[i].name+" "+r.threads[i].doing)
			r.turn(r.threads[i])
		}
		for r.broken == "" {
			key := r.state()
			if seen[key] {
				break
			}
			seen[key] = true
			can := r.ready()
			if len(can) == 0 {
				r.end()
				break
			}
			for _, i := range can[1:] {
				todo = append(todo, append(append([]int(nil), order...), i))
			}
			i := can[0]
			order = append(order, i)
			trace = append(trace, r.threads[i].name+" "+r.threads[i].doing)
			r.turn(r.threads[i])
		}
		r.close()
		if r.broken != "" {
			o.broken, o.why, o.trace = r.broken, r.why, trace
			break
		}
	}
	o.states = len(seen)
	return o
}

func TestSteppedOrdersAllKeepThePromises(t *testing.T) {
	for _, s := range scenes() {
		begun := time.Now()
		o := explore(s, faultless, "")
		t.Logf("%d requests beside %s: %d states, %d orders, %v", s.requests, s.name, o.states, o.orders, time.Since(begun).Round(time.Millisecond))
		if o.broken != "" {
			t.Errorf("%s: %s: %s\n%s", s.name, o.broken, o.why, strings.Join(o.trace, "\n"))
		}
	}
}

func TestSteppedFaultsAreCaught(t *testing.T) {
	for _, c := range []struct {
		name  string
		fault fault
		scene int
		want  string
	}{
		{"the retired bit comes before the slot", faultBitFirst, aSwitch, "I6"},
		{"a switch is reported before it is done", faultReportFirst, aSwitch, "I4"},
		{"counting in does not look at the bit", faultBlindCount, aSwitch, "I3"},
		{"a sleep is no single step", faultTornSleep, aSleep, "sleep"},
		{"leaving is no single step", faultTornLeave, aSwitch, "twice"},
		{"leaving does not see the bit", faultBlindLeave, aSwitch, "zero"},
		{"a lock is kept", faultKeptLock, aSleep, "stuck"},
		{"parking trusts an old slot", faultStaleLook, aSleepAndASwitch, "parked"},
		{"counting in does not see who is inside", faultBlindLimit, aWakeOfOne, "full"},
		{"who leaves does not see that others wait", faultBlindSign, aWakeOfOne, "parked"},
		{"placements are in no order", faultUnlockedPlaces, aSleepAndASwitch, "lost"},
	} {
		o := explore(scenes()[c.scene], c.fault, c.want)
		if o.broken != c.want {
			t.Errorf("%s: caught by %q, want %q: %s\n%s", c.name, o.broken, c.want, o.why, strings.Join(o.trace, "\n"))
			continue
		}
		t.Logf("%s: %s after %d steps: %s", c.name, o.broken, len(o.trace), o.why)
	}
}
