package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
)

// ErrAddress is the error of an address that cannot be served as it is asked for.
var ErrAddress = errors.New("address not served")

const (
	shutdownGrace = 5 * time.Second
	scrapeTimeout = 10 * time.Second
	maxScrapes    = 4 // at a time
	maxHeader     = 16 << 10
)

// Config says what is served where.
type Config struct {
	// Listen is HOST:PORT. What is served has no authentication, so hosts other than
	// loopback are refused unless Remote is set.
	Listen string
	Remote bool
	// Pprof serves /debug/pprof, on loopback alone: profiles tell much and cost time.
	Pprof bool

	Metrics prometheus.Gatherer // served at /metrics
	Health  *Health             // at /healthz and /readyz
	Logger  *slog.Logger
	// Guard refuses requests to a loopback address, for keeping out web sites that a browser
	// on this machine visits; nil refuses none.
	Guard func(*http.Request) error
	// Listening is told the address, with the port that was chosen for 0; nil is not.
	Listening func(net.Addr)
}

// Server answers whoever looks after the process.
type Server struct {
	c        Config
	loopback bool
}

// NewServer checks the configuration. Nothing is opened before Run. The errors wrap
// ErrAddress.
func NewServer(c Config) (*Server, error) {
	loopback, err := isLoopback(c.Listen)
	switch {
	case err != nil:
		return nil, err
	case !loopback && !c.Remote:
		return nil, fmt.Errorf("listen on %s: %w: other machines reach it, and it has no authentication", c.Listen, ErrAddress)
	case !loopback && c.Pprof:
		return nil, fmt.Errorf("listen on %s: %w: profiles are served on loopback alone", c.Listen, ErrAddress)
	}
	return &Server{c, loopback}, nil
}

// isLoopback tells whether this machine alone reaches an address.
func isLoopback(address string) (bool, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false, fmt.Errorf("listen on %q: %w: expected HOST:PORT such as 127.0.0.1:9464", address, ErrAddress)
	}
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback(), nil
}

// Handler serves /metrics, /healthz and /readyz, to GET and HEAD alone.
func Handler(m prometheus.Gatherer, h *Health, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError),
		// What can be told is told: one bad number must not blind all alerts.
		ErrorHandling:       promhttp.ContinueOnError,
		MaxRequestsInFlight: maxScrapes,
		Timeout:             scrapeTimeout,
	}))
	mux.HandleFunc("GET /healthz", handle(func(context.Context) error { return h.Alive() }))
	mux.HandleFunc("GET /readyz", handle(h.Ready))
	return mux
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", Handler(s.c.Metrics, s.c.Health, s.c.Logger))
	if s.c.Pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	if !s.loopback || s.c.Guard == nil {
		return mux
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.c.Guard(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// Run answers until the context ends, and then lets open requests finish: it goes on
// answering while the process drains if its context ends last.
func (s *Server) Run(ctx context.Context) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w: choose another port", s.c.Listen, err)
	}
	if s.c.Listening != nil {
		s.c.Listening(l.Addr())
	}
	server := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // a profile takes 30 s
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(s.c.Logger.Handler(), slog.LevelWarn),
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // whoever still reads a profile does without the rest
		}
		return nil
	})
	return g.Wait()
}
