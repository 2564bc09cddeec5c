package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/cmd/csigscope/internal/config"
	"github.com/csigscope/csigscope/replay/emitter/scenario"
	"github.com/csigscope/csigscope/replay/emitter/simulation"
	"github.com/csigscope/csigscope/replay/flowplot"
)

// scenarioFlags select a scenario.
type scenarioFlags struct {
	name, file string
	set        []string
}

// setHelp is the help of --set.
const setHelp = `--set KEY=VALUE changes a scenario, and can be given several times. KEY is a path in the YAML that
emit --dump prints, such as swift.target or workloads[0].rate, VALUE is YAML. Often useful are
seed, duration, leaves (rack numbers in the scenario are scaled: of 8 instead of 16, rack 14 becomes
rack 7), spines, hosts_per_leaf, host_speed, uplink_speed (which sets the oversubscription), format
(wide: locators name ports; or compact: 7 bits), profile, encap, tag_every and ack_every (-1: never),
packets (stop after so many captured ones), capture_untagged (true: taps also write packets without
tag and reflection, which judging a device that strips tags needs), classic, compress (gzip or zstd),
and counters (patterns such as leaf3 or leaf3:up*). --dump leaves out keys without a value, such as
counters.`

// add adds the flags; when completes the help of --scenario.
func (f *scenarioFlags) add(flags *pflag.FlagSet, name, when string) {
	flags.StringVar(&f.name, "scenario", name, "`NAME` of a built-in scenario"+when)
	flags.StringVar(&f.file, "scenario-file", "", "scenario `FILE` (YAML) instead of a built-in one")
	exclusive(flags, "scenario", "scenario-file")
	flags.StringArrayVar(&f.set, "set", nil, "set a key of the scenario: `KEY=VALUE`, such as duration=5s")
}

// chosen reports whether the flags select a scenario.
func (f *scenarioFlags) chosen() bool { return f.name != "" || f.file != "" || len(f.set) > 0 }

// load returns the scenario that the flags describe.
func (f *scenarioFlags) load() (s scenario.Scenario, err error) {
	switch {
	case f.file != "":
		s, err = scenario.Load(f.file)
	case f.name == "":
		err = errors.New("--set: expected --scenario or --scenario-file, whose keys it sets")
	default:
		s, err = scenario.Named(f.name)
	}
	if err == nil {
		if s, err = s.Set(f.set...); err != nil {
			return s, usageError{errors.New("--" + config.PlainYAMLError(err, scenario.FileType()))}
		}
	}
	if err == nil {
		_, err = scenario.Fabric(s)
	}
	if err != nil {
		return s, usageError{errors.New(config.PlainYAMLError(err, scenario.FileType()))}
	}
	return s, nil
}

// spare returns an error if the fabric file in dir is one that the scenario is read from.
func (f *scenarioFlags) spare(s *scenario.Scenario, dir string) error {
	written := filepath.Join(dir, scenario.FabricFile)
	for name, file := range map[string]string{"fabric_file": s.FabricFile, "--scenario-file": f.file} {
		if sameFile(file, written) {
			return usageError{fmt.Errorf("%s %q would be replaced: choose another --out", name, file)}
		}
	}
	return nil
}

// emitFlags are the flags of emit.
type emitFlags struct {
	scenario             scenarioFlags
	dir                  string
	list, describe, dump bool
	wire                 simulation.Wire
}

// emitModes are the flags that replace the writing of captures, of which emit takes one.
var emitModes = []string{"list", "describe", "dump", "interface"}

func newEmitCommand() *cobra.Command {
	var f emitFlags
	cmd := &cobra.Command{
		Use:   "emit --out DIR",
		Short: "Simulate a CSIG fabric and write its captures and the truth",
		Long: `emit simulates a fabric packet by packet. It writes one pcapng per tap (nanoseconds, interface
names; or classic pcap; compressed if asked for), fabric.yaml (topology and taps, for --fabric of
the other commands) and truth.ndjson. The first line of truth.ndjson has the frames that each tap
saw, lost, duplicated and reordered. For each window, a line cell has the heavy observations of a
cell by port, a line physical the tightest port between two groups, and a line port the load of a
port. The same seed gives the same bytes. If the scenario has the key flow_trace, an interval,
flows.ndjson has the state of each flow at that interval, and flows.svg draws up to 64 flows: rates,
delays, and the bottleneck of each as its reflections name it. If it has counters, counters.csv has
the values that ports measured, for conform --metrics.

With --interface it sends the frames of all taps through a network interface instead,
at the pace of the simulated clock: Linux only, as root or with CAP_NET_RAW.

A scenario is one YAML file: topology, workloads, encapsulations, taps. --dump prints a complete
one to start from; a file with "base: NAME" changes a built-in one. Unknown keys are errors. For
example:

    base: ring
    encap: vxlan               # see the list of encapsulations below
    encap_at: leaves           # between leaves; default between hosts
    ip: 6                      # of the hosts; underlay: of the tunnels around it
    taps:
      - racks: true            # one at the receivers of each rack, the default
        offset: 300us          # clock error, with drift_ppb and jitter
        loss: 0.5%             # also duplicate, reorder
      - name: into-spine1
        before: [spine1]       # or after: devices and hosts; or ports: ["leaf*:up*"]
        erspan: 3              # a mirror session of type 2 or 3
        snap_len: 192

` + setHelp + `

Switches support CSIG completely unless the lists devices and faults of a scenario change how some
of their ports treat tags, by entries such as
{match: "leaf3:up*", kind: wrong-lm, start: 2s, end: 4s}. match is a pattern of devices or ports
(for forge: of hosts), kind one of those below. For each cell with heavy observations, the truth has
the bottleneck that the tags name and, with such entries, also the one without them. In the lists below,
LM is the locator metadata of a tag and D its bit for trimmed packets. Sections of IBCS are those of
draft-tian-ccwg-ibcs-datapath-processing-00, other sections those of draft-ravi-ippm-csig-01.

Kinds of devices:
` + scenario.ListKinds(scenario.DeviceKinds()) + `

Kinds of faults:
` + scenario.ListKinds(scenario.FaultKinds()) + `

Encapsulations: ` + strings.Join(scenario.Encapsulations(), ", ") + `.

Scenarios: ` + strings.Join(scenario.Names(), ", ") + `.`,
		Example: `  csigscope emit --list
  csigscope emit --scenario demo --out captures
  csigscope emit --scenario demo --set seed=7 --set format=compact --out captures
  csigscope emit --scenario fairness --out captures
  csigscope emit --set leaves=8 --set hosts_per_leaf=8 --set duration=5s --out captures
  csigscope emit --scenario ring --set encap=geneve --set compress=zstd --out captures
  csigscope emit --scenario ring --set counters=leaf3 --out captures
  csigscope emit --scenario overlay --dump > mine.yaml
  csigscope emit --scenario-file mine.yaml --describe
  csigscope emit --scenario ring --interface eth1`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	flags := cmd.Flags()
	f.scenario.add(flags, "demo", "")
	flags.StringVar(&f.dir, "out", "captures", "`FOLDER` to write to; it is made if it does not exist")
	flags.BoolVar(&f.list, "list", false, "list the built-in scenarios")
	flags.BoolVar(&f.describe, "describe", false, "print the scenario's topology, taps and workloads, and emit nothing")
	flags.BoolVar(&f.dump, "dump", false, "print the scenario as YAML, and emit nothing")
	flags.StringVar(&f.wire.Interface, "interface", "", "send frames through this network `INTERFACE` instead of writing captures; with --out, fabric.yaml and truth.ndjson are still written")
	flags.Float64Var(&f.wire.Pace, "pace", 1, "with --interface: multiple of the simulated pace; 0 is as fast as possible")
	exclusive(flags, emitModes...)
	return cmd
}

func (f *emitFlags) run(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	var given []string
	for _, name := range emitModes {
		if cmd.Flags().Changed(name) {
			given = append(given, "--"+name)
		}
	}
	if len(given) > 1 {
		return usageError{fmt.Errorf("%s: expected at most one of these flags", strings.Join(given, ", "))}
	}
	if f.list {
		return scenario.List(out)
	}
	s, err := f.scenario.load()
	if err != nil {
		return err
	}
	switch {
	case f.describe:
		return scenario.Describe(out, s)
	case f.dump:
		return scenario.Dump(out, s)
	case f.wire.Interface != "":
		return f.send(cmd, s)
	}
	if err := f.scenario.spare(&s, f.dir); err != nil {
		return err
	}
	report, err := emitInto(cmd, s, f.dir)
	if err != nil {
		return err
	}
	report.WriteText(out, "captured")
	fmt.Fprintf(out, "%d captures, fabric.yaml and truth.ndjson are in %s\n", len(report.Captures), f.dir)
	if report.Counters != "" {
		fmt.Fprintf(out, "the counters of ports are in %s\n", report.Counters)
	}
	if report.FlowTrace != "" {
		if err := flowplot.Plot(out, f.dir, "scenario "+s.Name, report.Flows, report.Captures); err != nil {
			return err
		}
	}
	_, extension, _ := strings.Cut(filepath.Base(report.Captures[0]), ".")
	captures := f.dir + "/*." + extension
	if matches, _ := fs.Glob(os.DirFS(f.dir), "*."+extension); len(matches) > len(report.Captures) {
		fmt.Fprintf(out, "%s also holds %d captures of earlier runs, perhaps of another fabric\n", f.dir, len(matches)-len(report.Captures))
		captures = strings.Join(report.Captures, " ")
	}
	fmt.Fprintf(out, "next: csigscope replay %s --fabric %s\n", captures, report.Fabric)
	return nil
}

// send sends frames through an interface.
func (f *emitFlags) send(cmd *cobra.Command, s scenario.Scenario) error {
	if f.wire.Pace < 0 {
		return usageError{errors.New("--pace: expected 0 (as fast as possible) or more")}
	}
	if cmd.Flags().Changed("out") {
		f.wire.Dir = f.dir
		if err := f.scenario.spare(&s, f.dir); err != nil {
			return err
		}
	}
	progress, stop := showSimulation(cmd)
	defer stop()
	report, err := simulation.Send(cmd.Context(), s, f.wire, progress)
	if err != nil {
		return err
	}
	report.WriteText(cmd.OutOrStdout(), "on "+f.wire.Interface)
	return nil
}

// emitInto writes a scenario into a folder, with a progress bar.
func emitInto(cmd *cobra.Command, s scenario.Scenario, dir string) (simulation.Report, error) {
	progress, stop := showSimulation(cmd)
	defer stop()
	return simulation.Run(cmd.Context(), s, dir, progress)
}

// showSimulation shows the progress of a simulation that calls progress, until stop is called.
func showSimulation(cmd *cobra.Command) (progress simulation.Progress, stop func()) {
	var share, packets atomic.Int64 // share in thousandths
	stop = showProgress(cmd, 0, func() (int64, string) {
		return share.Load(), fmt.Sprintf("simulating, %.2f M packets", float64(packets.Load())/1e6)
	})
	return func(done float64, captured uint64) {
		share.Store(int64(done * 1000))
		packets.Store(int64(captured))
	}, stop
}
