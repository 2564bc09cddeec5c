package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/csigscope/csigscope/ingest/edge"
)

// ErrAddress is returned for an address that cannot be served as requested.
var ErrAddress = errors.New("address not served")

const (
	writeTimeout  = 2 * time.Minute // a profile takes 30 s
	scrapeTimeout = 10 * time.Second
	maxScrapes    = 4 // at a time
)

// Config configures the server.
type Config struct {
	// Listen is HOST:PORT. There is no authentication, so hosts other than loopback are refused
	// unless Remote is set.
	Listen string
	Remote bool
	// Pprof serves /debug/pprof, on loopback only: profiles reveal much and cost CPU time.
	Pprof bool

	Metrics prometheus.Gatherer // served at /metrics
	Health  *Health             // at /healthz and /readyz
	Logger  *slog.Logger
	// Listening is called with the address, with the actual port if 0 was requested; may be
	// nil.
	Listening func(net.Addr)
}

// Server serves metrics and health.
type Server struct {
	c    Config
	edge *edge.Server
}

// NewServer validates the configuration. It opens nothing before Run. Its errors wrap
// ErrAddress.
func NewServer(c Config) (*Server, error) {
	e := edge.Config{Exposed: c.Remote && !c.Pprof, Write: writeTimeout, Logger: c.Logger}
	if err := e.CheckAddress(c.Listen); err != nil {
		switch exposed := errors.Is(err, edge.ErrExposed); {
		case exposed && c.Pprof:
			err = fmt.Errorf("%w: profiles are served only on loopback", err)
		case exposed:
			err = fmt.Errorf("%w: allow it with --metrics-unauthenticated", err)
		}
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	server, err := edge.New(e)
	return &Server{c, server}, err
}

// Handler serves /metrics, /healthz and /readyz, to GET and HEAD only.
func Handler(m prometheus.Gatherer, h *Health, logger *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelError),
		// One bad metric must not hide all others from alerts.
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
	return mux
}

// Run serves until the context ends, and then lets open requests finish: it can serve while the
// process drains if its context ends last.
func (s *Server) Run(ctx context.Context) error {
	if err := s.edge.Listen(ctx, s.c.Listen, "--metrics-listen"); err != nil {
		return err
	}
	if s.c.Listening != nil {
		s.c.Listening(s.edge.Addr())
	}
	return s.edge.Serve(ctx, s.handler())
}
