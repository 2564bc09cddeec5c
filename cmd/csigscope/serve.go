package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/recent"
	"github.com/csigscope/csigscope/dashboards/page"
)

// shutdownGrace is how long open requests may take after an interrupt.
const shutdownGrace = 5 * time.Second

// pageServer is the page and the API over a store.
type pageServer struct {
	*http.Server
	api *api.API
}

// newPageServer serves what is stored, and the last windows where memory is not nil.
func newPageServer(db *openedStore, name string, memory *recent.Memory) (*pageServer, error) {
	a, err := api.New(api.Config{Memory: memory, Reader: query.FromStore(db.store), Fabric: name, Logger: db.logger})
	if err != nil {
		return nil, err
	}
	return &pageServer{newHTTPServer(page.LoopbackOnly(page.Handler(a))), a}, nil
}

// newHTTPServer speaks HTTP/1.1, and HTTP/2 without TLS for those who call by gRPC.
func newHTTPServer(h http.Handler) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	return &http.Server{
		Protocols:         &protocols,
		Handler:           h,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// run serves until ctx ends.
func (s *pageServer) run(ctx context.Context, l net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.api.Run(ctx) })
	g.Go(func() error { return serve(ctx, s.Server, l) })
	return g.Wait()
}

// listenLoopback listens on an address, and refuses one that others can reach: the
// page has no authentication.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	return listenLocal(ctx, "--listen", "the page", address)
}

// listenLocal is the same for what a flag names.
func listenLocal(ctx context.Context, flag, what, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s %q: expected HOST:PORT such as 127.0.0.1:8080", flag, address)}
	}
	if !isLoopback(host) {
		return nil, usageError{fmt.Errorf("%s %q: is reachable from other machines and %s has no authentication: use 127.0.0.1 and a tunnel", flag, address, what)}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: choose another port with %s", address, err, flag)
	}
	return l, nil
}

// isLoopback tells whether this machine alone reaches a host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// serve answers until ctx ends, then lets open requests finish. An interrupt is how
// it is meant to end, and no error.
func serve(ctx context.Context, server *http.Server, l net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve page: %w", err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			return fmt.Errorf("stop page: %w", err)
		}
		return nil
	})
	return g.Wait()
}

func announce(cmd *cobra.Command, l net.Listener) {
	fmt.Fprintf(cmd.OutOrStdout(), "\nthe page is at http://%s/ (Ctrl-C ends it)\n", l.Addr())
}
