package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/query/door"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/ingest/credential"
)

// operationsFlags are those of commands that run for long.
type operationsFlags struct {
	listen    string
	remote    bool
	pprof     bool
	noSandbox bool
}

func (f *operationsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "ops-listen", "", "also serve /metrics, /healthz and /readyz at this loopback `ADDRESS` such as 127.0.0.1:9464")
	flags.BoolVar(&f.remote, "ops-unauthenticated", false, "let --ops-listen be an address that other machines reach, who can then read all metrics")
	flags.BoolVar(&f.noSandbox, "no-sandbox", false, "keep access to all files, instead of giving up what is not needed (Landlock)")
	flags.BoolVar(&f.pprof, "pprof", false, "also serve profiles at /debug/pprof of --ops-listen, on loopback alone")
}

// operations is how a command that runs for long is looked after: its metrics, its
// health, and what it tells systemd.
type operations struct {
	flags    *operationsFlags
	registry *prometheus.Registry
	health   *daemon.Health
	notifier *daemon.Notifier
	logger   *slog.Logger

	server    *daemon.Server // nil without --ops-listen
	listening chan struct{}  // closed when the server does
}

// newOperations checks the flags, and knows the process; the command adds what it does.
func newOperations(cmd *cobra.Command, f *operationsFlags) (*operations, error) {
	logger := newLogger(cmd, cmd.ErrOrStderr())
	o := &operations{
		flags: f, registry: prometheus.NewRegistry(), health: daemon.NewHealth(time.Now),
		notifier: daemon.NewNotifier(os.Getenv, os.Getpid(), logger), logger: logger,
		listening: make(chan struct{}),
	}
	if err := o.export(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		metrics.NewBuild(version, runtime.Version()),
	); err != nil {
		return nil, err
	}
	if f.listen == "" {
		if f.pprof || f.remote {
			return nil, usageError{errors.New("--pprof and --ops-unauthenticated: are for --ops-listen, which is not given")}
		}
		close(o.listening)
		return o, nil
	}
	var err error
	o.server, err = daemon.NewServer(daemon.Config{
		Listen: f.listen, Remote: f.remote, Pprof: f.pprof, Metrics: o.registry, Health: o.health, Logger: logger, Guard: credential.CheckHost,
		Listening: func(a net.Addr) {
			fmt.Fprintf(cmd.OutOrStdout(), "metrics and health are at http://%s/\n", a)
			close(o.listening)
		},
	})
	if err != nil {
		return nil, usageError{fmt.Errorf("--ops-listen: %w", err)}
	}
	return o, nil
}

// export adds collectors to what is served at /metrics.
func (o *operations) export(list ...prometheus.Collector) error {
	for _, c := range list {
		if err := o.registry.Register(c); err != nil {
			return fmt.Errorf("export metrics: %w", err)
		}
	}
	return nil
}

// watchStore makes the process ready while its store answers, and exports what befalls it.
func (o *operations) watchStore(db *openedStore) error {
	o.health.Require("store", db.store.Ready)
	if db.engine != nil {
		if err := o.export(metrics.NewEngine(db.engine.Restarts)); err != nil {
			return err
		}
	}
	return o.export(metrics.NewTrim(db.store.TrimStats))
}

// watchDoor exports who comes in by a door, and asks the API behind it.
func (o *operations) watchDoor(d *door.Door, a *api.API) error {
	return o.export(metrics.NewAPI(func() metrics.API {
		watchers, lagging := a.Counts()
		return metrics.API{Stats: d.Stats(), Watchers: watchers, Lagging: lagging}
	}))
}

// beside serves metrics and health beside what is served already, and counts its requests.
// It is for behind a door.
func (o *operations) beside(h http.Handler) (http.Handler, error) {
	requests := metrics.NewHTTP()
	if err := o.export(requests); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		mux.Handle(path, daemon.Handler(o.registry, o.health, o.logger))
	}
	mux.Handle("/", requests.Count(h))
	return mux, nil
}

// run runs the command's work, and looks after it meanwhile. Whoever asks is answered
// until the work has ended, also while it drains.
func (o *operations) run(ctx context.Context, work func(context.Context) error) error {
	stop := context.AfterFunc(ctx, func() {
		o.health.Drain()
		o.notifier.Stopping()
	})
	defer stop()
	around, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	g, around := errgroup.WithContext(around)
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	stopWork := context.AfterFunc(around, cancel) // whoever looks after it has failed
	defer stopWork()
	g.Go(func() error { return o.notifier.Run(around, o.health) })
	if o.server != nil {
		g.Go(func() error { return o.server.Run(around) })
	}
	g.Go(func() error {
		defer end()
		select {
		case <-o.listening:
		case <-working.Done():
			return nil
		}
		o.notifier.Ready()
		return work(working)
	})
	return g.Wait()
}
