package peers

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server that is told to end while it starts may fork once more before it obeys.
func TestStopEndsWhatIsBornAfterTheSignal(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	dir := t.TempDir()
	ready, born := filepath.Join(dir, "ready"), filepath.Join(dir, "born")
	if err := syscall.Mkfifo(ready, 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := program{
		path: sh,
		args: []string{"-c", `trap 'sleep 1000 & echo $! > "$1"; exit' TERM; echo > "$0"; while :; do sleep 0.01; done`, ready, born},
		env:  os.Environ(),
	}.start(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.ReadFile(ready); err != nil { // waits for it
		t.Fatal(err)
	}
	r.stop()
	pid, err := os.ReadFile(born)
	if err != nil {
		t.Fatal(err)
	}
	cmdline := filepath.Join("/proc", strings.TrimSpace(string(pid)), "cmdline")
	for end := time.Now().Add(5 * time.Second); ; <-time.After(10 * time.Millisecond) {
		if text, _ := os.ReadFile(cmdline); len(text) == 0 { // gone, or nobody has asked yet how it ended
			return
		}
		if time.Now().After(end) {
			_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
			t.Fatalf("%s lives on", strings.TrimSpace(string(pid)))
		}
	}
}
