package admin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/admin/admintest"
	"github.com/usher-edge/usher/admin/client"
)

// api sends raw requests to one server.
type api struct {
	t    *testing.T
	base string
	http *http.Client
}

func newAPI(t *testing.T, addr admin.Address) *api {
	tr := &http.Transport{}
	base := "http://" + addr.Host
	if addr.Scheme == "unix" {
		base = "http://usher"
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", addr.Path)
		}
	}
	t.Cleanup(tr.CloseIdleConnections)
	return &api{t: t, base: base, http: &http.Client{Transport: tr}}
}

func (a *api) send(method, path, body string, header ...string) *http.Response {
	a.t.Helper()
	req, err := http.NewRequest(method, a.base+path, strings.NewReader(body))
	if err != nil {
		a.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		if header[i] == "Host" {
			req.Host = header[i+1]
		} else {
			req.Header.Set(header[i], header[i+1])
		}
	}
	res, err := a.http.Do(req)
	if err != nil {
		a.t.Fatalf("%s %s: %v", method, path, err)
	}
	a.t.Cleanup(func() { _ = res.Body.Close() })
	return res
}

func (a *api) post(path, body string, header ...string) *http.Response {
	a.t.Helper()
	return a.send("POST", path, body, append([]string{"Content-Type", "application/json"}, header...)...)
}

// problem reads an answer that must be a problem, and returns its members.
func (a *api) problem(res *http.Response, status int, code string) map[string]any {
	a.t.Helper()
	var p map[string]any
	if err := json.NewDecoder(res.Body).Decode(&p); err != nil {
		a.t.Fatalf("status %s: no problem in the body: %v", res.Status, err)
	}
	if ct := res.Header.Get("Content-Type"); ct != "application/problem+json" {
		a.t.Errorf("content type %q", ct)
	}
	if res.StatusCode != status || p["code"] != code || p["status"] != float64(status) {
		a.t.Errorf("got %d %v, want %d %s", res.StatusCode, p, status, code)
	}
	if uri, _ := p["type"].(string); !strings.HasSuffix(uri, "/admin/README.md#"+code) {
		a.t.Errorf("type %q does not name the code", uri)
	}
	return p
}

func decode[T any](t *testing.T, res *http.Response) (v T) {
	t.Helper()
	if err := json.NewDecoder(res.Body).Decode(&v); err != nil {
		t.Fatalf("decode %s: %v", res.Status, err)
	}
	return v
}

func hello() admin.AppStatus {
	return admin.AppStatus{Name: "hello", State: admin.Awake, Revision: 2, Generation: 5, Version: "v7"}
}

func TestAppsAreListedAndReadWithTheirVersionAsETag(t *testing.T) {
	addr, _ := admintest.Start(t, admintest.New(hello()), admin.Options{})
	a := newAPI(t, addr)

	list := decode[struct{ Apps []admin.AppStatus }](t, a.send("GET", "/v1/apps", ""))
	if len(list.Apps) != 1 || list.Apps[0].Name != "hello" {
		t.Errorf("apps: %+v", list.Apps)
	}
	res := a.send("GET", "/v1/apps/hello", "")
	if res.Header.Get("ETag") != `"v7"` || res.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("headers %v", res.Header)
	}
	if got := decode[admin.AppStatus](t, res); got.State != admin.Awake || got.Generation != 5 {
		t.Errorf("app: %+v", got)
	}
}

func TestEmptyListsAreArrays(t *testing.T) {
	addr, _ := admintest.Start(t, admintest.New(), admin.Options{})
	a := newAPI(t, addr)
	for path, want := range map[string]string{
		"/v1/apps":   "{\"apps\":[]}\n",
		"/v1/events": "{\"events\":[]}\n",
	} {
		body, _ := io.ReadAll(a.send("GET", path, "").Body)
		if string(body) != want {
			t.Errorf("%s: %q, want %q", path, body, want)
		}
	}
}

func TestEveryVerbReachesControlAndIsAnsweredWith202(t *testing.T) {
	change := admin.Change{App: "hello", IfMatch: "v7", RequestID: "r"}
	tests := []struct {
		verb, body string
		want       any
	}{
		{
			"deploy", `{"digest":"sha256:aa","mode":"hold","canary":true,"request_id":"r"}`,
			admin.DeployRequest{Change: change, Digest: "sha256:aa", Mode: "hold", Canary: true},
		},
		{
			"deploy", `{"target":"127.0.0.1:3001","request_id":"r"}`,
			admin.DeployRequest{Change: change, Target: "127.0.0.1:3001"},
		},
		{"rollback", `{"to":1,"request_id":"r"}`, admin.RollbackRequest{Change: change, To: 1}},
		{"restart", `{"retry":true,"request_id":"r"}`, admin.RestartRequest{Change: change, Retry: true}},
		{"wake", `{"request_id":"r"}`, change},
		{"sleep", `{"request_id":"r"}`, change},
		{"pause", `{"maintenance":true,"request_id":"r"}`, admin.PauseRequest{Change: change, Maintenance: true}},
		{"resume", `{"request_id":"r"}`, change},
		{"remove", `{"request_id":"r"}`, change},
	}
	for _, tt := range tests {
		t.Run(tt.verb, func(t *testing.T) {
			c := admintest.New(hello())
			addr, _ := admintest.Start(t, c, admin.Options{})
			a := newAPI(t, addr)
			res := a.post("/v1/apps/hello/"+tt.verb, tt.body, "If-Match", `"v7"`)
			op := decode[admin.Operation](t, res)
			if res.StatusCode != http.StatusAccepted || res.Header.Get("Location") != "/v1/operations/"+op.ID {
				t.Errorf("status %s, location %q, operation %+v", res.Status, res.Header.Get("Location"), op)
			}
			if got := c.Requests(); len(got) != 1 || got[0] != tt.want {
				t.Errorf("control got %+v, want %+v", got, tt.want)
			}
			if got := decode[admin.Operation](t, a.send("GET", res.Header.Get("Location"), "")); got.Kind != tt.verb {
				t.Errorf("operation resource: %+v", got)
			}
		})
	}
}

func TestARepeatedRequestIDReturnsTheFirstOperation(t *testing.T) {
	c := admintest.New(hello())
	addr, _ := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	first := decode[admin.Operation](t, a.post("/v1/apps/hello/wake", `{"request_id":"x"}`))
	second := decode[admin.Operation](t, a.post("/v1/apps/hello/wake", `{"request_id":"x"}`))
	if first.ID != second.ID || len(c.Requests()) != 1 {
		t.Errorf("operations %s and %s, requests %v", first.ID, second.ID, c.Requests())
	}
	ops := decode[struct{ Operations []admin.Operation }](t, a.send("GET", "/v1/apps/hello/operations", ""))
	if len(ops.Operations) != 1 || ops.Operations[0].RequestID != "x" {
		t.Errorf("operations: %+v", ops)
	}
}

func TestBadRequestsAreRefusedBeforeControlIsAsked(t *testing.T) {
	tests := []struct {
		name, method, path, body string
		header                   []string
		status                   int
		code                     string
	}{
		{"unknown field", "POST", "/v1/apps/hello/wake", `{"speed":9}`, nil, 400, "body-invalid"},
		{"app in the body", "POST", "/v1/apps/hello/wake", `{"App":"other"}`, nil, 400, "body-invalid"},
		{"wrong type", "POST", "/v1/apps/hello/rollback", `{"to":"one"}`, nil, 400, "body-invalid"},
		{"two objects", "POST", "/v1/apps/hello/wake", `{}{}`, nil, 400, "body-invalid"},
		{"half an object", "POST", "/v1/apps/hello/wake", `{"request_id":`, nil, 400, "body-invalid"},
		{"huge body", "POST", "/v1/apps/hello/wake", `{"request_id":"` + strings.Repeat("x", 2<<20) + `"}`, nil, 413, "body-too-large"},
		{"form", "POST", "/v1/apps/hello/wake", `a=b`, []string{"Content-Type", "application/x-www-form-urlencoded"}, 415, "bad-media"},
		{"no content type", "POST", "/v1/apps/hello/wake", ``, []string{"Content-Type", ""}, 415, "bad-media"},
		{"no artifact", "POST", "/v1/apps/hello/deploy", `{}`, nil, 400, "deploy-invalid"},
		{"digest and target", "POST", "/v1/apps/hello/deploy", `{"digest":"sha256:aa","target":"a:1"}`, nil, 400, "deploy-invalid"},
		{"unknown mode", "POST", "/v1/apps/hello/deploy", `{"digest":"sha256:aa","mode":"fast"}`, nil, 400, "deploy-invalid"},
		{"old version", "POST", "/v1/apps/hello/wake", `{}`, []string{"If-Match", `"v6"`}, 412, "version-mismatch"},
		{"weak tag", "POST", "/v1/apps/hello/wake", `{}`, []string{"If-Match", `W/"v7"`}, 412, "version-mismatch"},
		{"bare tag", "POST", "/v1/apps/hello/wake", `{}`, []string{"If-Match", `v7`}, 400, "if-match-invalid"},
		{"two tags", "POST", "/v1/apps/hello/wake", `{}`, []string{"If-Match", `"v6", "v7"`}, 400, "if-match-invalid"},
		{"no such app", "POST", "/v1/apps/nope/wake", `{}`, nil, 404, "app-not-found"},
		{"no such operation", "GET", "/v1/operations/op-9", ``, nil, 404, "operation-not-found"},
		{"no such receipt", "GET", "/v1/apps/hello/receipts/9", ``, nil, 404, "receipt-not-found"},
		{"no number of a receipt", "GET", "/v1/apps/hello/receipts/last", ``, nil, 404, "receipt-not-found"},
		{"receipts of no app", "GET", "/v1/apps/nope/receipts", ``, nil, 404, "app-not-found"},
		{"number of receipts", "GET", "/v1/apps/hello/receipts?limit=few", ``, nil, 400, "query-invalid"},
		{"no such path", "GET", "/v2/apps", ``, nil, 404, "no-such-resource"},
		{"no such verb", "POST", "/v1/apps/hello/explode", `{}`, nil, 404, "no-such-resource"},
		{"method", "GET", "/v1/apps/hello/wake", ``, nil, 405, "bad-method"},
		{"spec by put", "PUT", "/v1/apps/hello", `{}`, nil, 409, "file-owned"},
		{"spec by patch", "PATCH", "/v1/apps/hello", `{}`, nil, 409, "file-owned"},
		{"artifact as json", "PUT", "/v1/apps/hello/builds", `{}`, nil, 415, "artifact-media"},
		{"log lines", "GET", "/v1/apps/hello/logs?lines=-1", ``, nil, 400, "query-invalid"},
		{"log of generation 0", "GET", "/v1/apps/hello/logs?generation=0", ``, nil, 400, "query-invalid"},
		{"log of no number", "GET", "/v1/apps/hello/logs?generation=99999999999999999999", ``, nil, 400, "query-invalid"},
		{"receipts of revision 0", "GET", "/v1/apps/hello/receipts?revision=0", ``, nil, 400, "query-invalid"},
		{"log follow", "GET", "/v1/apps/hello/logs?follow=maybe", ``, nil, 400, "query-invalid"},
		{"event id", "GET", "/v1/events", ``, []string{"Last-Event-ID", "x"}, 400, "last-event-id-invalid"},
	}
	c := admintest.New(hello())
	addr, _ := admintest.Start(t, c, admin.Options{})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAPI(t, addr)
			res := a.send(tt.method, tt.path, tt.body, append([]string{"Content-Type", "application/json"}, tt.header...)...)
			p := a.problem(res, tt.status, tt.code)
			if p["detail"] == "" || p["title"] != http.StatusText(tt.status) {
				t.Errorf("problem says nothing: %v", p)
			}
			if tt.status == 405 && res.Header.Get("Allow") != "POST" {
				t.Errorf("Allow: %q", res.Header.Get("Allow"))
			}
		})
	}
	if got := c.Requests(); len(got) != 0 {
		t.Errorf("control was asked: %v", got)
	}
}

func TestErrorsOfControlBecomeProblems(t *testing.T) {
	kinds := map[admin.Kind]int{
		admin.NotFound: 404, admin.Conflict: 409, admin.Precondition: 412, admin.Invalid: 400, admin.TooLarge: 413,
		admin.Unavailable: 503, admin.Forbidden: 403, admin.Unauthorized: 401, admin.BadMethod: 405,
		admin.BadMedia: 415, admin.NoSpace: 507, admin.Internal: 500,
	}
	var mu sync.Mutex
	var next error
	c := admintest.New(hello())
	c.Refuse = func(string) error {
		mu.Lock()
		defer mu.Unlock()
		return next
	}
	addr, _ := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	ask := func(err error) *http.Response {
		mu.Lock()
		next = err
		mu.Unlock()
		return a.post("/v1/apps/hello/deploy", `{"digest":"sha256:aa"}`)
	}
	for kind, status := range kinds {
		res := ask(fmt.Errorf("deploy: %w", &admin.Error{Kind: kind, Detail: "d", Hint: "h", Operation: "op-3", Cause: errors.New("secret")}))
		p := a.problem(res, status, string(kind))
		if p["detail"] != "d" || p["hint"] != "h" || p["operation"] != "op-3" || strings.Contains(fmt.Sprint(p), "secret") {
			t.Errorf("%s: %v", kind, p)
		}
		if got := res.Header.Get("Retry-After"); (got != "") != (status == 503) {
			t.Errorf("%s: Retry-After %q", kind, got)
		}
	}
	a.problem(ask(errors.New("disk on fire")), 500, "internal")
	a.problem(ask(fmt.Errorf("admit: %w", context.DeadlineExceeded)), 503, "timed-out")
}

func TestAnInvalidConfigIsReportedWithEveryFinding(t *testing.T) {
	c := admintest.New()
	c.Refuse = func(string) error {
		return &admin.Error{Kind: admin.Invalid, Code: admin.CodeConfigInvalid, Detail: "2 errors", Findings: []admin.Finding{
			{File: "usher.toml", Line: 3, Column: 1, Message: "unknown key colour"}, {File: "usher.toml", Message: "no app"},
		}}
	}
	addr, _ := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	p := a.problem(a.post("/v1/reload", ""), 400, "config-invalid")
	if list, _ := p["findings"].([]any); len(list) != 2 {
		t.Errorf("findings: %v", p)
	}
}

func TestReloadAndPurgeAnswerAtOnce(t *testing.T) {
	c := admintest.New(hello())
	c.Reloaded = admin.ReloadResult{Added: []string{"new"}}
	addr, _ := admintest.Start(t, c, admin.Options{})
	a := newAPI(t, addr)
	body, _ := io.ReadAll(a.post("/v1/reload", "").Body)
	if want := `{"added":["new"],"changed":[],"removed":[],"unchanged":[]}` + "\n"; string(body) != want {
		t.Errorf("reload: %s", body)
	}
	if res := a.post("/v1/apps/hello/purge", ""); res.StatusCode != http.StatusNoContent {
		t.Errorf("purge: %s", res.Status)
	}
	a.problem(a.post("/v1/apps/nope/purge", ""), 404, "app-not-found")
}

// A client that leaves in the middle of a change must not cut it in half.
func TestADisconnectDoesNotCancelAChange(t *testing.T) {
	c := admintest.New(hello())
	entered, release := make(chan struct{}), make(chan struct{})
	c.Refuse = func(string) error { close(entered); <-release; return nil }
	w := &watchedControl{Control: c, ended: make(chan error, 1)}
	addr, _ := admintest.Start(t, w, admin.Options{})
	a := newAPI(t, addr)

	ctx, cancel := context.WithCancel(context.Background())
	req, _ := http.NewRequestWithContext(ctx, "POST", a.base+"/v1/apps/hello/wake", nil)
	req.Header.Set("Content-Type", "application/json")
	failed := make(chan error, 1)
	go func() {
		res, err := a.http.Do(req)
		if err == nil {
			_ = res.Body.Close()
		}
		failed <- err
	}()
	<-entered
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Fatalf("client: %v", err)
	}
	a.http.CloseIdleConnections()
	// The server notices the closed connection while Wake is still running.
	select {
	case <-w.cancelled:
		t.Error("the context of the change ended with the client")
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	if err := <-w.ended; err != nil {
		t.Errorf("wake: %v", err)
	}
	if got := c.Requests(); len(got) != 1 {
		t.Errorf("requests: %v", got)
	}
}

type watchedControl struct {
	*admintest.Control
	cancelled <-chan struct{}
	ended     chan error
}

func (w *watchedControl) Wake(ctx context.Context, req admin.Change) (admin.Operation, error) {
	w.cancelled = ctx.Done()
	op, err := w.Control.Wake(ctx, req)
	if err == nil {
		err = ctx.Err()
	}
	w.ended <- err
	return op, err
}

func TestUploadsStreamAndAreBounded(t *testing.T) {
	c := admintest.New(hello())
	addr, _ := admintest.Start(t, c, admin.Options{MaxUpload: 1000})
	a := newAPI(t, addr)
	put := func(app, media string, body io.Reader) *http.Response {
		req, _ := http.NewRequest("PUT", a.base+"/v1/apps/"+app+"/builds", body)
		req.Header.Set("Content-Type", media)
		res, err := a.http.Do(req)
		if err != nil {
			t.Fatalf("put: %v", err)
		}
		t.Cleanup(func() { _ = res.Body.Close() })
		return res
	}
	exact := strings.Repeat("x", 1000)
	res := put("hello", "application/octet-stream", strings.NewReader(exact))
	if b := decode[admin.Build](t, res); res.StatusCode != http.StatusCreated || b.Size != 1000 || b.Kind != admin.KindFile {
		t.Errorf("file: %s %+v", res.Status, b)
	}
	// A chunked body has no length to refuse before it is read.
	res = put("hello", "application/x-tar", io.MultiReader(strings.NewReader(exact)))
	if b := decode[admin.Build](t, res); b.Kind != admin.KindDir {
		t.Errorf("dir: %+v", b)
	}
	a.problem(put("hello", "application/x-tar", io.MultiReader(strings.NewReader(exact+"y"))), 413, admin.CodeUploadTooLarge)
	a.problem(put("hello", "application/x-tar", strings.NewReader(exact+"y")), 413, admin.CodeUploadTooLarge)
	a.problem(put("nope", "application/x-tar", strings.NewReader("")), 404, admin.CodeAppNotFound)
	if got := c.Requests(); len(got) != 2 {
		t.Errorf("staged: %v", got)
	}
}

// fullControl has no room for more than the beginning of an upload.
type fullControl struct{ admin.Control }

func (fullControl) Upload(_ context.Context, req admin.UploadRequest) (admin.Build, error) {
	_, _ = io.ReadFull(req.Body, make([]byte, 32<<10))
	return admin.Build{}, &admin.Error{Kind: admin.NoSpace, Detail: "no space left on device"}
}

// Who is still sending when the answer comes gets it: its write must not fail first.
func TestAnUploadThatIsRefusedWhileItComesIsTold(t *testing.T) {
	addr, _ := admintest.Start(t, fullControl{admintest.New(hello())}, admin.Options{})
	c := client.New(addr, client.Options{})
	t.Cleanup(c.Close)
	artifact := make([]byte, 9<<20)
	for range 300 {
		_, err := c.Upload(t.Context(), admin.UploadRequest{App: "hello", Kind: admin.KindFile, Body: bytes.NewReader(artifact)})
		var told *admin.Error
		if !errors.As(err, &told) || told.Kind != admin.NoSpace {
			t.Fatalf("%v", err)
		}
	}
}

func TestABrokenUploadStagesNothing(t *testing.T) {
	c := admintest.New(hello())
	var log syncBuffer
	addr, stop := admintest.Start(t, c, admin.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	conn, err := net.Dial("unix", addr.Path)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "PUT /v1/apps/hello/builds HTTP/1.1\r\nHost: usher\r\n"+
		"Content-Type: application/octet-stream\r\nContent-Length: 100\r\n\r\nhalf")
	_ = conn.(*net.UnixConn).CloseWrite()
	answer, _ := io.ReadAll(conn)
	_ = conn.Close()
	stop()
	if !bytes.Contains(answer, []byte("400 Bad Request")) || !strings.Contains(log.String(), "upload-incomplete") {
		t.Errorf("answer %q, log %s", answer, log.String())
	}
	if got := c.Requests(); len(got) != 0 {
		t.Errorf("staged: %v", got)
	}
}

func TestProbesAndMetricsAreServed(t *testing.T) {
	o := admin.Options{
		Live:    func(context.Context) error { return nil },
		Ready:   func(context.Context) error { return errors.New("draining") },
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "usher_up 1\n") }),
		Version: admin.VersionInfo{Version: "1.2.3"},
	}
	addr, _ := admintest.Start(t, admintest.New(), o)
	a := newAPI(t, addr)
	for _, tt := range []struct {
		path   string
		status int
		body   string
	}{
		{"/livez", 200, "ok\n"},
		{"/readyz", 503, "draining\n"},
		{"/metrics", 200, "usher_up 1\n"},
		{"/v1/version", 200, `{"version":"1.2.3"}` + "\n"},
	} {
		res := a.send("GET", tt.path, "")
		body, _ := io.ReadAll(res.Body)
		if res.StatusCode != tt.status || string(body) != tt.body {
			t.Errorf("%s: %s %q", tt.path, res.Status, body)
		}
	}
	if res := a.send("GET", "/debug/pprof/goroutine?debug=1", ""); res.StatusCode != 200 {
		t.Errorf("pprof: %s", res.Status)
	}
	if st := decode[admin.ServerStatus](t, a.send("GET", "/v1/server", "")); st.PID != 42 {
		t.Errorf("server: %+v", st)
	}
}

func TestChangesAreAuditedWithThePeer(t *testing.T) {
	var log syncBuffer
	addr, stop := admintest.Start(t, admintest.New(hello()), admin.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	a := newAPI(t, addr)
	a.post("/v1/apps/hello/wake", "")
	a.send("GET", "/v1/apps", "")
	stop()
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	if len(lines) != 1 {
		t.Fatalf("reads are not for the audit trail at info: %q", lines)
	}
	for _, want := range []string{"path=/v1/apps/hello/wake", "status=202", "operation=op-1", fmt.Sprintf("uid=%d", os.Geteuid()), fmt.Sprintf("pid=%d", os.Getpid())} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("%q is not in %s", want, lines[0])
		}
	}
}

// syncBuffer is written by the server and read by the test.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}
