package lifecycle

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what docs/lifecycle.md says about the code from the code")

// page is what is generated; the rest of it is written by people.
const page = "../../docs/lifecycle.md"

// The parts of docs/lifecycle.md between marks are made from the code.
func TestTheDocsSayWhatTheCodeDoes(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := string(text)
	arrows := travelled()
	for name, part := range map[string]string{
		"states":      diagram(arrows.phases),
		"stages":      diagram(arrows.stages),
		"bounds":      boundsTable(),
		"controllers": controllersTable(),
		"invariants":  said(t, "invariants_test.go", "lemma_test.go", "liveness_test.go"),
		"rollout":     said(t, "rollout_props_test.go"),
		"steps":       said(t, "../../edge/stepped_test.go"),
	} {
		begin, end := "<!-- generated: "+name+" -->\n", "<!-- end -->"
		head, rest, ok := strings.Cut(want, begin)
		_, tail, closed := strings.Cut(rest, end)
		if !ok || !closed {
			t.Errorf("%s has no part %q", page, name)
			continue
		}
		want = head + begin + "\n" + part + "\n" + end + tail
	}
	if want == string(text) {
		return
	}
	if !*update {
		t.Fatalf("%s does not say what the code does: run go test ./activator/lifecycle -run %s -update", page, t.Name())
	}
	if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// arrows are where apps and generations have been seen to go, and why.
type arrows struct{ phases, stages map[[2]string][]string }

// travelled explores a few small environments, which together do everything
// that people see.
func travelled() arrows {
	a := arrows{map[[2]string][]string{}, map[[2]string][]string{}}
	day := askSleep | askRequest
	for _, c := range []config{
		{commits: []uint8{0, relCanary}, asks: day},
		{commits: []uint8{relHold, relHold}, asks: day},
		{commits: []uint8{0}, left: budgets{app: 2, restarts: 1}, asks: day | askRestart | askRetry},
		{commits: []uint8{0}, left: budgets{app: 1}, asks: askPause | askMaintain | askRequest},
		{commits: []uint8{0}, asks: askStop | askRemove | askPause | askSleep},
		{commits: []uint8{0}, left: budgets{app: 1}, asks: askFence | askPause | askSleep},
		{commits: []uint8{0, relLimited}, asks: askRequest},
		{commits: []uint8{relHold}, left: budgets{restarts: 2}, asks: askRestart},
	} {
		x := c.explorer()
		x.step = func(s State, e Event) (State, Effects) {
			next, f := Step(s, e)
			a.note(&s, &next, e)
			return next, f
		}
		explore(x, stateCap)
	}
	return a
}

func (a *arrows) note(s, next *State, e Event) {
	why := inWords(e)
	if s.Halt == HaltFence && e.Kind == Exited {
		why += " after a fence" // and is not ended
	}
	add(a.phases, s.phase(), next.phase(), why)
	for _, g := range [...]*Gen{&s.Cur, &s.Next, &s.Old} {
		to := "gone"
		for _, n := range [...]*Gen{&next.Cur, &next.Next, &next.Old} {
			if n.ID == g.ID {
				to = n.Stage.String()
			}
		}
		switch {
		case g.ID == 0:
		case g.Stage < Switching && e.asked():
			add(a.stages, g.Stage.String(), to, "called off")
		default:
			add(a.stages, g.Stage.String(), to, why)
		}
	}
	if n := next.Next; n.ID != 0 && n.ID != s.Next.ID {
		add(a.stages, "[*]", n.Stage.String(), "an attempt begins")
	}
}

func add(m map[[2]string][]string, from, to, why string) {
	k := [2]string{from, to}
	if from != to && !slices.Contains(m[k], why) {
		m[k] = append(m[k], why)
	}
}

// asked: by people.
func (e *Event) asked() bool {
	switch e.Kind {
	case Committed, RestartAsked, PauseAsked, HaltAsked:
		return true
	}
	return false
}

// phase is what status says of s, in one word.
func (s *State) phase() string {
	switch {
	case s.Gone && s.Halt.ends():
		return "gone"
	case s.Slot.State == SlotServing && s.Attempt.Gen != 0:
		return "swapping"
	case s.Slot.State == SlotServing:
		return "awake"
	}
	return s.Slot.State.String()
}

// inWords is e as a person would say it.
func inWords(e Event) string {
	switch e.Kind {
	case PauseAsked:
		if e.Maintenance {
			return "maintenance"
		}
		return "pause"
	case RestartAsked:
		if e.Retry {
			return "retry"
		}
	case HaltAsked:
		return [...]string{"", "shutdown", "stop", "remove", "fence"}[e.Halt]
	case TimerFired:
		return [...]string{"", "back-off over", "sweep", "settled", ""}[e.Timer]
	case StopDone:
		if e.Result != OK {
			return "stop unproven"
		}
		return "proven empty"
	}
	if said, ok := words[e.Kind]; ok && e.Result == OK {
		return said
	}
	if e.Result == BuildFailed {
		return "the build fails"
	}
	return "the box refuses"
}

var words = map[EventKind]string{
	Committed: "deploy", RestartAsked: "restart", WakeAsked: "request", SleepAsked: "idle", SleepDone: "nobody inside",
	ResumeAsked: "resume", Exited: "it exits", SwitchDone: "switch", ReportDone: "report", DrainDone: "drained", HealthDone: "healthy",
	VerifyDone: "verified", RaiseDone: "limit raised", RestoreDone: "limit restored", IntentDone: "intent recorded", PrepareDone: "set up",
	RanDone: "run recorded", GoDone: "executes", SwitchingDone: "switch recorded",
}

// crowd is from how many places an arrow must come, or to how many it must lead,
// to be drawn as one.
const crowd = 4

// diagram draws arrows for Mermaid: one between any two, and one from, or to, all
// places together where the same reason has many.
func diagram(m map[[2]string][]string) string {
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	into, outOf := map[[2]string][]string{}, map[[2]string][]string{} // by place and reason
	for _, k := range sorted(m) {
		for _, why := range m[k] {
			into[[2]string{k[1], why}] = append(into[[2]string{k[1], why}], k[0])
			outOf[[2]string{k[0], why}] = append(outOf[[2]string{k[0], why}], k[1])
		}
	}
	crowds(&b, "any", into, "    %[1]s --> %[2]s: %[3]s\n")
	crowds(&b, "one", outOf, "    %[2]s --> %[1]s: %[3]s\n")
	for _, k := range sorted(m) {
		why := slices.DeleteFunc(slices.Clone(m[k]), func(w string) bool {
			return len(into[[2]string{k[1], w}]) >= crowd || len(outOf[[2]string{k[0], w}]) >= crowd
		})
		slices.Sort(why)
		if len(why) > 0 {
			fmt.Fprintf(&b, "    %s --> %s: %s\n", k[0], k[1], strings.Join(why, ", "))
		}
	}
	b.WriteString("```\n")
	return b.String()
}

// crowds draws what many have in common: their names, the place, the reasons.
func crowds(b *strings.Builder, name string, m map[[2]string][]string, format string) {
	reasons := map[[2]string][]string{} // by the many and the one place
	for k, many := range m {
		if len(many) >= crowd {
			key := [2]string{strings.Join(many, ", "), k[0]}
			reasons[key] = append(reasons[key], k[1])
		}
	}
	drawn := map[string]string{}
	for _, key := range sorted(reasons) {
		id := drawn[key[0]]
		if id == "" {
			id = fmt.Sprintf("%s%d", name, len(drawn)+1)
			drawn[key[0]] = id
			fmt.Fprintf(b, "    state \"%s of %s\" as %s\n", name, key[0], id)
		}
		slices.Sort(reasons[key])
		fmt.Fprintf(b, format, id, key[1], strings.Join(reasons[key], ", "))
	}
}

func sorted(m map[[2]string][]string) [][2]string {
	return slices.SortedFunc(maps.Keys(m), func(p, q [2]string) int { return strings.Compare(p[0]+" "+p[1], q[0]+" "+q[1]) })
}

// boundsTable says what each configuration lets happen.
func boundsTable() string {
	var b strings.Builder
	b.WriteString("| configuration | releases | usher crashes | the app exits | restarts | and |\n|---|---|---|---|---|---|\n")
	for _, c := range configs() {
		name := c.name
		if c.within != "" {
			name += " (*)"
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s |\n", name, c.releases(), c.left.usher, c.left.app, c.left.restarts, c.what())
	}
	return b.String()
}

func (c *config) releases() string {
	var all []string
	for _, bits := range c.commits {
		r := "overlap"
		for _, a := range []struct {
			bit  uint8
			name string
		}{{relHold, "hold"}, {relEither, "overlap or hold"}, {relExternal, "external"}, {relCanary, "canary"}, {relFallback, "hold with fallback"}, {relLimited, "limits"}} {
			if bits&a.bit != 0 {
				r = a.name
			}
		}
		all = append(all, r)
	}
	return strings.Join(all, ", ")
}

func (c *config) what() string {
	var all []string
	for _, a := range []struct {
		yes  bool
		name string
	}{
		{c.asks&askRequest != 0, "requests"},
		{c.asks&askSleep != 0, "sleep"},
		{c.asks&askWake != 0, "wake"},
		{c.asks&askRetry != 0, "retry"},
		{c.asks&askPause != 0, "pause"},
		{c.asks&askMaintain != 0, "maintenance"},
		{c.asks&askShutdown != 0, "shutdown"},
		{c.asks&askStop != 0, "stop"},
		{c.asks&askRemove != 0, "remove"},
		{c.asks&askFence != 0, "a fence at any moment"},
		{c.left.puts > 0, "a best-effort record that fails"},
		{c.left.fresh > 0, "no number for a generation"},
		{c.late, "late answers"},
		{c.doubts, "a process that does not answer at recovery"},
		{c.cache, "a page in the cache"},
		{c.heads, "requests that are sent again"},
		{c.between, "asked while a slot is stored"},
		{c.uncertain, "records that are said to have failed and took place"},
	} {
		if a.yes {
			all = append(all, a.name)
		}
	}
	return strings.Join(all, ", ")
}

func controllersTable() string {
	var b strings.Builder
	b.WriteString("| controller | owns, and relies on the others to leave alone | guarantees | depends on |\n|---|---|---|---|\n")
	for _, c := range Controllers() {
		on := strings.Join(c.DependsOn, ", ")
		if on == "" {
			on = "–"
		}
		var owns []string
		for _, o := range c.Owns {
			owns = append(owns, o.words())
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.Name, strings.Join(owns, "; "), c.Guarantees, on)
	}
	return b.String()
}

func (o *Owned) words() string {
	text := o.Name
	if len(o.Also) > 0 {
		text += " (with " + strings.Join(o.Also, " and ") + ")"
	}
	if o.But != "" {
		text += ", " + o.But
	}
	return text
}

// said makes a table of the promises that the comments of files list.
func said(t *testing.T, files ...string) string {
	line := regexp.MustCompile(`(?m)^//\t(\w+)\s+(.+)$`)
	var b strings.Builder
	b.WriteString("| | |\n|---|---|\n")
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		found := line.FindAllStringSubmatch(string(text), -1)
		if len(found) == 0 {
			t.Errorf("%s lists nothing", f)
		}
		for _, m := range found {
			fmt.Fprintf(&b, "| %s | %s |\n", m[1], strings.ReplaceAll(m[2], "|", `\|`))
		}
	}
	return b.String()
}
