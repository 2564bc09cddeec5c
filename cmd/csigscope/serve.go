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
	"github.com/csigscope/csigscope/dashboards/page"
)

// shutdownGrace is how long open requests may take after an interrupt.
const shutdownGrace = 5 * time.Second

// newPageServer is the page and its API over a store.
func newPageServer(db *openedStore, name string) *http.Server {
	api := query.NewHandler(query.HandlerConfig{
		Reader: query.FromStore(db.store), Options: query.Options{Fabric: name}, Logger: db.logger,
	})
	return &http.Server{
		Handler:           page.LoopbackOnly(page.Handler(api)),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      time.Minute,
		MaxHeaderBytes:    16 << 10,
	}
}

// listenLoopback listens on an address, and refuses one that others can reach: the
// page has no authentication.
func listenLoopback(ctx context.Context, address string) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usageError{fmt.Errorf("--listen %q: expected HOST:PORT such as 127.0.0.1:8080", address)}
	}
	if !isLoopback(host) {
		return nil, usageError{fmt.Errorf("--listen %q: is reachable from other machines and the page has no authentication: use 127.0.0.1 and a tunnel", address)}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w: choose another port with --listen", address, err)
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
