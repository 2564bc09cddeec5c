package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
)

// conformFlags are those of the command conform.
type conformFlags struct {
	network       networkFlags
	role, strip   string
	match         string
	signals       []string
	uninitialized bool
	metrics       string
	slack         time.Duration
	packets       int
	device        string
	junit         string
	format        string
}

func newConformCommand() *cobra.Command {
	f := &conformFlags{}
	cmd := &cobra.Command{
		Use:   "conform BEFORE [PORT=]AFTER...",
		Short: "Judge a switch by captures before and after it",
		Long: `conform matches the packets of a capture before a device with those of captures after
it, one for each port, and holds each pair against draft-ravi-ippm-csig-01 and
draft-tian-ccwg-ibcs-datapath-processing-00: signals are replaced by tighter ones alone,
locator metadata goes with them, types and reserved bits stay, tags are neither inserted
nor duplicated, ports strip all tags or none, trimmed packets are left alone, tagged
packets are neither lost nor sent another way.

Packets are known again by what no device may change, not by clocks: addresses, ports,
identification and content. Packets that look alike are matched in their order; what
proves nothing is counted and not judged. Captures may be pcap or pcapng, plain or
compressed; a folder stands for the captures in it, and several interfaces in one pcapng
file are several ports. With --fabric and ports named as there, such as leaf3:up1, what
locator metadata a port has to write is known; else what it writes most is taken for it.

With --metrics, a CSV of the device's own counters with the header
"time,port,signal,value", values are judged as well. A value holds from its time until the
next one of the port and signal, "12.5Gbps", "20%" or "18us", and is empty where the device
had none. Ports are called like their capture files unless PORT= names them.

The command exits with 3 if a rule was broken.`,
		Example: `  csigscope conform before.pcapng after.pcapng
  csigscope conform in.pcap leaf3:up1=up1.pcap leaf3:up2=up2.pcap --fabric fabric.yaml
  csigscope conform in.pcap out.pcap --role ingress
  csigscope conform in.pcap out.pcap --metrics counters.csv --slack 100us
  csigscope conform in.pcap out.pcap --device leaf3 --junit leaf3.xml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("%s: expected a capture before the device and at least one after it, got %d (see %s --help)", cmd.Name(), len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.StringVar(&f.role, "role", "transit", "what the device is between the captures: `ROLE` transit, ingress (scrubs what it does not trust) or pass-through")
	flags.StringVar(&f.strip, "strip", "unknown", "what the ports after the device are configured to do with tags: `HOW` never, always or unknown")
	flags.StringVar(&f.match, "match", "packet", "what the device leaves alone: `WHAT` packet, or payload where it changes addresses or tunnels")
	flags.StringSliceVar(&f.signals, "signals", nil, "`SIGNALS` that the device supports, such as min_abw,max_delay (default all)")
	flags.BoolVar(&f.uninitialized, "uninitialized", false, "the first hop may write its locator metadata beside an initial value (IBCS 6.1, rule 1)")
	flags.StringVar(&f.metrics, "metrics", "", "`FILE` of the device's own counters as CSV: time,port,signal,value")
	flags.DurationVar(&f.slack, "slack", time.Millisecond, "how far the counters' clock may be off the captures'")
	flags.IntVar(&f.packets, "memory-packets", conform.DefaultMaxPackets, "`N` packets at most are held in memory, some 120 bytes each; of larger captures one part after the other")
	flags.StringVar(&f.device, "device", "device", "`NAME` of the device in the JUnit file")
	flags.StringVar(&f.junit, "junit", "", "also write the result to a JUnit `FILE`, one test case a rule")
	flags.StringVarP(&f.format, "output", "o", "table", "output `FORMAT`: table or json")
	return cmd
}

func (f *conformFlags) run(cmd *cobra.Command, args []string) (err error) {
	cfg, err := f.config()
	if err != nil {
		return usageError{err}
	}
	if f.junit != "" {
		if err := expectFolder("--junit", f.junit); err != nil {
			return err
		}
		captures := slices.Clone(args)
		for _, arg := range args {
			if _, file, named := strings.Cut(arg, "="); named {
				captures = append(captures, file)
			}
		}
		if err := keepCaptures("--junit", f.junit, inFolders(captures)); err != nil {
			return err
		}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	cfg.Decode = n.decode
	if f.metrics != "" {
		if cfg.Metrics, err = readMetrics(f.metrics, f.slack); err != nil {
			return usageError{err}
		}
	}
	ports, paths := f.ports(args)
	files, remove, err := replay.Spool(cmd.Context(), paths)
	defer func() { err = errors.Join(err, remove()) }()
	if err != nil {
		return err
	}
	run := replay.ConformConfig{Judge: cfg, Before: files[:1]}
	for i, path := range files[1:] {
		run.After = append(run.After, replay.PortCapture{Port: ports[i+1], Path: path})
	}
	run.Own = func(port string, l csig.Layout, t uint8, lm uint16) (own, known bool) {
		device, name, _ := strings.Cut(port, ":")
		return n.fabric.Writes(fabric.PortLocationID(device, name), l, t, lm)
	}
	c, failed := f.conform(cmd.Context(), cmd.ErrOrStderr(), run)
	if c == nil {
		return failed
	}
	if err := f.write(cmd.OutOrStdout(), c); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	if broken := c.Broken(); broken > 0 {
		return findingsError{fmt.Errorf("%s breaks %d rules", f.device, broken)}
	}
	return nil
}

// ports are the names that arguments give to the ports of captures, and their paths. A
// file whose name has an = is taken for what it is.
func (f *conformFlags) ports(args []string) (ports, paths []string) {
	ports, paths = make([]string, len(args)), slices.Clone(args)
	for i, arg := range args[1:] {
		if _, err := os.Stat(arg); err == nil {
			continue
		}
		if port, path, named := strings.Cut(arg, "="); named {
			ports[i+1], paths[i+1] = port, path
		}
	}
	return ports, paths
}

func (f *conformFlags) config() (cfg conform.Config, err error) {
	if f.format != "table" && f.format != "json" {
		return cfg, fmt.Errorf("output format %q: expected table or json", f.format)
	}
	if cfg.Role, err = conform.ParseRole(f.role); err != nil {
		return cfg, fmt.Errorf("--role: %w", err)
	}
	if cfg.Strip, err = conform.ParseStrip(f.strip); err != nil {
		return cfg, fmt.Errorf("--strip: %w", err)
	}
	if cfg.Match, err = conform.ParseMatch(f.match); err != nil {
		return cfg, fmt.Errorf("--match: %w", err)
	}
	for _, name := range f.signals {
		s, err := csig.ParseSignal(name)
		if err != nil {
			return cfg, fmt.Errorf("--signals: %w", err)
		}
		cfg.Signals |= 1 << s.Type()
	}
	if f.slack < 0 {
		return cfg, fmt.Errorf("--slack %s: expected 0 or more", f.slack)
	}
	if f.packets < 1 {
		return cfg, fmt.Errorf("--memory-packets %d: expected 1 or more", f.packets)
	}
	cfg.Uninitialized, cfg.MaxPackets = f.uninitialized, f.packets
	return cfg, nil
}

func readMetrics(path string, slack time.Duration) (*conform.Metrics, error) {
	in, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	defer in.Close()
	m, err := conform.ReadMetrics(in, slack)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

func (f *conformFlags) conform(ctx context.Context, w io.Writer, cfg replay.ConformConfig) (*replay.Conformance, error) {
	var done, total atomic.Int64
	stop := showProgress(w, 100, false, func() (int64, string) {
		if all := total.Load(); all > 0 {
			return 100 * done.Load() / all, "judging"
		}
		return 0, "reading"
	})
	defer stop()
	cfg.Progress = func(d, t int64) { done.Store(d); total.Store(t) }
	return replay.Conform(ctx, cfg)
}

func (f *conformFlags) write(w io.Writer, c *replay.Conformance) error {
	if f.junit != "" {
		if err := createFile(f.junit, func(w io.Writer) error { return c.WriteJUnit(w, f.device) }); err != nil {
			return err
		}
	}
	if f.format == "json" {
		return writeIndented(w, c)
	}
	return writeConformance(w, c)
}

// writeConformance prints a result for people.
func writeConformance(w io.Writer, c *replay.Conformance) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name string, n uint64, about string) {
		if n > 0 {
			fmt.Fprintf(tw, "%s\t%d\t%s\n", name, n, about)
		}
	}
	n := &c.Counts
	line("before", n.Before, strconv.FormatUint(n.BeforeTagged, 10)+" tagged")
	line("after", n.After, strconv.FormatUint(n.AfterTagged, 10)+" tagged, by "+strings.Join(c.Ports, ", "))
	line("matched", n.Matched, strconv.FormatUint(n.Updated, 10)+" updated by the device")
	line("  trimmed", n.Trimmed, "of those, known by their headers")
	line("lost", n.Lost, "did not come out")
	line("extra", n.Extra, "did not go in")
	line("copies", n.Copies, "came out more often than they went in")
	line("not judged", n.Ambiguous, "look alike, and some are missing")
	line("not judged", n.Forgotten, "beyond the memory (--memory-packets)")
	line("not judged", n.Unknown, "have nothing to be known by: cut, encrypted, or empty")
	line("not judged", n.NoTable, "of a signal type without a table: which value is tighter")
	line("not judged", n.OwnUnknown, "updates that kept the locator metadata, perhaps the device's own")
	line("not judged", n.LossUnknown, "lost tagged packets, too few of either kind to compare")
	line("not judged", n.PathsIgnored, "of too many flows: which way they took")
	line("not judged", n.NoMetric, "without a metric of their port at the time")
	line("cut", c.Cut, strconv.Itoa(c.Prefix)+" bytes of each packet are compared")
	for link, packets := range c.SkippedLink {
		line("not read", packets, "of "+link.String())
	}
	line("damaged", c.Damaged.Bytes, "bytes left out, in "+strconv.FormatUint(c.Damaged.Places, 10)+" places")
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	for i := range c.Findings {
		f := &c.Findings[i]
		fmt.Fprintf(w, "\n%s: %s: %d packets\n  demanded   %s (%s)\n  otherwise  %s\n", f.Severity, f.Rule, f.Count, f.Demand, f.Source, f.Otherwise)
		for k := range f.Examples {
			fmt.Fprintf(w, "  %s\n", f.Examples[k].String())
		}
	}
	if c.Broken() == 0 {
		fmt.Fprintln(w, "\nno rule is broken")
	}
	return nil
}
