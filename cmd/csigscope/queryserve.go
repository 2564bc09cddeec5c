package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/ingest/edge"
)

// serveFlags are the flags of query serve.
type serveFlags struct {
	dsn, listen, clickhouse, name string
	exposed                       bool
	ops                           operationsFlags
}

func newQueryServe() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the page and its API over stored rows",
		Long: `serve shows the heatmaps of stored rows on a local page. With --clickhouse-listen it also opens the
embedded engine to Grafana, curl, DBeaver and other clients of ClickHouse's HTTP interface. They
can read and nothing else: statements that change anything, settings, and functions that reach
files or the network are refused. Any user name and password will do, so the address serves
only this machine: reach it from elsewhere by a tunnel. Commands that use the same store share one
engine, which has at most one such address.

Other machines reach the page and the API only with TLS and a client certificate or a token, which
the page asks for: the section api of the configuration lists the clients and their limits.
Anybody can load the page's files, which hold no data. SIGHUP reads the origins and limits of the
section again; its files are read again when they change.

Clients who may read the API also get /metrics for Prometheus, /healthz (200 while serve works)
and /readyz (200 while the store answers, else the reason). On Linux with Landlock, serve gives
up access to all files but its own. Supports systemd notification (sd_notify).`,
		Example: `  csigscope query serve
  csigscope query serve --config csigscope.yaml --listen 0.0.0.0:8443
  csigscope query serve --clickhouse-listen 127.0.0.1:8123
  curl 'http://127.0.0.1:8123/?database=csigscope' -d 'SHOW TABLES'`,
		Args: noArgs,
	}
	addStoreFlag(cmd, &f.dsn)
	addClickHouseFlag(cmd, &f.clickhouse)
	cmd.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8080", "`ADDRESS` of the page; other than loopback, it needs TLS and credentials in the section api")
	addExposedFlag(cmd, "--listen", &f.exposed)
	cmd.Flags().Lookup("config").Usage = "configuration `FILE` (YAML): serve uses the sections store, states and api"
	f.ops.add(cmd.Flags())
	cmd.Flags().StringVar(&f.name, "name", "", "`NAME` that the page shows for the fabric")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return f.run(cmd) }
	return cmd
}

func (f *serveFlags) run(cmd *cobra.Command) error {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP) // also while it starts, which a SIGHUP would end
	defer signal.Stop(again)
	o, err := newOperations(cmd, &f.ops)
	if err != nil {
		return err
	}
	path := flagText(cmd, "config")
	c, started, err := f.read(cmd, path)
	if err != nil {
		return err
	}
	memory, err := o.divideMemory(&f.ops, &c, config.MemoryUse{Embedded: embeddedStore(&c), API: true})
	if err != nil {
		return err
	}
	d, err := openAPIServer(cmd.Context(), &c.API, "--listen", f.listen, f.exposed, o.logger, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	db, err := openRestricted(cmd, f.dsn, &f.ops, append(c.API.Files(), path)...)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.listen(cmd, f.clickhouse); err != nil {
		return err
	}
	db.keepTrimmed(cmd.Context())
	server, err := newPageServer(db, f.name, nil, d, &c.API, &memory)
	if err != nil {
		return err
	}
	if err := errors.Join(o.watchStore(db), o.watchAPI(d, server.api)); err != nil {
		return err
	}
	if server.handler, err = o.beside(server.handler); err != nil {
		return err
	}
	announce(cmd, d)
	return o.Run(cmd.Context(), func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		g.Go(func() error { return server.run(ctx) })
		g.Go(func() error {
			return reloadAPI(ctx, again, d, func() (config.Config, config.Settings, error) { return f.read(cmd, path) }, started, o.logger)
		})
		return g.Wait()
	})
}

// read returns the configuration with the store of the flags, and the settings that a reload does not change.
func (f *serveFlags) read(cmd *cobra.Command, path string) (c config.Config, fixed config.Settings, err error) {
	if c, err = loadConfig(path); err != nil {
		return c, nil, err
	}
	if c.Store, _, err = storeSettings(cmd, f.dsn); err != nil {
		return c, nil, err
	}
	own := c.Store
	own.Outbox = config.Outbox{} // of commands that write
	fixed, err = config.SettingsOf(map[string]any{"store": own, "states": c.States, "api": c.API.Fixed(), "memory_limit": c.MemoryLimit})
	if err != nil {
		return c, nil, err
	}
	fixed["store.dsn"] = own.DSN.Secret() // is not printed
	return c, fixed, nil
}

// reloadAPI reads the configuration again at each signal, until ctx ends, and warns of changed settings that it does
// not apply. An invalid one changes nothing.
func reloadAPI(ctx context.Context, again <-chan os.Signal, d *edge.Server, read func() (config.Config, config.Settings, error), started config.Settings, logger *slog.Logger) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-again:
		}
		c, now, err := read()
		if err == nil {
			err = d.Use(c.API.Settings())
		}
		if err != nil {
			logger.Error("reload refused, the earlier configuration stays in force", slog.String("error", err.Error()))
			continue
		}
		logger.Warn("reloaded")
		warnRestart(logger, started, now)
	}
}
