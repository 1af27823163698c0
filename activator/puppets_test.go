package activator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/usher-edge/usher/activator/cgroup"
	"github.com/usher-edge/usher/activator/store"
)

// nobody is a data plane without requests.
type nobody struct{ Front }

func (nobody) Place(string, Placement)                    {}
func (nobody) OpenAccount(string, uint64) Account         { return nil }
func (nobody) TrySleep(string, uint64, Placement) bool    { return true }
func (nobody) Drained(string, uint64) <-chan struct{}     { return closedChan() }
func (nobody) CloseStreams(string, uint64, time.Duration) {}
func (nobody) Cut(string, uint64)                         {}
func (nobody) Activity(string) Activity                   { return Activity{} }

// sleepers are n apps as a file could describe them.
func sleepers(n int) []App {
	apps := make([]App, n)
	for i := range apps {
		apps[i] = App{
			Name: fmt.Sprintf("app-%06d", i), FileValue: "artifact ./app", Process: Process{Listen: ListenPort},
			Policy: Policy{Health: Health{Path: "/", Timeout: 30 * time.Second}, IdleTimeout: 15 * time.Minute},
		}
	}
	return apps
}

// puppets are processes that do at once what they are told to.
type puppets struct{ Backend }

func (puppets) Level() string                { return cgroup.LevelSession }
func (puppets) Enforces() error              { return nil }
func (puppets) Strays() ([]store.Run, error) { return nil, nil }

func (puppets) Prepare(_ context.Context, p Plan) (Waiting, error) {
	return &puppet{id: Identity{PID: int(p.Generation), StartTime: 1}, done: make(chan struct{})}, nil
}

type puppet struct {
	id   Identity
	done chan struct{}
}

func (p *puppet) Identity() Identity                { return p.id }
func (p *puppet) Go(context.Context) (Child, error) { return p, nil }
func (p *puppet) Abort() error                      { return nil }
func (p *puppet) Exited() bool                      { return isClosed(p.done) }
func (p *puppet) Done() <-chan struct{}             { return p.done }
func (p *puppet) Exit() Exit                        { return Exit{Signal: "terminated"} }
func (p *puppet) OOM() cgroup.OOM                   { return cgroup.OOM{} }
func (p *puppet) Owns(string, string) (bool, error) { return true, nil }
func (p *puppet) Release()                          {}
func (p *puppet) Claim() error                      { return nil }
func (p *puppet) Stop(context.Context, time.Duration) (Stopped, error) {
	close(p.done)
	return Stopped{}, nil
}

// answers200 is the network on which they are healthy.
func answers200(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	go func() {
		defer there.Close()
		if _, err := http.ReadRequest(bufio.NewReader(there)); err == nil {
			_, _ = io.WriteString(there, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}()
	return here, nil
}
