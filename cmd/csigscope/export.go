package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/bpf"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/remote/handover"
)

// exportFlags are the flags of export, besides flags of the section export.
type exportFlags struct {
	network    networkFlags
	ops        operationsFlags
	interfaces []string
	taps       tapFlags
	check      bool
}

func newExportCommand() *cobra.Command {
	var f exportFlags
	cmd := &cobra.Command{
		Use:         "export",
		Annotations: map[string]string{ownEnd: "true"},
		Short:       "Capture live packets on a host and send windows to a collector",
		Long: `export captures as collect does, and sends closed windows to a csigscope collect elsewhere,
which stores them. Windows wait in a spool on disk until a collector has stored them, across
outages of the network and of either side, and count once. The collector knows the exporter
by a certificate or a token.

SIGTERM or Ctrl-C closes all windows and ends the process; the next export sends the windows that
the collector does not take within 5 s. SIGHUP reads the files again, as in collect.

With --capture ebpf the kernel counts packets instead of copying them; --check says whether a host can
do that. Flows are then estimated from samples, and single packets are not searched for findings.

A killed process loses its open windows of 1 s and shorter, about the last 3 s: the next process
reports them to the collector, which records a gap. Windows that a full spool dropped, or that the
collector refused, are in the table gaps too.

--metrics-listen serves /metrics, /healthz (200 while windows are committed) and /readyz, which is 503
with the reason while the link of a tap is down. Neither depends on collectors.`,
		Example: `  csigscope export --interface eth1 --collector https://collector.example:4319 --token-file /etc/csigscope/token
  csigscope export --config csigscope.yaml --fabric fabric.yaml
  csigscope export --check --interface eth1`,
		Args: noArgs,
	}
	f.network.add(cmd.Flags())
	flags := cmd.Flags()
	flags.StringSliceVar(&f.interfaces, "interface", nil, "also capture from these network interfaces, `INTERFACE,...`; they need no entry in the configuration file")
	f.taps.add(flags)
	flags.BoolVar(&f.check, "check", false, "list whether this host has all that --capture ebpf needs, and end: with exit code 0 if it has, else 1")
	for name, key := range map[string]string{
		"instance": "instance", "capture": "capture", "odd-packets": "odd_packets", "commit-interval": "commit_interval", "collector": "collectors", "token-file": "token_file",
		"tls-cert": "tls.cert", "tls-key": "tls.key", "tls-ca": "tls.ca", "spool": "spool.dir",
	} {
		config.Flag(flags, name, "export."+key)
	}
	f.ops.add(flags)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.check {
			return f.checkHost(cmd)
		}
		return runCapturing(cmd, &f.ops, func(o *operations) (capturer, error) { return newExporting(cmd, &f, o) })
	}
	return cmd
}

// read reads the configuration and the fabric file, with the flags over them.
func (f *exportFlags) read(cmd *cobra.Command) (*network, error) {
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return nil, err
	}
	n.Fabric.UseSightingsLive()
	n.Config.Override(cmd.Flags())
	c := &n.Config.Export
	if c.Taps, err = withInterfaces(c.Taps, f.interfaces); err != nil {
		return nil, usageError{err}
	}
	if err := errors.Join(c.Check(), f.taps.check()); err != nil {
		return nil, usageError{err}
	}
	if len(c.Taps) == 0 || len(c.Collectors) == 0 {
		return nil, usageError{errors.New("export: expected taps and a collector: name an --interface and a --collector, or taps and collectors in the section export of --config")}
	}
	return n, nil
}

// errNoKernel ends --check where the kernel cannot count.
var errNoKernel = errors.New("--capture ebpf: this host or configuration cannot count in the kernel: use --capture ring, or auto, which then takes a ring")

// checkHost says whether the kernel of this host can count, at the interfaces that are named.
func (f *exportFlags) checkHost(cmd *cobra.Command) error {
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	taps, err := withInterfaces(n.Config.Export.Taps, f.interfaces)
	if err != nil {
		return usageError{err}
	}
	var interfaces []string
	for _, t := range taps {
		if _, err := net.InterfaceByName(string(t.Interface)); err != nil {
			return fmt.Errorf("--check: find interface %q: no such interface (ip link lists them)", t.Interface)
		}
		interfaces = append(interfaces, string(t.Interface))
	}
	settings, possible := n.Settings(), true
	list := bpf.Host(&settings, interfaces)
	if err := bpf.Check(&settings, window.TapAt(f.taps.place, 1)); err != nil {
		list = append(list, bpf.Requirement{Name: "configuration", Text: err.Error()})
	}
	for _, a := range list {
		word := "ok     "
		if !a.OK {
			word, possible = "missing", false
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s  %s: %s\n", word, a.Name, a.Text)
	}
	if !possible {
		return errNoKernel
	}
	return nil
}

// exporting is the running part of export.
type exporting struct {
	capturing
	client *remote.Client
	spool  *handover.Spool
}

// lastWords describes the consequences of ending at once.
func (e *exporting) lastWords() string {
	return e.agent.PendingLoss() + "; windows in the spool wait for it"
}

// close releases the resources.
func (e *exporting) close() error { return e.client.Close() }

func newExporting(cmd *cobra.Command, f *exportFlags, o *operations) (*exporting, error) {
	e := &exporting{}
	e.cmd, e.logger, e.taps, e.ops, e.opsFlags = cmd, o.logger, f.taps, o, &f.ops
	e.section = func(n *network) (*config.Capture, []config.Mirror) { return &n.Config.Export.Capture, nil }
	e.read = func() (*network, error) {
		n, err := f.read(cmd)
		if err != nil {
			return nil, err
		}
		return n, e.know(n)
	}
	e.fixed = func(n *network) (config.Settings, error) {
		own := n.Config.Export
		own.Taps, own.By, own.OddPackets = nil, "", ""
		return config.SettingsOf(map[string]any{"export": own, "memory_limit": n.Config.MemoryLimit})
	}
	e.use = func(n *network) config.MemoryUse {
		return config.MemoryUse{Capture: &n.Config.Export.Capture, Spools: true}
	}
	e.reloaded = func(*network) error { return nil }
	if err := e.begin(); err != nil {
		return nil, err
	}
	if err := e.openSpool(f); err != nil {
		return nil, errors.Join(err, e.agent.Close())
	}
	if err := e.openPipeline(); err != nil {
		return nil, errors.Join(err, e.agent.Close(), e.client.Close())
	}
	return e, nil
}

// openSpool restricts the process to its files and opens the client for collectors.
func (e *exporting) openSpool(f *exportFlags) error {
	section := &e.network.Config.Export
	dir, err := spoolFolder(section)
	if err != nil {
		return err
	}
	if err := f.restrict(e.cmd, section, dir); err != nil {
		return err
	}
	e.client, err = remote.OpenClient(remote.ClientConfig{
		Collectors: section.Collectors, TLS: section.TLS.Files(), TokenFile: section.TokenFile,
		Dir: dir, MaxBytes: int64(section.Spool.Size), Logger: e.logger,
	})
	if err != nil {
		return usageError{fmt.Errorf("export: %w", err)}
	}
	return nil
}

// openPipeline resumes from the state of an earlier process.
func (e *exporting) openPipeline() error {
	names := handover.NewDescriber(e.client, e.logger)
	names.Use(e.network.Naming())
	e.spool = handover.NewSpool(e.client, names, e.network.Config.Export.TapPrefix(), e.logger)
	if err := e.know(e.network); err != nil {
		return err
	}
	instance, err := e.network.Config.Export.Name()
	if err != nil {
		return err
	}
	_, err = e.agent.Resume(journal.Config{Name: "export " + instance, Log: e.spool, End: e.spool.Round}, e.spool.Writers(), func(m *local.Mark, gaps []store.Gap) error {
		e.spool.Resume(e.cmd.Context(), m, gaps)
		return nil
	})
	if err != nil {
		return err
	}
	return e.agent.Start(names, e.spool)
}

// know gives the spool the names of taps, before their first blocks.
func (e *exporting) know(n *network) error {
	section, _ := e.section(n)
	instance, err := orUsage(section.Name())
	if e.spool == nil || err != nil {
		return err
	}
	for i := range section.Taps {
		e.spool.RegisterTap(instance, section.Taps[i].TapName())
	}
	return nil
}

// spoolFolder returns the folder in which windows wait.
func spoolFolder(c *config.Export) (string, error) {
	if c.Spool.Dir != "" {
		return c.Spool.Dir, nil
	}
	data, err := dataFolder()
	if err != nil {
		return "", fmt.Errorf("find folder for the spool: %w: name one with --spool DIR", err)
	}
	return filepath.Join(data, "spool"), nil
}

// lastPush is the time limit for sending the last windows to a collector that answers.
const lastPush = 5 * time.Second

// run captures until ctx ends.
func (e *exporting) run(ctx context.Context, reload <-chan os.Signal) error {
	fmt.Fprintf(e.cmd.OutOrStdout(), "exporting from %s to %s\n", e.agent.Taps(), e.client.Stats().Collector)
	if err := e.capturing.run(ctx, reload, nil, []func(context.Context) error{e.push}); err != nil {
		return err
	}
	s := e.client.Stats()
	fmt.Fprintf(e.cmd.OutOrStdout(), "blocks and records: %d acknowledged by collectors, %d wait in the spool\n", s.Stored+s.Repeated, s.Waiting)
	return nil
}

// push sends spooled windows until ctx ends, and then briefly continues.
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

// watch adds the exporter to the process's metrics and health.
func (e *exporting) watch(o *operations) error {
	if err := e.watchPipeline(o); err != nil {
		return err
	}
	return o.Export(metrics.NewLive(e.liveMetrics), metrics.NewSpool(func() metrics.Spool {
		s := e.client.Stats()
		m := metrics.Spool{
			Connected: s.Answering, Bytes: s.SpoolBytes, Limit: s.SpoolLimit, Waiting: s.Waiting,
			Sent: s.Stored + s.Repeated, Retries: s.Failures, Lost: s.Lost, Provisional: s.Provisional.Results(),
		}
		if !s.Oldest.IsZero() {
			m.Age = max(time.Since(s.Oldest), 0)
		}
		return m
	}))
}
