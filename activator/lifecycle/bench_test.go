package lifecycle

import (
	"testing"
	"unsafe"
)

// swap is every event of an overlap swap and of the restart that follows it, as
// they meet a state.
func swapEvents() (State, []State, []Event) {
	t := &testing.T{}
	p := serving(t, "")
	from := p.s
	var states []State
	var events []Event
	feed := func(e Event) {
		e.Fresh = p.next + 1
		states, events = append(states, p.s), append(events, e)
		p.feed(e)
	}
	feed(p.event("Committed r2"))
	for len(p.todo) > 0 {
		feed(p.todo[0])
	}
	feed(p.event("RestartAsked"))
	for len(p.todo) > 0 {
		feed(p.todo[0])
	}
	return from, states, events
}

func BenchmarkStep(b *testing.B) {
	_, states, events := swapEvents()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		_, f := Step(states[i], events[i])
		if f.Len() > maxEffects {
			b.Fatal("too many effects")
		}
		if i++; i == len(states) {
			i = 0
		}
	}
}

func BenchmarkRecover(b *testing.B) {
	was := State{Desired: rev(2, false), Good: rev(1, false), Reported: 1}
	list := []Found{found(1, Serving, true), found(2, Switching, true)}
	b.ReportAllocs()
	for b.Loop() {
		if s, _ := Recover(was, list, 9); s.Cur.ID != 2 {
			b.Fatal("not adopted")
		}
	}
}

func TestTheStateOfASleepingAppIsSmall(t *testing.T) {
	if n := unsafe.Sizeof(State{}); n > 512 {
		t.Errorf("a state takes %d bytes", n)
	}
}
