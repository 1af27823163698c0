package process

import (
	"errors"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"
)

func noon() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }

func TestPortRestsAfterUse(t *testing.T) {
	p := newPorts(PortRange{20000, 20001}, 20001, func(int) bool { return true })
	now := noon()
	take := func() int {
		t.Helper()
		port, err := p.Take(now)
		if err != nil {
			t.Fatal(err)
		}
		return port
	}
	first, second := take(), take()
	if first != 20001 || second != 20000 {
		t.Fatalf("got %d and %d", first, second)
	}
	if _, err := p.Take(now); !errors.Is(err, ErrNoPort) {
		t.Fatalf("all in use: %v", err)
	}
	p.Free(first, now)
	now = now.Add(portRest - time.Nanosecond)
	if _, err := p.Take(now); !errors.Is(err, ErrNoPort) {
		t.Fatalf("all in use or resting: %v", err)
	}
	now = now.Add(time.Nanosecond)
	if got := take(); got != first {
		t.Fatalf("got %d, want %d", got, first)
	}
}

func TestClaimedPortIsNotHandedOut(t *testing.T) {
	p := newPorts(PortRange{20000, 20002}, 20000, func(int) bool { return true })
	p.Claim(20000)
	p.Claim(8080) // from an earlier range
	if port, err := p.Take(noon()); err != nil || port != 20001 {
		t.Fatalf("got %d, %v", port, err)
	}
	p.Free(8080, noon())
	p.Free(20000, noon())
	if port, err := p.Take(noon()); err != nil || port != 20002 {
		t.Fatalf("got %d, %v", port, err)
	}
	if port, err := p.Take(noon()); !errors.Is(err, ErrNoPort) {
		t.Fatalf("got %d, %v", port, err)
	}
}

func TestPortThatAnyoneHasIsSkipped(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "0.0.0.0:0", "[::1]:0"} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue // no IPv6 here
		}
		_, text, _ := net.SplitHostPort(l.Addr().String())
		port, err := strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
		p := newPorts(PortRange{port, port}, port, unbound)
		if got, err := p.Take(noon()); !errors.Is(err, ErrNoPort) {
			t.Errorf("%s: got %d, %v", l.Addr(), got, err)
		}
		l.Close()
		if got, err := p.Take(noon().Add(portRest)); err != nil || got != port {
			t.Errorf("%s after close: got %d, %v", l.Addr(), got, err)
		}
	}
}

func TestPortIsHandedOutOnce(t *testing.T) {
	ports, err := NewPorts(PortRange{})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	got := make([]int, 64)
	for i := range got {
		wg.Go(func() {
			port, err := ports.Take(noon())
			if err != nil {
				t.Error(err)
			}
			got[i] = port
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for _, port := range got {
		if seen[port] || !ports.Range().holds(port) {
			t.Errorf("port %d twice, or outside %v", port, ports.Range())
		}
		seen[port] = true
	}
}
