package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/hop"
	"github.com/csigscope/csigscope/replay"
)

// maxTraced is the maximum number of captures, which are compared in pairs.
const maxTraced = 32

// traceFlags are the flags of trace.
type traceFlags struct {
	network networkFlags
	off     time.Duration
	packets int
	out     output
}

func newTraceCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace TAP TAP...",
		Short: "Follow packets from tap to tap: clocks, delays, and where tags took their values",
		Long: `trace compares captures of different taps, each with each. Packets are recognized by fields
that no device may change, and their order by the TTL. For each two taps that saw the
same packets it prints how far their clocks are apart and how fast they drift, with a bound,
how long packets take, and which ports gave tags other values on the way. Clocks are told
apart also where no packet passes both taps, as those at receivers of different racks: by tags
that one of them saw, and their reflections with TCP acknowledgements that the other did, in
whatever tunnel.

Delays and queues are not told from clocks by one direction alone: then the offset is
bounded on one side. With both, its error is at most half of the shortest round trip, and
the estimate is good where the shortest ways of both directions are alike, as those of small
packets are.

The drift is an estimate, with its standard error behind the ±, of packets of one length that
met no queue and so took equally long; in brackets is what bounds it whatever queues did. It
takes --timestamp-error: without, timestamps are taken to be right, and nothing is said of
how sure the drift is. 10,000 packets in a second of 5 us of error tell it to 1 ppm
or so, longer captures better; tags and reflections on loaded ways, of which few meet no queue,
to some ppm.

The command exits with 3 if the clocks of two captures with packets in common are unknown.

What is not compared is counted on standard error. A damaged capture is read on as replay
does, and fails the command in the end.`,
		Example: `  csigscope trace rack1.pcapng rack2.pcapng
  csigscope trace host.pcapng leaf.pcapng spine.pcapng --timestamp-error 5us -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > maxTraced {
				return usageError{fmt.Errorf("%s: expected 2 to %d captures, got %d (see %s --help)", cmd.Name(), maxTraced, len(args), cmd.CommandPath())}
			}
			return nil
		},
		RunE: f.run,
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.DurationVar(&f.off, "timestamp-error", 0, "how far a tap's timestamps are off at most")
	flags.IntVar(&f.packets, "packets", 1<<20, "packets of each tap that are compared, at most")
	f.out.add(cmd, "table", "json")
	return cmd
}

func (f *traceFlags) run(cmd *cobra.Command, files []string) error {
	switch {
	case f.off < 0:
		return usageError{fmt.Errorf("--timestamp-error %s: expected 0 or more", f.off)}
	case f.packets < hop.MinPackets:
		return usageError{fmt.Errorf("--packets %d: expected %d or more", f.packets, hop.MinPackets)}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	traced, failed := replay.Trace(cmd.Context(), replay.TraceConfig{Files: files, Decode: n.Decode, Error: f.off, MaxPackets: f.packets})
	if traced == nil {
		return failed
	}
	traced.WriteLeftOut(cmd.ErrOrStderr())
	hops := traced.Located(n.Fabric)
	if err := errors.Join(f.out.json(cmd, hops, hops.WriteText), failed); err != nil {
		return err
	}
	if n := hops.ClocksUnknown(); n > 0 {
		return findingsError{fmt.Errorf("the clocks of %d of %d pairs of captures are unknown", n, len(hops))}
	}
	return nil
}
