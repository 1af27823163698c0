package engine

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"

	"github.com/usher-edge/usher/edge"
	"github.com/usher-edge/usher/edge/http1"
	"github.com/usher-edge/usher/edge/upstream"
)

// countedConn is a connection whose writes are counted; the engine cannot go round it,
// as it is no socket.
type countedConn struct {
	net.Conn
	n *atomic.Int64
}

func (c countedConn) Write(b []byte) (int, error) {
	c.n.Add(1)
	return c.Conn.Write(b)
}

// manyChunks is a body in n chunks of 10 to 100 bytes, as sent and as data.
func manyChunks(n int) (wire, data []byte) {
	r := rand.New(rand.NewPCG(1, 2))
	for range n {
		chunk := make([]byte, 10+r.IntN(91))
		for i := range chunk {
			chunk[i] = 'a' + byte(r.IntN(26))
		}
		wire = http1.AppendChunk(wire, chunk)
		data = append(data, chunk...)
	}
	return append(wire, "0\r\nX-Sum: 1\r\n\r\n"...), data
}

// countingListener counts the writes to all its clients.
type countingListener struct {
	net.Listener
	n *atomic.Int64
}

func (l countingListener) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return countedConn{nc, l.n}, nil
}

// What came with one read goes on with one write, however many chunks it is.
func TestChunksThatCameTogetherGoOnTogether(t *testing.T) {
	wire, data := manyChunks(1000)
	var toApp, toClient atomic.Int64
	o := newOrigin(t, func(s *stage) {
		r, ok := s.read()
		if !ok {
			return
		}
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, data) || r.Trailer.Get("X-Sum") != "1" {
			t.Errorf("the app got %d bytes, trailer %v, %v", len(got), r.Trailer, err)
		}
		_, _ = s.Write(append([]byte(chunkedHead), wire...))
	})
	pool := spoiling()
	r := newRig(t, rigOptions{app: edge.AppConfig{KeepTrailers: true}, pool: func(opt upstream.Options) *upstream.Pool {
		opt.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, address)
			return countedConn{nc, &toApp}, err
		}
		return pool(opt)
	}})
	r.app.Place(o.placement(1))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- r.srv.Serve(countingListener{ln, &toClient}) }()
	t.Cleanup(func() {
		_ = r.srv.Shutdown(t.Context())
		<-served
	})
	r.addr = ln.Addr().String()
	c := r.dial()
	c.send("POST / HTTP/1.1\r\nHost: app.test\r\nTransfer-Encoding: chunked\r\n\r\n")
	eventually(t, "the app gets the head", func() bool { return o.heads.Load() == 1 })
	c.send(string(wire))
	a := c.want(200, string(data))
	if a.Trailer.Get("X-Sum") != "1" {
		t.Errorf("trailer %v", a.Trailer)
	}
	// Each read is three writes here, where there is no vector of them, and what is
	// sent with one write may come with a few reads.
	for to, n := range map[string]int64{"app": toApp.Load(), "client": toClient.Load()} {
		if n > 100 {
			t.Errorf("%d writes to the %s", n, to)
		}
	}
}

// A pump has a wide buffer only while its client fills a common one.
func TestAnUploadGetsAWideBufferWhileItsClientIsFast(t *testing.T) {
	var m memory
	s := &Server{}
	s.stock.open(true)
	p := &pump{c: &conn{srv: s, mem: &m}, buf: s.stock.bodies.Get(0)}
	m.body.Reset(1 << 20)
	for _, step := range []struct {
		read int
		want bool
	}{{0, false}, {pumpSize - 1, false}, {pumpSize, true}, {4 * pumpSize, true}, {pumpSize, true}, {pumpSize - 1, false}, {pumpSize, true}} {
		p.fit(step.read)
		if wide := len(*p.buf) > pumpSize; wide != step.want {
			t.Errorf("after a read of %d: wide %t", step.read, wide)
		}
	}
	p.fit(0)
	m.body.Reset(pumpSize)
	if p.fit(pumpSize); len(*p.buf) != pumpSize {
		t.Error("a wide buffer for little")
	}
}
