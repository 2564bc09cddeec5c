package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/ingest"
)

// exportFlags are what export's command line says.
type exportFlags struct {
	network    networkFlags
	ops        operationsFlags
	instance   string
	interfaces []string
	place      string
	collectors []string
	tokenFile  string
	tls        tlsConfig
	spool      string
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
as collect does. An export that is killed loses the windows that were open.`,
		Example: `  csigscope export --interface eth1 --collector https://collector.example:4319 --token-file /etc/csigscope/token
  csigscope export --config csigscope.yaml --fabric fabric.yaml`,
		Args: usageArgs(cobra.NoArgs),
	}
	f.network.add(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&f.instance, "instance", "", "`NAME` of this host, by which its streams are told apart (default the host's name)")
	flags.StringSliceVar(&f.interfaces, "interface", nil, "capture from this network `INTERFACE` as well, which the configuration file need not name")
	flags.StringVar(&f.place, "place", "receiver", "where taps stand that neither the configuration nor the fabric file places: receiver, sender or mid; only receiver taps enter the heatmaps")
	flags.StringSliceVar(&f.collectors, "collector", nil, "`URL` of a collector; of several, the first that answers is used")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the bearer token of this host")
	flags.StringVar(&f.tls.Cert, "tls-cert", "", "`FILE` with the certificate of this host")
	flags.StringVar(&f.tls.Key, "tls-key", "", "`FILE` with its key")
	flags.StringVar(&f.tls.CA, "tls-ca", "", "`FILE` with the authority of the collectors, unless it is one of the system's")
	flags.StringVar(&f.spool, "spool", "", "`FOLDER` in which windows wait on disk for a collector (default in the user's data folder)")
	f.ops.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP)
		defer signal.Stop(reload)
		o, err := newOperations(cmd, &f.ops)
		if err != nil {
			return err
		}
		e, err := newExporting(cmd, &f)
		if err != nil {
			return err
		}
		if err = e.watch(o); err == nil {
			err = o.run(endsTwice(cmd.Context(), e.lastWords), func(ctx context.Context) error { return e.run(ctx, reload) })
		}
		return errors.Join(err, e.client.Close())
	}
	return cmd
}

// read reads the configuration and the fabric file, with the flags over them.
func (f *exportFlags) read() (*network, *exportConfig, error) {
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
	c.Taps = append(c.Taps[:len(c.Taps):len(c.Taps)], tapsOf(f.interfaces)...)
	if err := errors.Join(c.check(), checkPlace(f.place)); err != nil {
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
	client *ingest.Client
}

// lastWords are what ending at once means.
func (e *exporting) lastWords() string {
	return "windows that are open may be lost; those in the spool wait for the next one"
}

func newExporting(cmd *cobra.Command, f *exportFlags) (*exporting, error) {
	e := &exporting{}
	journal := &spooling{streams: make(map[streamKey]*ingest.Stream), logger: newLogger(cmd, cmd.ErrOrStderr())}
	e.cmd, e.logger, e.place = cmd, newLogger(cmd, cmd.ErrOrStderr()), f.place
	var config *exportConfig
	e.read = func() (*network, *collectConfig, error) {
		n, c, err := f.read()
		if err != nil {
			return nil, nil, err
		}
		config = c
		capture := c.capture()
		return n, &capture, journal.know(&capture)
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
		return nil, errors.Join(err, e.taps.close())
	}
	if e.client, err = openClient(config, spool, e.logger); err != nil {
		return nil, errors.Join(err, e.taps.close())
	}
	journal.client = e.client
	e.names = &describer{client: e.client, logger: e.logger, described: make(map[uint64]int)}
	e.live, err = live.New(live.Config{Instance: instance, Logger: e.logger, Journal: journal}, e.taps.plan(e.network, nil), nil)
	if err != nil {
		return nil, errors.Join(err, e.taps.close(), e.client.Close())
	}
	e.use(e.network, e.taps)
	return e, nil
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

func openClient(c *exportConfig, dir string, logger *slog.Logger) (*ingest.Client, error) {
	client, err := ingest.OpenClient(ingest.ClientConfig{
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
	return o.export(metrics.NewLive(e.liveCounts), metrics.NewSpool(func() metrics.Spool {
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

// describer tells collectors what the numbers in blocks stand for.
type describer struct {
	client *ingest.Client
	logger *slog.Logger

	mu        sync.Mutex
	networks  []*network
	described map[uint64]int // how many names are told, by epoch
}

// describeEvery is how often names that appeared are told.
const describeEvery = 5 * time.Second

// use implements namesWriter.
func (d *describer) use(n *network) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.networks) > 0 && d.networks[len(d.networks)-1] == n {
		return
	}
	d.describe() // what is let go of
	if d.networks = append(d.networks, n); len(d.networks) > recentNetworks {
		d.networks = d.networks[1:]
	}
	d.describe()
}

// describe tells what was not told. The caller holds the lock.
func (d *describer) describe() {
	for _, n := range d.networks {
		groups, locations := n.fabric.Groups(), n.fabric.Locations()
		names := len(groups) + len(locations)
		if told, known := d.described[n.epoch]; known && told == names {
			continue
		}
		if err := d.client.Describe(ingest.Description{Text: n.text, Groups: groups, Locations: locations}); err != nil {
			d.logger.Error("names are not told yet", slog.String("error", err.Error()))
			continue
		}
		d.described[n.epoch] = names
	}
}

// run implements namesWriter.
func (d *describer) run(ctx context.Context) error {
	for more := true; more; {
		more = sleepFor(ctx, describeEvery)
		d.mu.Lock()
		d.describe()
		d.mu.Unlock()
	}
	return nil
}

// spooling is a journal whose blocks go to a collector. It makes no checkpoints of states:
// a block has another number in each process.
type spooling struct {
	client  *ingest.Client
	logger  *slog.Logger
	taps    sync.Map // producer to name of the tap
	streams map[streamKey]*ingest.Stream
}

// know remembers the names of taps, before blocks of theirs come.
func (s *spooling) know(c *collectConfig) error {
	instance, err := c.instance()
	for i := range c.Taps {
		s.taps.Store(live.Producer(instance, c.Taps[i].name()), c.Taps[i].name())
	}
	return err
}

type streamKey struct {
	producer uint64
	ring     int
}

// WriteBlock implements live.Journal.
func (s *spooling) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	k := streamKey{b.Producer, live.RingOf(b.Seq)}
	stream := s.streams[k]
	if stream == nil {
		name, _ := s.taps.Load(b.Producer)
		var err error
		if stream, err = s.client.Stream(fmt.Sprintf("%v/%d", name, k.ring)); err != nil {
			return err
		}
		s.streams[k] = stream
	}
	return stream.WriteBlock(ctx, b)
}

// Commit implements live.Journal. A spool that cannot be written counts what it loses.
func (s *spooling) Commit(ctx context.Context, _ []live.State) error {
	if err := s.client.Sync(ctx); err != nil {
		s.logger.Error("spool cannot be written", slog.String("error", err.Error()))
	}
	return nil
}
