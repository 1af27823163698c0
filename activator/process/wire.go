package process

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
)

// What runs over the channel between usher and `usher __exec`:
//
//	usher → child   frame(execSpec)
//	child → usher   frame(execReply{}): ready, or what is wrong with the spec
//	usher → child   the go-byte
//	child → usher   end of stream at exec, or frame(execReply) with the error
//
// A frame is four bytes of length, big-endian, and a gob, which unlike JSON
// keeps arguments that are not UTF-8.

// goByte is the one byte that lets the child run the build.
const goByte = 'G'

// maxFrame bounds a frame; the kernel takes at most 6 MiB of arguments and
// environment.
const maxFrame = 8 << 20

// execSpec is what the child is to do.
type execSpec struct {
	Dir, Path  string
	Args, Env  []string
	SwitchUser bool
	UID, GID   uint32
	NoNewPrivs bool
	ListenPID  bool
	Rlimits    []Rlimit
}

// execReply is what the child says when it does not exec.
type execReply struct {
	Step  string // which step failed; empty: ready
	Errno uint32
}

func writeFrame(w io.Writer, value any) error {
	var buf bytes.Buffer
	buf.Write(make([]byte, 4))
	if err := gob.NewEncoder(&buf).Encode(value); err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if buf.Len() > maxFrame {
		return errors.New("arguments and environment are larger than 8 MiB: make them smaller")
	}
	binary.BigEndian.PutUint32(buf.Bytes(), uint32(buf.Len()-4))
	_, err := w.Write(buf.Bytes())
	return err
}

// readFrame returns io.EOF if the stream ends before the frame begins.
func readFrame(r io.Reader, value any) error {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > maxFrame {
		return fmt.Errorf("decode frame: %d bytes are too many", n)
	}
	body := make([]byte, n)
	if _, err := io.ReadFull(r, body); err != nil {
		return fmt.Errorf("decode frame: %w", err)
	}
	return gob.NewDecoder(bytes.NewReader(body)).Decode(value)
}
