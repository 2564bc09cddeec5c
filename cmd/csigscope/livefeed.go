package main

import (
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/door"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/page"
)

// liveFeed is the query API and the page of a process that windows pass through: memory is
// a sink of theirs.
type liveFeed struct {
	memory  *table.Memory
	api     *api.API
	door    *door.Door
	handler http.Handler
}

// newLiveFeed serves behind the door. History is asked of the store, names of the fabric in
// use.
func newLiveFeed(cmd *cobra.Command, d *door.Door, names *api.BothNames, db *openedStore) (*liveFeed, error) {
	f := &liveFeed{memory: table.NewMemory(table.MemoryOptions{}), door: d}
	var err error
	f.api, err = api.New(api.Config{Memory: f.memory, Reader: query.FromStore(db.store), Names: names, Logger: db.logger})
	if err != nil {
		return nil, err
	}
	f.handler = withALTO(page.Handler(f.api), alto.Config{Memory: f.memory, Groups: names.Groups, Prefixes: names.Prefixes, Logger: db.logger})
	fmt.Fprintf(cmd.OutOrStdout(), "the query API is at %s/openapi.json, the page at %[1]s/\n", d.URL())
	return f, nil
}

// run serves until ctx ends.
func (f *liveFeed) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.memory.Run(ctx) })
	g.Go(func() error { return f.api.Run(ctx) })
	g.Go(func() error { return f.door.Serve(ctx, f.handler) })
	return g.Wait()
}

// withALTO serves ALTO beside what is served already.
func withALTO(h http.Handler, c alto.Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(alto.Path, alto.New(c))
	mux.Handle("/", h)
	return mux
}
