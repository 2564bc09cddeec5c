package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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
	encap, compress        string
	counters               []string
}

func (f *emitFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.addScenario(flags, "demo", "")
	flags.IntVar(&f.leaves, "leaves", 0, "number of leaf switches, default the scenario's")
	flags.IntVar(&f.spines, "spines", 0, "number of spine switches, default the scenario's")
	flags.IntVar(&f.hosts, "hosts-per-leaf", 0, "hosts of each leaf, default the scenario's")
	flags.StringVar(&f.hostSpeed, "host-speed", "", "speed of host links such as 1Gbps, default the scenario's")
	flags.StringVar(&f.uplinkSpeed, "uplink-speed", "", "speed of uplinks, which sets the oversubscription, default the scenario's")
	flags.IntVar(&f.tagEvery, "tag-every", 0, "senders tag one packet in `N`, -1 for none, default the scenario's")
	flags.IntVar(&f.ackEvery, "ack-every", 0, "receivers acknowledge every `N` packets, default the scenario's")
	flags.Uint64Var(&f.packets, "packets", 0, "stop after so many captured packets, default the scenario's")
	flags.BoolVar(&f.untagged, "capture-untagged", false, "capture packets without tag and reflection, too")
	flags.BoolVar(&f.classic, "classic", false, "write classic pcap (nanoseconds) instead of pcapng")
}

// addScenario adds the flags that choose a scenario; when says what it needs them for.
func (f *emitFlags) addScenario(flags *pflag.FlagSet, scenario, when string) {
	flags.StringVar(&f.scenario, "scenario", scenario, "`NAME` of a built-in scenario"+when)
	flags.StringVar(&f.file, "scenario-file", "", "scenario `FILE` (YAML) instead of a built-in one")
	flags.Uint64Var(&f.seed, "seed", 1, "seed: the same one gives the same bytes")
	flags.DurationVar(&f.duration, "duration", 0, "simulated time, default the scenario's")
	flags.StringVar(&f.format, "format", "", "tag format: wide (locators name ports) or compact (7-bit locators), default the scenario's")
}

// addOutput adds the flags of emit alone.
func (f *emitFlags) addOutput(flags *pflag.FlagSet) {
	flags.StringVar(&f.encap, "encap", "", "`KIND` of encapsulation between hosts, default the scenario's")
	flags.StringSliceVar(&f.counters, "counters", nil, "write what ports measured to counters.csv, for conform --metrics: `PATTERNS` of devices or ports such as leaf3 or leaf3:up*")
	flags.StringVar(&f.compress, "compress", "", "compress captures: gzip or zstd")
}

// build is the scenario that the flags describe.
func (f *emitFlags) build(cmd *cobra.Command) (emitter.Scenario, error) {
	s, err := emitter.Named(f.scenario)
	if f.file != "" {
		s, err = emitter.Load(f.file)
	}
	if err != nil && strings.Contains(err.Error(), "yaml: ") {
		err = errors.New(plainYAMLError(err, "emit --dump"))
	}
	if err != nil {
		return s, usageError{err}
	}
	if f.file == "" || cmd.Flags().Changed("seed") {
		s.Seed = f.seed
	}
	s = s.WithSize(f.leaves, f.spines, f.hosts)
	if f.duration < 0 {
		return s, usageError{fmt.Errorf("--duration %s: expected a time above 0", f.duration)}
	}
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
	if f.encap != "" {
		s.Encap = f.encap
	}
	if f.compress != "" {
		s.Compress = f.compress
	}
	if len(f.counters) > 0 {
		s.Counters = f.counters
	}
	s.Classic = s.Classic || f.classic
	s.CaptureUntagged = s.CaptureUntagged || f.untagged
	if err := f.setFormat(&s); err != nil {
		return s, err
	}
	if _, err := emitter.Fabric(s); err != nil {
		return s, usageError{err}
	}
	return s, nil
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
