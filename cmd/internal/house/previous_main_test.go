package house

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// history is an upstream repository and a clone of it, as a CI has one.
type history struct {
	t              *testing.T
	upstream, copy string
}

func newHistory(t *testing.T) *history {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	h := &history{t: t, upstream: t.TempDir(), copy: filepath.Join(t.TempDir(), "clone")}
	h.git("init", "--quiet", "--initial-branch=main")
	h.git("config", "uploadpack.allowReachableSHA1InWant", "true") // as GitHub and GitLab
	h.commit("first")
	return h
}

func (h *history) run(dir string, env []string, name string, args ...string) string {
	h.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + h.upstream, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@localhost", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@localhost",
	}, env...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		h.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.String())
	}
	return strings.TrimSpace(string(out))
}

func (h *history) git(args ...string) string { return h.run(h.upstream, nil, "git", args...) }

// commit makes one on the branch that is checked out, and returns its hash.
func (h *history) commit(name string) string {
	h.git("commit", "--quiet", "--allow-empty", "--message="+name)
	return h.git("rev-parse", "HEAD")
}

// clone takes what is upstream now.
func (h *history) clone(args ...string) {
	all := append([]string{"clone", "--quiet"}, args...)
	h.run(h.upstream, nil, "git", append(all, "file://"+h.upstream, h.copy)...)
}

// want compares what the script says in the clone.
func (h *history) want(commit string, env ...string) {
	h.t.Helper()
	got := h.run(h.copy, env, "bash", filepath.Join(moduleRoot(h.t), ".ci", "previous-main"))
	if got != commit {
		h.t.Errorf("%v: main was at %q before, want %q (%s)", env, got, commit, h.run(h.copy, nil, "git", "log", "--oneline", "--all", "--graph"))
	}
}

// event is GitHub's file of an event in which before was the commit.
func (h *history) event(before string) string {
	path := filepath.Join(h.t.TempDir(), "event.json")
	text := `{"after": "` + strings.Repeat("1", 40) + `", "before": "` + before + `", "head_commit": {"message": "\"before\": \"0123\""}}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
	return "GITHUB_EVENT_PATH=" + path
}

// What the benchmarks are compared with is what main was before the push, of however
// many commits that was.
func TestWhatMainWasBefore(t *testing.T) {
	const zeros = "0000000000000000000000000000000000000000"
	onMain := []string{"CI_COMMIT_BRANCH=main", "GITHUB_REF_NAME=main"}
	t.Run("a push of several commits", func(t *testing.T) {
		h := newHistory(t)
		was := h.commit("was")
		h.commit("one")
		two := h.commit("two")
		h.commit("three")
		h.clone()
		h.want(was, onMain[0], "CI_COMMIT_BEFORE_SHA="+was)
		h.want(was, onMain[1], h.event(was))
		h.want(two) // nobody says what was pushed
		h.want(two, onMain[0], "CI_COMMIT_BEFORE_SHA="+zeros)
		h.want(two, onMain[1], h.event(strings.Repeat("2", 40))) // is gone
	})
	t.Run("a push into a shallow clone", func(t *testing.T) {
		h := newHistory(t)
		was := h.commit("was")
		h.commit("one")
		h.commit("two")
		h.clone("--depth=1")
		h.want(was, onMain[1], h.event(was))
	})
	t.Run("a merge", func(t *testing.T) {
		h := newHistory(t)
		h.git("checkout", "--quiet", "-b", "work")
		h.commit("work")
		h.git("checkout", "--quiet", "main")
		was := h.commit("was")
		h.git("merge", "--quiet", "--no-ff", "--message=merge", "work")
		h.clone()
		h.want(was)
	})
	t.Run("a branch", func(t *testing.T) {
		h := newHistory(t)
		fork := h.commit("fork")
		h.git("checkout", "--quiet", "-b", "work")
		pushed := h.commit("one")
		h.commit("two")
		h.git("checkout", "--quiet", "main")
		h.commit("main goes on")
		h.clone("--branch=work")
		h.want(fork)
		h.want(fork, "CI_COMMIT_BRANCH=work", "CI_COMMIT_BEFORE_SHA="+pushed)
		h.want(fork, "GITHUB_REF_NAME=work", h.event(pushed))
	})
	t.Run("what is not pushed", func(t *testing.T) {
		h := newHistory(t)
		was := h.commit("was")
		h.clone()
		for range 2 {
			h.run(h.copy, nil, "git", "commit", "--quiet", "--allow-empty", "--message=here")
		}
		h.want(was)
	})
}
