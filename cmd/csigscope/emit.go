package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/replay/emitter"
)

// emitFlags are what emit and demo let users change about a scenario.
type emitFlags struct {
	scenario, file         string
	seed                   uint64
	duration               time.Duration
	leaves, spines, hosts  int
	hostSpeed, uplinkSpeed string
	format                 string
	tagEvery, ackEvery     int
	packets                uint64
	classic, untagged      bool
}

func newEmitCommand() *cobra.Command {
	var f emitFlags
	var dir string
	cmd := &cobra.Command{
		Use:   "emit --out DIR",
		Short: "Simulate a CSIG fabric and write what its taps capture, and the truth",
		Long: `emit simulates a leaf-spine fabric packet by packet and writes one pcapng per tap,
fabric.yaml (the topology, for --fabric of the other commands) and truth.ndjson
(per window and cell the true bottleneck port and value; per port its load).
The same seed gives the same bytes.

Scenarios: ` + strings.Join(emitter.Names(), ", ") + `.`,
		Example: `  csigscope emit --scenario demo --out captures
  csigscope emit --scenario demo --seed 7 --format compact --out captures
  csigscope emit --leaves 8 --hosts-per-leaf 8 --duration 5s --out captures`,
		Args: usageArgs(cobra.NoArgs),
	}
	f.add(cmd)
	cmd.Flags().StringVar(&dir, "out", "captures", "`FOLDER` to write to; it is made if it does not exist")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		s, err := f.build(cmd)
		if err != nil {
			return err
		}
		report, err := runEmitter(cmd, s, dir)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		fmt.Fprintf(out, "%d packets sent, %d delivered, %d dropped, %d in flight; %d captured in %.1f s\n",
			report.Sent, report.Delivered, report.Dropped, report.InFlight, report.Captured, report.Elapsed.Seconds())
		fmt.Fprintf(out, "%d captures, fabric.yaml and truth.ndjson are in %s\n", len(report.Captures), dir)
		if report.FlowTrace != "" {
			if err := plotFlows(out, dir, s.Name, &report); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "next: csigscope replay %s --fabric %s/fabric.yaml\n", capturesPattern(dir, s.Classic), dir)
		return nil
	}
	return cmd
}

func capturesPattern(dir string, classic bool) string {
	if classic {
		return dir + "/*.pcap"
	}
	return dir + "/*.pcapng"
}

func (f *emitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.scenario, "scenario", "demo", "`NAME` of a built-in scenario")
	flags.StringVar(&f.file, "scenario-file", "", "scenario `FILE` (YAML) instead of a built-in one")
	flags.Uint64Var(&f.seed, "seed", 1, "seed: the same one gives the same bytes")
	flags.DurationVar(&f.duration, "duration", 0, "simulated time, default the scenario's")
	flags.IntVar(&f.leaves, "leaves", 0, "number of leaf switches, default the scenario's")
	flags.IntVar(&f.spines, "spines", 0, "number of spine switches, default the scenario's")
	flags.IntVar(&f.hosts, "hosts-per-leaf", 0, "hosts of each leaf, default the scenario's")
	flags.StringVar(&f.hostSpeed, "host-speed", "", "speed of host links such as 1Gbps, default the scenario's")
	flags.StringVar(&f.uplinkSpeed, "uplink-speed", "", "speed of uplinks, which sets the oversubscription, default the scenario's")
	flags.StringVar(&f.format, "format", "", "tag format: wide (locators name ports) or compact (7-bit locators), default the scenario's")
	flags.IntVar(&f.tagEvery, "tag-every", 0, "senders tag one packet in `N`, -1 for none, default the scenario's")
	flags.IntVar(&f.ackEvery, "ack-every", 0, "receivers acknowledge every `N` packets, default the scenario's")
	flags.Uint64Var(&f.packets, "packets", 0, "stop after so many captured packets, default the scenario's")
	flags.BoolVar(&f.untagged, "capture-untagged", false, "capture packets without tag and reflection, too")
	flags.BoolVar(&f.classic, "classic", false, "write classic pcap (nanoseconds) instead of pcapng")
}

// build is the scenario that the flags describe.
func (f *emitFlags) build(cmd *cobra.Command) (emitter.Scenario, error) {
	s, err := emitter.Named(f.scenario)
	if f.file != "" {
		s, err = emitter.Load(f.file)
	}
	if err != nil {
		return s, usageError{err}
	}
	if f.file == "" || cmd.Flags().Changed("seed") {
		s.Seed = f.seed
	}
	s = s.WithSize(f.leaves, f.spines, f.hosts)
	if f.duration > 0 {
		s.Duration = f.duration
	}
	for _, o := range []struct {
		flag int
		to   *int
	}{
		{f.tagEvery, &s.TagEvery}, {f.ackEvery, &s.AckEvery},
	} {
		if o.flag != 0 {
			*o.to = o.flag
		}
	}
	for _, o := range []struct {
		name, flag string
		to         *emitter.Rate
	}{{"host-speed", f.hostSpeed, &s.HostSpeed}, {"uplink-speed", f.uplinkSpeed, &s.UplinkSpeed}} {
		if o.flag == "" {
			continue
		}
		speed, err := csig.ParseQuantity(csig.BitPerSecond, o.flag)
		if err != nil {
			return s, usageError{fmt.Errorf("--%s: %w", o.name, err)}
		}
		*o.to = emitter.Rate(speed)
	}
	if f.packets > 0 {
		s.Packets = f.packets
	}
	s.Classic = s.Classic || f.classic
	s.CaptureUntagged = s.CaptureUntagged || f.untagged
	return s, f.setFormat(&s)
}

// setFormat chooses the tag layout: wide tags whose locators name ports, or compact
// tags whose seven bits of locator metadata name stage, orientation and capacity.
func (f *emitFlags) setFormat(s *emitter.Scenario) error {
	if f.format == "" {
		return nil
	}
	format, err := csig.ParseFormat(f.format)
	if err != nil {
		return usageError{fmt.Errorf("--format: %w", err)}
	}
	layout := csig.Layout{Format: csig.Wide, Profile: csig.UEC050}
	if format == csig.Compact {
		layout = csig.Layout{Format: csig.Compact, Profile: csig.IETF01}
	}
	*s = s.WithLayout(layout)
	return nil
}

// progressSteps is the length of the bar of work that counts in shares.
const progressSteps = 1000

// runEmitter writes a scenario into a folder, with a progress bar.
func runEmitter(cmd *cobra.Command, s emitter.Scenario, dir string) (emitter.Report, error) {
	var steps, packets atomic.Int64
	stop := showProgress(cmd.ErrOrStderr(), progressSteps, false, func() (int64, string) {
		return steps.Load(), fmt.Sprintf("simulating, %.2f M packets", float64(packets.Load())/1e6)
	})
	defer stop()
	return emitter.Run(cmd.Context(), s, dir, func(done float64, captured uint64) {
		steps.Store(int64(done * progressSteps))
		packets.Store(int64(captured))
	})
}
