package flowplot

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/csigscope/csigscope/replay/emitter/truth"
)

// Plot draws the flows of the run in dir into File in that folder, and writes their totals to w.
// Runs of more than MaxFlows flows are not drawn; they only have a trace.
func Plot(w io.Writer, dir, title string, flows int, captures []string) (err error) {
	if flows > MaxFlows {
		fmt.Fprintf(w, "the rows of each flow are in %s; more than %d flows are not drawn\n", filepath.Join(dir, truth.TraceFile), MaxFlows)
		return nil
	}
	run, err := Read(dir, captures)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, File)
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write plot: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := errors.Join(run.writeSVG(f, title), run.writeText(w)); err != nil {
		return err
	}
	fmt.Fprintf(w, "rates, delays and bottlenecks over time are in %s\n", path)
	return nil
}

// Total sums up a flow in the second half of the run, when reacting senders have found their rates.
type Total struct {
	Flow         *Flow
	BitPerSecond float64       // data at the receiver, without headers
	RoundTrip    time.Duration // mean, like WorstHop
	WorstHop     time.Duration
	Reflections  uint64
	Heavy        map[string]uint64 // by location
}

// Totals returns the totals of all flows, in their order.
func (r *Run) Totals() []Total {
	totals := make([]Total, len(r.Flows))
	for i := range r.Flows {
		f := &r.Flows[i]
		t := &totals[i]
		t.Flow, t.Heavy = f, map[string]uint64{}
		half := f.Samples[len(f.Samples)/2:]
		var bytes uint64
		var roundTrip, worstHop weighted
		for j := range half {
			s := &half[j]
			bytes += s.Bytes
			roundTrip.add(s.RoundTripNS, s.Packets)
			worstHop.add(s.WorstHopNS, s.Packets)
			t.Reflections += s.Reflections
			for name, n := range s.Heavy {
				t.Heavy[name] += n
			}
		}
		t.RoundTrip, t.WorstHop = roundTrip.mean(), worstHop.mean()
		if len(half) > 0 {
			t.BitPerSecond = float64(bytes) * 8 / (float64(len(half)) * r.Interval.Seconds())
		}
	}
	return totals
}

// weighted is a sum of times, in ns, by packets.
type weighted struct{ sum, packets int64 }

// add adds a time; 0 is none.
func (w *weighted) add(ns int64, packets uint64) {
	if ns > 0 {
		w.sum += ns * int64(packets)
		w.packets += int64(packets)
	}
}

// mean returns the mean time of a packet; 0 without any.
func (w *weighted) mean() time.Duration { return time.Duration(w.sum / max(w.packets, 1)) }

// Ratio returns the rate of the fastest flow divided by that of the slowest, or 0 if the slowest
// got nothing.
func Ratio(totals []Total) float64 {
	if len(totals) == 0 {
		return 0
	}
	byRate := func(a, b Total) int { return cmp.Compare(a.BitPerSecond, b.BitPerSecond) }
	slowest := slices.MinFunc(totals, byRate).BitPerSecond
	if slowest == 0 {
		return 0
	}
	return slices.MaxFunc(totals, byRate).BitPerSecond / slowest
}

// blocks are bars of eight heights.
var blocks = []rune("▁▂▃▄▅▆▇█")

const chartColumns = 32

// writeText writes a table of the flows' totals with a chart of each flow's rate over the run,
// scaled to the fastest flow.
func (r *Run) writeText(w io.Writer) error {
	totals := r.Totals()
	most := 0.0
	charts := make([][]float64, len(r.Flows))
	for i := range r.Flows {
		charts[i] = r.rates(&r.Flows[i], chartColumns)
		most = max(most, slices.Max(charts[i]))
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "flow\tfrom\tto\trate\tround trip\tmax(PD)\tbottleneck by reflections\trate over time")
	for i := range totals {
		s := &totals[i]
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Flow.Flow, s.Flow.Src, s.Flow.Dst, bitRate(s.BitPerSecond),
			micros(s.RoundTrip), micros(s.WorstHop), s.bottleneck(), chart(charts[i], most))
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write flows: %w", err)
	}
	_, err := fmt.Fprintf(w, "second half of the run: the fastest flow gets %.2f times the rate of the slowest\n", Ratio(totals))
	return err
}

// bottleneck returns the location that most heavy reflections name, with its share of all
// reflections.
func (t *Total) bottleneck() string {
	name, n := mode(t.Heavy)
	if n == 0 {
		return "none is heavy"
	}
	return fmt.Sprintf("%s (%.0f %% of reflections)", name, 100*float64(n)/float64(t.Reflections))
}

// rates returns a flow's mean rates in columns of equal length.
func (r *Run) rates(f *Flow, columns int) []float64 {
	columns = max(min(columns, len(f.Samples)), 1)
	out := make([]float64, columns)
	for c := range out {
		first, end := c*len(f.Samples)/columns, (c+1)*len(f.Samples)/columns
		for i := first; i < end; i++ {
			out[c] += float64(f.Samples[i].Bytes) * 8 / r.Interval.Seconds() / float64(end-first)
		}
	}
	return out
}

func chart(values []float64, most float64) string {
	var b strings.Builder
	for _, v := range values {
		n := 0
		if most > 0 {
			n = int(v / most * float64(len(blocks)-1))
		}
		b.WriteRune(blocks[n])
	}
	return b.String()
}

func bitRate(v float64) string {
	if v >= 1e9 {
		return fmt.Sprintf("%.1f Gbit/s", v/1e9)
	}
	return fmt.Sprintf("%.1f Mbit/s", v/1e6)
}

func micros(d time.Duration) string { return fmt.Sprintf("%.1f us", float64(d)/1e3) }
