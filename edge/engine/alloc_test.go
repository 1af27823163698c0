//go:build !race

package engine

import (
	"net"
	"runtime"
	"testing"

	"github.com/usher-edge/usher/edge"
	"golang.org/x/sys/unix"
)

func TestAProxiedGetAllocatesNothing(t *testing.T) {
	trip := pair(t, smallAnswer)
	for range 100 {
		trip()
	}
	// Neither the client here nor the origin allocates, so what is counted is
	// the edge's. The pools may be emptied by a collection meanwhile.
	if n := testing.AllocsPerRun(200, trip); n >= 1 {
		t.Errorf("%v allocations for each request", n)
	}
}

// An idle keep-alive connection costs at most 1 KiB of usher's memory, all that
// it has of the heap, stacks and package net included.
func TestAnIdleConnectionCostsLittle(t *testing.T) {
	measure := idleCost(t, 1000)
	least := measure()
	for range 2 { // what else runs in this process may use memory meanwhile
		least = min(least, measure())
	}
	if least > 1024 {
		t.Errorf("%.0f bytes", least)
	}
}

func BenchmarkIdleConnection(b *testing.B) {
	measure := idleCost(b, 4000)
	var most float64
	for b.Loop() {
		most = max(most, measure())
	}
	b.ReportMetric(most, "B/conn")
}

// idleCost measures what each of n connections costs while they are idle. The
// clients are bare descriptors, which cost none.
func idleCost(t testing.TB, n int) func() float64 {
	t.Helper()
	o := newOrigin(t, always("x"))
	r := &rig{t: t, edge: edge.New(edge.Options{})}
	if err := r.edge.SetApps([]edge.AppConfig{{Name: "app", Hosts: []string{"*"}}}); err != nil {
		t.Fatal(err)
	}
	r.app = r.edge.App("app")
	r.app.Place(o.placement(1))
	r.serve(Options{Edge: r.edge, grace: soon}, false)
	conns := make([]descriptor, n)
	return func() float64 {
		before := inUse()
		for i := range conns {
			conns[i] = connect(t, r.addr)
			conns[i].trip(t)
		}
		r.away(n)
		after := inUse()
		for _, c := range conns {
			unix.Close(int(c))
		}
		r.away(0)
		return (float64(after) - float64(before)) / float64(n)
	}
}

func inUse() uint64 {
	runtime.GC()
	runtime.GC() // empties the pools
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}

// descriptor is a client.
type descriptor int

func connect(b testing.TB, address string) descriptor {
	b.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.Fatal(err)
	}
	a, err := net.ResolveTCPAddr("tcp4", address)
	if err != nil {
		b.Fatal(err)
	}
	to := unix.SockaddrInet4{Port: a.Port}
	copy(to.Addr[:], a.IP.To4())
	if err := unix.Connect(fd, &to); err != nil {
		b.Fatal(err)
	}
	return descriptor(fd)
}

func (c descriptor) trip(b testing.TB) {
	b.Helper()
	var buf [4096]byte
	if _, err := unix.Write(int(c), []byte("GET / HTTP/1.1\r\nHost: app.test\r\n\r\n")); err != nil {
		b.Fatal(err)
	}
	if n, err := unix.Read(int(c), buf[:]); err != nil || n == 0 {
		b.Fatalf("%d bytes, %v", n, err)
	}
}

// T10: what streams is not kept, whichever way it goes.
func TestLargeBodiesStayOutOfMemory(t *testing.T) {
	l := newLargeBodies(t)
	before := heapInUse()
	l.down()
	l.up()
	l.upChunked()
	if grown := heapInUse() - before; grown > 16<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
}

func heapInUse() int64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse)
}
