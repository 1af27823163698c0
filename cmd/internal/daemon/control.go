package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"

	"github.com/usher-edge/usher/activator"
	"github.com/usher-edge/usher/activator/artifact"
	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/cmd/internal/config"
)

// control is the running usher as the admin API sees it.
type control struct{ d *daemon }

var _ admin.Control = (*control)(nil)

func (c *control) Server(context.Context) (admin.ServerStatus, error) {
	f := c.d.file.Load()
	st, _ := c.d.state.Load().(string)
	out := admin.ServerStatus{
		Version: c.d.opt.Version, PID: os.Getpid(), StartedAt: c.d.started, State: st,
		Config: f.path, StateDir: f.server.State, Apps: len(c.d.act.Names()), Warnings: c.d.warnings,
		Isolation: admin.Isolation{Level: c.d.backend.Level()},
	}
	if os.Geteuid() != 0 {
		out.Isolation.Level = "none"
	}
	if err := c.d.act.Owned(); err != nil {
		if st == "serving" {
			out.State = "fenced"
		}
		out.Warnings = append(slices.Clone(out.Warnings), err.Error())
	}
	for _, l := range f.server.Listen {
		out.Listen = append(out.Listen, l.String())
	}
	return out, nil
}

func (c *control) Apps(context.Context) ([]admin.AppStatus, error) {
	out := []admin.AppStatus{}
	for _, name := range c.d.act.Names() {
		if s, err := c.d.act.Status(name); err == nil { // else it was removed meanwhile
			out = append(out, c.status(s))
		}
	}
	return out, nil
}

func (c *control) App(_ context.Context, name string) (admin.AppStatus, error) {
	s, err := c.d.act.Status(name)
	if err != nil {
		return admin.AppStatus{}, publicError(err)
	}
	return c.status(s), nil
}

func (c *control) Upload(ctx context.Context, up admin.UploadRequest) (admin.Build, error) {
	st, err := c.d.act.Status(up.App)
	if err != nil {
		return admin.Build{}, publicError(err)
	}
	if st.External {
		return admin.Build{}, &admin.Error{
			Kind: admin.Conflict, Detail: fmt.Sprintf("app %s is a target in the config file, whose process usher does not start", up.App),
			Hint: "deploy it with --target ADDR",
		}
	}
	if err := c.d.act.Owned(); err != nil { // its place may be another's
		return admin.Build{}, publicError(err)
	}
	body := &counter{r: up.Body}
	b, err := c.d.depot.Receive(ctx, body, artifact.Kind(up.Kind))
	if err != nil {
		return admin.Build{}, publicError(err)
	}
	return admin.Build{Digest: b.Digest, Kind: string(b.Kind), Size: body.n}, nil
}

// counter counts what is read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *control) Deploy(ctx context.Context, req admin.DeployRequest) (admin.Operation, error) {
	ch, err := change(req.Change)
	if err != nil {
		return admin.Operation{}, err
	}
	return operation(c.d.act.Deploy(ctx, activator.DeployRequest{
		Change: ch, Digest: req.Digest, Target: req.Target, Mode: req.Mode, Canary: req.Canary,
	}))
}

func (c *control) Rollback(ctx context.Context, req admin.RollbackRequest) (admin.Operation, error) {
	ch, err := change(req.Change)
	if err != nil {
		return admin.Operation{}, err
	}
	return operation(c.d.act.Rollback(ctx, ch, req.To, ""))
}

func (c *control) Restart(ctx context.Context, req admin.RestartRequest) (admin.Operation, error) {
	ch, err := change(req.Change)
	if err != nil {
		return admin.Operation{}, err
	}
	return operation(c.d.act.Restart(ctx, ch, req.Retry))
}

func (c *control) Pause(ctx context.Context, req admin.PauseRequest) (admin.Operation, error) {
	ch, err := change(req.Change)
	if err != nil {
		return admin.Operation{}, err
	}
	return operation(c.d.act.Pause(ctx, ch, req.Maintenance))
}

func (c *control) Wake(ctx context.Context, req admin.Change) (admin.Operation, error) {
	return simple(ctx, req, c.d.act.Wake)
}

func (c *control) Sleep(ctx context.Context, req admin.Change) (admin.Operation, error) {
	return simple(ctx, req, c.d.act.Sleep)
}

func (c *control) Resume(ctx context.Context, req admin.Change) (admin.Operation, error) {
	return simple(ctx, req, c.d.act.Resume)
}

// Remove is refused for apps of the file: they would come back with the next
// reload.
func (c *control) Remove(ctx context.Context, req admin.Change) (admin.Operation, error) {
	if _, ok := c.d.file.Load().apps.find(req.App); ok {
		return admin.Operation{}, &admin.Error{
			Kind: admin.Conflict, Code: admin.CodeFileOwned,
			Detail: fmt.Sprintf("app %s is in the config file %s and would come back", req.App, c.d.file.Load().path),
			Hint:   "take it out of the file and run usher reload, which drains, stops and forgets it",
		}
	}
	return simple(ctx, req, c.d.act.Remove)
}

func simple(ctx context.Context, req admin.Change, f func(context.Context, activator.Change) (activator.Operation, error)) (admin.Operation, error) {
	ch, err := change(req)
	if err != nil {
		return admin.Operation{}, err
	}
	return operation(f(ctx, ch))
}

func (c *control) Operation(_ context.Context, id string) (admin.Operation, error) {
	o, err := c.d.act.Operation(id)
	if errors.Is(err, activator.ErrNotFound) {
		return admin.Operation{}, &admin.Error{Kind: admin.NotFound, Code: admin.CodeOperationNotFound, Detail: err.Error(), Cause: err}
	}
	return operation(o, err)
}

func (c *control) Operations(_ context.Context, app string) ([]admin.Operation, error) {
	all, err := c.d.act.Operations(app)
	if err != nil {
		return nil, publicError(err)
	}
	out := make([]admin.Operation, 0, len(all))
	for _, o := range all {
		out = append(out, translate(o))
	}
	return out, nil
}

func (c *control) Logs(ctx context.Context, req admin.LogRequest) (io.ReadCloser, error) {
	r, err := c.d.act.Logs(ctx, activator.LogRequest{App: req.App, Generation: req.Generation, Lines: req.Lines, Follow: req.Follow})
	if err != nil {
		return nil, publicError(err)
	}
	return r, nil
}

func (c *control) Purge(_ context.Context, app string) error {
	if _, err := c.d.act.Status(app); err != nil {
		return publicError(err)
	}
	if c.d.cache != nil {
		c.d.cache.Purge(app)
	}
	return nil
}

func (c *control) Reload(ctx context.Context) (admin.ReloadResult, error) {
	ch, err := c.d.reload(ctx)
	var problems config.Problems
	if errors.As(err, &problems) {
		return admin.ReloadResult{}, &admin.Error{
			Kind: admin.Invalid, Code: admin.CodeConfigInvalid, Detail: "the config file is invalid; the old configuration stays in force",
			Hint: "mend the file and reload again", Findings: findings(problems), Cause: err,
		}
	}
	if err != nil {
		return admin.ReloadResult{}, publicError(err)
	}
	return admin.ReloadResult{
		Added: ch.Added, Changed: ch.Changed, Removed: ch.Removed, Unchanged: ch.Unchanged,
		Warnings: findings(c.d.file.Load().warnings),
	}, nil
}

func findings(ps []config.Problem) []admin.Finding {
	out := make([]admin.Finding, 0, len(ps))
	for _, p := range ps {
		out = append(out, admin.Finding{File: p.File, Line: p.Line, Column: p.Column, Message: p.Message})
	}
	return out
}

// change reads the version that the caller has seen.
func change(c admin.Change) (activator.Change, error) {
	out := activator.Change{App: c.App, RequestID: c.RequestID}
	if c.IfMatch == "" || c.IfMatch == "*" {
		return out, nil
	}
	v, err := strconv.ParseUint(c.IfMatch, 10, 64)
	if err != nil || v == 0 {
		return out, &admin.Error{
			Kind: admin.Precondition, Code: admin.CodeVersionMismatch,
			Detail: fmt.Sprintf("version %q is not one of this app", c.IfMatch), Hint: "read the app again and use its version",
		}
	}
	out.IfVersion = v
	return out, nil
}
