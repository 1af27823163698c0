package child

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"
	"unsafe"
)

// read is a spec as the child finds it, by what it would give to the kernel.
func read(t *testing.T, raw []byte) (s Spec, pid []byte) {
	t.Helper()
	if uintptr(len(raw)) < orderSize {
		t.Fatalf("an order of %d bytes", len(raw))
	}
	o := (*order)(unsafe.Pointer(&raw[0]))
	if o.size != uintptr(len(raw)) {
		t.Fatalf("an order of %d bytes says it has %d", len(raw), o.size)
	}
	text := func(at uintptr) string {
		return string(raw[at : at+uintptr(bytes.IndexByte(raw[at:], 0))])
	}
	list := func(at uintptr) (all []string) {
		if at%word != 0 {
			t.Errorf("a list at %d", at)
		}
		for ; *(*uintptr)(unsafe.Pointer(&raw[at])) != 0; at += word {
			all = append(all, text(*(*uintptr)(unsafe.Pointer(&raw[at]))))
		}
		return all
	}
	s = Spec{
		Dir: text(o.dir), Path: text(o.path), Args: list(o.args), Env: list(o.env), SwitchUser: o.switchUser != 0,
		UID: o.uid, GID: o.gid, NoNewPrivs: o.noNewPrivs != 0, ListenPID: o.pidText != 0,
	}
	for at := o.rlimits; at < o.rlimitsEnd; at += rlimitSize {
		r := (*rlimit)(unsafe.Pointer(&raw[at]))
		s.Rlimits = append(s.Rlimits, Rlimit{int(r.resource), r.soft, r.hard})
	}
	if o.pidText != 0 {
		pid = raw[o.pidText : o.pidText+pidDigits+1]
	}
	return s, pid
}

func TestOrdersHoldWhatTheKernelIsToBeGiven(t *testing.T) {
	for _, in := range []Spec{
		{Dir: "/", Path: "p"},
		{
			Dir: "/d", Path: "./p", Args: []string{"\xff?", "", "a b"}, Env: []string{"A=b", "E="}, SwitchUser: true, UID: 7, GID: 1<<32 - 1,
			NoNewPrivs: true, ListenPID: true, Rlimits: []Rlimit{{1, 2, 3}, {7, 1<<64 - 1, 1 << 40}},
		},
	} {
		var buf bytes.Buffer
		if err := in.Write(&buf); err != nil {
			t.Fatal(err)
		}
		out, pid := read(t, buf.Bytes())
		want := in.Env
		if in.ListenPID {
			want = append(slices.Clone(want), pidName)
			if !bytes.Equal(pid, make([]byte, pidDigits+1)) {
				t.Errorf("room for the pid: %q", pid)
			}
		}
		if out.Dir != in.Dir || out.Path != in.Path || !slices.Equal(out.Args, in.Args) || !slices.Equal(out.Env, want) || !slices.Equal(out.Rlimits, in.Rlimits) {
			t.Errorf("got %+v, want %+v", out, in)
		}
		if out.SwitchUser != in.SwitchUser || out.UID != in.UID || out.GID != in.GID || out.NoNewPrivs != in.NoNewPrivs || out.ListenPID != in.ListenPID {
			t.Errorf("got %+v, want %+v", out, in)
		}
	}
}

func TestPlacesBecomeAddresses(t *testing.T) {
	var buf bytes.Buffer
	if err := (Spec{Dir: "/d", Path: "p", Args: []string{"x", "y"}, ListenPID: true}).Write(&buf); err != nil {
		t.Fatal(err)
	}
	raw := make([]uintptr, uintptr(buf.Len())/word+1) // aligned
	o := (*order)(unsafe.Pointer(&raw[0]))
	bytesOf := unsafe.Slice((*byte)(unsafe.Pointer(o)), buf.Len())
	copy(bytesOf, buf.Bytes())
	before := *o
	o.locate()
	base := uintptr(unsafe.Pointer(o))
	if o.dir != base+before.dir || o.path != base+before.path {
		t.Errorf("dir and path: %x, %x", o.dir-base, o.path-base)
	}
	for _, list := range []uintptr{o.args, o.env} {
		n := 0
		for ; raw[list/word+uintptr(n)] != 0; n++ {
			if at := raw[list/word+uintptr(n)]; at <= base || at >= base+o.size {
				t.Errorf("entry %d is %x", n, at)
			}
		}
		if n == 0 {
			t.Error("an empty list")
		}
	}
	if _, pid := o, bytesOf[o.pidText:]; pid[0] < '1' || pid[0] > '9' {
		t.Errorf("the pid is %q", pid[:pidDigits])
	}
}

func TestNumbersAreWrittenInDigits(t *testing.T) {
	for want, n := range map[string]uintptr{"1": 1, "9": 9, "10": 10, "4194304": 4194304, "2147483647": 1<<31 - 1} {
		var room [pidDigits + 1]byte
		digits(unsafe.Pointer(&room), n)
		if got := string(bytes.TrimRight(room[:], "\x00")); got != want {
			t.Errorf("%d is %q", n, got)
		}
	}
}

func TestRepliesSurviveTheWire(t *testing.T) {
	in := Reply{Step: StepExec, Errno: 13}
	raw := bytes.NewBuffer(bytes.Clone(unsafe.Slice((*byte)(unsafe.Pointer(&in)), unsafe.Sizeof(in))))
	if out, err := ReadReply(raw); err != nil || out != in {
		t.Errorf("got %+v, %v, want %+v", out, err, in)
	}
	if _, err := ReadReply(raw); !errors.Is(err, io.EOF) {
		t.Errorf("at the end of the stream: %v, want EOF", err)
	}
	if _, err := ReadReply(bytes.NewReader(make([]byte, 5))); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a reply that is cut: %v", err)
	}
}

func TestASpecThatNoKernelWouldTakeIsRefused(t *testing.T) {
	if err := (Spec{Args: []string{string(make([]byte, maxOrder))}}).Write(io.Discard); err == nil {
		t.Error("8 MiB of arguments were sent")
	}
}
