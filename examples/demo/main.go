// Command demo is `make demo`: it starts usher with two example apps in a
// directory of its own and shows, with real processes and under load, what
// usher is for: the first request wakes a sleeping app, a deploy in overlap
// mode and one in hold mode lose nothing, and idle apps fall asleep again.
//
// It uses usher as a user would, through its command line, and exits 0 only if
// no request failed and everything was seen to happen. Whatever it started it
// stops, and its directory is removed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// options is what the command line says.
type options struct {
	usher    string  // the binary
	apps     string  // directory of hello, hello-v2 and hello-v3
	listen   string  // host:port
	rate     float64 // requests per second
	pictures string  // directory; empty for none
	keep     bool
	around   time.Duration // load before and after each swap; 0 means bench's own
}

func main() {
	// usher asks the kernel to be told when the thread that started it is gone,
	// so that thread must live as long as the demo: it is this one.
	runtime.LockOSThread()
	var o options
	flag.StringVar(&o.usher, "usher", "bin/usher", "the usher `binary`")
	flag.StringVar(&o.apps, "apps", "examples/hello/bin", "`directory` with the builds hello, hello-v2 and hello-v3")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to serve on; another port is taken if this one is in use")
	flag.Float64Var(&o.rate, "rate", 200, "requests per second while builds are swapped")
	flag.StringVar(&o.pictures, "pictures", "", "write overlap.html and hold.html, latency over time, to this `directory`")
	flag.BoolVar(&o.keep, "keep", false, "leave it running until Ctrl-C and print the addresses to open")
	flag.Parse()

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := demo(ctx, o, os.Stdout)
	stop()
	switch {
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(os.Stderr, "demo: interrupted; everything is stopped")
		os.Exit(1)
	case err != nil:
		fmt.Fprintf(os.Stderr, "demo: %v\n", err)
		os.Exit(1)
	}
}
