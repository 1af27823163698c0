package admin

import (
	"context"
	"crypto/sha256"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Limits that no option changes.
const (
	headTimeout   = 10 * time.Second // to send a request head
	idleTimeout   = 2 * time.Minute  // between requests of a connection
	bodyTimeout   = 30 * time.Second // to send a JSON body
	stallTimeout  = 60 * time.Second // without a byte of an upload, or of room in a stream
	changeTimeout = 60 * time.Second // for Control to admit a change
	maxHead       = 16 << 10         // bytes
	maxJSON       = 1 << 20          // bytes
)

// DefaultMaxUpload is the greatest artifact, in bytes, unless Options say else.
const DefaultMaxUpload = 1 << 30

// Options of a [Server]. The zero value works on unix listeners only.
type Options struct {
	// Token is what TCP clients must send as "Authorization: Bearer". Without one
	// no TCP listener is served.
	Token string
	// Hosts are names, beside loopback and the listener's own address, that a TCP
	// client may use in the Host header. Ports are not compared.
	Hosts []string
	// Forbid reports whether an app runs as uid. Nil forbids nobody.
	Forbid func(uid uint32) bool
	// Metrics answers /metrics; nil is 404.
	Metrics http.Handler
	// Live and Ready answer /livez and /readyz: 200 for nil, else 503 with the
	// error. A nil func always says yes.
	Live, Ready func(ctx context.Context) error
	// Placed is closed when every app has its place. Until then only the probes,
	// /metrics, /v1/version and /v1/server answer; the rest waits. Nil: nothing waits.
	Placed <-chan struct{}
	// Version is the answer of /v1/version.
	Version VersionInfo
	// MaxUpload bounds an artifact in bytes; 0 is DefaultMaxUpload.
	MaxUpload int64
	// Heartbeat is the pause after which an event stream sends a comment; 0 is 15s.
	Heartbeat time.Duration
	// Log gets the audit trail: changes and refusals at Info, reads at Debug. Nil
	// drops it.
	Log *slog.Logger
}

// Server answers the admin API on any number of listeners.
type Server struct {
	control   Control
	opts      Options
	uid       uint32
	tokenHash [sha256.Size]byte
	routes    *http.ServeMux
	http      *http.Server
	stopping  chan struct{}
	stopOnce  sync.Once
}

// NewServer prepares a server over c. It opens nothing.
func NewServer(c Control, o Options) *Server {
	if o.MaxUpload == 0 {
		o.MaxUpload = DefaultMaxUpload
	}
	if o.Heartbeat == 0 {
		o.Heartbeat = 15 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		control:   c,
		opts:      o,
		uid:       uint32(os.Geteuid()),
		tokenHash: sha256.Sum256([]byte(o.Token)),
		stopping:  make(chan struct{}),
	}
	s.routes = s.newRoutes()
	s.http = &http.Server{
		Handler:           lingering(s.audited(s.guarded(s.routes))),
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHead,
		ConnContext:       withPeer,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	return s
}

// Serve answers on l until Shutdown, then returns nil. It closes l. A listener
// that is no unix socket is refused if there is no token.
func (s *Server) Serve(l net.Listener) error {
	if l.Addr().Network() != "unix" && s.opts.Token == "" {
		_ = l.Close()
		return errors.New("serve admin api on " + l.Addr().String() +
			": a tcp listener needs a token; set one, or use a unix socket")
	}
	if err := s.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Shutdown closes the listeners, ends event and log streams, and waits for
// other requests until ctx ends; then it closes their connections too. What
// Control has admitted is not cancelled.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopOnce.Do(func() { close(s.stopping) })
	err := s.http.Shutdown(ctx)
	if err != nil {
		_ = s.http.Close()
	}
	return err
}

// streamContext ends with the request or with Shutdown.
func (s *Server) streamContext(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	go func() { // stopped by cancel
		select {
		case <-s.stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// changeContext does not end when the client goes away: a change that was
// received is admitted or refused, never half of it.
func changeContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), changeTimeout)
}
