package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// PortRange is a range of TCP ports, both ends included.
type PortRange struct{ First, Last int }

func (r PortRange) String() string         { return fmt.Sprintf("%d-%d", r.First, r.Last) }
func (r PortRange) size() int              { return r.Last - r.First + 1 }
func (r PortRange) holds(p int) bool       { return r.First <= p && p <= r.Last }
func (r PortRange) meets(o PortRange) bool { return r.First <= o.Last && o.First <= r.Last }

const (
	// portRest is how long a port that was given back is not handed out:
	// as long as a connection to its last owner can linger in TIME_WAIT.
	portRest = 60 * time.Second

	// minPorts is the smallest range worth having: one generation serving and
	// one starting for each of 50 apps.
	minPorts = 100
	maxPorts = 10_000
)

// defaultPorts is used unless the kernel's own range lies across it.
func defaultPorts() PortRange { return PortRange{20_000, 29_999} }

// ErrNoPort means that every port of the range is in use or resting.
var ErrNoPort = errors.New("no free port")

// Ports hands out TCP ports for apps. It may be used from several goroutines.
type Ports struct {
	ports PortRange
	free  func(port int) bool // asks the kernel; does I/O

	// mu guards the fields below. The kernel is never asked under it.
	mu    sync.Mutex
	next  int               // where the next search begins
	taken map[int]bool      // handed out or claimed
	rests map[int]time.Time // given back, and when it may be handed out again
}

// NewPorts returns an allocator for want. The zero range means 20000-29999, or
// the largest other gap if the kernel takes the ports of outgoing connections
// (net.ipv4.ip_local_port_range) from there. A range that is given must lie
// outside of the kernel's: an app could otherwise find its port taken by any
// connection to anywhere.
func NewPorts(want PortRange) (*Ports, error) {
	kernel, err := ephemeral()
	if err != nil {
		return nil, fmt.Errorf("choose app ports: %w", err)
	}
	ports, err := choosePorts(want, kernel)
	if err != nil {
		return nil, err
	}
	// Ushers that run side by side should not all try the same port first.
	return newPorts(ports, ports.First+rand.IntN(ports.size()), unbound), nil
}

func newPorts(ports PortRange, next int, free func(int) bool) *Ports {
	return &Ports{ports: ports, free: free, next: next, taken: map[int]bool{}, rests: map[int]time.Time{}}
}

func ephemeral() (PortRange, error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	raw, err := os.ReadFile(file)
	if err != nil {
		return PortRange{}, err
	}
	return parseEphemeral(string(raw))
}

func parseEphemeral(text string) (PortRange, error) {
	f := strings.Fields(text)
	if len(f) != 2 {
		return PortRange{}, fmt.Errorf("read ip_local_port_range: want two numbers, got %q", text)
	}
	first, err1 := strconv.Atoi(f[0])
	last, err2 := strconv.Atoi(f[1])
	return PortRange{first, last}, errors.Join(err1, err2)
}

func choosePorts(want, kernel PortRange) (PortRange, error) {
	if want == (PortRange{}) {
		return defaultFor(kernel)
	}
	switch {
	case want.First < 1024 || want.Last > 65535 || want.size() < 1:
		return PortRange{}, fmt.Errorf("choose app ports: %v is no range between 1024 and 65535", want)
	case want.meets(kernel):
		return PortRange{}, fmt.Errorf("choose app ports: %v overlaps %v, from which the kernel takes ports for outgoing connections; choose another range or change net.ipv4.ip_local_port_range", want, kernel)
	}
	return want, nil
}

func defaultFor(kernel PortRange) (PortRange, error) {
	if d := defaultPorts(); !d.meets(kernel) {
		return d, nil
	}
	gap := PortRange{1024, kernel.First - 1}
	if above := (PortRange{kernel.Last + 1, 65535}); above.size() > gap.size() {
		gap = above
	}
	if gap.size() < minPorts {
		return PortRange{}, fmt.Errorf("choose app ports: the kernel takes %v for outgoing connections and leaves no %d ports in a row; narrow net.ipv4.ip_local_port_range", kernel, minPorts)
	}
	gap.First = max(gap.First, gap.Last-maxPorts+1)
	return gap, nil
}

// Range is the range that ports are taken from.
func (p *Ports) Range() PortRange { return p.ports }

// Take hands out a port that is not in use by anyone, usher or not, and was not
// given back within the last 60 s. It is ErrNoPort when there is none.
func (p *Ports) Take(now time.Time) (int, error) {
	for range p.ports.size() {
		port, ok := p.candidate(now)
		if !ok {
			break
		}
		if p.free(port) {
			return port, nil
		}
		p.Free(port, now)
	}
	return 0, fmt.Errorf("%w in %v: every one is in use or was within the last %v; widen the range", ErrNoPort, p.ports, portRest)
}

// candidate marks the next port that nobody has here as taken.
func (p *Ports) candidate(now time.Time) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for range p.ports.size() {
		port := p.next
		if p.next++; !p.ports.holds(p.next) {
			p.next = p.ports.First
		}
		if p.taken[port] || now.Before(p.rests[port]) {
			continue
		}
		delete(p.rests, port)
		p.taken[port] = true
		return port, true
	}
	return 0, false
}

// Claim marks a port as in use by an adopted generation, in the range or not.
func (p *Ports) Claim(port int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[port] = true
	delete(p.rests, port)
}

// Free gives a port back; it rests for 60 s from now.
func (p *Ports) Free(port int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.taken, port)
	if p.ports.holds(port) {
		p.rests[port] = now.Add(portRest)
	}
}

// unbound reports whether nobody has the port: it can be bound on every address
// of both families without SO_REUSEADDR.
func unbound(port int) bool {
	err := tryBind(unix.AF_INET6, &unix.SockaddrInet6{Port: port})
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EADDRNOTAVAIL) {
		err = tryBind(unix.AF_INET, &unix.SockaddrInet4{Port: port})
	}
	return err == nil
}

func tryBind(family int, address unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if family == unix.AF_INET6 {
		// Both families, whatever net.ipv6.bindv6only says.
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0); err != nil {
			return err
		}
	}
	return unix.Bind(fd, address)
}
