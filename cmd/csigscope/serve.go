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

// pageServer is the page and the API over a store, behind a door.
type pageServer struct {
	handler http.Handler
	api     *api.API
	door    *door
}

// newPageServer serves what is stored, and the last windows where memory is not nil.
func newPageServer(db *openedStore, name string, memory *recent.Memory, d *door) (*pageServer, error) {
	a, err := api.New(api.Config{Memory: memory, Reader: query.FromStore(db.store), Fabric: name, Logger: db.logger})
	if err != nil {
		return nil, err
	}
	return &pageServer{page.Handler(a), a, d}, nil
}

// run serves until ctx ends.
func (s *pageServer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.api.Run(ctx) })
	g.Go(func() error { return serve(ctx, s.door.server(s.handler), s.door.listener) })
	return g.Wait()
}

// serve answers until ctx ends, then lets open requests finish. An interrupt is how
// it is meant to end, and no error.
func serve(ctx context.Context, server *http.Server, l net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		run := server.Serve
		if server.TLSConfig != nil {
			run = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
		}
		if err := run(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve %s: %w", l.Addr(), err)
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if err := server.Shutdown(grace); err != nil {
			return fmt.Errorf("stop serving %s: %w", l.Addr(), err)
		}
		return nil
	})
	return g.Wait()
}

func announce(cmd *cobra.Command, d *door) {
	fmt.Fprintf(cmd.OutOrStdout(), "\nthe page is at %s/ (Ctrl-C ends it)\n", d.url())
}
