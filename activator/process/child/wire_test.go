package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestFramesSurviveTheWireAndBrokenOnesDoNot(t *testing.T) {
	in := Spec{
		Dir: "/d", Path: "p", Args: []string{"\xff\x00?", ""}, Env: []string{"A=b"}, SwitchUser: true, UID: 7, GID: 1<<32 - 1,
		NoNewPrivs: true, ListenPID: true, Rlimits: []Rlimit{{1, 2, 3}, {7, 1<<64 - 1, 1 << 40}},
	}
	var buf bytes.Buffer
	if err := in.Write(&buf); err != nil {
		t.Fatal(err)
	}
	whole := bytes.Clone(buf.Bytes())
	out, err := readSpec(&buf)
	if err != nil || fmt.Sprintf("%#v", out) != fmt.Sprintf("%#v", in) || buf.Len() != 0 {
		t.Fatalf("got %#v, %v, %d bytes left", out, err, buf.Len())
	}
	for cut := range len(whole) {
		if _, err := readSpec(bytes.NewReader(whole[:cut])); err == nil {
			t.Fatalf("a frame cut to %d bytes was taken", cut)
		}
		short := bytes.Clone(whole[:cut])
		if cut >= 4 {
			copy(short, frameOf(uint32(cut-4)))
			if _, err := readSpec(bytes.NewReader(short)); err == nil {
				t.Fatalf("a frame that says it has %d bytes was taken", cut-4)
			}
		}
	}
	surplus := append(frameOf(uint32(len(whole)-3)), append(whole[4:], 0)...)
	if _, err := readSpec(bytes.NewReader(surplus)); err == nil {
		t.Fatal("a frame with a byte too many was taken")
	}
	if _, err := readSpec(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff})); err == nil {
		t.Fatal("a frame of 4 GiB was believed")
	}
}

func frameOf(n uint32) []byte {
	var b frame
	b.number(n)
	return b.bytes
}

func TestRepliesSurviveTheWire(t *testing.T) {
	for _, in := range []Reply{{}, {Step: StepExec, Errno: 13}} {
		var buf bytes.Buffer
		if err := writeReply(&buf, in); err != nil {
			t.Fatal(err)
		}
		if out, err := ReadReply(&buf); err != nil || out != in {
			t.Errorf("got %+v, %v, want %+v", out, err, in)
		}
		if _, err := ReadReply(&buf); !errors.Is(err, io.EOF) {
			t.Errorf("at the end of the stream: %v, want EOF", err)
		}
	}
}

func TestASpecThatNoKernelWouldTakeIsRefused(t *testing.T) {
	if err := (Spec{Args: []string{string(make([]byte, maxFrame))}}).Write(io.Discard); err == nil {
		t.Error("8 MiB of arguments were sent")
	}
}
