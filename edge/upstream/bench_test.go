package upstream

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/usher-edge/usher/edge/http1"
)

// still answers every read with the same bytes, without allocating.
func still(c net.Conn) {
	var buf [4096]byte
	answer := []byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\n\r\nhello")
	for {
		if _, err := c.Read(buf[:]); err != nil {
			return
		}
		if _, err := c.Write(answer); err != nil {
			return
		}
	}
}

// exchange is what a small request costs here.
func exchange(p *Pool) func() error {
	head := request("GET", "/", "")
	method := []byte("GET")
	var res http1.Response
	ctx := context.Background()
	return func() error {
		c, err := p.Get(ctx, true)
		if err != nil {
			return err
		}
		defer p.Put(c)
		if _, err := c.Write(head); err != nil {
			return err
		}
		c.Sent = true
		if err := c.ReadHead(&res, method, time.Time{}); err != nil {
			return err
		}
		if data, done, err := c.ReadBody(time.Time{}); !done || len(data) != 5 {
			return err
		}
		return nil
	}
}

func BenchmarkExchange(b *testing.B) {
	for _, network := range []string{"unix", "tcp"} {
		b.Run(network, func(b *testing.B) {
			run := exchange(newOrigin(b, network, still).pool(Options{}))
			b.ReportAllocs()
			for b.Loop() {
				if err := run(); err != nil && err != io.EOF {
					b.Fatal(err)
				}
			}
		})
	}
}
