package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/hop"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/replay"
)

// maxTraced bounds the captures that are compared, each with each.
const maxTraced = 32

// traceFlags are those of the command trace.
type traceFlags struct {
	network networkFlags
	off     time.Duration
	packets int
	format  string
}

func newTraceCommand() *cobra.Command {
	f := &traceFlags{}
	cmd := &cobra.Command{
		Use:   "trace TAP TAP...",
		Short: "Follow packets from tap to tap: clocks, delays, and where tags took their values",
		Long: `trace compares captures of different taps, each with each. Packets are known again by what
no device may change, and which tap came first by their TTL. For each two taps that saw the
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
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	flags := cmd.Flags()
	f.network.add(flags)
	flags.DurationVar(&f.off, "timestamp-error", 0, "how far a tap's timestamps are off at most")
	flags.IntVar(&f.packets, "packets", 1<<20, "packets of each tap that are compared, at most")
	flags.StringVarP(&f.format, "output", "o", "table", "output `FORMAT`: table or json")
	return cmd
}

func (f *traceFlags) run(cmd *cobra.Command, args []string) (err error) {
	switch {
	case f.format != "table" && f.format != "json":
		return usageError{fmt.Errorf("output format %q: expected table or json", f.format)}
	case f.off < 0:
		return usageError{fmt.Errorf("--timestamp-error %s: expected 0 or more", f.off)}
	case f.packets < hop.MinPackets:
		return usageError{fmt.Errorf("--packets %d: expected %d or more", f.packets, hop.MinPackets)}
	}
	n, err := openNetwork(f.network.config, f.network.fabric)
	if err != nil {
		return err
	}
	files, remove, err := replay.Spool(cmd.Context(), args)
	defer func() { err = errors.Join(err, remove()) }()
	if err != nil {
		return err
	}
	traced, failed := replay.Trace(cmd.Context(), replay.TraceConfig{Files: files, Decode: n.decode, Error: f.off, MaxPackets: f.packets})
	if traced == nil {
		return failed
	}
	writeUntraced(cmd.ErrOrStderr(), traced)
	return errors.Join(f.write(cmd.OutOrStdout(), traced.Hops, n.fabric), failed)
}

func (f *traceFlags) write(w io.Writer, hops []replay.Hop, network *fabric.Fabric) error {
	list := make([]tracedHop, len(hops))
	for i := range hops {
		list[i] = newTracedHop(&hops[i], network)
	}
	if f.format == "json" {
		return writeIndented(w, list)
	}
	if len(list) == 0 {
		fmt.Fprintf(w, "no two captures have %d packets in common, or tags and their reflections\n", hop.MinPackets)
	}
	return writeTraced(w, hops, list)
}

// writeUntraced says which packets were not compared, and why.
func writeUntraced(w io.Writer, t *replay.Traced) {
	line := func(n uint64, why string) {
		if n > 0 {
			fmt.Fprintf(w, "%d of %d packets %s\n", n, t.Packets, why)
		}
	}
	line(t.NoTime, "have no time")
	line(t.Unknown, "have nothing to be known by: not IP, cut, or encrypted")
	t.SkippedLink.List(func(link capture.LinkType, n uint64) { line(n, "are of "+link.String()+", which is not read") })
	if t.Damaged.Places > 0 {
		fmt.Fprintf(w, "%d bytes in %d places are damaged and left out\n", t.Damaged.Bytes, t.Damaged.Places)
	}
}

// tracedHop is how a hop is printed as JSON. What is not known is left out.
type tracedHop struct {
	From          string    `json:"from"`
	To            string    `json:"to"`
	OffsetNS      *float64  `json:"offset_ns,omitempty"` // by which to's clock is ahead, at at_ns
	OffsetLowNS   *float64  `json:"offset_low_ns,omitempty"`
	OffsetHighNS  *float64  `json:"offset_high_ns,omitempty"`
	AtNS          int64     `json:"at_ns,omitempty"`     // on from's clock, Unix ns
	DriftPPM      *float64  `json:"drift_ppm,omitempty"` // that to's clock gains
	DriftLowPPM   *float64  `json:"drift_low_ppm,omitempty"`
	DriftHighPPM  *float64  `json:"drift_high_ppm,omitempty"`
	DriftErrorPPM *float64  `json:"drift_error_ppm,omitempty"` // standard error
	DriftQueued   bool      `json:"drift_queued,omitempty"`    // as long as queues stayed full
	ClocksUnknown string    `json:"clocks_unknown,omitempty"`  // why
	Forward       tracedWay `json:"forward"`
	Backward      tracedWay `json:"backward"`
	Unclear       int       `json:"unclear"` // packets of which it is not known which tap came first
}

// tracedWay is one direction.
type tracedWay struct {
	Packets  int             `json:"packets"`
	MedianNS int64           `json:"median_ns,omitempty"`
	P99NS    int64           `json:"p99_ns,omitempty"`
	MaxNS    int64           `json:"max_ns,omitempty"`
	Tagged   int             `json:"tagged"`
	Changes  []tracedChanges `json:"changes"`
	// Reflected is the tags that the first tap saw and whose reflections the other did.
	Reflected int `json:"reflected"`
}

// tracedChanges are tags that got a value on the way.
type tracedChanges struct {
	Layout     string `json:"layout"`
	SignalType uint8  `json:"signal_type"`
	LM         uint16 `json:"lm"`
	Location   string `json:"location,omitempty"` // that LM means on the path
	Count      int    `json:"count"`
}

func newTracedHop(h *replay.Hop, f *fabric.Fabric) tracedHop {
	out := tracedHop{
		From: filepath.Base(h.From), To: filepath.Base(h.To), ClocksUnknown: h.Why,
		Forward: newTracedWay(&h.Forward, f), Backward: newTracedWay(&h.Backward, f), Unclear: h.Unclear,
	}
	if c := h.Clock; c != nil {
		low, high := c.Bound(c.At)
		drift, driftLow, driftHigh := c.Drift/1000, c.DriftLow/1000, c.DriftHigh/1000
		out.DriftErrorPPM, out.DriftQueued = finite(c.DriftError/1000), c.Queued
		out.AtNS, out.DriftPPM, out.DriftLowPPM, out.DriftHighPPM = c.At, &drift, &driftLow, &driftHigh
		out.OffsetNS, out.OffsetLowNS, out.OffsetHighNS = finite(c.Offset), finite(low), finite(high)
	}
	return out
}

func newTracedWay(w *hop.Way, f *fabric.Fabric) tracedWay {
	out := tracedWay{
		Packets: w.Packets, MedianNS: int64(w.Median), P99NS: int64(w.P99), MaxNS: int64(w.Longest), Tagged: w.Tagged, Changes: []tracedChanges{}, Reflected: w.Reflected,
	}
	counts := map[tracedChanges]int{} // without their count
	for _, c := range w.Changes {
		id, _ := f.Locate(c.Layout, c.T, c.LM, c.Src, c.Dst)
		at, _ := f.Location(id)
		counts[tracedChanges{Layout: c.Layout.String(), SignalType: c.T, LM: c.LM, Location: at.Name}] += c.Count
	}
	for c, n := range counts {
		c.Count = n
		out.Changes = append(out.Changes, c)
	}
	slices.SortFunc(out.Changes, func(x, y tracedChanges) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Layout, y.Layout), cmp.Compare(x.SignalType, y.SignalType),
			cmp.Compare(x.LM, y.LM), cmp.Compare(x.Location, y.Location))
	})
	return out
}

// finite is v, or nil for what JSON has no number for.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.Abs(v) > 1e18 {
		return nil
	}
	return &v
}

// writeTraced prints hops for people.
func writeTraced(w io.Writer, hops []replay.Hop, list []tracedHop) error {
	for i := range hops {
		fmt.Fprintf(w, "%s and %s: %s\n", list[i].From, list[i].To, hops[i].Between)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  from\tto\tpackets\tmedian\t99th\tlongest\ttagged\tgot another value")
		writeWay(tw, list[i].From, list[i].To, &list[i].Forward)
		writeWay(tw, list[i].To, list[i].From, &list[i].Backward)
		if err := tw.Flush(); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		if list[i].DriftQueued {
			fmt.Fprintln(w, "  too few packets met no queue: the drift is right if queues were as long at the end as at the beginning, its bound anyhow")
		}
		if n, back := list[i].Forward.Reflected, list[i].Backward.Reflected; n+back > 0 {
			fmt.Fprintf(w, "  clocks also by %d tags at %s whose reflections %s saw, and %d the other way\n", n, list[i].From, list[i].To, back)
		}
		if hops[i].Unclear > 0 {
			fmt.Fprintf(w, "  %d packets have the same TTL at both: which tap came first is not known\n", hops[i].Unclear)
		}
	}
	return nil
}

// shownChanges is how many locations are listed of a direction.
const shownChanges = 5

func writeWay(w io.Writer, from, to string, way *tracedWay) {
	at, total := map[string]int{}, 0
	var names []string // those with most changes first
	for _, c := range way.Changes {
		if at[c.Location] == 0 {
			names = append(names, c.Location)
		}
		at[c.Location] += c.Count
		total += c.Count
	}
	text := strconv.Itoa(total)
	for _, name := range names[:min(len(names), shownChanges)] {
		text += fmt.Sprintf(", %d at %s", at[name], name)
	}
	fmt.Fprintf(w, "  %s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", from, to, way.Packets,
		time.Duration(way.MedianNS), time.Duration(way.P99NS), time.Duration(way.MaxNS), way.Tagged, text)
}
