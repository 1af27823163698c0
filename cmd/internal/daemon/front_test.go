package daemon

import (
	"testing"
	"time"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/lifecycle"
	"github.com/usher-edge/usher/edge"
)

// A reload gives a host to a new app and removes the one that had it: the control
// plane may come to that before the table does.
func TestAnAppThatIsRemovedIsRoutedToUntilTheTableChanges(t *testing.T) {
	e := edge.New(edge.Options{})
	defer e.Close()
	f := newFront(e)
	table := func(name string) {
		t.Helper()
		if err := e.SetApps([]edge.AppConfig{{Name: name, Hosts: []string{"site.test"}}}); err != nil {
			t.Fatal(err)
		}
	}
	serving := activator.Placement{State: lifecycle.SlotServing, Generation: 1, Network: "unix", Address: "/nowhere"}
	table("old")
	f.Place("old", serving)
	f.Place("old", activator.Placement{State: lifecycle.SlotRemoved})
	drained := f.Drained("old", 1)
	ask := func(generation uint64) {
		t.Helper()
		r := e.Open(nil)
		defer r.Close()
		r.Begin(time.Now())
		r.Host, r.Path = []byte("site.test"), []byte("/")
		if d := e.Decide(r); d.Kind != edge.Proxy || d.Target.Generation() != generation {
			t.Errorf("%+v, want generation %d", d, generation)
		}
		e.Finish(r, edge.Result{Ending: edge.Served, Status: 200})
	}
	ask(1)
	select {
	case <-drained:
		t.Error("drained, and requests still come")
	default:
	}
	f.keep("old")
	table("new")
	serving.Generation = 2
	f.Place("new", serving)
	<-drained
	ask(2)
}
