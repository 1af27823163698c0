package engine

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge"
)

// refusing is an app that refuses, and why.
type refusing struct {
	cause edge.Cause
	place edge.Placement
	retry string        // Retry-After, with a start that takes 9 s
	blank string        // and with nothing known
	wait  time.Duration // of its back-off
}

func refusals() []refusing {
	return []refusing{
		{cause: edge.CauseNoRelease, place: edge.Placement{State: edge.Empty}, retry: "9", blank: "5"},
		{cause: edge.CauseWakeFailed, place: edge.Placement{State: edge.Down}, retry: "9", blank: "5"},
		{cause: edge.CauseWakeFailed, place: edge.Placement{State: edge.Down}, retry: "3600", blank: "3600", wait: time.Hour},
		{cause: edge.CauseCrashed, place: edge.Placement{State: edge.Down, Down: edge.CauseCrashed}, retry: "9", blank: "5"},
		{cause: edge.CauseCrashed, place: edge.Placement{State: edge.Down, Down: edge.CauseCrashed}, retry: "3600", blank: "3600", wait: time.Hour},
		{cause: edge.CauseDraining, place: edge.Placement{State: edge.Down, Down: edge.CauseDraining}, retry: "9", blank: "5"},
		{cause: edge.CauseMaintenance, place: edge.Placement{State: edge.Maintenance}, retry: "30", blank: "30"},
		{cause: edge.CauseFenced, place: edge.Placement{State: edge.Fenced}, retry: "30", blank: "30"},
	}
}

// Every 503 says when to come back (RFC 9110 10.2.3, 15.6.4): for each cause of one
// there is a case here, or a test below.
func TestEvery503SaysWhenToComeBack(t *testing.T) {
	tested := map[edge.Cause]bool{
		edge.CauseNoDescriptors: true, // TestWithoutADescriptorTheAppIsNotBlamed
		edge.CauseParkFull:      true, // TestWhoFindsNoRoomIsToldToComeBackAfterAStart
		edge.CauseAtCapacity:    true,
	}
	r := newRig(t, rigOptions{})
	c := r.dial()
	asked := 0
	for _, f := range refusals() {
		tested[f.cause] = true
		for boot, want := range map[time.Duration]string{9 * time.Second: f.retry, 0: f.blank} {
			f.place.Boot = boot
			if f.wait > 0 {
				f.place.RetryAt = time.Now().Add(f.wait)
			}
			r.app.Place(f.place)
			c.get("/")
			a := c.status(503)
			asked++
			late := f.wait > 0 && a.Header.Get("Retry-After") >= "3590" // of a busy machine
			if got := a.Header.Get("Retry-After"); got != want && !late {
				t.Errorf("%s, start %v, back-off %v: Retry-After %q, want %s", f.cause, boot, f.wait, got, want)
			}
			if n := r.last(asked).Result; n.Cause != f.cause {
				t.Errorf("refused for %s, want %s", n.Cause, f.cause)
			}
		}
	}
	for c := edge.CauseNone + 1; c <= edge.CauseHalfOpen; c++ {
		if c.Verdict().Status == 503 && !tested[c] {
			t.Errorf("nothing tests what %s says", c)
		}
	}
}

func TestWhoFindsNoRoomIsToldToComeBackAfterAStart(t *testing.T) {
	release := make(chan struct{})
	o := newOrigin(t, each(func(s *stage, _ *http.Request) {
		<-release
		s.ok("x")
	}))
	serving := o.placement(1)
	for cause, place := range map[edge.Cause]edge.Placement{edge.CauseParkFull: {State: edge.Waking}, edge.CauseAtCapacity: serving} {
		for boot, want := range map[time.Duration]string{9 * time.Second: "9", 0: "5"} {
			r := newRig(t, rigOptions{app: edge.AppConfig{ParkLimit: 1, MaxInFlight: 1}})
			place.Boot = boot
			r.app.Place(place)
			first := r.dial()
			first.get("/")
			eventually(t, "the first has the room", func() bool { return r.app.Stats().Open() == 1 })
			c := r.dial()
			c.get("/")
			if a := c.status(503); a.Header.Get("Retry-After") != want {
				t.Errorf("%s, start %v: Retry-After %q, want %s", cause, boot, a.Header.Get("Retry-After"), want)
			}
			if n := r.last(1).Result; n.Cause != cause {
				t.Errorf("refused for %s, want %s", n.Cause, cause)
			}
			r.app.Place(serving)
			release <- struct{}{}
			first.want(200, "x")
		}
	}
}

// Usher is started again, and the app with it or by the next request.
func TestWhoIsParkedWhenUsherEndsIsToldToComeBackAfterAStart(t *testing.T) {
	for boot, want := range map[time.Duration]string{9 * time.Second: "9", 0: "5"} {
		t.Run(fmt.Sprint(boot), func(t *testing.T) {
			r := newRig(t, rigOptions{})
			r.app.Place(edge.Placement{State: edge.Waking, Boot: boot})
			c := r.dial()
			c.get("/")
			eventually(t, "parked", func() bool { return r.app.Stats().Parked == 1 })
			down := make(chan error, 1)
			go func() { down <- r.srv.Shutdown(context.Background()) }()
			if a := c.status(503); a.Header.Get("Retry-After") != want {
				t.Errorf("Retry-After %q, want %s", a.Header.Get("Retry-After"), want)
			}
			if n := r.last(1).Result; n.Cause != edge.CauseDraining {
				t.Errorf("refused for %s", n.Cause)
			}
			if err := <-down; err != nil {
				t.Error(err)
			}
		})
	}
}
