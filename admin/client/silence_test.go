package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
)

// A daemon that is frozen, or a path that swallows packets, sends nothing: not
// even the comments that a quiet stream has.
func TestASilentStreamIsGivenUpAndTriedAgain(t *testing.T) {
	ctl := admintest.New(admin.AppStatus{Name: "hello"})
	addr, _ := admintest.Start(t, ctl, admin.Options{Heartbeat: time.Hour})
	c := New(addr, Options{Retry: time.Millisecond})
	t.Cleanup(c.Close)
	c.silence = 100 * time.Millisecond
	op, err := c.Wake(context.Background(), admin.Change{App: "hello"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	found := make(chan struct{}, 100)
	done := make(chan error, 1)
	var lost error
	go func() { // ends with Follow
		_, err := c.Follow(ctx, op.ID, true, Watcher{
			Lost:  func(err error) { lost = err },
			Found: func() { found <- struct{}{} },
		})
		done <- err
	}()
	<-found
	ctl.Finish(op.ID, admin.OpDone, nil)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if !errors.Is(lost, ErrLost) {
		t.Errorf("lost: %v", lost)
	}
}
