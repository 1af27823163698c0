package bench

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// app is a process as usher would have started it, generation 7.
func app(t *testing.T, what string, variables ...string) *exec.Cmd {
	t.Helper()
	if testing.Short() {
		t.Skip("starts processes: run without -short")
	}
	cmd := exec.Command(os.Args[0], "one", "two words")
	cmd.Dir = t.TempDir()
	cmd.Env = append(variables, "BENCH_TEST_APP="+what, "USHER_GENERATION=7", "USHER_INSTANCE=x", "GREETING=hi there", "USHER_APP=hello")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// findTwin waits until the process is past its exec.
func findTwin(t *testing.T, cmd *exec.Cmd) *Twin {
	t.Helper()
	var twin *Twin
	eventually(t, "the process can be read of", func() (ok bool) {
		var err error
		twin, err = FindTwin(cmd.Process.Pid, 7, Target{Address: "a.example:80", Path: "/p"})
		return err == nil
	})
	return twin
}

func TestATwinIsTheSameProcessAtAnotherAddress(t *testing.T) {
	for _, own := range []string{"PORT", "SOCKET"} {
		t.Run(own, func(t *testing.T) {
			place, err := os.MkdirTemp("", "bt") // a socket's path is short
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(place)
			value := "0"
			if own == "SOCKET" {
				value = filepath.Join(place, "s")
			}
			cmd := app(t, "serves", own+"="+value)
			twin := findTwin(t, cmd)
			c, err := twin.Start(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			got := ask(t, c)
			for _, part := range []string{cmd.Dir, "[one two words]", "GREETING=hi there", "USHER_APP=hello", "USHER_GENERATION=0", own + "="} {
				if !strings.Contains(got, part) {
					t.Errorf("the twin lacks %q: %s", part, got)
				}
			}
			for _, part := range []string{"USHER_INSTANCE", "USHER_GENERATION=7", own + "=" + value + " ", own + "=" + value + "]"} {
				if strings.Contains(got, part) {
					t.Errorf("the twin has %q: %s", part, got)
				}
			}
			if took, err := c.Stop(); err != nil || took <= 0 || c.started <= 0 {
				t.Errorf("%s to stop, %s to start, %v", took, c.started, err)
			}
			if _, err := os.Stat(c.dir); !os.IsNotExist(err) {
				t.Errorf("its directory is left: %v", err)
			}
		})
	}
}

// ask asks a companion for what it is.
func ask(t *testing.T, c *Companion) string {
	t.Helper()
	network, address := "tcp", ""
	for _, v := range c.cmd.Env {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "PORT":
			address = "127.0.0.1:" + value
		case "SOCKET":
			network, address = "unix", value
		}
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return net.Dial(network, address) },
	}}
	answer, err := client.Get("http://x/")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}

func TestATwinThatEndsAtOnceIsAnError(t *testing.T) {
	twin := findTwin(t, app(t, "ends", "PORT=0"))
	if c, err := twin.Start(testContext(t)); err == nil || !strings.Contains(err.Error(), "it ended: exit status 3") {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestAProcessThatIsNotTheGenerationHasNoTwin(t *testing.T) {
	cmd := app(t, "serves", "PORT=0")
	findTwin(t, cmd)
	if _, err := FindTwin(cmd.Process.Pid, 8, Target{}); err == nil || !strings.Contains(err.Error(), "is not generation 8") {
		t.Errorf("got %v", err)
	}
	if _, err := FindTwin(1<<22+1, 7, Target{}); err == nil || !strings.Contains(err.Error(), "must be on this machine") {
		t.Errorf("got %v", err)
	}
}

func TestOwnTimesAreTaken(t *testing.T) {
	twin := findTwin(t, app(t, "stops slowly", "PORT=0"))
	if own, err := twin.Own(testContext(t), 20); err != nil || own.Start <= 0 || own.Stop < 100*time.Millisecond {
		t.Errorf("with 20 connections open: %+v, %v", own, err)
	}
}

func TestATwinBesideTheAppIsAskedAsRarelyAsUsherAsksASuccessor(t *testing.T) {
	for name, c := range map[string]struct {
		pace        pace
		least, most int
	}{
		"beside":            {leisurely, 18, 24},
		"its time is taken": {eagerly, 990, 1010},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun, asked := time.Now(), 0
				companion := &Companion{ended: make(chan struct{})}
				err := companion.ready(t.Context(), c.pace, func() error {
					asked++
					if time.Since(begun) < 2*time.Second {
						return errors.New("nobody listens")
					}
					return nil
				})
				if err != nil || asked < c.least || asked > c.most {
					t.Errorf("asked %d times, %v", asked, err)
				}
			})
		})
	}
}
