// Command hello is the example app, and the app that usher's tests host. It is
// an ordinary HTTP server that can be told to misbehave.
//
// It listens on 127.0.0.1:$PORT, or on the unix socket $SOCKET. On SIGTERM it
// stops accepting, finishes what is in flight and exits 0.
//
// Builds that differ are made with
//
//	go build -ldflags '-X main.version=v2 -X main.behave=slow-start=2s' ./examples/hello
//
// and build.sh makes those that the demo and the tests use. What to do wrong is
// listed in behaviour.go; a build's list (main.behave) and the variable BEHAVE
// are added up.
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Set by the linker, never by the program.
var (
	version = "v1"
	behave  = ""
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == grandchild {
		beGrandchild()
	}
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "hello %s: %v\n", version, err)
		os.Exit(1)
	}
}

func run() error {
	how, err := parseBehaviour(behave, os.Getenv("BEHAVE"))
	if err != nil {
		return err
	}
	term := make(chan os.Signal, 1)
	if how.ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(term, syscall.SIGTERM, os.Interrupt)
	}
	if err := how.beforeListening(term); err != nil {
		return err
	}
	listener, err := listen()
	if err != nil {
		return err
	}
	a := newApp(how)
	server := &http.Server{
		Handler:           a.handler(),
		ReadHeaderTimeout: 10 * time.Second,
		ConnContext:       withTape,
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(taped{listener}) }()
	fmt.Printf("hello %s listens on %s\n", version, listener.Addr())
	select {
	case err := <-served:
		return fmt.Errorf("serve: %w", err)
	case <-term:
		return a.leave(server)
	}
}

func listen() (net.Listener, error) {
	if path := os.Getenv("SOCKET"); path != "" {
		return net.Listen("unix", path)
	}
	port := os.Getenv("PORT")
	if port == "" {
		return nil, errors.New("where to listen is not said: set PORT or SOCKET")
	}
	return net.Listen("tcp", net.JoinHostPort("127.0.0.1", port))
}

// leave ends the server the way a well-behaved app does, or the way it was told.
func (a *app) leave(server *http.Server) error {
	fmt.Printf("hello %s was asked to stop\n", version)
	if a.how.closeOnTerm {
		return server.Close()
	}
	time.Sleep(a.how.linger)
	// Streams have no end of their own.
	a.stopStreams()
	err := server.Shutdown(context.Background())
	a.upgraded.Wait()
	return err
}
