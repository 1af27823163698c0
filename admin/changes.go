package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"
)

// aimed is a request that names its app; every request with an embedded Change
// is one.
type aimed interface{ aim(app, ifMatch string) }

func (c *Change) aim(app, ifMatch string) { c.App, c.IfMatch = app, ifMatch }

// checked is a request with rules of its own.
type checked interface{ check() error }

func (d *DeployRequest) check() error {
	if (d.Digest == "") == (d.Target == "") {
		return &Error{
			Kind: Invalid, Code: "deploy-invalid",
			Detail: "a deploy names either a digest or a target",
			Hint:   "upload the artifact first and send its digest",
		}
	}
	if d.Mode != "" && d.Mode != "overlap" && d.Mode != "hold" {
		return &Error{
			Kind: Invalid, Code: "deploy-invalid",
			Detail: fmt.Sprintf("unknown mode %q", d.Mode), Hint: "use overlap or hold",
		}
	}
	return nil
}

// change makes the handler of a verb: read, hand on, answer 202 with the
// operation that was made of it.
func change[R any](s *Server, do func(context.Context, R) (Operation, error)) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var req R
		if err := readChange(w, r, &req); err != nil {
			return err
		}
		ctx, cancel := changeContext(r)
		defer cancel()
		op, err := do(ctx, req)
		if err != nil {
			return err
		}
		if rec, ok := w.(*recorder); ok {
			rec.operation = op.ID
		}
		w.Header().Set("Location", "/v1/operations/"+url.PathEscape(op.ID))
		return writeJSON(w, http.StatusAccepted, op)
	}
}

func readChange(w http.ResponseWriter, r *http.Request, req any) error {
	if err := readJSON(w, r, req); err != nil {
		return err
	}
	version, err := ifMatch(r)
	if err != nil {
		return err
	}
	if a, ok := req.(aimed); ok {
		a.aim(r.PathValue("app"), version)
	}
	if c, ok := req.(checked); ok {
		return c.check()
	}
	return nil
}

// none is the body of a change without parameters.
type none struct{}

func (s *Server) purge(w http.ResponseWriter, r *http.Request) error {
	if err := readJSON(w, r, &none{}); err != nil {
		return err
	}
	ctx, cancel := changeContext(r)
	defer cancel()
	if err := s.control.Purge(ctx, r.PathValue("app")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) error {
	if err := readJSON(w, r, &none{}); err != nil {
		return err
	}
	ctx, cancel := changeContext(r)
	defer cancel()
	res, err := s.control.Reload(ctx)
	if err != nil {
		return err
	}
	res.Added, res.Changed = orEmpty(res.Added), orEmpty(res.Changed)
	res.Removed, res.Unchanged = orEmpty(res.Removed), orEmpty(res.Unchanged)
	return writeJSON(w, http.StatusOK, res)
}

// refuseSpec says where the spec of an app is edited: in the file that owns it.
func (s *Server) refuseSpec(_ http.ResponseWriter, r *http.Request) error {
	name := r.PathValue("app")
	if _, err := s.control.App(r.Context(), name); err != nil {
		return err
	}
	return &Error{
		Kind: Conflict, Code: CodeFileOwned,
		Detail: "the spec of " + name + " belongs to the config file",
		Hint:   "edit the file and run usher reload; builds and targets are set with usher deploy",
	}
}

// upload streams the body to Control. It holds nothing of it.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	kind, err := uploadKind(r)
	if err != nil {
		return err
	}
	if r.ContentLength > s.opts.MaxUpload {
		return s.uploadTooLarge(nil)
	}
	body := &uploadBody{
		src: http.MaxBytesReader(w, r.Body, s.opts.MaxUpload),
		rc:  http.NewResponseController(w),
	}
	build, err := s.control.Upload(r.Context(), UploadRequest{App: r.PathValue("app"), Kind: kind, Body: body})
	body.done()
	if body.tooLarge {
		return s.uploadTooLarge(err)
	}
	if err == nil {
		err = body.broken
	}
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, build)
}

func uploadKind(r *http.Request) (string, error) {
	ct, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	switch ct {
	case "application/octet-stream":
		return KindFile, nil
	case "application/x-tar":
		return KindDir, nil
	}
	return "", &Error{
		Kind: BadMedia, Code: "artifact-media",
		Detail: "an artifact is sent as application/octet-stream (a file) or application/x-tar (a directory)",
		Hint:   "set Content-Type to one of them",
	}
}

func (s *Server) uploadTooLarge(cause error) error {
	return &Error{
		Kind: TooLarge, Code: CodeUploadTooLarge, Cause: cause,
		Detail: fmt.Sprintf("the artifact is larger than %d bytes", s.opts.MaxUpload),
		Hint:   "leave out what the app does not need at run time",
	}
}

// uploadBody gives every read its own deadline, so that a long upload may take
// its time and a stalled one may not, and remembers why it ended.
type uploadBody struct {
	src      io.Reader
	rc       *http.ResponseController
	tooLarge bool
	broken   error
}

func (b *uploadBody) Read(p []byte) (int, error) {
	_ = b.rc.SetReadDeadline(time.Now().Add(stallTimeout))
	n, err := b.src.Read(p)
	if err == nil {
		return n, nil
	}
	b.done()
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &tooBig):
		b.tooLarge = true
	case !errors.Is(err, io.EOF):
		err = &Error{
			Kind: Invalid, Code: "upload-incomplete", Cause: err,
			Detail: "the upload broke off: " + err.Error(), Hint: "send it again",
		}
		b.broken = err
	}
	return n, err
}

// done lifts the deadline: staging what was read may take longer.
func (b *uploadBody) done() { _ = b.rc.SetReadDeadline(time.Time{}) }
