package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/usher-edge/usher/admin"
	"github.com/usher-edge/usher/cmd/internal/config"
	"github.com/usher-edge/usher/edge/rawio"
)

// openListeners binds every address, so that one that is taken ends usher before
// anything of an app is touched. Nothing is accepted yet.
func (d *daemon) openListeners(ctx context.Context) error {
	s := d.file.Load().server
	for _, addr := range s.Listen {
		ln, err := listen(ctx, addr, s.ListenGroup)
		if err != nil {
			return err
		}
		d.onClose(closeListener(ln))
		d.edgeListeners = append(d.edgeListeners, ln)
	}
	ln, err := listen(ctx, s.Admin, s.AdminGroup)
	if err != nil {
		return err
	}
	d.onClose(closeListener(ln))
	d.adminListener = ln
	if !s.AskListen.IsZero() {
		if d.askListener, err = listen(ctx, s.AskListen, config.Group{}); err != nil {
			return err
		}
		d.onClose(closeListener(d.askListener))
	}
	return nil
}

// closeListener closes one that whoever served it may have closed already.
func closeListener(ln net.Listener) func() error {
	return func() error {
		_ = ln.Close()
		return nil
	}
}

func listen(ctx context.Context, a config.Addr, g config.Group) (net.Listener, error) {
	if a.Network == "unix" {
		o := admin.SocketOptions{}
		if g.Name != "" {
			o = admin.SocketOptions{Mode: 0o660, GID: int(g.GID), Chown: true}
		}
		return admin.ListenUnix(ctx, a.Address, o)
	}
	lc := net.ListenConfig{Control: rawio.Unpaced}
	lc.SetMultipathTCP(false) // with it large answers stop for 200 ms now and then
	ln, err := lc.Listen(ctx, "tcp", a.Address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w; is another server, or another usher, using it?", a.Address, err)
	}
	return ln, nil
}

// openAdmin puts the admin API together. It answers from here on, so that probes
// hear that usher starts; what is about apps waits until all are placed.
func (d *daemon) openAdmin(context.Context) error {
	d.metrics = prometheus.NewRegistry()
	d.metrics.MustRegister(d.edge.Collector(), newSwapCollector(d), newDoorCollector(d), collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if d.access != nil {
		d.metrics.MustRegister(d.access.Collector())
	}
	s := d.file.Load().server
	token := ""
	if s.AdminTokenFile != "" {
		b, err := os.ReadFile(s.AdminTokenFile)
		if err != nil {
			return fmt.Errorf("read the admin token: %w", err)
		}
		token = strings.TrimSpace(string(b))
	}
	d.admin = admin.NewServer(&control{d}, admin.Options{
		Token:   token,
		Forbid:  d.runsAs,
		Metrics: promhttp.HandlerFor(d.metrics, promhttp.HandlerOpts{}),
		Ready:   d.ready,
		Placed:  d.up,
		Version: d.opt.Version,
		Log:     d.log,
	})
	d.onClose(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), adminStop)
		defer cancel()
		err := d.admin.Shutdown(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			d.log.Warn("requests of the admin api were still under way, such as an upload: they were cut")
			return nil
		}
		return err
	})
	d.run(func() error { return d.admin.Serve(reachable{d.adminListener, d.reserve}) })
	return nil
}

// reachable is a listener whose clients are let in also when there is no descriptor left:
// who wants to know what is going on wants it then.
type reachable struct {
	net.Listener
	reserve *rawio.Reserve
}

func (l reachable) Accept() (net.Conn, error) { return l.reserve.Accept(l.Listener) }

func (d *daemon) ready(context.Context) error {
	if st, _ := d.state.Load().(string); st != "serving" {
		return fmt.Errorf("usher is %s", st)
	}
	return d.act.Owned() // what serves goes on; nothing else can be started
}

// runsAs says whether an app, and not usher itself, runs as uid.
func (d *daemon) runsAs(uid uint32) bool {
	_, is := d.file.Load().users[uid]
	return is
}
