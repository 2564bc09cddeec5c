package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/replay/emitter"
)

// emitCommand is emit with what its flags say of the output.
type emitCommand struct {
	scenario             emitFlags
	dir                  string
	list, describe, dump bool
	wire                 emitter.Wire
}

func newEmitCommand() *cobra.Command {
	var e emitCommand
	cmd := &cobra.Command{
		Use:   "emit --out DIR",
		Short: "Simulate a CSIG fabric and write what its taps capture, and the truth",
		Long: `emit simulates a fabric packet by packet and writes one pcapng per tap (nanoseconds,
interface names; or classic pcap; compressed if asked for), fabric.yaml (topology and
taps, for --fabric of the other commands) and truth.ndjson (per window and cell the
true bottleneck port and value; per port its load; in the first line what each tap
saw, lost, duplicated and reordered). The same seed gives the same bytes.
Where the scenario has a flow_trace, flows.ndjson says what each flow did at that
interval, and flows.svg draws up to 64 flows: rates, delays, and the bottleneck of
each as its reflections name it. With --counters, counters.csv says what ports measured,
as conform --metrics reads it.

With --interface it sends the frames of all taps through a network interface instead,
at the pace of the simulated clock: Linux only, as root or with CAP_NET_RAW.

A scenario is one YAML file: topology, workloads, encapsulations, taps. --dump prints
the one that the flags describe, complete, to begin with; "base: NAME" in a file
begins with a built-in one. Unknown keys are errors. For example:

    base: ring
    encap: vxlan               # one of those below
    encap_at: leaves           # between leaves; default between hosts
    ip: 6                      # of the hosts; underlay: of what is around it
    taps:
      - racks: true            # one at the receivers of each rack, the default
        offset: 300us          # clock error, with drift_ppb and jitter
        loss: 0.5%             # also duplicate, reorder
      - name: into-spine1
        before: [spine1]       # or after: devices and hosts; or ports: ["leaf*:up*"]
        erspan: 3              # a mirror session of type 2 or 3
        snap_len: 192

What switches do with tags is told in two lists of entries such as
{match: "leaf3:up*", kind: wrong-lm, start: 2s, end: 4s}, by patterns of devices or
ports. Without an entry they support CSIG completely. Truth keeps what the tags say
beside what a faithful fabric would have written.
devices: ` + strings.Join(emitter.DeviceKinds(), ", ") + `.
faults: ` + strings.Join(emitter.FaultKinds(), ", ") + `.

Encapsulations: ` + strings.Join(emitter.Encapsulations(), ", ") + `.

Scenarios: ` + strings.Join(emitter.Names(), ", ") + `.`,
		Example: `  csigscope emit --list
  csigscope emit --scenario demo --out captures
  csigscope emit --scenario demo --seed 7 --format compact --out captures
  csigscope emit --scenario fairness --out captures
  csigscope emit --leaves 8 --hosts-per-leaf 8 --duration 5s --out captures
  csigscope emit --scenario ring --encap geneve --compress zstd --out captures
  csigscope emit --scenario ring --counters leaf3 --out captures
  csigscope emit --scenario overlay --dump > mine.yaml
  csigscope emit --scenario-file mine.yaml --describe
  csigscope emit --scenario ring --interface eth1`,
		Args: noArgs,
	}
	e.scenario.add(cmd)
	e.scenario.addOutput(cmd.Flags())
	flags := cmd.Flags()
	flags.StringVar(&e.dir, "out", "captures", "`FOLDER` to write to; it is made if it does not exist")
	flags.BoolVar(&e.list, "list", false, "list the built-in scenarios")
	flags.BoolVar(&e.describe, "describe", false, "print the scenario's topology, taps and workloads, and emit nothing")
	flags.BoolVar(&e.dump, "dump", false, "print the scenario as YAML, and emit nothing")
	flags.StringVar(&e.wire.Interface, "interface", "", "send frames through this network `INTERFACE` instead of writing captures; with --out, fabric.yaml and truth.ndjson are written all the same")
	flags.Float64Var(&e.wire.Pace, "pace", 1, "with --interface: multiple of the simulated pace; 0 is as fast as possible")
	cmd.MarkFlagsMutuallyExclusive("list", "describe", "dump", "interface")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return e.run(cmd) }
	return cmd
}

func (e *emitCommand) run(cmd *cobra.Command) error {
	out := cmd.OutOrStdout()
	if e.list {
		return listScenarios(out)
	}
	s, err := e.scenario.build(cmd)
	if err != nil {
		return err
	}
	switch {
	case e.describe:
		return emitter.Describe(out, s)
	case e.dump:
		return emitter.Dump(out, s)
	case e.wire.Interface != "":
		return e.send(cmd, s)
	}
	report, err := runEmitter(cmd, s, e.dir)
	if err != nil {
		return err
	}
	printSent(out, &report, "captured")
	fmt.Fprintf(out, "%d captures, fabric.yaml and truth.ndjson are in %s\n", len(report.Captures), e.dir)
	if report.Counters != "" {
		fmt.Fprintf(out, "what ports measured is in %s\n", report.Counters)
	}
	if report.FlowTrace != "" {
		if err := plotFlows(out, e.dir, s.Name, &report); err != nil {
			return err
		}
	}
	fmt.Fprintf(out, "next: csigscope replay %s --fabric %s/fabric.yaml\n", capturesPattern(e.dir, &s), e.dir)
	return nil
}

func (e *emitCommand) send(cmd *cobra.Command, s emitter.Scenario) error {
	if e.wire.Pace < 0 {
		return usageError{errors.New("--pace: expected 0 (as fast as possible) or more")}
	}
	if cmd.Flags().Changed("out") {
		e.wire.Dir = e.dir
	}
	report, err := withEmitProgress(cmd, func(p emitter.Progress) (emitter.Report, error) {
		return emitter.Send(cmd.Context(), s, e.wire, p)
	})
	if err != nil {
		return err
	}
	printSent(cmd.OutOrStdout(), &report, "on "+e.wire.Interface)
	return nil
}

// printSent says what became of packets and, where taps were bad, of captures.
func printSent(out io.Writer, r *emitter.Report, captured string) {
	fmt.Fprintf(out, "%d packets sent, %d delivered, %d dropped, %d in flight; %d %s in %.1f s\n",
		r.Sent, r.Delivered, r.Dropped, r.InFlight, r.Captured, captured, r.Elapsed.Seconds())
	var bad emitter.TapStats
	for _, t := range r.Taps {
		bad.Frames += t.Frames
		bad.Lost += t.Lost
		bad.Duplicated += t.Duplicated
		bad.Reordered += t.Reordered
	}
	if bad.Lost+bad.Duplicated+bad.Reordered > 0 {
		fmt.Fprintf(out, "of %d frames, taps lost %d, duplicated %d and reordered %d\n", bad.Frames, bad.Lost, bad.Duplicated, bad.Reordered)
	}
}

func listScenarios(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, name := range emitter.Names() {
		s, err := emitter.Named(name)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%s\t%s\n", name, s.Summary)
	}
	return w.Flush()
}

func capturesPattern(dir string, s *emitter.Scenario) string {
	extension := ".pcapng"
	if s.Classic {
		extension = ".pcap"
	}
	if s.Compress != "" {
		extension += ".*"
	}
	return dir + "/*" + extension
}

// progressSteps is the length of the bar of work that counts in shares.
const progressSteps = 1000

// runEmitter writes a scenario into a folder, with a progress bar.
func runEmitter(cmd *cobra.Command, s emitter.Scenario, dir string) (emitter.Report, error) {
	return withEmitProgress(cmd, func(p emitter.Progress) (emitter.Report, error) {
		return emitter.Run(cmd.Context(), s, dir, p)
	})
}

// withEmitProgress shows how far a run has come.
func withEmitProgress(cmd *cobra.Command, run func(emitter.Progress) (emitter.Report, error)) (emitter.Report, error) {
	var steps, packets atomic.Int64
	stop := showProgress(cmd.ErrOrStderr(), progressSteps, false, func() (int64, string) {
		return steps.Load(), fmt.Sprintf("simulating, %.2f M packets", float64(packets.Load())/1e6)
	})
	defer stop()
	return run(func(done float64, captured uint64) {
		steps.Store(int64(done * progressSteps))
		packets.Store(int64(captured))
	})
}
