package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

func TestSleepSaysWhatKeepsAnAppAwake(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	ok(t, u.get("hello", "/"))
	s := u.open("hello", "/sse?every=100ms")
	u.exits(4, "1 in flight, open streams and WebSockets included", "sleep", "hello")
	u.deploy("hello", hello(t, "v2"))
	u.exits(4, "generation 1, its predecessor, is still on its way out", "sleep", "hello")
	s.close()
	u.sleep("hello")

	ok(t, u.get("hello", "/"))
	u.must("pause", "hello")
	u.exits(4, "it is paused, and its process stays: usher resume hello first", "sleep", "hello")
	u.must("resume", "hello")

	deploying := u.cliAsync("deploy", "hello", hello(t, "v5", "hang"))
	next := u.awaitStatus("hello", 10*time.Second, "booting", hasStage("checking", "successor")).Generations
	u.exits(4, fmt.Sprint("it moves to generation ", next[len(next)-1].Number), "sleep", "hello")
	u.deploy("hello", hello(t, "v3"))
	if r := <-deploying; r.code != 4 || !strings.Contains(r.stderr, "superseded: a newer release took its place\n") {
		t.Errorf("the deploy that was replaced: exit code %d, %s", r.code, r.stderr)
	}
}

func TestOneProblemIsNotSeveral(t *testing.T) {
	t.Parallel()
	u := prepare(t, options{server: []string{"max_conections = 3"}})
	for _, verb := range []string{"serve", "validate"} {
		out, err := exec.Command(theLab.usher, verb, "--config", u.config()).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "1 problem") || strings.Contains(string(out), "1 problems") {
			t.Errorf("usher %s: %v\n%s", verb, err, out)
		}
	}
}

// A build for an app whose process usher does not start is refused before it is
// uploaded.
func TestABuildForATargetIsRefusedBeforeItIsUploaded(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.NotFoundHandler())
	defer server.Close()
	u := external(t, 1, server.Listener.Addr().String())
	r := u.exits(4, "deploy it with --target ADDR", "deploy", "api0", hello(t, "v1"))
	if strings.Contains(r.stderr, "uploading") {
		t.Errorf("it was uploaded first:\n%s", r.stderr)
	}
	build, err := os.Open(hello(t, "v1"))
	if err != nil {
		t.Fatal(err)
	}
	defer build.Close()
	req, err := http.NewRequest(http.MethodPut, "http://usher/v1/apps/api0/builds", build)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	req.Header.Set("Expect", "100-continue")
	resp, err := u.control.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusConflict {
		t.Errorf("an upload through the API: %s, want 409", resp.Status)
	}
	if kept, err := filepath.Glob(filepath.Join(u.state(), "builds", "sha256*")); err != nil || len(kept) > 0 {
		t.Errorf("builds were kept: %v, %v", kept, err)
	}
}

func TestAnAppOfTheFileIsRemovedWithTheFile(t *testing.T) {
	t.Parallel()
	u := start(t, options{apps: []app{{}, {name: "other"}}})
	u.exits(4, "app hello is in the config file "+u.config()+" and would come back; take it out of the file and run usher reload", "remove", "hello")
	u.configure(options{apps: []app{{name: "other"}}})
	u.must("reload")
	u.eventually(10*time.Second, "hello is forgotten", func() error {
		if r := u.cli("status", "hello"); r.code != 3 {
			return fmt.Errorf("exit code %d: %s", r.code, r.stdout)
		}
		return nil
	})
}

// O08: a check that gets a redirect, or is refused because of its host.
func TestAHealthCheckCanBeWhatTheAppWantsAndItsFailureQuotesTheAnswer(t *testing.T) {
	t.Parallel()
	target := func(h http.HandlerFunc) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.Listener.Addr().String()
	}
	fine := target(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	redirects := target(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "https://"+r.Host+"/login", http.StatusMovedPermanently)
	})
	refuses := target(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "https://www.example/"+r.Host)
		w.WriteHeader(http.StatusServiceUnavailable)
	})
	var mu sync.Mutex
	var seen []string
	strict := target(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Host+" "+r.Header.Get("X-Forwarded-Proto")+" "+r.URL.Path)
		mu.Unlock()
		if r.Host != "inside.example" || r.Header.Get("X-Forwarded-Proto") != "https" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	const health = "[apps.api0.health]\ntimeout = '1s'\n"
	u := external(t, 1, fine, health)
	r := u.exits(1, "not healthy within 1s; last health check: GET / answered 503 to https://www.example/api0.localhost", "deploy", "api0", "--target", refuses)
	if !strings.Contains(r.stderr, "is still serving") {
		t.Errorf("%s", r.stderr)
	}
	if st := u.status("api0"); st.LastOutcome == nil || !strings.Contains(st.LastOutcome.Reason, "answered 503 to https://www.example/api0.localhost") {
		t.Errorf("the status says %+v", st.LastOutcome)
	}
	u.exits(1, "GET / answered 500", "deploy", "api0", "--target", strict)
	u.must("deploy", "api0", "--target", redirects) // a redirect is an answer
	if a := u.get("api0", "/"); a.status != http.StatusMovedPermanently {
		t.Errorf("it serves %s", a)
	}
	text := strings.Replace(readFile(t, u.config()), health, health+"path = '/up'\nhost = 'inside.example'\nheaders = { X-Forwarded-Proto = 'https' }\n", 1)
	u.writeConfig(text)
	u.must("reload")
	mu.Lock()
	seen = nil
	mu.Unlock()
	u.must("deploy", "api0", "--target", strict)
	mu.Lock()
	defer mu.Unlock()
	if len(seen) == 0 || seen[0] != "inside.example https /up" {
		t.Errorf("the checks were %q", seen)
	}
	if st := u.status("api0"); st.State != admin.Awake {
		t.Errorf("the app is %s", st.State)
	}
}
