// Package edge connects this process over HTTP: it serves clients and reaches other servers.
//
// It knows listeners, TLS, identities, roles and budgets. It must never know the service behind
// it.
package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/ingest/retry"
)

// Defaults of Config.
const (
	defaultMaxConns  = 4096
	defaultMaxHeader = 16 << 10
	defaultHeader    = 10 * time.Second
	defaultRead      = 10 * time.Second
	defaultWrite     = time.Minute
	defaultIdle      = 2 * time.Minute
	defaultGrace     = 5 * time.Second
)

// Config configures access to a server and the limits of each connection.
type Config struct {
	// Auth configures authentication; nil: none, and the server uses plain HTTP.
	Auth *Auth
	// Access enforces roles and budgets of identified clients and keeps an audit log. It requires
	// Auth. With it, a certificate counts only if the clients file lists its name. Without it, the handler
	// decides by calling Identify.
	Access *Access
	// Exposed lets Listen open an address beyond loopback without TLS or authentication.
	Exposed bool

	// MaxConns limits the open connections; 0: 4096. With Auth, an address gets at most half
	// of them, or 16 if that is more. If clients authenticate, connections without a valid credential give
	// way to others.
	// Connections beyond the limit are refused.
	MaxConns  int
	MaxHeader int           // bytes of a request's header; 0: 16 KiB
	Header    time.Duration // for the handshake, and for a request's header; 0: 10 s
	Read      time.Duration // for a whole request; 0: 10 s, -1: unlimited
	Write     time.Duration // for a response; 0: 1 min, -1: unlimited
	Idle      time.Duration // of a connection between requests; 0: 2 min
	Grace     time.Duration // for running requests when serving ends; 0: 5 s
	HTTP2     *http.HTTP2Config

	// Refused is called for each client refused before a handler sees it, without attributes if
	// a log line would add nothing; nil: each reason is logged at a limited rate. It must be
	// safe for concurrent use.
	Refused func(Reason, ...slog.Attr)
	Now     func() time.Time // nil: time.Now
	Logger  *slog.Logger     // nil: silent
}

// Server serves HTTP/1.1 and HTTP/2 on an address, with or without TLS. Its methods are safe
// for concurrent use after Listen.
type Server struct {
	cfg      Config
	gate     *gate    // nil: no authentication
	control  *control // nil: no roles or budgets
	pages    *http.CrossOriginProtection
	listener net.Listener
	loopback bool // only this machine can reach it
}

// New validates the configuration and loads the files that it names.
func New(cfg Config) (*Server, error) {
	cfg.MaxConns, cfg.MaxHeader = cmp.Or(cfg.MaxConns, defaultMaxConns), cmp.Or(cfg.MaxHeader, defaultMaxHeader)
	cfg.Header, cfg.Read, cfg.Write = cmp.Or(cfg.Header, defaultHeader), cmp.Or(cfg.Read, defaultRead), cmp.Or(cfg.Write, defaultWrite)
	cfg.Idle, cfg.Grace = cmp.Or(cfg.Idle, defaultIdle), cmp.Or(cfg.Grace, defaultGrace)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	if cfg.Refused == nil {
		cfg.Refused = logRefused(cfg.Logger, cfg.Now)
	}
	s := &Server{cfg: cfg, pages: http.NewCrossOriginProtection()}
	if cfg.Auth != nil {
		var err error
		if s.gate, err = newGate(&s.cfg); err != nil {
			return nil, err
		}
		s.gate.refusedConn = s.refusedConn
	}
	if cfg.Access == nil {
		return s, nil
	}
	if s.gate == nil {
		return nil, errors.New("roles and budgets without identities: expected a way to tell clients apart")
	}
	var err error
	s.control, err = newControl(s)
	return s, err
}

// logRefused logs refused clients, at a limited rate for each reason.
func logRefused(logger *slog.Logger, now func() time.Time) func(Reason, ...slog.Attr) {
	var throttles [NumReasons]retry.LogThrottle
	return func(why Reason, attrs ...slog.Attr) {
		if len(attrs) == 0 {
			return
		}
		throttles[why].Warn(logger, now(), "client refused", append(attrs, slog.String("reason", why.String()))...)
	}
}

// ErrExposed is returned for an address that is reachable from other machines without
// protection.
var ErrExposed = errors.New("other machines reach this address")

// CheckAddress rejects an address that is not HOST:PORT, and one beyond loopback without
// authentication or encryption, unless the configuration is Exposed. The second error wraps
// ErrExposed.
func (c *Config) CheckAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen on %q: expected HOST:PORT such as 127.0.0.1:8080", address)
	}
	if c.Exposed || IsLoopback(host) {
		return nil
	}
	if err := c.Auth.Exposed(); err != nil {
		return fmt.Errorf("listen on %s: %w, and %w", address, ErrExposed, err)
	}
	return nil
}

// Listen opens HOST:PORT if CheckAddress allows it. Connections wait until Serve. flag is the option
// that sets the address: the error for an address in use names it.
func (s *Server) Listen(ctx context.Context, address, flag string) error {
	if err := s.cfg.CheckAddress(address); err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("listen on %s: %w: choose another port with %s", address, err, flag)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	s.ListenOn(l)
	return nil
}

// ListenOn uses an open listener, such as a Unix socket, instead of Listen. The caller ensures
// that its address is safe.
func (s *Server) ListenOn(l net.Listener) {
	host, _, _ := net.SplitHostPort(l.Addr().String()) // a socket without a port is not loopback
	s.loopback = IsLoopback(host)
	s.listener = newListener(l, s)
}

// Close stops listening. Call it on a server without Serve, or to free the address before Serve
// has finished the running requests. A second call does nothing.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Addr returns the listening address, with the actual port if 0 was requested.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL returns the address as a URL.
func (s *Server) URL() string {
	if s.gate.tlsConfig() != nil {
		return "https://" + s.Addr().String()
	}
	return "http://" + s.Addr().String()
}

// Serve answers requests with h until ctx ends, then closes the address and gives running
// requests the grace period to finish. It returns nil when ctx ends it. It may be called once.
func (s *Server) Serve(ctx context.Context, h http.Handler) error {
	server := s.httpServer(s.Guard(h))
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(s.listener); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
			return fmt.Errorf("serve %s: %w", s.Addr(), err)
		}
		return nil
	})
	if s.gate != nil {
		g.Go(func() error {
			s.gate.run(ctx)
			return nil
		})
	}
	g.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.cfg.Grace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			s.cfg.Logger.Warn("requests were cut off", slog.String("address", s.Addr().String()), slog.String("error", err.Error()))
			_ = server.Close() // fails for closed connections
		}
		return nil
	})
	return g.Wait()
}

// httpServer also speaks HTTP/2 without TLS, for gRPC clients.
func (s *Server) httpServer(h http.Handler) *http.Server {
	clear := s.gate.tlsConfig() == nil
	server := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: s.cfg.Header,
		ReadTimeout:       s.cfg.Read,
		WriteTimeout:      s.cfg.Write,
		IdleTimeout:       s.cfg.Idle,
		MaxHeaderBytes:    s.cfg.MaxHeader,
		TLSConfig:         s.gate.tlsConfig(),
		HTTP2:             s.cfg.HTTP2,
		ConnContext:       connContext,
		Protocols:         new(http.Protocols),
		ErrorLog:          slog.NewLogLogger(&errorLog{Handler: s.cfg.Logger.Handler(), logger: s.cfg.Logger, now: s.cfg.Now}, slog.LevelWarn),
	}
	if s.gate != nil {
		server.ConnState = s.gate.connState
	}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(!clear)
	server.Protocols.SetUnencryptedHTTP2(clear)
	return server
}

// errorLog logs errors of net/http at a limited rate, since any client that breaks the protocol
// causes them.
type errorLog struct {
	slog.Handler
	logger   *slog.Logger
	now      func() time.Time
	throttle retry.LogThrottle
}

// Handle implements slog.Handler.
func (l *errorLog) Handle(_ context.Context, r slog.Record) error {
	l.throttle.Warn(l.logger, l.now(), "serve connection", slog.String("error", r.Message))
	return nil
}

// Guard passes permitted requests to next. Serve applies it to its own handler.
func (s *Server) Guard(next http.Handler) http.Handler {
	if s.control != nil {
		return s.control.guard(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.checkHost(r)
		if err == nil {
			err = s.pages.Check(r)
		}
		if err != nil {
			s.cfg.Refused(ForeignOrigin, slog.String("address", r.RemoteAddr), slog.String("error", Truncated(err.Error())))
			refuse(w, r, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses requests that reach a loopback address under a foreign host name.
func (s *Server) checkHost(r *http.Request) error {
	if s.loopback {
		return checkLoopback(r)
	}
	return nil
}

// Identify returns the client that sent a request. It verifies certificates again, because a
// connection can outlive its certificate, the authority and the lists. Its errors are for the
// client. It requires Auth.
func (s *Server) Identify(r *http.Request) (Peer, error) { return s.gate.Identify(r) }

// Names returns the names that have a token.
func (s *Server) Names() []string { return s.gate.names() }

// Use applies new settings to requests from now on and resets the budgets of all clients. It
// requires Access.
func (s *Server) Use(settings Settings) error { return s.control.use(settings) }

// refusedConn counts and reports a refused connection.
func (s *Server) refusedConn(why Reason, attrs ...slog.Attr) {
	if s.control != nil {
		s.control.counts.connections[why].Add(1)
	}
	s.cfg.Refused(why, attrs...)
}

// Stats returns the counts of requests and refusals. It requires Access.
func (s *Server) Stats() Stats { return s.control.stats() }
