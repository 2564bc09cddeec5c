// Package door is where the query API is reached: an address, and who may come in.
//
// It knows listening, TLS and credentials. It must never know what is asked behind it.
package door

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"golang.org/x/net/netutil"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/query/access"
	"github.com/csigscope/csigscope/ingest/credential"
)

const (
	// maxConnections bounds those that are open at a door; further ones wait.
	maxConnections = 4096
	// shutdownGrace is how long open requests may take when serving ends.
	shutdownGrace = 5 * time.Second
)

// Config says who may come in.
type Config struct {
	// Gate says which credentials open the door; Now, Logger and Refuse are the door's.
	Gate credential.Config
	// Settings say which origins may ask, and how much each asker may.
	Settings access.Settings
	// Open are requests that are for everybody; nil for none.
	Open   func(*http.Request) bool
	Logger *slog.Logger
}

// Door is an address behind which something is served. Its methods are safe for concurrent
// use after Listen.
type Door struct {
	gate     *credential.Gate
	control  *access.Control
	listener net.Listener
	loopback bool // this machine alone reaches it
}

// New checks the configuration, and reads the files that it names.
func New(cfg Config) (*Door, error) {
	d := &Door{}
	cfg.Gate.Now, cfg.Gate.Logger, cfg.Gate.Refuse = time.Now, cfg.Logger, newRefusals(cfg.Logger).tell
	var err error
	if d.gate, err = credential.NewGate(cfg.Gate); err != nil {
		return nil, err
	}
	d.control, err = access.New(access.Config{Who: who{d.gate}, Settings: cfg.Settings, Check: d.check, Open: cfg.Open, Logger: cfg.Logger})
	return d, err
}

// Listen opens the door at HOST:PORT. Whether that is safe is for the caller to know.
func (d *Door) Listen(ctx context.Context, address string) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", address, err)
	}
	host, _, _ := net.SplitHostPort(l.Addr().String())
	d.listener, d.loopback = netutil.LimitListener(l, maxConnections), credential.IsLoopback(host)
	return nil
}

// Close stops listening, for a door that nothing is served behind. Closing again does
// nothing.
func (d *Door) Close() error {
	if err := d.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// check refuses requests that come to loopback under a foreign name.
func (d *Door) check(r *http.Request) error {
	if d.loopback {
		return credential.CheckHost(r)
	}
	return nil
}

// URL is the address as askers write it.
func (d *Door) URL() string {
	if d.gate.TLS() != nil {
		return "https://" + d.listener.Addr().String()
	}
	return "http://" + d.listener.Addr().String()
}

// Use puts other settings in force.
func (d *Door) Use(s access.Settings) error { return d.control.Use(s) }

// Stats are what askers were answered.
func (d *Door) Stats() access.Stats { return d.control.Stats() }

// Serve answers who may come in with h until ctx ends, then lets open requests finish. That
// it ends so is no error.
func (d *Door) Serve(ctx context.Context, h http.Handler) error {
	server := d.server(h)
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		run := server.Serve
		if server.TLSConfig != nil {
			run = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := run(d.listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", d.listener.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		d.gate.Run(ctx)
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			return fmt.Errorf("stop serving %s: %w", d.listener.Addr(), err)
		}
		return nil
	})
	return g.Wait()
}

// server answers by HTTP/1.1 and HTTP/2, without TLS as well, for those who call by gRPC.
func (d *Door) server(h http.Handler) *http.Server {
	s := &http.Server{
		Handler:           d.control.Guard(h),
		ConnState:         d.gate.ConnState,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    16 << 10,
		TLSConfig:         d.gate.TLS(),
		Protocols:         new(http.Protocols),
	}
	s.Protocols.SetHTTP1(true)
	s.Protocols.SetHTTP2(s.TLSConfig != nil)
	s.Protocols.SetUnencryptedHTTP2(s.TLSConfig == nil)
	return s
}
