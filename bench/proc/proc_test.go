package proc

import (
	"bufio"
	"io"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// shell is a script that says when it has got somewhere and waits for a line.
type shell struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func newShell(t *testing.T, script string) *shell {
	t.Helper()
	s := &shell{t: t, cmd: exec.Command("sh", "-c", "burn() { i=0; while [ $i -lt 150000 ]; do i=$((i+1)); done; }\n"+script)}
	var err error
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.out = bufio.NewReader(out)
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.in.Close()
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	})
	return s
}

func (s *shell) says(want string) {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	if strings.TrimSpace(line) != want {
		s.t.Fatalf("the script said %q (%v), want %q", line, err, want)
	}
}

func (s *shell) goOn() {
	s.t.Helper()
	if _, err := io.WriteString(s.in, "\n"); err != nil {
		s.t.Fatal(err)
	}
}

// burnt is less than what burn takes on any machine.
const burnt = 10 * time.Millisecond

func TestTheTimeOfAWholeTreeIsCounted(t *testing.T) {
	for name, script := range map[string]string{
		"the root's own":                                          "echo ready; read x; burn; echo done; read x",
		"a child that was there":                                  "{ echo ready; read x; burn; echo done; read x; }; exit",
		"a child born meanwhile and reaped":                       "echo ready; read x; (burn); echo done; read x",
		"a child born meanwhile, alive":                           "echo ready; read x; (burn; echo done; read x; exit); exit",
		"a grandchild that was reaped by a child that was reaped": "echo ready; read x; ( (burn); true ); echo done; read x",
	} {
		t.Run(name, func(t *testing.T) {
			s := newShell(t, script)
			s.says("ready")
			m := Meter{Tree: Tree{Roots: []int{s.cmd.Process.Pid}}}
			if err := m.Look(); err != nil {
				t.Fatal(err)
			}
			m.Begin()
			s.goOn()
			s.says("done")
			m.End()
			used, err := m.Used()
			if err != nil || used < burnt || used > time.Minute {
				t.Errorf("%s, %v: want %s at least", used, err, burnt)
			}
		})
	}
}

func TestWhatHappenedBeforeIsNotCounted(t *testing.T) {
	s := newShell(t, "burn; (burn); echo ready; read x; echo done; read x")
	s.says("ready")
	m := Meter{Tree: Tree{Roots: []int{s.cmd.Process.Pid}}}
	if err := m.Look(); err != nil {
		t.Fatal(err)
	}
	whole, err := m.CPU()
	m.Begin()
	s.goOn()
	s.says("done")
	m.End()
	if used, err2 := m.Used(); err != nil || err2 != nil || whole < 2*burnt || used > whole/4 {
		t.Errorf("%s, of %s in its life (%v, %v)", used, whole, err, err2)
	}
}

func TestARootThatEndedIsAnError(t *testing.T) {
	s := newShell(t, "echo ready; read x")
	s.says("ready")
	m := Meter{Tree: Tree{Roots: []int{s.cmd.Process.Pid}}}
	if err := m.Look(); err != nil {
		t.Fatal(err)
	}
	m.Begin()
	s.goOn()
	if err := s.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	m.End()
	if used, err := m.Used(); err == nil {
		t.Errorf("%s and no error", used)
	}
}

func TestANameWithParenthesesDoesNotConfuse(t *testing.T) {
	s := newShell(t, `printf ') (' > /proc/$$/comm; echo ready; read x`)
	s.says("ready")
	got, err := Read(s.cmd.Process.Pid)
	if self, _ := Read(1); err != nil || got.Parent == 0 || got.Started <= self.Started {
		t.Errorf("%+v, %v", got, err)
	}
}
