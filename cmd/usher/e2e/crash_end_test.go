package e2e

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/usher-edge/usher/admin"
)

// endings are the states in which usher is asked to end. begin brings the app
// "port" there.
var endings = []struct {
	name  string
	begin func(u *usher)
	runs  bool // the app runs on by the policy "keep"
}{
	{"ready", func(u *usher) { ok(u.t, u.get("port", "/")) }, true},
	{"starting", func(u *usher) {
		u.deploy("port", hello(u.t, "v8", "slow-start=4s"))
		u.sleep("port")
		go u.get("port", "/")
		u.awaitState("port", admin.Waking, 5*time.Second)
	}, false},
	{"swapping", func(u *usher) {
		ok(u.t, u.get("port", "/"))
		u.cliAsync("deploy", "port", hello(u.t, "v8", "slow-start=4s"))
		u.awaitStatus("port", 5*time.Second, "swapping", hasStage("checking", "successor"))
	}, true},
	{"draining", func(u *usher) {
		ok(u.t, u.get("port", "/"))
		u.open("port", "/sse")
		u.deploy("port", hello(u.t, "v2"))
		u.awaitStatus("port", 5*time.Second, "draining", hasStage("draining", "retiring"))
	}, true},
	{"holding", func(u *usher) {
		ok(u.t, u.get("port", "/"))
		u.cliAsync("deploy", "port", "--mode", "hold", hello(u.t, "v8", "slow-start=4s"))
		u.awaitStatus("port", 5*time.Second, "holding", hasStage("checking", "successor"))
		go u.get("port", "/")
	}, false},
}

func TestUsherEndsPromptlyInEveryState(t *testing.T) {
	t.Parallel()
	for _, policy := range []string{"keep", "stop"} {
		for _, c := range endings {
			t.Run(policy+" while "+c.name, func(t *testing.T) {
				t.Parallel()
				o := options{apps: []app{{name: "port", lines: []string{
					`drain_timeout = "2s"`, `close_spread = "500ms"`, `single_writer = "best-effort"`,
				}}}}
				if policy == "stop" {
					o.args = []string{"--stop-apps"}
				}
				u := start(t, o)
				c.begin(u)
				before := u.status("port").PID
				begun := time.Now()
				if code := u.terminate(15 * time.Second); code != 0 {
					t.Errorf("exit code %d", code)
				}
				if took := time.Since(begun); took > 8*time.Second { // a stop alone may take 10s
					t.Errorf("it took %s", took)
				}
				left := u.processes()
				switch {
				case policy == "stop" || !c.runs:
					if len(left) > 0 {
						t.Errorf("processes %v are left", left)
					}
				case !slices.Contains(left, before):
					t.Errorf("pid %d is gone: %v", before, left)
				}
				u.serve()
				st := u.awaitStatus("port", 10*time.Second, "at rest", func(s admin.AppStatus) bool {
					return s.Revision == s.Desired && len(s.Generations) <= 1 && (s.State == admin.Awake || s.State == admin.Asleep)
				})
				if c.name == "ready" && policy == "keep" && st.PID != before {
					t.Errorf("pid %d became %d", before, st.PID)
				}
				ok(t, u.get("port", "/"))
			})
		}
	}
}

func TestAnUploadThatIsCutLeavesNothing(t *testing.T) {
	t.Parallel()
	u := start(t, options{})
	unfinished := func() (found []string) {
		found, _ = filepath.Glob(filepath.Join(u.state(), "builds", ".tmp-*"))
		return found
	}
	upload := func() (cut func()) {
		body, w := io.Pipe()
		req, err := http.NewRequest(http.MethodPut, "http://usher/v1/apps/hello/builds", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/octet-stream")
		done := make(chan struct{})
		go func() {
			defer close(done)
			if resp, err := u.control.Do(req); err == nil {
				resp.Body.Close()
				t.Errorf("half an upload was answered with %s", resp.Status)
			}
		}()
		if _, err := w.Write(make([]byte, 1<<20)); err != nil {
			t.Error(err)
		}
		u.eventually(5*time.Second, "it is being received", func() error {
			if len(unfinished()) == 0 {
				return errors.New("there is no unfinished build")
			}
			return nil
		})
		return func() {
			_ = w.CloseWithError(errors.New("the client is gone"))
			<-done
		}
	}
	gone := func(how string) {
		t.Helper()
		u.eventually(5*time.Second, how, func() error {
			if left := unfinished(); len(left) > 0 {
				return fmt.Errorf("there is %v", left)
			}
			return nil
		})
	}
	upload()()
	gone("nothing is left of an upload whose client went away")
	cut := upload()
	u.kill()
	cut()
	u.serve()
	gone("nothing is left of an upload in which usher was killed")
	cut = upload()
	if code := u.terminate(10 * time.Second); code != 0 {
		t.Errorf("usher ends with exit code %d in an upload", code)
	}
	cut()
	u.serve()
	gone("nothing is left of an upload in which usher ended")
}
