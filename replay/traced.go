package replay

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/hop"
	"github.com/csigscope/csigscope/aggregate/window"
)

// WriteLeftOut prints which packets were not compared, and why.
func (t *Traced) WriteLeftOut(w io.Writer) {
	line := func(n uint64, why string) {
		if n > 0 {
			fmt.Fprintf(w, "%d of %d packets %s\n", n, t.Packets, why)
		}
	}
	line(t.NoTime, "have no time")
	line(t.Unknown, "cannot be recognized: not IP, cut, or encrypted")
	t.SkippedLink.List(func(u window.UnreadableLink, n uint64) { line(n, "are of "+u.String()+", which is not read") })
	if t.Damaged.Gaps > 0 {
		fmt.Fprintf(w, "%d bytes in %s are damaged and left out\n", t.Damaged.Bytes, counted(t.Damaged.Gaps, "place"))
	}
}

// Located returns the hops, with the fabric locations that changed tags between the taps.
func (t *Traced) Located(f *fabric.Fabric) TracedHops {
	list := make(TracedHops, len(t.Hops))
	for i := range t.Hops {
		list[i] = newTracedHop(&t.Hops[i], f)
	}
	return list
}

// TracedHops is the printed result of a trace.
type TracedHops []TracedHop

// TracedHop is the JSON form of a Hop with locations. Unknown values are left out.
type TracedHop struct {
	From          string          `json:"from"`
	To            string          `json:"to"`
	OffsetNS      *float64        `json:"offset_ns,omitempty"` // by which to's clock is ahead, at at_ns
	OffsetLowNS   *float64        `json:"offset_low_ns,omitempty"`
	OffsetHighNS  *float64        `json:"offset_high_ns,omitempty"`
	AtNS          int64           `json:"at_ns,omitempty"`     // on from's clock, Unix ns
	DriftPPM      *float64        `json:"drift_ppm,omitempty"` // gain of to's clock
	DriftLowPPM   *float64        `json:"drift_low_ppm,omitempty"`
	DriftHighPPM  *float64        `json:"drift_high_ppm,omitempty"`
	DriftErrorPPM *float64        `json:"drift_error_ppm,omitempty"` // standard error
	DriftQueued   bool            `json:"drift_queued,omitempty"`    // assuming that queues stayed full
	ClocksUnknown string          `json:"clocks_unknown,omitempty"`  // reason
	Forward       TracedDirection `json:"forward"`
	Backward      TracedDirection `json:"backward"`
	Unclear       int             `json:"unclear"` // packets whose first tap is unknown

	hop *Hop
}

// TracedDirection is one direction of a TracedHop.
type TracedDirection struct {
	Packets  int             `json:"packets"`
	MedianNS int64           `json:"median_ns,omitempty"`
	P99NS    int64           `json:"p99_ns,omitempty"`
	MaxNS    int64           `json:"max_ns,omitempty"`
	Tagged   int             `json:"tagged"`
	Changes  []TracedChanges `json:"changes"`
	// Reflected is the number of tags at the first tap whose reflections the other tap saw.
	Reflected int `json:"reflected"`
}

// TracedChanges counts tags that changed between the taps.
type TracedChanges struct {
	Layout     string `json:"layout"`
	SignalType uint8  `json:"signal_type"`
	LM         uint16 `json:"lm"`
	Location   string `json:"location,omitempty"` // of LM on this path
	Count      int    `json:"count"`
}

func newTracedHop(h *Hop, f *fabric.Fabric) TracedHop {
	out := TracedHop{
		From: h.From, To: h.To, ClocksUnknown: h.Why,
		Forward: newTracedDirection(&h.Forward, f), Backward: newTracedDirection(&h.Backward, f), Unclear: h.Unclear, hop: h,
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

func newTracedDirection(w *hop.Direction, f *fabric.Fabric) TracedDirection {
	out := TracedDirection{
		Packets: w.Packets, MedianNS: int64(w.Median), P99NS: int64(w.P99), MaxNS: int64(w.Longest), Tagged: w.Tagged, Changes: []TracedChanges{}, Reflected: w.Reflected,
	}
	counts := map[TracedChanges]int{} // key: all fields except Count
	for _, c := range w.Changes {
		id, _ := f.Locate(c.Layout, c.T, c.LM, c.Src, c.Dst)
		at, _ := f.Location(id)
		counts[TracedChanges{Layout: c.Layout.String(), SignalType: c.T, LM: c.LM, Location: at.Name}] += c.Count
	}
	for c, n := range counts {
		c.Count = n
		out.Changes = append(out.Changes, c)
	}
	slices.SortFunc(out.Changes, func(x, y TracedChanges) int {
		return cmp.Or(cmp.Compare(y.Count, x.Count), cmp.Compare(x.Layout, y.Layout), cmp.Compare(x.SignalType, y.SignalType),
			cmp.Compare(x.LM, y.LM), cmp.Compare(x.Location, y.Location))
	})
	return out
}

// finite returns v, or nil if JSON has no number for it.
func finite(v float64) *float64 {
	if math.IsNaN(v) || math.Abs(v) > 1e18 {
		return nil
	}
	return &v
}

// WriteText prints the hops for people.
func (list TracedHops) WriteText(w io.Writer) error {
	if len(list) == 0 {
		fmt.Fprintf(w, "no two captures have %d packets in common, or tags and their reflections\n", hop.MinPackets)
	}
	for i := range list {
		h := &list[i]
		fmt.Fprintf(w, "%s and %s: %s\n", h.From, h.To, h.hop.Comparison)
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		fmt.Fprintln(tw, "  from\tto\tpackets\tmedian\t99th\tlongest\ttagged\tgot another value or locator")
		writeDirection(tw, h.From, h.To, &h.Forward)
		writeDirection(tw, h.To, h.From, &h.Backward)
		if err := tw.Flush(); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		if h.DriftQueued {
			fmt.Fprintln(w, "  too few packets met no queue: the drift is right if queues were as long at the end as at the beginning; its bounds hold in any case")
		}
		if n, back := h.Forward.Reflected, h.Backward.Reflected; n+back > 0 {
			also := "also "
			if h.Forward.Packets+h.Backward.Packets == 0 {
				also = ""
			}
			fmt.Fprintf(w, "  clocks %scompared by %d tags at %s whose reflections %s saw, and by %d the other way\n", also, n, h.From, h.To, back)
		}
		if h.Unclear > 0 {
			fmt.Fprintf(w, "  %d packets have the same TTL at both: which tap came first is not known\n", h.Unclear)
		}
	}
	return nil
}

// ClocksUnknown returns the number of pairs of taps whose clocks could not be related.
func (list TracedHops) ClocksUnknown() (n int) {
	for i := range list {
		if list[i].ClocksUnknown != "" {
			n++
		}
	}
	return n
}

// shownChanges is the number of locations listed per direction if there are more than one beyond it.
const shownChanges = 5

func writeDirection(w io.Writer, from, to string, way *TracedDirection) {
	at, total := map[string]int{}, 0
	for _, c := range way.Changes {
		at[c.Location] += c.Count
		total += c.Count
	}
	names := slices.SortedFunc(maps.Keys(at), func(a, b string) int { return cmp.Or(cmp.Compare(at[b], at[a]), cmp.Compare(a, b)) })
	shown := len(names)
	if shown > shownChanges+1 {
		shown = shownChanges
	}
	text, rest, separator := strconv.Itoa(total), total, ": "
	for _, name := range names[:shown] {
		text += fmt.Sprintf("%s%d at %s", separator, at[name], name)
		rest -= at[name]
		separator = ", "
	}
	if rest > 0 {
		text += fmt.Sprintf(", %d at %d more locations (-o json lists all)", rest, len(names)-shown)
	}
	delay := func(ns int64) string {
		if way.MaxNS == 0 {
			return "unknown"
		}
		return time.Duration(ns).String()
	}
	fmt.Fprintf(w, "  %s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\n", from, to, way.Packets,
		delay(way.MedianNS), delay(way.P99NS), delay(way.MaxNS), way.Tagged, text)
}
