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
		Use:   "trace FILE FILE...",
		Short: "Follow packets from tap to tap: clocks, delays, and where tags took their values",
		Long: `trace compares captures of different taps, pair by pair; each FILE, or folder of captures, is one
tap. It recognizes packets by fields that no device may change, and the order of taps on their path
by the TTL. A packet and the same packet in an IP tunnel count as two. For each two taps that saw the
same packets it prints the offset and the drift of their clocks with bounds, the delay of packets,
and the ports that wrote another value or locator into tags on the way. Offset and drift are positive
if the clock of the second tap is ahead or runs faster. If two taps, such as those at the receivers
of two racks, see no packet in common, trace relates their clocks by tags that one of them saw and
their reflections, on TCP acknowledgements, that the other one saw, also in tunnels.

Packets of one direction cannot show whether they were slow or a clock is wrong: the offset then has
a bound on one side only. With both directions its error is at most half of the shortest round trip,
and the estimate is good if the shortest delays of both directions are alike, as for small packets.

The drift is an estimate from packets of one length that met no queue and so took equally long. Its
standard error follows the ±. The range in brackets is certain, however long packets waited in
queues. Give --timestamp-error: without it the bounds assume exact timestamps, and trace gives no
standard error of the drift. 10,000 packets in a second with an error of 5 us show the drift to
about 1 ppm, longer captures more exactly; tags and reflections on loaded paths, where few packets
meet no queue, show it to some ppm.

The command exits with 3 if the clocks of two captures with packets in common, or with tags and
their reflections, are unknown.

Packets that trace cannot read or recognize are counted on standard error. It does not look into
mirror sessions. After damage in a capture, reading resumes as in replay, and the exit code is 1.`,
		Example: `  csigscope trace rack1.pcapng rack2.pcapng
  csigscope trace host.pcapng leaf.pcapng spine.pcapng --timestamp-error 5us -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 || len(args) > maxTraced {
				return usageError{fmt.Errorf("%s: expected 2 to %d captures, got %d (see %s --help)", cmd.Name(), maxTraced, len(args), cmd.CommandPath())}
			}
			return filesArgs(cmd, args)
		},
		RunE: f.run,
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.DurationVar(&f.off, "timestamp-error", 0, "maximum error of a tap's timestamps")
	flags.IntVar(&f.packets, "packets", 1<<20, "maximum number of packets of each tap to compare; of more, trace compares and counts a sample")
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
		return findingsError{fmt.Errorf("%d of %d pairs of captures have no delays, since their clocks cannot be related: see the reason of each pair", n, len(hops))}
	}
	return nil
}
