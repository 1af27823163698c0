package daemon

import (
	"context"
	"encoding/json"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/store"
	"github.com/usher-edge/usher/admin"
)

// eventBatch is how many events are read at once.
const eventBatch = 256

func (c *control) Watch(ctx context.Context, f admin.EventFilter) (<-chan admin.Event, error) {
	if f.App != "" {
		if _, err := c.d.act.Status(f.App); err != nil {
			return nil, publicError(err)
		}
	}
	out := make(chan admin.Event, eventBatch)
	go func() { // ends with ctx, or after what is recorded
		defer close(out)
		c.deliver(ctx, f, out)
	}()
	return out, nil
}

func (c *control) deliver(ctx context.Context, f admin.EventFilter, out chan<- admin.Event) {
	for seq := f.SinceSeq; ; {
		events, more := c.d.act.Events(seq, eventBatch)
		for _, e := range events {
			seq = e.Seq
			ev, ok := eventOf(e, f)
			if !ok {
				continue
			}
			select {
			case out <- ev:
			case <-ctx.Done():
				return
			}
		}
		if len(events) == eventBatch {
			continue
		}
		if !f.Follow {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}

// eventOf translates an event that the filter lets through.
func eventOf(e store.Event, f admin.EventFilter) (admin.Event, bool) {
	out := admin.Event{
		Seq: e.Seq, At: e.At, App: e.App, Type: e.Kind, Revision: e.Revision, Generation: e.Generation, Message: e.Text,
	}
	var data activator.OperationData
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &data) == nil {
		out.Operation = data.Operation
	}
	if e.Kind == "state" {
		out.State = admin.AppState(e.Text)
	}
	return out, (f.App == "" || f.App == e.App) && (f.Operation == "" || f.Operation == out.Operation)
}
