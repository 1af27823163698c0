package admin

import (
	"context"
	"net/http"
	"net/http/pprof"
	"strings"
)

// handler answers a request or returns what kept it from doing so, in which
// case it has written nothing.
type handler func(w http.ResponseWriter, r *http.Request) error

func (s *Server) newRoutes() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range s.apiRoutes() {
		mux.Handle(pattern, s.answer(s.oncePlaced(h)))
	}
	mux.Handle("GET /v1/version", s.answer(s.getVersion))
	mux.Handle("GET /v1/server", s.answer(s.getServer))
	for pattern, h := range s.probeRoutes() {
		mux.Handle(pattern, h)
	}
	mux.Handle("/", s.answer(s.noRoute))
	return mux
}

func (s *Server) apiRoutes() map[string]handler {
	return map[string]handler{
		"POST /v1/reload": s.reload,
		"GET /v1/events":  s.events,

		"GET /v1/apps":                     s.getApps,
		"GET /v1/apps/{app}":               s.getApp,
		"PUT /v1/apps/{app}":               s.refuseSpec,
		"PATCH /v1/apps/{app}":             s.refuseSpec,
		"PUT /v1/apps/{app}/builds":        s.upload,
		"POST /v1/apps/{app}/deploy":       change(s, s.control.Deploy),
		"POST /v1/apps/{app}/rollback":     change(s, s.control.Rollback),
		"POST /v1/apps/{app}/restart":      change(s, s.control.Restart),
		"POST /v1/apps/{app}/wake":         change(s, s.control.Wake),
		"POST /v1/apps/{app}/sleep":        change(s, s.control.Sleep),
		"POST /v1/apps/{app}/pause":        change(s, s.control.Pause),
		"POST /v1/apps/{app}/resume":       change(s, s.control.Resume),
		"POST /v1/apps/{app}/remove":       change(s, s.control.Remove),
		"POST /v1/apps/{app}/purge":        s.purge,
		"GET /v1/apps/{app}/logs":          s.logs,
		"GET /v1/apps/{app}/events":        s.events,
		"GET /v1/apps/{app}/operations":    s.getOperations,
		"GET /v1/apps/{app}/receipts":      s.getReceipts,
		"GET /v1/apps/{app}/receipts/{id}": s.getReceipt,
		"GET /v1/operations/{id}":          s.getOperation,
		"GET /v1/operations/{id}/events":   s.operationEvents,
	}
}

func (s *Server) probeRoutes() map[string]http.Handler {
	m := map[string]http.Handler{
		"GET /livez":               probe(s.opts.Live),
		"GET /readyz":              probe(s.opts.Ready),
		"GET /debug/pprof/":        http.HandlerFunc(pprof.Index),
		"GET /debug/pprof/cmdline": http.HandlerFunc(pprof.Cmdline),
		"GET /debug/pprof/profile": http.HandlerFunc(pprof.Profile),
		"GET /debug/pprof/symbol":  http.HandlerFunc(pprof.Symbol),
		"GET /debug/pprof/trace":   http.HandlerFunc(pprof.Trace),
	}
	if s.opts.Metrics != nil {
		m["GET /metrics"] = s.opts.Metrics
	}
	return m
}

// probe answers the question of ask in the manner of a health endpoint.
func probe(ask func(context.Context) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		body := "ok\n"
		if ask != nil {
			if err := ask(r.Context()); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)
				body = err.Error() + "\n"
			}
		}
		_, _ = w.Write([]byte(body))
	})
}

// oncePlaced lets a request that comes while usher starts wait: before its app has
// its place there is nothing true to be said about it.
func (s *Server) oncePlaced(h handler) handler {
	if s.opts.Placed == nil {
		return h
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		select {
		case <-s.opts.Placed:
			return h(w, r)
		case <-r.Context().Done():
			return r.Context().Err()
		case <-s.stopping:
			return &Error{Kind: Unavailable, Code: CodeShuttingDown, Detail: "usher ends before it has started", Hint: "look at its log"}
		}
	}
}

// answer runs h and turns its error into a problem.
func (s *Server) answer(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			writeProblem(w, err)
		}
	})
}

// noRoute tells a wrong path (404) from a wrong method (405, with Allow).
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) error {
	allowed := s.methodsOf(r)
	if len(allowed) == 0 {
		return &Error{
			Kind: NotFound, Code: "no-such-resource",
			Detail: "there is nothing at " + r.URL.Path,
			Hint:   "the admin api begins at /v1/apps",
		}
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return &Error{
		Kind:   BadMethod,
		Detail: r.Method + " is not possible on " + r.URL.Path,
		Hint:   "use " + strings.Join(allowed, " or "),
	}
}

func (s *Server) methodsOf(r *http.Request) []string {
	var allowed []string
	probe := r.Clone(r.Context())
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		probe.Method = m
		if _, pattern := s.routes.Handler(probe); pattern != "/" {
			allowed = append(allowed, m)
		}
	}
	return allowed
}
