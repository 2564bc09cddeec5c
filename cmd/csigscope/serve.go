package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/door"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/page"
)

// pageServer is the page and the API over a store, behind a door.
type pageServer struct {
	handler http.Handler
	api     *api.API
	door    *door.Door
}

// newPageServer serves what is stored, and the last windows where memory is not nil.
func newPageServer(db *openedStore, name string, memory *table.Memory, d *door.Door) (*pageServer, error) {
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
	g.Go(func() error { return s.door.Serve(ctx, s.handler) })
	return g.Wait()
}

func announce(cmd *cobra.Command, d *door.Door) {
	fmt.Fprintf(cmd.OutOrStdout(), "\nthe page is at %s/ (Ctrl-C ends it)\n", d.URL())
}
