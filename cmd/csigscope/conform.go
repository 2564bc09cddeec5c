package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/decode/conform"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay"
)

// conformFlags are the flags of conform.
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
	junit         outputFile
	out           output
}

func newConformCommand() *cobra.Command {
	f := &conformFlags{}
	cmd := &cobra.Command{
		Use:   "conform BEFORE [PORT=]AFTER...",
		Short: "Judge a switch by captures before and after it",
		Long: `conform matches the packets of a capture before a device with those of captures after it, one for
each port, and checks each pair against draft-ravi-ippm-csig-01 and
draft-tian-ccwg-ibcs-datapath-processing-00 (IBCS): only a tighter signal replaces a signal, its locator
metadata comes with it, types and reserved bits stay, no tag is inserted or duplicated, a port
strips all tags or none, trimmed packets stay as they are, and tagged packets are neither lost nor
sent another way.

conform recognizes packets by fields that no device may change, not by clocks: addresses,
ports, identification and content. It matches packets that look alike in their order. If some
of them are missing and their tags differ, it counts them as ambiguous and does not judge them.
Captures may be pcap or pcapng, plain or compressed; a folder stands for the captures in it, and
several interfaces in one pcapng file are several ports, named FILE:INTERFACE, or leaf3:INTERFACE if
leaf3=FILE is given. conform does not look into mirror sessions.
With --fabric, and ports named as in that file (leaf3:up1), conform knows the locator metadata of
each port. In a capture with the name of a device, it only checks that some port of the device on the
packet's path has the locator: capture each port for itself to test more. Without --fabric, the
locator of a capture's port is the one that most of its changed tags got.

With --metrics, a CSV of the device's own counters with the header
"time,port,signal,value", conform judges values as well. A time is RFC 3339 or Unix time in
nanoseconds. A value such as "12.5Gbps", "20%" or "18us" holds from its time until the next one of
the same port and signal; it is empty if the device had none. A port has the name of its
capture file, or the path if another capture has the same name, unless PORT= names it.

The command exits with 1 if a capture is damaged, else with 3 if a rule was broken, else with 1 if
nothing could be compared, no packet before the device has a tag, or --metrics has no value of the
ports at the time of their packets.`,
		Example: `  csigscope conform before.pcapng after.pcapng
  csigscope conform in.pcap leaf3:up1=up1.pcap leaf3:up2=up2.pcap --fabric fabric.yaml
  csigscope conform in.pcap out.pcap --role ingress
  csigscope conform in.pcap out.pcap --metrics counters.csv --slack 100us
  csigscope conform in.pcap out.pcap --device leaf3 --junit leaf3.xml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("%s: expected a capture before the device and at least one after it, got %d (see %s --help)", cmd.Name(), len(args), cmd.CommandPath())}
			}
			return filesArgs(cmd, args)
		},
		RunE: f.run,
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.StringVar(&f.role, "role", "transit", "`ROLE` of the device between the captures: transit, ingress (scrubs untrusted tags) or pass-through")
	flags.StringVar(&f.strip, "strip", "unknown", "`WHEN` the ports after the device are configured to strip tags: never, always or unknown")
	flags.StringVar(&f.match, "match", "packet", "`PART` of a packet that the device does not change: packet, or payload for a device that changes addresses or tunnels; payloads of different flows must then differ")
	flags.StringSliceVar(&f.signals, "signals", nil, "`SIGNALS` that the device supports, such as min_abw,max_delay (default all)")
	flags.BoolVar(&f.uninitialized, "uninitialized", false, "allow the first hop to write its locator metadata although the value stays initial (IBCS 6.1, rule 1)")
	flags.StringVar(&f.metrics, "metrics", "", "`FILE` of the device's own counters as CSV: time,port,signal,value")
	flags.DurationVar(&f.slack, "slack", time.Millisecond, "maximum difference between the counters' clock and the captures'")
	flags.IntVar(&f.packets, "memory-packets", conform.DefaultMaxPackets, "hold at most `N` packets in memory, some 120 bytes each; larger captures are compared part by part")
	flags.StringVar(&f.device, "device", "device", "`NAME` of the device: in the JUnit file, and in --fabric for captures of several of its ports, where the default is the NAME of NAME=FILE, else the device that most tags name")
	f.junit.add(cmd, "junit", "also write the result to a JUnit `FILE`, one test case per rule")
	f.out.add(cmd, "table", "json")
	return cmd
}

func (f *conformFlags) run(cmd *cobra.Command, args []string) error {
	cfg, err := f.config()
	if err != nil {
		return usageError{err}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	cfg.Decode = n.Decode
	after := replay.PortCaptures(args[1:])
	cfg.Device = f.deviceIn(n.Fabric, after)
	if f.network.fabric != "" {
		warnUnknown(cmd, n.Fabric, after)
	}
	if f.metrics != "" {
		if cfg.Metrics, err = readMetrics(f.metrics, f.slack); err != nil {
			return usageError{err}
		}
	}
	c, failed := judgeCaptures(cmd, replay.ConformConfig{Judge: cfg, Before: args[:1], After: after, Fabric: n.Fabric})
	if c == nil {
		return failed
	}
	if cfg.Metrics != nil {
		if latest, outdated := cfg.Metrics.Outdated(); outdated {
			return errors.Join(failed, usageError{fmt.Errorf("--metrics %q: its last time is %s, and packets are from this century: expected RFC 3339 or Unix time in nanoseconds", f.metrics, latest.Format(time.RFC3339))})
		}
	}
	if f.junit.path != "" {
		if err := f.junit.write(cmd, func(w io.Writer) error { return c.WriteJUnit(w, f.device) }); err != nil {
			return err
		}
	}
	if err := f.out.json(cmd, c, c.WriteText); err != nil {
		return err
	}
	if failed != nil {
		return failed
	}
	switch broken := c.Broken(); broken {
	case 0:
		return f.judged(cmd, c, n.Domain)
	case 1:
		return findingsError{fmt.Errorf("%s breaks 1 rule", f.device)}
	default:
		return findingsError{fmt.Errorf("%s breaks %d rules", f.device, broken)}
	}
}

// deviceIn returns the device's name in the fabric file, from --device or a capture; empty if the file has neither.
func (f *conformFlags) deviceIn(n *fabric.Fabric, after []replay.PortCapture) string {
	names := []string{f.device}
	for _, a := range after {
		names = append(names, a.Port)
	}
	devices := n.Devices()
	for _, name := range names {
		if slices.ContainsFunc(devices, func(d fabric.Device) bool { return d.Name == name }) {
			return name
		}
	}
	return ""
}

// judged returns an error if nothing was compared, or no tag, which must not look like a passed test.
func (f *conformFlags) judged(cmd *cobra.Command, c *replay.Conformance, d *csig.Domain) error {
	if c.Counts.Judged == 0 {
		return errors.New("no packet was found on both sides, so nothing is judged: capture both sides at the same time; if the device changes addresses or tunnels, use --match payload")
	}
	if c.Counts.BeforeTagged == 0 {
		c.NoteNoTags(cmd.ErrOrStderr(), d)
		return errors.New("no packet before the device has a tag, so only the rules inserted and malformed are judged")
	}
	if f.metrics == "" || c.WithMetrics {
		return nil
	}
	return fmt.Errorf("--metrics %q: has no value of the captured ports (%s) at the time of their packets, so no value is judged: give one capture for each port, as PORT=FILE with the name in that file, and counters of the same time and clock", f.metrics, strings.Join(c.Ports, ", "))
}

// warnUnknown warns of captures that are named after nothing in the fabric file.
func warnUnknown(cmd *cobra.Command, n *fabric.Fabric, after []replay.PortCapture) {
	known := make(map[string]bool)
	for _, l := range n.Locations() {
		if known[l.Device] = true; l.Kind == fabric.KindPort {
			known[l.Name] = true
		}
	}
	for _, a := range after {
		if a.Port != "" && !known[a.Port] {
			fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s: no port or device of the fabric file has this name, so the locator of the port is unknown\n", a.Port)
		}
	}
}

func (f *conformFlags) config() (cfg conform.Config, err error) {
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

// judgeCaptures judges the device, with a progress bar.
func judgeCaptures(cmd *cobra.Command, cfg replay.ConformConfig) (*replay.Conformance, error) {
	var done, total atomic.Int64
	stop := showProgress(cmd, 0, func() (int64, string) {
		if all := total.Load(); all > 0 {
			return 1000 * done.Load() / all, "judging"
		}
		return 0, "reading"
	})
	defer stop()
	cfg.Progress = func(d, t int64) { done.Store(d); total.Store(t) }
	return replay.Conform(cmd.Context(), cfg)
}
