package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"

	"github.com/usher-edge/usher/admin"
)

// Version of the daemon.
func (c *Client) Version(ctx context.Context) (v admin.VersionInfo, err error) {
	_, err = c.do(ctx, get("version"), &v)
	return v, err
}

// Server describes the daemon.
func (c *Client) Server(ctx context.Context) (s admin.ServerStatus, err error) {
	_, err = c.do(ctx, get("server"), &s)
	return s, err
}

// Apps lists all apps, sorted by name.
func (c *Client) Apps(ctx context.Context) ([]admin.AppStatus, error) {
	var list struct {
		Apps []admin.AppStatus `json:"apps"`
	}
	_, err := c.do(ctx, get("apps"), &list)
	return list.Apps, err
}

// App describes one app.
func (c *Client) App(ctx context.Context, name string) (a admin.AppStatus, err error) {
	_, err = c.do(ctx, get("apps", name), &a)
	return a, err
}

// Operation reads one operation.
func (c *Client) Operation(ctx context.Context, id string) (op admin.Operation, err error) {
	_, err = c.do(ctx, get("operations", id), &op)
	return op, err
}

// Operations lists what is kept of an app, newest first.
func (c *Client) Operations(ctx context.Context, app string) ([]admin.Operation, error) {
	var list struct {
		Operations []admin.Operation `json:"operations"`
	}
	_, err := c.do(ctx, get("apps", app, "operations"), &list)
	return list.Operations, err
}

// Receipts lists receipts of an app, newest first: at most limit, and only those
// of the revision; 0 is any.
func (c *Client) Receipts(ctx context.Context, app string, limit int, revision uint64) ([]admin.Receipt, error) {
	var list struct {
		Receipts []admin.Receipt `json:"receipts"`
	}
	k := get("apps", app, "receipts")
	k.query = url.Values{}
	if limit > 0 {
		k.query.Set("limit", strconv.Itoa(limit))
	}
	if revision > 0 {
		k.query.Set("revision", strconv.FormatUint(revision, 10))
	}
	_, err := c.do(ctx, k, &list)
	return list.Receipts, err
}

// Receipt reads the receipt of one attempt.
func (c *Client) Receipt(ctx context.Context, app string, attempt uint64) (rc admin.Receipt, err error) {
	_, err = c.do(ctx, get("apps", app, "receipts", strconv.FormatUint(attempt, 10)), &rc)
	return rc, err
}

// change sends a verb; target carries the app and the precondition, which are
// not in the body.
func (c *Client) change(ctx context.Context, verb string, target admin.Change, req any) (op admin.Operation, err error) {
	k, err := post(req, "apps", target.App, verb)
	if err != nil {
		return op, err
	}
	if target.IfMatch != "" {
		k.header.Set("If-Match", strconv.Quote(target.IfMatch))
	}
	_, err = c.do(ctx, k, &op)
	return op, err
}

// Deploy asks for a new revision.
func (c *Client) Deploy(ctx context.Context, req admin.DeployRequest) (admin.Operation, error) {
	return c.change(ctx, "deploy", req.Change, req)
}

// Rollback asks for a new revision with an older build.
func (c *Client) Rollback(ctx context.Context, req admin.RollbackRequest) (admin.Operation, error) {
	return c.change(ctx, "rollback", req.Change, req)
}

// Restart asks for a new generation.
func (c *Client) Restart(ctx context.Context, req admin.RestartRequest) (admin.Operation, error) {
	return c.change(ctx, "restart", req.Change, req)
}

// Wake starts a sleeping app.
func (c *Client) Wake(ctx context.Context, req admin.Change) (admin.Operation, error) {
	return c.change(ctx, "wake", req, req)
}

// Sleep stops an idle app until the next request.
func (c *Client) Sleep(ctx context.Context, req admin.Change) (admin.Operation, error) {
	return c.change(ctx, "sleep", req, req)
}

// Pause stops serving an app.
func (c *Client) Pause(ctx context.Context, req admin.PauseRequest) (admin.Operation, error) {
	return c.change(ctx, "pause", req.Change, req)
}

// Resume ends a pause.
func (c *Client) Resume(ctx context.Context, req admin.Change) (admin.Operation, error) {
	return c.change(ctx, "resume", req, req)
}

// Remove drains and forgets an app.
func (c *Client) Remove(ctx context.Context, req admin.Change) (admin.Operation, error) {
	return c.change(ctx, "remove", req, req)
}

// Purge drops what the cache holds of an app.
func (c *Client) Purge(ctx context.Context, app string) error {
	k, err := post(struct{}{}, "apps", app, "purge")
	if err != nil {
		return err
	}
	_, err = c.do(ctx, k, nil)
	return err
}

// Reload makes usher read its config file again.
func (c *Client) Reload(ctx context.Context) (r admin.ReloadResult, err error) {
	k, err := post(struct{}{}, "reload")
	if err != nil {
		return r, err
	}
	_, err = c.do(ctx, k, &r)
	return r, err
}

// Upload stages a build. Kind is admin.KindFile or admin.KindDir. It takes as
// long as the body and the staging take; ctx bounds it.
func (c *Client) Upload(ctx context.Context, up admin.UploadRequest) (b admin.Build, err error) {
	media := "application/octet-stream"
	if up.Kind == admin.KindDir {
		media = "application/x-tar"
	}
	body := &sourceReader{src: up.Body}
	res, err := c.open(ctx, call{
		method: http.MethodPut, path: []string{"apps", up.App, "builds"}, body: body,
		header: http.Header{"Content-Type": {media}, "Expect": {"100-continue"}},
	})
	if broken := body.err.Load(); broken != nil && err != nil {
		return b, fmt.Errorf("read artifact: %w", *broken)
	}
	if err != nil {
		return b, err
	}
	return b, c.decode(ctx, res, &b)
}

// sourceReader remembers an error of the artifact's own reader, which the
// transport would report as one of the connection. The transport reads in a
// goroutine of its own.
type sourceReader struct {
	src io.Reader
	err atomic.Pointer[error]
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.src.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		s.err.Store(&err)
	}
	return n, err
}

// Logs opens the output of an app. Closing the reader ends it. A read error
// wraps ErrLost; io.EOF means that usher ended it.
func (c *Client) Logs(ctx context.Context, req admin.LogRequest) (io.ReadCloser, error) {
	k := get("apps", req.App, "logs")
	k.query = url.Values{"lines": {strconv.Itoa(req.Lines)}}
	if req.Generation != 0 {
		k.query.Set("generation", strconv.FormatUint(req.Generation, 10))
	}
	if req.Follow {
		k.query.Set("follow", "1")
	}
	res, err := c.open(ctx, k)
	if err != nil {
		return nil, err
	}
	return &logReader{res.Body}, nil
}

type logReader struct{ io.ReadCloser }

func (l *logReader) Read(p []byte) (int, error) {
	n, err := l.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", ErrLost, err)
	}
	return n, err
}
