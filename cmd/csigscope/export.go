package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/remote/handover"
)

// exportFlags are what export's command line says.
type exportFlags struct {
	network    networkFlags
	ops        operationsFlags
	instance   string
	interfaces []string
	taps       tapFlags
	collectors []string
	tokenFile  string
	tls        tlsConfig
	spool      string
	every      time.Duration // between rounds
}

func newExportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Capture live packets on a host and hand windows to a collector",
		Long: `export captures as collect does, and hands the windows that close to a csigscope collect
elsewhere, which stores them. What is handed over waits in a spool on disk until a
collector has it for good, over outages of the network and of either side, and counts
once. Who the exporter is, the collector knows by a certificate or a token.

SIGTERM or Ctrl-C takes in what was captured by then and closes all windows; what the
collector does not take at once is sent by the next export. SIGHUP reads the files again,
as collect does.

What single packets show that breaks the protocol or the configuration, and ports that are
stuck from window to window, goes along by the minute, and is stored beside what the
collector's own taps find (section findings of the configuration).

Once a second the windows that have closed go to the spool. A process that is killed loses
those of 1 s and shorter that are open, about the last 3 s: the next one tells the
collector, whose store records them as a gap and makes windows of 1 min of the seconds
that it has. The table gaps also has windows that gave way in a full spool, or that the
collector refused.`,
		Example: `  csigscope export --interface eth1 --collector https://collector.example:4319 --token-file /etc/csigscope/token
  csigscope export --config csigscope.yaml --fabric fabric.yaml`,
		Args: noArgs,
	}
	f.network.add(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.instance, "instance", "", "`NAME` of this host, by which its streams are told apart (default the host's name)")
	flags.StringSliceVar(&f.interfaces, "interface", nil, "capture from this network `INTERFACE` as well, which the configuration file need not name")
	f.taps.add(flags)
	flags.StringSliceVar(&f.collectors, "collector", nil, "`URL` of a collector; of several, the first that answers is used")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the bearer token of this host")
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "`FILE` with the certificate of this host")
	flags.StringVar(&f.tls.Key, "tls-key", "", "`FILE` with its key")
	flags.StringVar(&f.tls.CA, "tls-ca", "", "`FILE` with the authority of the collectors, unless it is one of the system's")
	flags.StringVar(&f.spool, "spool", "", "`FOLDER` in which windows wait on disk for a collector (default in the user's data folder)")
	flags.DurationVar(&f.every, "checkpoint", local.DefaultInterval, "time between rounds that make closed windows durable; 0 is one every second, without marks of what a killed process missed")
	f.ops.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return runCapturing(cmd, &f.ops, func() (capturer, error) { return newExporting(cmd, &f) })
	}
	return cmd
}

// read reads the configuration and the fabric file, with the flags over them.
func (f *exportFlags) read(cmd *cobra.Command) (*network, *exportConfig, error) {
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return nil, nil, err
	}
	c := n.config.Export
	if f.instance != "" {
		c.Instance = word{text: f.instance}
	}
	if len(f.collectors) > 0 {
		c.Collectors = f.collectors
	}
	if f.tokenFile != "" {
		c.TokenFile = f.tokenFile
	}
	if f.tls != (tlsConfig{}) {
		c.TLS = f.tls
	}
	if f.spool != "" {
		c.Spool.Dir = f.spool
	}
	if cmd.Flags().Changed("checkpoint") {
		c.Checkpoint.Every = intervalOf(f.every)
	}
	c.Taps = append(c.Taps[:len(c.Taps):len(c.Taps)], tapsOf(f.interfaces)...)
	if err := errors.Join(c.check(), f.taps.check()); err != nil {
		return nil, nil, usageError{err}
	}
	if len(c.Taps) == 0 || len(c.Collectors) == 0 {
		return nil, nil, usageError{errors.New("export: expected something to capture from and whom to hand it to: name an --interface and a --collector, or taps and collectors in the section export of --config")}
	}
	return n, &c, nil
}

// exporting is what export runs.
type exporting struct {
	capturing
	client *remote.Client
	spool  *handover.Spool
}

// lastWords are what ending at once means.
func (e *exporting) lastWords() string { return e.left() + "; windows in the spool wait for it" }

// close lets go of what is open.
func (e *exporting) close() error { return errors.Join(e.client.Close(), e.closeMarks()) }

func newExporting(cmd *cobra.Command, f *exportFlags) (*exporting, error) {
	e := &exporting{}
	e.cmd, e.logger, e.unsaid = cmd, newLogger(cmd, cmd.ErrOrStderr()), f.taps
	var config *exportConfig
	e.read = func() (*network, *collectConfig, error) {
		n, c, err := f.read(cmd)
		if err != nil {
			return nil, nil, err
		}
		config = c
		capture := c.capture()
		return n, &capture, e.know(&capture)
	}
	e.fixed = func(*network, *collectConfig) (settings, error) {
		own := *config
		own.Taps = nil
		return settingsOf(map[string]any{"export": own})
	}
	instance, err := e.begin()
	if err != nil {
		return nil, err
	}
	spool, err := config.spoolFolder()
	if err == nil {
		err = f.restrict(cmd, config, spool)
	}
	if err != nil {
		return nil, errors.Join(err, e.taps.Close())
	}
	if e.client, err = openClient(config, spool, e.logger); err != nil {
		return nil, errors.Join(err, e.taps.Close())
	}
	if err = e.openPipeline(instance, spool); err != nil {
		return nil, errors.Join(err, e.taps.Close(), e.client.Close(), e.closeMarks())
	}
	e.use(e.network, e.taps)
	return e, nil
}

// openPipeline goes on from what an earlier process left.
func (e *exporting) openPipeline(instance, spool string) error {
	names := handover.NewDescriber(e.client, e.logger)
	names.Use(e.network.naming())
	e.names, e.spool = names, handover.NewSpool(e.client, names, e.logger)
	if err := e.know(e.config); err != nil {
		return err
	}
	e.recordTaps(e.spool.Writers())
	err := e.openJournal(filepath.Join(spool, "checkpoints"), "export "+instance, journal.Config{Log: e.spool, End: e.spool.Round})
	if err != nil {
		return err
	}
	_, after, err := e.resume(func(m *local.Mark, gaps []store.Gap) error {
		e.spool.Resume(e.cmd.Context(), m, gaps)
		return nil
	})
	if err != nil {
		return err
	}
	cfg := local.Config{Instance: instance, Interval: e.config.Checkpoint.Every.d, Journal: e.journal, After: after, Logger: e.logger}
	e.live, err = local.New(cfg, e.network.plan(e.taps, nil))
	return err
}

// know tells the spool the names of taps, before blocks of theirs come.
func (e *exporting) know(c *collectConfig) error {
	instance, err := c.instance()
	if e.spool == nil || err != nil {
		return err
	}
	for i := range c.Taps {
		e.spool.Know(instance, c.Taps[i].name())
	}
	return nil
}

// spoolFolder is where windows wait.
func (c *exportConfig) spoolFolder() (string, error) {
	if c.Spool.Dir != "" {
		return c.Spool.Dir, nil
	}
	data, err := dataFolder()
	if err != nil {
		return "", fmt.Errorf("find folder for the spool: %w, or --spool DIR", err)
	}
	return filepath.Join(data, "spool"), nil
}

func openClient(c *exportConfig, dir string, logger *slog.Logger) (*remote.Client, error) {
	client, err := remote.OpenClient(remote.ClientConfig{
		Collectors: c.Collectors, TLS: c.TLS.files(), TokenFile: c.TokenFile, Dir: dir, MaxBytes: int64(c.Spool.Size.n), Logger: logger,
	})
	if err != nil {
		return nil, usageError{fmt.Errorf("export: %w", err)}
	}
	return client, nil
}

// lastPush is how long the last windows may take to a collector that answers.
const lastPush = 5 * time.Second

// run captures until ctx ends.
func (e *exporting) run(ctx context.Context, reload <-chan os.Signal) error {
	fmt.Fprintf(e.cmd.OutOrStdout(), "exporting from %s to %s\n", e.taps, e.client.Stats().Collector)
	return e.capturing.run(ctx, reload, nil, []func(context.Context) error{e.push})
}

// push sends what is spooled until ctx ends, and then a little more.
func (e *exporting) push(ctx context.Context) error {
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	context.AfterFunc(ctx, func() {
		last, cancel := context.WithTimeout(sending, lastPush)
		defer cancel()
		e.spool.End(last)
		if err := e.client.Flush(last); err != nil && sending.Err() == nil {
			e.logger.Warn("windows wait in the spool for the next export", slog.Uint64("items", e.client.Stats().Waiting))
		}
		stop()
	})
	return e.client.Run(sending)
}

// watch makes the exporter part of the process's metrics and health.
func (e *exporting) watch(o *operations) error {
	if err := e.watchPipeline(o); err != nil {
		return err
	}
	return o.export(metrics.NewLive(e.liveMetrics), metrics.NewSpool(func() metrics.Spool {
		s := e.client.Stats()
		m := metrics.Spool{
			Connected: s.Answering, Bytes: s.SpoolBytes, Limit: s.SpoolLimit, Waiting: s.Waiting,
			Sent: s.Stored + s.Repeated, Retries: s.Failures, Lost: s.Lost,
		}
		if !s.Oldest.IsZero() {
			m.Age = max(time.Since(s.Oldest), 0)
		}
		return m
	}))
}
