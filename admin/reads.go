package admin

import "net/http"

func (s *Server) getVersion(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, http.StatusOK, s.opts.Version)
}

func (s *Server) getServer(w http.ResponseWriter, r *http.Request) error {
	st, err := s.control.Server(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, st)
}

// appList and operationList leave room for more members beside the list.
type appList struct {
	Apps []AppStatus `json:"apps"`
}

type operationList struct {
	Operations []Operation `json:"operations"`
}

func (s *Server) getApps(w http.ResponseWriter, r *http.Request) error {
	apps, err := s.control.Apps(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, appList{Apps: orEmpty(apps)})
}

func (s *Server) getApp(w http.ResponseWriter, r *http.Request) error {
	app, err := s.control.App(r.Context(), r.PathValue("app"))
	if err != nil {
		return err
	}
	setETag(w, app.Version)
	return writeJSON(w, http.StatusOK, app)
}

func (s *Server) getOperation(w http.ResponseWriter, r *http.Request) error {
	op, err := s.control.Operation(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, op)
}

func (s *Server) getOperations(w http.ResponseWriter, r *http.Request) error {
	ops, err := s.control.Operations(r.Context(), r.PathValue("app"))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, operationList{Operations: orEmpty(ops)})
}

func setETag(w http.ResponseWriter, version string) {
	if version != "" {
		w.Header().Set("ETag", `"`+version+`"`)
	}
}

// orEmpty makes JSON say [] and not null.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
