package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/query/api"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/daemon"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/ingest/edge"
)

// operationsFlags are the flags of long-running commands.
type operationsFlags struct {
	listen    string
	remote    bool
	pprof     bool
	noSandbox bool

	engineMemory uint64 // of the embedded engine, bytes; 0: its default
}

func (f *operationsFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.listen, "metrics-listen", "", "also serve /metrics, /healthz and /readyz at this loopback `ADDRESS` such as 127.0.0.1:9464")
	flags.BoolVar(&f.remote, "metrics-unauthenticated", false, "allow --metrics-listen at an address that other machines reach: anybody there can read all metrics")
	flags.BoolVar(&f.noSandbox, "no-sandbox", false, "keep access to all files, instead of giving up those that are not needed (Landlock)")
	flags.BoolVar(&f.pprof, "pprof", false, "also serve profiles at /debug/pprof of --metrics-listen, only on loopback")
}

// operations holds the metrics, the health and the logger of a long-running command.
type operations struct {
	*daemon.Process
	logger *slog.Logger
}

// newOperations validates the flags and adds the metrics of the process; the command adds its
// own.
func newOperations(cmd *cobra.Command, f *operationsFlags) (*operations, error) {
	if f.listen == "" && (f.pprof || f.remote) {
		return nil, usageError{errors.New("--pprof and --metrics-unauthenticated: need --metrics-listen, which is not given")}
	}
	o := &operations{logger: newLogger(cmd, cmd.ErrOrStderr())}
	var err error
	o.Process, err = daemon.NewProcess(daemon.Config{
		Listen: f.listen, Remote: f.remote, Pprof: f.pprof, Logger: o.logger,
		Listening: func(a net.Addr) { fmt.Fprintf(cmd.OutOrStdout(), "metrics and health are at http://%s/\n", a) },
	})
	if err != nil {
		return nil, usageError{fmt.Errorf("--metrics-listen: %w", err)}
	}
	return o, o.Export(metrics.NewBuild(version, runtime.Version()))
}

// divideMemory divides the memory limit of the configuration, the cgroup or the environment
// between the parts of the process and the engine that it starts. Go's part takes effect at
// once.
func (o *operations) divideMemory(f *operationsFlags, c *config.Config, use config.MemoryUse) (config.Memory, error) {
	limit := daemon.FindMemoryLimit(uint64(c.MemoryLimit), os.DirFS("/"), os.Getenv)
	m, err := c.Memory(limit.Bytes, limit.Go, use)
	if err != nil {
		return m, usageError{err}
	}
	if m.Go == 0 {
		o.logger.Info("memory is not limited")
		return m, nil
	}
	f.engineMemory = m.Engine
	debug.SetMemoryLimit(int64(m.Go))
	o.logger.Warn("memory is limited", slog.String("by", limit.String()), slog.Uint64("go_bytes", m.Go), slog.Uint64("engine_bytes", m.Engine),
		slog.Int("live_rows", m.LiveRows), slog.Int("kept_answers_bytes", m.Answers), slog.Int("ingest_bytes", m.Buffered), slog.Uint64("windows_bytes", m.Windows))
	return m, nil
}

// embeddedStore reports whether a configuration names the embedded store.
func embeddedStore(c *config.Config) bool {
	target, err := c.Store.DSN.Target()
	return err == nil && target.Kind == store.KindEmbedded
}

// watchStore makes the process ready only while its store answers, and exports the store's
// metrics.
func (o *operations) watchStore(db *openedStore) error {
	o.Health.Require("store", db.store.Ready)
	if db.engine != nil {
		if err := o.Export(metrics.NewEngine(db.engine.Restarts)); err != nil {
			return err
		}
	}
	return o.Export(metrics.NewTrim(db.store.TrimStats))
}

// watchAPI exports the metrics of a server and of the API behind it.
func (o *operations) watchAPI(d *edge.Server, a *api.API) error {
	return o.Export(metrics.NewAPI(func() metrics.API {
		watchers, lagging := a.Counts()
		slow, crowded := a.Disconnects()
		return metrics.API{Stats: d.Stats(), Watchers: watchers, Lagging: lagging, Slow: slow, Crowded: crowded}
	}))
}

// beside adds metrics and health to the handler, and counts its requests. It is for use behind
// an authenticating server.
func (o *operations) beside(h http.Handler) (http.Handler, error) {
	requests := metrics.NewHTTP()
	if err := o.Export(requests); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/healthz", "/readyz"} {
		mux.Handle(path, daemon.Handler(o.Registry, o.Health, o.logger))
	}
	mux.Handle("/", requests.Count(h))
	return mux, nil
}
