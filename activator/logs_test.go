package activator

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"testing"
	"time"
)

// write adds to the output of a generation, as a process with its file open would.
func (r *rig) write(gen uint64, text string) {
	r.t.Helper()
	f, err := os.OpenFile(r.act.logPath("hello", gen), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = f.WriteString(text)
		f.Close()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// fail deploys a build that ends before it is healthy, with output of its own.
func (r *rig) fail() uint64 {
	r.t.Helper()
	op := r.wantOp(r.deploy("v2 boot=1s exit=10ms"), OpFailed)
	r.write(op.Generation, fmt.Sprintf("failed %d\n", op.Generation))
	return op.Generation
}

func (r *rig) madeLogDir() {
	r.t.Helper()
	if err := r.act.makeLogDir("hello"); err != nil {
		r.t.Fatal(err)
	}
}

// An app writes to its file as long as it lives: had the file lost its name, nobody
// could read it any more, and nothing would bound it.
func TestTheOutputOfAGenerationThatLivesIsKept(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.madeLogDir()
		serving := r.status().Generation
		r.write(serving, "serves\n")
		var failed []uint64
		for range 2 * keptLogs {
			failed = append(failed, r.fail())
			settle(time.Minute)
		}
		got := r.act.generationsWithLogs("hello")
		if !slices.Contains(got, serving) {
			t.Errorf("generation %d serves and its output is gone: there is that of %v", serving, got)
		}
		if len(got) > keptLogs+2 || slices.Contains(got, failed[0]) {
			t.Errorf("of generations that are gone there is the output of %v", got)
		}
	})
}

func TestFollowingGoesOnWithWhatServesAfterADeployThatFailed(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.madeLogDir()
		serving := r.status().Generation
		r.write(serving, "one\n")
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		log, err := r.act.Logs(ctx, LogRequest{App: "hello", Lines: 10, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		read := func() string {
			t.Helper()
			b := make([]byte, 100)
			n, err := log.Read(b)
			if err != nil && err != io.EOF {
				t.Error(err)
			}
			return string(b[:n])
		}
		gen := r.fail()
		got := []string{read(), read()}
		for _, text := range []string{"two\n", "three\n"} {
			r.write(serving, text)
			got = append(got, read())
		}
		if want := []string{"one\n", fmt.Sprintf("failed %d\n", gen), "two\n", "three\n"}; !slices.Equal(got, want) {
			t.Errorf("followed %q, want %q", got, want)
		}
	})
}

// A generation that wrote nothing, perhaps because it never ran, hides no other.
func TestTheNewestOutputIsThatOfAGenerationThatWrote(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.apply(r.app("v1"))
		r.get("v1")
		r.madeLogDir()
		gen := r.status().Generation
		r.write(gen, "serves\n")
		r.write(gen+1, "")
		for req, want := range map[LogRequest]string{
			{App: "hello", Lines: 10}:                      "serves\n",
			{App: "hello", Lines: 10, Generation: gen + 1}: "",
		} {
			log, err := r.act.Logs(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(log)
			if err != nil || string(text) != want {
				t.Errorf("%+v: %q (%v), want %q", req, text, err, want)
			}
			log.Close()
		}
		log, err := r.act.Logs(context.Background(), LogRequest{App: "hello", Lines: 10, Generation: gen + 1, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		r.write(gen+1, "begins\n")
		b := make([]byte, 100)
		if n, err := log.Read(b); err != nil || string(b[:n]) != "begins\n" {
			t.Errorf("the generation asked for: %q (%v)", b[:n], err)
		}
	})
}
