package main

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/recent"
	"github.com/csigscope/csigscope/dashboards/page"
)

// liveFeed is the query API of a process that windows pass through: memory is a sink of
// theirs.
type liveFeed struct {
	memory   *recent.Memory
	api      *api.API
	listener net.Listener
	server   *http.Server
}

// newLiveFeed listens at the address, which only this machine may reach. History is asked of
// the store, names of the fabric in use.
func newLiveFeed(cmd *cobra.Command, address string, names api.Catalog, db *openedStore) (*liveFeed, error) {
	f := &liveFeed{memory: recent.New(recent.Config{})}
	var err error
	f.api, err = api.New(api.Config{Memory: f.memory, Reader: query.FromStore(db.store), Names: names, Logger: db.logger})
	if err != nil {
		return nil, err
	}
	f.listener, err = listenLocal(cmd.Context(), "--api-listen", "the query API", address)
	if err != nil {
		return nil, err
	}
	f.server = newHTTPServer(page.LoopbackOnly(f.api))
	fmt.Fprintf(cmd.OutOrStdout(), "the query API is at http://%s/openapi.json\n", f.listener.Addr())
	return f, nil
}

// run serves until ctx ends.
func (f *liveFeed) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.memory.Run(ctx) })
	g.Go(func() error { return f.api.Run(ctx) })
	g.Go(func() error { return serve(ctx, f.server, f.listener) })
	return g.Wait()
}

// fabricNames names what a fabric knows at the time.
type fabricNames func() *fabric.Fabric

// Groups implements api.Catalog.
func (f fabricNames) Groups(context.Context) ([]fabric.Group, error) { return f().Groups(), nil }

// Locations implements api.Catalog.
func (f fabricNames) Locations(context.Context) ([]fabric.Location, error) {
	return f().Locations(), nil
}
