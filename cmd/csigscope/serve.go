package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/alto"
	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/dashboards/page"
	"github.com/csigscope/csigscope/ingest/edge"
)

// addExposedFlag adds the flag that allows an unprotected address beyond loopback.
func addExposedFlag(cmd *cobra.Command, of string, exposed *bool) {
	cmd.Flags().BoolVar(exposed, "api-dangerously-exposed", false,
		"allow "+of+" at an address that other machines reach without TLS or credentials: anybody there can ask, and read the answers of others in transit")
}

// openAPIServer listens at the address of a flag, for the clients of the section api. Beyond
// loopback it requires a certificate and client credentials, unless exposed. admin holds
// further resources for admins; nil for none.
func openAPIServer(ctx context.Context, c *config.API, flag, address string, exposed bool, logger *slog.Logger, admin map[string]http.Handler) (*edge.Server, error) {
	if err := checkAPIAddress(c, flag, address, exposed); err != nil {
		return nil, err
	}
	auth := c.Auth()
	d, err := edge.New(edge.Config{
		Auth: &auth, Access: &edge.Access{Settings: c.Settings(), Open: page.IsFile, Admin: admin}, Exposed: exposed, Logger: logger,
	})
	if err != nil {
		return nil, usageError{fmt.Errorf("api: %w", err)}
	}
	if err := d.Listen(ctx, address, flag); err != nil {
		return nil, err
	}
	return d, nil
}

// checkAPIAddress rejects an invalid address, and one that other machines can reach without
// protection.
func checkAPIAddress(c *config.API, flag, address string, exposed bool) error {
	var a config.Address
	if err := a.Set(address); err != nil {
		return usageError{fmt.Errorf("%s %q: %w", flag, address, err)}
	}
	if err := c.CheckListen(a); err != nil && !exposed {
		return usageError{fmt.Errorf("%s %w (--api-dangerously-exposed allows it as it is)", flag, err)}
	}
	return nil
}

// pageServer is the page and the API over a store, behind an authenticating server.
type pageServer struct {
	handler http.Handler
	api     *api.API
	server  *edge.Server
}

// newPageServer serves stored rows, and the last windows if memory is not nil, within the
// process's memory limits.
func newPageServer(db *openedStore, name string, memory *table.Memory, d *edge.Server, c *config.API, m *config.Memory) (*pageServer, error) {
	a, err := api.New(api.Config{Memory: memory, Reader: query.FromStore(db.store), Fabric: name, Thresholds: db.thresholds, Timeout: time.Duration(c.AnswerTime), CacheBytes: m.Answers, Logger: db.logger})
	if err != nil {
		return nil, err
	}
	return &pageServer{page.Handler(a), a, d}, nil
}

// run serves until ctx ends.
func (s *pageServer) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return s.api.Run(ctx) })
	g.Go(func() error { return s.server.Serve(ctx, s.handler) })
	return g.Wait()
}

func announce(cmd *cobra.Command, d *edge.Server) {
	fmt.Fprintf(cmd.OutOrStdout(), "\nthe page is at %s/ (Ctrl-C ends it)\nnext: open it in a browser, or ask: csigscope query cells --server %[1]s\n", d.URL())
}

// liveFeed is the query API and the page of a process with live windows: memory is a sink for
// them.
type liveFeed struct {
	names   *api.BothNames
	memory  *table.Memory
	fine    *table.Memory // of shorter windows; nil for none
	api     *api.API
	server  *edge.Server
	handler http.Handler
}

// clockError is how far the clocks of taps and exporters may be behind: live answers have no
// data from clocks further behind.
const clockError = 5 * time.Second

// fineShare means that one in fineShare rows in memory is for windows shorter than 1 s, if
// there are any.
const fineShare = 4

// newLiveFeed serves windows in memory with the options, behind the server d; taps are the
// settings of the taps that produce the windows. History comes from the reader, names from the
// fabric in use; down returns the silent producers that are gone.
func newLiveFeed(cmd *cobra.Command, d *edge.Server, names *api.BothNames, reader query.Reader, down func([]table.Producer) []string, c *config.API, m *config.Memory, taps *window.Settings, o table.MemoryOptions, logger *slog.Logger) (*liveFeed, error) {
	o.Lateness = taps.LatenessOf(aggregate.LiveResolution)
	o.MaxRows, o.MaxLag = cmp.Or(m.LiveRows, table.DefaultMaxRows), o.Lateness+o.MaxAge+clockError
	f := &liveFeed{names: names, server: d}
	fine, fineRows := aggregate.FineResolution(taps.Resolutions), o.MaxRows/fineShare
	if fine > 0 {
		o.MaxRows -= fineRows
	}
	f.memory = table.NewMemory(o)
	if fine > 0 {
		f.fine = table.NewFineMemory(f.memory, fine, taps.LatenessOf(fine), fineRows)
	}
	var err error
	f.api, err = api.New(api.Config{Memory: f.memory, Fine: f.fine, Reader: reader, Names: names, Down: down, Thresholds: o.Thresholds, Timeout: time.Duration(c.AnswerTime), CacheBytes: m.Answers, Logger: logger})
	if err != nil {
		return nil, err
	}
	f.handler = withALTO(page.Handler(f.api), alto.Config{Memory: f.memory, Groups: names.GroupsInUse, Prefixes: names.Prefixes, WithSlot: f.api.WithSlot, Logger: logger})
	fmt.Fprintf(cmd.OutOrStdout(), "the query API is at %s/openapi.json, the page at %[1]s/\n", d.URL())
	return f, nil
}

// memories returns the memories in use.
func (f *liveFeed) memories() []*table.Memory {
	if f.fine == nil {
		return []*table.Memory{f.memory}
	}
	return []*table.Memory{f.memory, f.fine}
}

// counts returns the sum over all memories.
func (f *liveFeed) counts() (n table.Counts) {
	for _, m := range f.memories() {
		n.Add(m.Counts())
	}
	return n
}

// run serves until ctx ends.
func (f *liveFeed) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, m := range f.memories() {
		g.Go(func() error { return m.Run(ctx) })
	}
	g.Go(func() error { return f.api.Run(ctx) })
	g.Go(func() error { return f.server.Serve(ctx, f.handler) })
	return g.Wait()
}

// withALTO adds ALTO to the handler.
func withALTO(h http.Handler, c alto.Config) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(alto.Path, alto.New(c))
	mux.Handle("/", h)
	return mux
}
