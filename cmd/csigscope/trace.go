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
		Long: `trace compares captures of different taps, each with each. It recognizes packets by fields that
no device may change, and their order by the TTL. For each two taps that saw the same packets it
prints the offset and the drift of their clocks with bounds, the delay of packets, and the ports
that changed tags on the way. It also relates the clocks of taps that no packet passes both,
such as those at receivers of different racks: by tags that one of them saw, and their
reflections, with TCP acknowledgements, that the other saw, in any tunnel.

Packets of one direction do not distinguish delays and queues from clocks: the offset then has a
bound on one side only. With both directions its error is at most half of the shortest round trip,
and the estimate is good if the shortest delays of both directions are alike, as for small packets.

The drift is an estimate from packets of one length that met no queue and so took equally long. Its
standard error is behind the ±; the range in brackets holds whatever queues did. Give
--timestamp-error: without it the bounds take timestamps to be exact, and trace does not say how
sure the drift is. 10,000 packets in a second with an error of 5 us give the drift to about 1 ppm,
longer captures do better; tags and reflections on loaded paths, few of which meet no queue, give
it to some ppm.

The command exits with 3 if the clocks of two captures with packets in common are unknown.

trace counts on standard error the packets that it does not compare. It reads past the damage in
a capture as replay does, and fails at the end.`,
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
	flags.DurationVar(&f.off, "timestamp-error", 0, "maximum error of a tap's timestamps")
	flags.IntVar(&f.packets, "packets", 1<<20, "maximum number of packets of each tap to compare")
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
