package cgroup

import (
	"strings"
	"testing"
)

func TestStatIsReadWhateverTheCommandIsCalled(t *testing.T) {
	rest := " S 7 42 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 123456 4096 9 9 77" + strings.Repeat(" 0", 23) + " 5000 5100 0\n"
	for _, name := range []string{"(sh)", "(a b)", "(x) R 1 (y)", "())", "(\n)"} {
		st, err := parseStat([]byte("42 " + name + rest))
		want := Stat{PID: 42, PPID: 7, Session: 9, Start: 123456, threads: 3, memory: memory{size: 4096, code: 77, environStart: 5000, environEnd: 5100}}
		if err != nil || st != want {
			t.Errorf("%q: got %+v, %v; want %+v", name, st, err, want)
		}
	}
}

func TestStatTellsZombiesFromProcessesWithADeadMainThread(t *testing.T) {
	line := "42 (x) STATE 7 42 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 THREADS 0 123456 9" + strings.Repeat(" 0", 29) + "\n"
	for _, tt := range []struct {
		state, threads string
		dead           bool
	}{{"Z", "1", true}, {"X", "0", true}, {"Z", "4", false}, {"S", "1", false}, {"D", "1", false}, {"T", "2", false}} {
		st, err := parseStat([]byte(strings.NewReplacer("STATE", tt.state, "THREADS", tt.threads).Replace(line)))
		if err != nil || st.Dead != tt.dead {
			t.Errorf("%s with %s threads: dead %v, %v", tt.state, tt.threads, st.Dead, err)
		}
	}
}

func TestBrokenStatIsAnError(t *testing.T) {
	for _, text := range []string{"", "42", "42 (x", "42 (x) S 1 2", "x (y) S 7 42 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 3 0 123 9" + strings.Repeat(" 0", 29)} {
		if _, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q was taken", text)
		}
	}
}

func TestEnvironmentEntriesMatchAsAWhole(t *testing.T) {
	environ := []byte("A=1\x00USHER_GENERATION=17\x00B=\x00")
	for _, tt := range []struct {
		entries []string
		want    bool
	}{
		{[]string{"USHER_GENERATION=17"}, true},
		{[]string{"USHER_GENERATION=17", "A=1", "B="}, true},
		{[]string{"USHER_GENERATION=1"}, false},
		{[]string{"GENERATION=17"}, false},
		{[]string{"A=1", "C=1"}, false},
	} {
		if got := holdsAll(environ, tt.entries); got != tt.want {
			t.Errorf("%v: got %v", tt.entries, got)
		}
	}
}
