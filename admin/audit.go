package admin

import (
	"context"
	"log/slog"
	"net/http"
	"time"
)

// recorder notes how a request was answered, for the audit line.
type recorder struct {
	http.ResponseWriter
	status    int
	code      string
	cause     error
	operation string
}

func (r *recorder) WriteHeader(status int) {
	if r.status == 0 && status >= 200 {
		r.status = status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	if r.status == 0 {
		r.status = http.StatusOK
	}
	return r.ResponseWriter.Write(p)
}

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// audited writes one line for every request, when it has ended.
func (s *Server) audited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// A deadline set for the last answer of this connection would hit this one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		rec := &recorder{ResponseWriter: w}
		began := time.Now()
		defer func() { s.audit(r, rec, time.Since(began)) }()
		next.ServeHTTP(rec, r)
	})
}

func (s *Server) audit(r *http.Request, rec *recorder, took time.Duration) {
	if rec.status == 0 {
		rec.status = http.StatusOK
	}
	attrs := []slog.Attr{
		slog.String("method", r.Method),
		slog.String("path", r.URL.Path),
		slog.Int("status", rec.status),
		slog.Duration("took", took),
	}
	if p := peerFrom(r.Context()); p.unix && p.err == nil {
		attrs = append(attrs, slog.Uint64("uid", uint64(p.uid)), slog.Uint64("gid", uint64(p.gid)), slog.Int("pid", int(p.pid)))
	} else {
		attrs = append(attrs, slog.String("remote", r.RemoteAddr))
	}
	if rec.operation != "" {
		attrs = append(attrs, slog.String("operation", rec.operation))
	}
	if rec.code != "" {
		attrs = append(attrs, slog.String("code", rec.code))
	}
	if rec.cause != nil {
		attrs = append(attrs, slog.String("error", rec.cause.Error()))
	}
	// The request's context may have ended; the line is written all the same.
	s.opts.Log.LogAttrs(context.WithoutCancel(r.Context()), auditLevel(r.Method, rec), "admin request", attrs...)
}

func auditLevel(method string, rec *recorder) slog.Level {
	starting := rec.status == http.StatusServiceUnavailable && rec.cause == nil // or stopping
	switch {
	case rec.status >= http.StatusInternalServerError && !starting:
		return slog.LevelError
	case rec.status == http.StatusForbidden, rec.status == http.StatusUnauthorized:
		return slog.LevelWarn
	case method == http.MethodGet, method == http.MethodHead:
		return slog.LevelDebug
	}
	return slog.LevelInfo
}
