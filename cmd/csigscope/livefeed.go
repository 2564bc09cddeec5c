package main

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/recent"
	"github.com/csigscope/csigscope/dashboards/page"
)

// liveFeed is the query API and the page of a process that windows pass through: memory is
// a sink of theirs.
type liveFeed struct {
	memory  *recent.Memory
	api     *api.API
	door    *door
	handler http.Handler
}

// newLiveFeed serves behind the door. History is asked of the store, names of the fabric in
// use.
func newLiveFeed(cmd *cobra.Command, d *door, names *liveNames, db *openedStore) (*liveFeed, error) {
	f := &liveFeed{memory: recent.New(recent.Config{}), door: d}
	var err error
	f.api, err = api.New(api.Config{Memory: f.memory, Reader: query.FromStore(db.store), Names: names, Logger: db.logger})
	if err != nil {
		return nil, err
	}
	f.handler = withALTO(page.Handler(f.api), alto.Config{Memory: f.memory, Groups: names.Groups, Prefixes: names.Prefixes, Logger: db.logger})
	fmt.Fprintf(cmd.OutOrStdout(), "the query API is at %s/openapi.json, the page at %[1]s/\n", d.url())
	return f, nil
}

// run serves until ctx ends.
func (f *liveFeed) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return f.memory.Run(ctx) })
	g.Go(func() error { return f.api.Run(ctx) })
	g.Go(func() error { return serve(ctx, f.door.server(f.handler), f.door.listener) })
	return g.Wait()
}

// withALTO serves ALTO beside what is served already.
func withALTO(h http.Handler, c alto.Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(alto.Path, alto.New(c))
	mux.Handle("/", h)
	return mux
}

// storePatience is how long names are waited for that are in the store alone.
const storePatience = time.Second

// liveNames names what the fabric in use knows, and what exporters have described in the
// store. A store that is away keeps nobody from the rest.
type liveNames struct {
	fabric func() *fabric.Fabric
	stored api.Catalog // nil where there are no exporters
}

// Groups implements api.Catalog.
func (n *liveNames) Groups(ctx context.Context) ([]fabric.Group, error) {
	list := n.fabric().Groups()
	if n.stored == nil {
		return list, nil
	}
	return beside(ctx, list, n.stored.Groups, func(g *fabric.Group) aggregate.GroupID { return g.ID }), nil
}

// Prefixes are those of groups, as far as the fabric in use knows them.
func (n *liveNames) Prefixes() map[aggregate.GroupID][]netip.Prefix { return n.fabric().Prefixes() }

// Locations implements api.Catalog.
func (n *liveNames) Locations(ctx context.Context) ([]fabric.Location, error) {
	list := n.fabric().Locations()
	if n.stored == nil {
		return list, nil
	}
	return beside(ctx, list, n.stored.Locations, func(l *fabric.Location) aggregate.LocationID { return l.ID }), nil
}

// beside adds to the list what else can be read in time.
func beside[T any, ID comparable](ctx context.Context, list []T, read func(context.Context) ([]T, error), id func(*T) ID) []T {
	ctx, cancel := context.WithTimeout(ctx, storePatience)
	defer cancel()
	others, err := read(ctx)
	if err != nil {
		return list // they are asked for again soon
	}
	known := make(map[ID]bool, len(list))
	for i := range list {
		known[id(&list[i])] = true
	}
	for i := range others {
		if !known[id(&others[i])] {
			list = append(list, others[i])
		}
	}
	return list
}
