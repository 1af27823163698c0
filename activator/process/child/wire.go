package child

import (
	"errors"
	"io"
)

// What runs over the channel between usher and its child:
//
//	usher → child   Spec
//	child → usher   Reply{}: ready, or what is wrong with the spec
//	usher → child   the go-byte
//	child → usher   end of stream at exec, or a Reply with the error
//
// Each but the go-byte is a frame: four bytes of length and the fields in their
// order, numbers big-endian, texts and lists after their length. Bytes are kept
// as they are, for arguments need not be UTF-8.

// GoByte is the one byte that lets the child run the build.
const GoByte = 'G'

// maxFrame bounds a frame; the kernel takes at most 6 MiB of arguments and
// environment.
const maxFrame = 8 << 20

// Spec is what the child is to do.
type Spec struct {
	Dir, Path  string
	Args, Env  []string
	SwitchUser bool
	UID, GID   uint32
	NoNewPrivs bool
	ListenPID  bool
	Rlimits    []Rlimit
}

// Rlimit is one resource limit (setrlimit(2)).
type Rlimit struct {
	Resource   int // unix.RLIMIT_…
	Soft, Hard uint64
}

// Reply is what the child says when it does not exec.
type Reply struct {
	Step  string // which step failed; empty: ready
	Errno uint32
}

// errBroken is a frame that nobody of this version wrote.
var errBroken = errors.New("decode frame: it is cut, or of another version of usher")

// Write sends the spec.
func (s Spec) Write(w io.Writer) error {
	var b frame
	b.text(s.Dir)
	b.text(s.Path)
	b.list(s.Args)
	b.list(s.Env)
	b.flag(s.SwitchUser)
	b.number(s.UID)
	b.number(s.GID)
	b.flag(s.NoNewPrivs)
	b.flag(s.ListenPID)
	b.number(uint32(len(s.Rlimits)))
	for _, r := range s.Rlimits {
		b.number(uint32(r.Resource))
		b.long(r.Soft)
		b.long(r.Hard)
	}
	return b.write(w)
}

func readSpec(r io.Reader) (s Spec, err error) {
	b, err := readFrame(r)
	if err != nil {
		return s, err
	}
	s.Dir, s.Path = b.takeText(), b.takeText()
	s.Args, s.Env = b.takeList(), b.takeList()
	s.SwitchUser, s.UID, s.GID = b.takeFlag(), b.takeNumber(), b.takeNumber()
	s.NoNewPrivs, s.ListenPID = b.takeFlag(), b.takeFlag()
	for n := b.takeNumber(); n > 0 && !b.broken; n-- {
		s.Rlimits = append(s.Rlimits, Rlimit{int(b.takeNumber()), b.takeLong(), b.takeLong()})
	}
	return s, b.end()
}

func writeReply(w io.Writer, r Reply) error {
	var b frame
	b.text(r.Step)
	b.number(r.Errno)
	return b.write(w)
}

// ReadReply returns io.EOF if the stream ends before the reply begins.
func ReadReply(r io.Reader) (reply Reply, err error) {
	b, err := readFrame(r)
	if err != nil {
		return reply, err
	}
	reply.Step, reply.Errno = b.takeText(), b.takeNumber()
	return reply, b.end()
}

// frame is what is still to be written or read of one.
type frame struct {
	bytes  []byte
	broken bool // more was read than there was
}

func (b *frame) number(n uint32) {
	b.bytes = append(b.bytes, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func (b *frame) long(n uint64) {
	b.number(uint32(n >> 32))
	b.number(uint32(n))
}

func (b *frame) flag(v bool) {
	n := uint32(0)
	if v {
		n = 1
	}
	b.number(n)
}

func (b *frame) text(s string) {
	b.number(uint32(len(s)))
	b.bytes = append(b.bytes, s...)
}

func (b *frame) list(texts []string) {
	b.number(uint32(len(texts)))
	for _, s := range texts {
		b.text(s)
	}
}

func (b *frame) write(w io.Writer) error {
	if len(b.bytes) > maxFrame {
		return errors.New("arguments and environment are larger than 8 MiB: make them smaller")
	}
	var whole frame
	whole.text(string(b.bytes))
	_, err := w.Write(whole.bytes)
	return err
}

func readFrame(r io.Reader) (*frame, error) {
	head := frame{bytes: make([]byte, 4)}
	if _, err := io.ReadFull(r, head.bytes); err != nil {
		return nil, err
	}
	n := head.takeNumber()
	if n > maxFrame {
		return nil, errBroken
	}
	b := &frame{bytes: make([]byte, n)}
	if _, err := io.ReadFull(r, b.bytes); err != nil {
		return nil, errBroken
	}
	return b, nil
}

// take returns the next n bytes, and none once the frame is broken.
func (b *frame) take(n uint32) []byte {
	if b.broken = b.broken || uint64(n) > uint64(len(b.bytes)); b.broken {
		return nil
	}
	taken := b.bytes[:n]
	b.bytes = b.bytes[n:]
	return taken
}

func (b *frame) takeNumber() (n uint32) {
	for _, c := range b.take(4) {
		n = n<<8 | uint32(c)
	}
	return n
}

func (b *frame) takeLong() uint64 {
	high := b.takeNumber()
	return uint64(high)<<32 | uint64(b.takeNumber())
}

func (b *frame) takeFlag() bool { return b.takeNumber() != 0 }

func (b *frame) takeText() string { return string(b.take(b.takeNumber())) }

func (b *frame) takeList() (texts []string) {
	for n := b.takeNumber(); n > 0 && !b.broken; n-- {
		texts = append(texts, b.takeText())
	}
	return texts
}

// end tells whether the frame held just what was taken.
func (b *frame) end() error {
	if b.broken || len(b.bytes) > 0 {
		return errBroken
	}
	return nil
}
