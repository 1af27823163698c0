// Package admintest has a scripted [admin.Control] for tests of the admin API,
// its client and the command line.
//
// Guarantees:
//
//   - Changes are admitted as the contract of admin.Control says: unknown apps,
//     old versions and repeated request ids included. What becomes of an
//     operation is up to the test, by [Control.Step] and [Control.Finish].
//   - A Watch delivers every event, in order, and none is dropped.
package admintest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/usher-edge/usher/admin"
)

// Epoch is the instant at which the control's clock starts; it goes on by one
// second with every step.
func Epoch() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

// Control is a scripted control. The zero value is not usable; see New.
type Control struct {
	// OnChange, if set, is called after a change was admitted, outside all locks.
	// Set it before the first call.
	OnChange func(op admin.Operation)
	// Refuse, if set, may refuse a call by its verb ("deploy", "upload",
	// "reload", "apps", ...). Set it before the first call.
	Refuse func(verb string) error
	// OpenLog, if set, answers Logs.
	OpenLog func(ctx context.Context, req admin.LogRequest) (io.ReadCloser, error)
	// Reloaded is the answer of Reload.
	Reloaded admin.ReloadResult

	// mu guards the fields below. Nothing is waited for under it.
	mu       sync.Mutex
	clock    time.Time
	apps     map[string]admin.AppStatus
	ops      []admin.Operation
	receipts []admin.Receipt // oldest first
	events   []admin.Event
	requests []any
	builds   map[string]admin.Build
	changed  chan struct{} // closed and replaced with every event
}

// New makes a control with these apps.
func New(apps ...admin.AppStatus) *Control {
	c := &Control{
		clock: Epoch(), apps: map[string]admin.AppStatus{},
		builds: map[string]admin.Build{}, changed: make(chan struct{}),
	}
	for _, a := range apps {
		c.apps[a.Name] = a
	}
	return c
}

// SetApp adds or replaces an app.
func (c *Control) SetApp(a admin.AppStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.apps[a.Name] = a
}

// Requests returns every change and upload that was admitted, oldest first.
func (c *Control) Requests() []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.requests)
}

// Emit records an event of no operation.
func (c *Control) Emit(e admin.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.emit(e)
}

// emit is called under mu.
func (c *Control) emit(e admin.Event) {
	e.Seq = uint64(len(c.events)) + 1
	e.At = c.clock
	c.events = append(c.events, e)
	close(c.changed)
	c.changed = make(chan struct{})
}

// Step lets operation id reach a step.
func (c *Control) Step(id, name, detail string) {
	c.update(id, name, func(op *admin.Operation, now time.Time) {
		op.Step = name
		op.Steps = append(op.Steps, admin.Step{Name: name, At: now, Detail: detail})
	})
}

// Finish ends operation id in state; more, if not nil, sets further fields.
func (c *Control) Finish(id string, state admin.OpState, more func(*admin.Operation)) {
	c.update(id, string(state), func(op *admin.Operation, now time.Time) {
		op.State, op.EndedAt = state, &now
		if more != nil {
			more(op)
		}
	})
}

// Forget drops an operation, as a restart of usher may.
func (c *Control) Forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops = slices.DeleteFunc(c.ops, func(op admin.Operation) bool { return op.ID == id })
}

func (c *Control) update(id, message string, f func(*admin.Operation, time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.ops, func(op admin.Operation) bool { return op.ID == id })
	if i < 0 {
		panic("admintest: no operation " + id)
	}
	c.clock = c.clock.Add(time.Second)
	op := c.ops[i]
	op.Steps = slices.Clone(op.Steps)
	f(&op, c.clock)
	c.ops[i] = op
	c.emit(admin.Event{App: op.App, Type: "operation", Operation: id, Message: message})
}

func (c *Control) refused(verb string) error {
	if c.Refuse == nil {
		return nil
	}
	return c.Refuse(verb)
}

// app is called under mu.
func (c *Control) app(name string) (admin.AppStatus, error) {
	a, ok := c.apps[name]
	if !ok {
		return a, &admin.Error{
			Kind: admin.NotFound, Code: admin.CodeAppNotFound,
			Detail: fmt.Sprintf("there is no app %q", name), Hint: "see usher status for those there are",
		}
	}
	return a, nil
}

// admit makes the operation of a change.
func (c *Control) admit(verb string, ch admin.Change, req any) (admin.Operation, error) {
	if err := c.refused(verb); err != nil {
		return admin.Operation{}, err
	}
	op, known, err := c.record(verb, ch, req)
	if err == nil && !known && c.OnChange != nil {
		c.OnChange(op)
	}
	return op, err
}

func (c *Control) record(verb string, ch admin.Change, req any) (op admin.Operation, known bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range c.ops {
		if ch.RequestID != "" && op.RequestID == ch.RequestID {
			return op, true, nil
		}
	}
	a, err := c.app(ch.App)
	if err != nil {
		return op, false, err
	}
	if ch.IfMatch != "" && ch.IfMatch != a.Version {
		return op, false, &admin.Error{
			Kind: admin.Precondition, Code: admin.CodeVersionMismatch,
			Detail: fmt.Sprintf("%s has version %q, not %q", ch.App, a.Version, ch.IfMatch), Hint: "read it again",
		}
	}
	c.requests = append(c.requests, req)
	op = admin.Operation{
		ID: fmt.Sprintf("op-%d", len(c.ops)+1), App: ch.App, Kind: verb, RequestID: ch.RequestID,
		State: admin.OpRunning, Steps: []admin.Step{}, StartedAt: c.clock,
	}
	c.ops = append(c.ops, op)
	c.emit(admin.Event{App: ch.App, Type: "operation", Operation: op.ID, Message: verb + " accepted"})
	return op, false, nil
}

// Server implements admin.Control.
func (c *Control) Server(context.Context) (admin.ServerStatus, error) {
	if err := c.refused("server"); err != nil {
		return admin.ServerStatus{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return admin.ServerStatus{
		Version: admin.VersionInfo{Version: "1.0.0"}, PID: 42, StartedAt: Epoch(), State: "serving",
		Listen: []string{"127.0.0.1:8080"}, Isolation: admin.Isolation{Level: "session"}, Apps: len(c.apps),
	}, nil
}

// Apps implements admin.Control.
func (c *Control) Apps(context.Context) ([]admin.AppStatus, error) {
	if err := c.refused("apps"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []admin.AppStatus
	for _, a := range c.apps {
		list = append(list, a)
	}
	slices.SortFunc(list, func(a, b admin.AppStatus) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// App implements admin.Control.
func (c *Control) App(_ context.Context, name string) (admin.AppStatus, error) {
	if err := c.refused("app"); err != nil {
		return admin.AppStatus{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.app(name)
}

// Upload implements admin.Control.
func (c *Control) Upload(_ context.Context, up admin.UploadRequest) (admin.Build, error) {
	if err := c.refused("upload"); err != nil {
		return admin.Build{}, err
	}
	sum := sha256.New()
	size, err := io.Copy(sum, up.Body)
	if err != nil {
		return admin.Build{}, fmt.Errorf("stage build: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.app(up.App); err != nil {
		return admin.Build{}, err
	}
	b := admin.Build{Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Kind: up.Kind, Size: size}
	c.builds[b.Digest] = b
	c.requests = append(c.requests, b)
	return b, nil
}

// Deploy implements admin.Control.
func (c *Control) Deploy(_ context.Context, req admin.DeployRequest) (admin.Operation, error) {
	return c.admit("deploy", req.Change, req)
}

// Rollback implements admin.Control.
func (c *Control) Rollback(_ context.Context, req admin.RollbackRequest) (admin.Operation, error) {
	return c.admit("rollback", req.Change, req)
}

// Restart implements admin.Control.
func (c *Control) Restart(_ context.Context, req admin.RestartRequest) (admin.Operation, error) {
	return c.admit("restart", req.Change, req)
}

// Wake implements admin.Control.
func (c *Control) Wake(_ context.Context, req admin.Change) (admin.Operation, error) {
	return c.admit("wake", req, req)
}

// Sleep implements admin.Control.
func (c *Control) Sleep(_ context.Context, req admin.Change) (admin.Operation, error) {
	return c.admit("sleep", req, req)
}

// Pause implements admin.Control.
func (c *Control) Pause(_ context.Context, req admin.PauseRequest) (admin.Operation, error) {
	return c.admit("pause", req.Change, req)
}

// Resume implements admin.Control.
func (c *Control) Resume(_ context.Context, req admin.Change) (admin.Operation, error) {
	return c.admit("resume", req, req)
}

// Remove implements admin.Control.
func (c *Control) Remove(_ context.Context, req admin.Change) (admin.Operation, error) {
	return c.admit("remove", req, req)
}

// Operation implements admin.Control.
func (c *Control) Operation(_ context.Context, id string) (admin.Operation, error) {
	if err := c.refused("operation"); err != nil {
		return admin.Operation{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, op := range c.ops {
		if op.ID == id {
			return op, nil
		}
	}
	return admin.Operation{}, &admin.Error{
		Kind: admin.NotFound, Code: admin.CodeOperationNotFound, Detail: fmt.Sprintf("there is no operation %q", id),
	}
}

// Operations implements admin.Control.
func (c *Control) Operations(_ context.Context, app string) ([]admin.Operation, error) {
	if err := c.refused("operations"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.app(app); err != nil {
		return nil, err
	}
	var list []admin.Operation
	for _, op := range slices.Backward(c.ops) {
		if op.App == app {
			list = append(list, op)
		}
	}
	return list, nil
}

// Watch implements admin.Control. Its goroutine ends with ctx.
func (c *Control) Watch(ctx context.Context, f admin.EventFilter) (<-chan admin.Event, error) {
	if err := c.refused("watch"); err != nil {
		return nil, err
	}
	out := make(chan admin.Event)
	go c.deliver(ctx, f, out)
	return out, nil
}

func (c *Control) deliver(ctx context.Context, f admin.EventFilter, out chan<- admin.Event) {
	defer close(out)
	for next := int(f.SinceSeq); ; {
		c.mu.Lock()
		recorded, changed := c.events, c.changed
		c.mu.Unlock()
		for ; next < len(recorded); next++ {
			if e := recorded[next]; chosen(f, e) {
				select {
				case out <- e:
				case <-ctx.Done():
					return
				}
			}
		}
		if !f.Follow {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func chosen(f admin.EventFilter, e admin.Event) bool {
	return (f.App == "" || f.App == e.App) && (f.Operation == "" || f.Operation == e.Operation)
}

// Logs implements admin.Control.
func (c *Control) Logs(ctx context.Context, req admin.LogRequest) (io.ReadCloser, error) {
	if err := c.refused("logs"); err != nil {
		return nil, err
	}
	if c.OpenLog == nil {
		return io.NopCloser(strings.NewReader("")), nil
	}
	return c.OpenLog(ctx, req)
}

// Purge implements admin.Control.
func (c *Control) Purge(_ context.Context, app string) error {
	if err := c.refused("purge"); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.app(app)
	if err == nil {
		c.requests = append(c.requests, "purge "+app)
	}
	return err
}

// Reload implements admin.Control.
func (c *Control) Reload(context.Context) (admin.ReloadResult, error) {
	if err := c.refused("reload"); err != nil {
		return admin.ReloadResult{}, err
	}
	return c.Reloaded, nil
}
