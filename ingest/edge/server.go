// Package edge is where clients reach this process over HTTP, and how this process reaches
// other servers: listeners, TLS, who the other end is, its role, and how much it may take.
//
// It knows listeners, TLS, identities, roles and budgets. It must never know what is served
// behind it.
package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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

// Config says who may reach a server and what each connection may hold.
type Config struct {
	// Auth says how clients prove who they are; nil: nobody has to, and the server speaks in
	// the clear.
	Auth *Auth
	// Access holds identified clients to roles and budgets, and keeps an audit log. With it, a
	// certificate counts only where the file of clients lists its name. Without it, the handler
	// decides, by Identify.
	Access *Access
	// Exposed lets Listen open an address beyond loopback without TLS or identities.
	Exposed bool

	// MaxConns bounds the connections that are open at a time; 0: 4096. Where clients are
	// identified, an address has half of them, and connections without a valid credential give
	// way to others. Further ones are refused.
	MaxConns  int
	MaxHeader int           // bytes of a request's header; 0: 16 KiB
	Header    time.Duration // to shake hands, and to read a request's header; 0: 10 s
	Read      time.Duration // of a whole request; 0: 10 s, -1: no bound
	Write     time.Duration // of an answer; 0: 1 min, -1: no bound
	Idle      time.Duration // of a connection between requests; 0: 2 min
	Grace     time.Duration // for requests that are under way when serving ends; 0: 5 s
	HTTP2     *http.HTTP2Config

	// Refused is called for each client that is refused before a handler sees it, without
	// attributes where a line in the log would say nothing; nil: each reason is logged now and
	// then. It is safe for concurrent use.
	Refused func(Reason, ...slog.Attr)
	Now     func() time.Time // nil: time.Now
	Logger  *slog.Logger     // nil: silent
}

// Server serves HTTP/1.1 and HTTP/2 at an address, by TLS or in the clear. Its methods are
// safe for concurrent use after Listen.
type Server struct {
	cfg      Config
	gate     *gate    // nil: nobody is identified
	control  *control // nil: no roles or budgets
	pages    *http.CrossOriginProtection
	listener net.Listener
	loopback bool // only this machine reaches it
}

// New checks the configuration and reads the files that it names.
func New(cfg Config) (*Server, error) {
	cfg.MaxConns, cfg.MaxHeader = cmp.Or(cfg.MaxConns, defaultMaxConns), cmp.Or(cfg.MaxHeader, defaultMaxHeader)
	cfg.Header, cfg.Read, cfg.Write = cmp.Or(cfg.Header, defaultHeader), cmp.Or(cfg.Read, defaultRead), cmp.Or(cfg.Write, defaultWrite)
	cfg.Idle, cfg.Grace = cmp.Or(cfg.Idle, defaultIdle), cmp.Or(cfg.Grace, defaultGrace)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
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

// logRefused logs clients that are refused, each reason now and then.
func logRefused(logger *slog.Logger, now func() time.Time) func(Reason, ...slog.Attr) {
	var throttles [NumReasons]retry.LogThrottle
	return func(why Reason, attrs ...slog.Attr) {
		if len(attrs) == 0 {
			return
		}
		throttles[why].Warn(logger, now(), "client refused", append(attrs, slog.String("reason", why.String()))...)
	}
}

// ErrExposed is the error of an address that other machines reach although they should not.
var ErrExposed = errors.New("other machines reach this address")

// CheckAddress refuses an address that is not HOST:PORT, and one beyond loopback where clients
// are not identified or the connection is not encrypted, unless the configuration is Exposed.
// The second error wraps ErrExposed.
func (c *Config) CheckAddress(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("listen on %q: expected HOST:PORT such as 127.0.0.1:8080", address)
	}
	if c.Exposed || IsLoopback(host) {
		return nil
	}
	if err := c.Auth.Exposed(); err != nil {
		return fmt.Errorf("listen on %s: %w, and there is %w", address, ErrExposed, err)
	}
	return nil
}

// Listen opens HOST:PORT if CheckAddress allows it. Connections wait until Serve.
func (s *Server) Listen(ctx context.Context, address string) error {
	if err := s.cfg.CheckAddress(address); err != nil {
		return err
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	s.ListenOn(l)
	return nil
}

// ListenOn takes a listener in place of Listen, such as one of a Unix socket. The caller knows
// that its address is safe.
func (s *Server) ListenOn(l net.Listener) {
	host, _, _ := net.SplitHostPort(l.Addr().String()) // of a socket that has no port: not loopback
	s.loopback = IsLoopback(host)
	s.listener = newListener(l, s)
}

// Close stops listening. It is for a server that Serve is not called on, or to free the
// address before Serve has let requests finish. Closing again does nothing.
func (s *Server) Close() error {
	if err := s.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// Addr is the address that the server listens on, with the port that was chosen for 0.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// URL is the address as clients write it.
func (s *Server) URL() string {
	if s.gate.tlsConfig() != nil {
		return "https://" + s.Addr().String()
	}
	return "http://" + s.Addr().String()
}

// Serve answers clients with h until ctx ends, then closes the address and lets requests that
// are under way finish for a while. A stop by ctx is no error. It may be called once.
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
			s.cfg.Logger.Warn("requests are cut off", slog.String("address", s.Addr().String()), slog.String("error", err.Error()))
			_ = server.Close() // fails for connections that are gone
		}
		return nil
	})
	return g.Wait()
}

// httpServer speaks HTTP/2 without TLS as well, for clients of gRPC.
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

// errorLog logs what net/http has to say now and then: some of it comes from any client that
// breaks the protocol.
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

// Guard passes requests to next as far as their client may make them. Serve guards its handler
// by itself.
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
			s.cfg.Refused(ForeignOrigin, slog.String("peer", r.RemoteAddr), slog.String("error", Limited(err.Error())))
			WriteProblem(w, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkHost refuses requests that reach a loopback address under a foreign name.
func (s *Server) checkHost(r *http.Request) error {
	if s.loopback {
		return CheckHost(r)
	}
	return nil
}

// Identify returns the client that a request comes from. It verifies certificates again, since
// connections outlive certificates, authorities and lists. Its error is ErrUnknown or
// ErrNotListed. The server has Auth.
func (s *Server) Identify(r *http.Request) (Peer, error) { return s.gate.Identify(r) }

// Names returns the names that have a token.
func (s *Server) Names() []string { return s.gate.names() }

// Use puts other settings in force, for requests that come from now on. What clients have used
// of their budgets is forgotten. The server has Access.
func (s *Server) Use(settings Settings) error { return s.control.use(settings) }

// refusedConn counts and reports a connection that is refused.
func (s *Server) refusedConn(why Reason, attrs ...slog.Attr) {
	if s.control != nil {
		s.control.counts.connections[why].Add(1)
	}
	s.cfg.Refused(why, attrs...)
}

// Stats are the counts of requests and refusals. The server has Access.
func (s *Server) Stats() Stats { return s.control.stats() }
