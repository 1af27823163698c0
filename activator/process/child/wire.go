package child

import (
	"errors"
	"io"
	"syscall"
	"unsafe"
)

// What runs over the channel between usher and one child:
//
//	forker or child → usher   hello: who it is, with its pidfd, or why there is none
//	usher → child             the order, made of a Spec
//	child → usher             Reply{}: ready, or what is wrong with the order
//	usher → child             the go-byte
//	child → usher             end of stream at exec, or a Reply with the error
//
// Both sides are the same binary, so numbers are as the machine has them.

// GoByte is the one byte that lets the child run the build.
const GoByte = 'G'

// Request is the one byte of a request for a child. With it go the descriptors that
// the child shall have: the channel, the log and, if it is to be born in a cgroup,
// the directory of that.
const Request = 'F'

// maxOrder bounds an order; the kernel takes at most 6 MiB of arguments and
// environment.
const maxOrder = 8 << 20

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

// Hello says that the child is there, which it does before anything else. Its pidfd
// comes with it.
type Hello struct {
	PID   uint32
	Errno uint32 // not 0: there is no child, because the kernel refused it
}

// Reply is what the child says when it is ready, or does not exec.
type Reply struct {
	Step  Step // which step failed; 0: ready
	Errno uint32
}

// Bytes is where a hello is read to.
func (h *Hello) Bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(h)), unsafe.Sizeof(*h))
}

// Err is why there is no child; nil: there is one.
func (h *Hello) Err() error {
	if h.Errno == 0 {
		return nil
	}
	return syscall.Errno(h.Errno)
}

// ReadReply returns io.EOF if the stream ends before the reply begins.
func ReadReply(r io.Reader) (reply Reply, err error) {
	_, err = io.ReadFull(r, unsafe.Slice((*byte)(unsafe.Pointer(&reply)), unsafe.Sizeof(reply)))
	return reply, err
}

// order is how a Spec is sent: this, and behind it what it points to. A place is a
// number of bytes from the beginning, for only the child knows where that will be;
// there is nothing to be decoded, which the child could not do. A text ends with a
// zero byte and a list of texts with a zero place, as execve(2) has them.
type order struct {
	size       uintptr // of all of it
	dir, path  uintptr
	args, env  uintptr // lists
	rlimits    uintptr
	rlimitsEnd uintptr
	pidText    uintptr // where the pid goes, in digits: room for pidDigits; 0: nowhere
	uid, gid   uint32
	switchUser uint32
	noNewPrivs uint32
}

// rlimit is one entry at order.rlimits; soft and hard are the kernel's rlimit64.
type rlimit struct {
	resource   uintptr
	soft, hard uint64
}

const (
	orderSize  = unsafe.Sizeof(order{})
	rlimitSize = unsafe.Sizeof(rlimit{})
	word       = unsafe.Sizeof(uintptr(0))
	pidDigits  = 10 // of the largest pid
	pidName    = "LISTEN_PID="
)

// Write sends the spec.
func (s Spec) Write(w io.Writer) error {
	p := pack{bytes: make([]byte, orderSize)}
	o := order{uid: s.UID, gid: s.GID}
	if s.SwitchUser {
		o.switchUser = 1
	}
	if s.NoNewPrivs {
		o.noNewPrivs = 1
	}
	o.dir, o.path = p.text(s.Dir), p.text(s.Path)
	args, env := p.texts(s.Args), p.texts(s.Env)
	if s.ListenPID {
		at := p.text(pidName + string(make([]byte, pidDigits)))
		env, o.pidText = append(env, at), at+uintptr(len(pidName))
	}
	o.args, o.env = p.list(args), p.list(env)
	o.rlimits = p.aligned()
	for _, r := range s.Rlimits {
		p.limit(rlimit{uintptr(r.Resource), r.Soft, r.Hard})
	}
	o.rlimitsEnd = uintptr(len(p.bytes))
	o.size = uintptr(len(p.bytes))
	if o.size > maxOrder {
		return errors.New("arguments and environment are larger than 8 MiB: make them smaller")
	}
	copy(p.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&o)), orderSize))
	_, err := w.Write(p.bytes)
	return err
}

// pack is an order as it grows.
type pack struct{ bytes []byte }

func (p *pack) text(s string) uintptr {
	at := uintptr(len(p.bytes))
	p.bytes = append(append(p.bytes, s...), 0)
	return at
}

func (p *pack) texts(all []string) []uintptr {
	places := make([]uintptr, 0, len(all)+1)
	for _, s := range all {
		places = append(places, p.text(s))
	}
	return places
}

func (p *pack) aligned() uintptr {
	for uintptr(len(p.bytes))%word != 0 {
		p.bytes = append(p.bytes, 0)
	}
	return uintptr(len(p.bytes))
}

func (p *pack) list(places []uintptr) uintptr {
	at := p.aligned()
	for _, place := range append(places, 0) {
		p.bytes = append(p.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&place)), word)...)
	}
	return at
}

func (p *pack) limit(r rlimit) {
	p.bytes = append(p.bytes, unsafe.Slice((*byte)(unsafe.Pointer(&r)), rlimitSize)...)
}
