package engine

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/usher-edge/usher/edge/rawio"
)

// askTimeout bounds every step of an ask connection.
const askTimeout = 5 * time.Second

// ServeAsk answers a TLS proxy in front that wants to know whether it may obtain
// a certificate: GET /?domain=NAME is 200 if ask says yes, 404 if it says no,
// 400 without a domain. It runs until ctx ends or ln fails, and closes ln and
// every connection; no goroutine is left but the one clock that fasthttp keeps
// per process. The error is nil if ctx ended it.
//
// Connections are accepted here, not by fasthttp, whose own accept loop leaves
// goroutines behind for a while.
func ServeAsk(ctx context.Context, ln net.Listener, ask func(domain string) bool) error {
	srv := &fasthttp.Server{
		NoDefaultServerHeader: true,
		ReadTimeout:           askTimeout,
		WriteTimeout:          askTimeout,
		MaxRequestBodySize:    1,
		GetOnly:               true,
		Handler:               func(r *fasthttp.RequestCtx) { answerAsk(r, ask) },
	}
	var conns sync.WaitGroup
	defer conns.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = ln.Close() })() // the loop reports what matters
	for {
		nc, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = nc.Close() // it came too late
			}
			return nil
		case err == nil:
		case passing(err), rawio.Exhausted(err):
			new(backoff).wait(ctx)
			continue
		default:
			return fmt.Errorf("serve ask: %w", err)
		}
		conns.Go(func() {
			defer context.AfterFunc(ctx, func() { _ = nc.Close() })() // whatever it was at
			_ = srv.ServeConn(nc)                                     // the client's trouble
			_ = nc.Close()                                            // mostly closed already
		})
	}
}

func answerAsk(r *fasthttp.RequestCtx, ask func(domain string) bool) {
	domain := string(r.QueryArgs().Peek("domain"))
	switch {
	case domain == "":
		r.Error("ask with ?domain=NAME", fasthttp.StatusBadRequest)
	case ask(domain):
		r.SetStatusCode(fasthttp.StatusOK)
	default:
		r.Error("not hosted here", fasthttp.StatusNotFound)
	}
}
