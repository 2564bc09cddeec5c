package aggregate

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// CellID is a cell together with the kind of its observations.
type CellID struct {
	Src, Dst GroupID
	Kind     decode.Kind
}

// CellStats are the totals of a cell and its mode of the bottleneck: the location with the most
// heavy observations (IEEE 802.1 slides, January 2026, the heatmap of the bottleneck's mode).
// Values are the signal's stored integers until they are rendered.
type CellStats struct {
	Src, Dst GroupID
	Signal   csig.Signal
	Kind     decode.Kind // of the totals

	// Totals beyond 64 bits stay at the largest integer. If the store's exact sum of values is
	// larger, Sum and Measured are divided by the same number instead, so that Mean stays right.
	Observations, Bytes uint64
	Samples             uint64 // observations that are not trimmed, without the weight
	Measured            uint64 // observations with a value
	Sum, Min, Max       uint64 // of values; Min and Max are 0 when there is none
	// LaterMeasured and LaterSum are Measured and Sum of the later half of the range; 0 for single
	// windows of a longer answer.
	LaterMeasured, LaterSum uint64
	Untouched, Trimmed      uint64
	Unjudged                uint64 // observations that no threshold judges
	Heavy, HeavySum         uint64

	// Mode and RunnerUp are NoLocation, with counts of 0, when there is none.
	Mode               LocationID
	ModeCount, ModeSum uint64
	RunnerUp           LocationID
	RunnerUpCount      uint64
	// ModeEvidence and RunnerUpEvidence are the evidence behind the location of the cell's
	// observations there, heavy or not.
	ModeEvidence, RunnerUpEvidence Evidence
	// Votes are the locations as resolved, the mode first, at most MaxVotes; none if the mode is
	// taken at another level. They must not be changed.
	Votes []Vote

	Verdict
	State State
	// JudgedWindows is the number of judged windows among the last Horizon windows of the range,
	// CongestedWindows the number of those that ended congested; both are 0 for single windows of a
	// longer answer.
	JudgedWindows, CongestedWindows uint64
}

// WasCongested reports whether the cell was congested in the range, even if it no longer is at its
// end.
func (c *CellStats) WasCongested() bool { return c.State == Congested || c.CongestedWindows > 0 }

// StateText returns the state in words, or that the cell was congested earlier in the range.
func (c *CellStats) StateText() string {
	if c.WasCongested() && c.State != Congested {
		return "was congested"
	}
	return strings.ReplaceAll(c.State.String(), "_", " ")
}

// ID returns the cell with the kind of its totals.
func (c *CellStats) ID() CellID { return CellID{c.Src, c.Dst, c.Kind} }

// Equal reports whether both hold the same information.
func (c *CellStats) Equal(o *CellStats) bool {
	numbers := func(c *CellStats) [23]uint64 {
		return [...]uint64{
			c.Observations, c.Bytes, c.Samples, c.Measured, c.Sum, c.Min, c.Max, c.LaterMeasured, c.LaterSum, c.Untouched, c.Trimmed, c.Unjudged, c.Heavy, c.HeavySum,
			uint64(c.Mode), c.ModeCount, c.ModeSum, uint64(c.RunnerUp), c.RunnerUpCount, c.JudgedWindows, c.CongestedWindows,
			uint64(c.ModeEvidence), uint64(c.RunnerUpEvidence),
		}
	}
	return c.ID() == o.ID() && c.Signal == o.Signal && c.State == o.State && c.Verdict == o.Verdict && numbers(c) == numbers(o) && slices.Equal(c.Votes, o.Votes)
}

// Mean returns the mean value, in stored integers; NaN when nothing has a value.
func (c *CellStats) Mean() float64 { return Ratio(c.Sum, c.Measured) }

// MeanValue returns the mean in the signal's unit; NaN when nothing has a value.
func (c *CellStats) MeanValue() float64 { return c.value(c.Sum) / float64(c.Measured) }

// MinValue returns the smallest value in the signal's unit; NaN when nothing has a value.
func (c *CellStats) MinValue() float64 { return c.value(c.Min) }

// MaxValue returns the largest value in the signal's unit; NaN when nothing has a value.
func (c *CellStats) MaxValue() float64 { return c.value(c.Max) }

// TrendValue returns the mean of the later half of the range minus that of the earlier half, in the
// signal's unit: negative if values fell, NaN if one of the halves has no value.
func (c *CellStats) TrendValue() float64 {
	return c.Signal.Unit().FromStoredMean(trend(c.Sum, c.Measured, c.LaterSum, c.LaterMeasured))
}

func (c *CellStats) value(stored uint64) float64 {
	if c.Measured == 0 {
		return math.NaN()
	}
	return c.Signal.Unit().FromStored(stored)
}

// MeanError returns an upper bound on the standard error of the mean, in the signal's unit: no
// distribution between Min and Max with this mean has a larger variance than (Max - mean)(mean -
// Min) (Bhatia and Davis, 2000), and Samples values were drawn from it. NaN without samples.
func (c *CellStats) MeanError() float64 {
	if c.Measured == 0 || c.Samples == 0 {
		return math.NaN()
	}
	mean, per := c.Mean(), c.Signal.Unit().PerStored()
	return math.Sqrt(max(float64(c.Max)-mean, 0)*max(mean-float64(c.Min), 0)/float64(c.Samples)) * per
}

// ModeMean returns the mean of the heavy values at the mode; NaN without a mode.
func (c *CellStats) ModeMean() float64 { return Ratio(c.ModeSum, c.ModeCount) }

// ModeShare returns the mode's share of the heavy observations; NaN without any.
func (c *CellStats) ModeShare() float64 { return Ratio(c.ModeCount, c.Heavy) }

// HeavyShare returns the share of heavy observations among all; NaN without any.
func (c *CellStats) HeavyShare() float64 { return Ratio(c.Heavy, c.Observations) }

// TrimmedShare returns the share of trimmed observations among all; NaN without any. The mode
// leaves them out, although trimming is the worst congestion.
func (c *CellStats) TrimmedShare() float64 { return Ratio(c.Trimmed, c.Observations) }

// Ratio returns a/b; NaN if b is 0.
func Ratio(a, b uint64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return float64(a) / float64(b)
}

// trend returns the mean of the later half of a range minus that of the earlier half.
func trend(sum, measured, laterSum, laterMeasured uint64) float64 {
	return Ratio(laterSum, laterMeasured) - Ratio(sum-min(laterSum, sum), measured-min(laterMeasured, measured))
}

// CellWindow is a cell in one window.
type CellWindow struct {
	Start int64 // of the window, Unix ns
	CellStats
}

// CompareCellWindows orders cells by window, source and destination.
func CompareCellWindows(a, b CellWindow) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
}

// CompareCells orders cells by source and destination.
func CompareCells(a, b CellStats) int {
	return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst))
}

// CellLocation holds the sums of a cell's observations that name one location, over a range.
// Observations that no hop touched have NoLocation.
type CellLocation struct {
	CellID
	Location LocationID
	Sums

	// Last is the start of the last window with a value, Unix ns, 0 without one; LastMeasured and
	// LastSum are its values. LaterMeasured and LaterSum are those of the later half of the range.
	Last                    int64
	LastMeasured, LastSum   uint64
	LaterMeasured, LaterSum uint64
}

// AddWindow adds the values of a window that starts at start; the later half of the range starts at
// later, both in Unix ns. It does not change Sums.
func (c *CellLocation) AddWindow(start, later int64, s *Sums) {
	if s.Measured == 0 {
		return
	}
	if start > c.Last {
		c.Last, c.LastMeasured, c.LastSum = start, 0, 0
	}
	if start == c.Last {
		c.LastMeasured, c.LastSum = AddSat(c.LastMeasured, s.Measured), AddSat(c.LastSum, s.Sum)
	}
	if start >= later {
		c.LaterMeasured, c.LaterSum = AddSat(c.LaterMeasured, s.Measured), AddSat(c.LaterSum, s.Sum)
	}
}

// Trend returns the mean of the later half of the range minus that of the earlier half, in stored
// integers; NaN if one of them has no value.
func (c *CellLocation) Trend() float64 { return trend(c.Sum, c.Measured, c.LaterSum, c.LaterMeasured) }

// Merge adds the observations of another cell that name the same location.
func (c *CellLocation) Merge(o *CellLocation) {
	c.Sums.Merge(&o.Sums)
	if o.Last > c.Last {
		c.Last, c.LastMeasured, c.LastSum = o.Last, 0, 0
	}
	if o.Last == c.Last {
		c.LastMeasured, c.LastSum = AddSat(c.LastMeasured, o.LastMeasured), AddSat(c.LastSum, o.LastSum)
	}
	c.LaterMeasured, c.LaterSum = AddSat(c.LaterMeasured, o.LaterMeasured), AddSat(c.LaterSum, o.LaterSum)
}

// CompareCellLocations orders by source, destination and location.
func CompareCellLocations(a, b CellLocation) int {
	return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst), cmp.Compare(a.Location, b.Location))
}

// LaterHalf returns the start of the later half of a range, all in Unix ns.
func LaterHalf(from, to int64) int64 { return from + (to-from)/2 }

// LocationStats are the heavy observations at a location. Observations that no hop touched have
// NoLocation.
type LocationStats struct {
	Location        LocationID
	Observations    uint64 // heavy or not
	Samples         uint64 // only of single windows: untrimmed observations, without the weight
	Unjudged        uint64 // only of single windows: observations that no threshold judges
	Heavy, HeavySum uint64
	Cells           int      // with a heavy observation at the location; unknown for single windows
	Evidence        Evidence // only of single cells
}

// HeavyMean returns the mean of the heavy values, in stored integers; NaN without any.
func (l *LocationStats) HeavyMean() float64 { return Ratio(l.HeavySum, l.Heavy) }

// LocationWindow is a location in one window.
type LocationWindow struct {
	Start int64 // of the window, Unix ns
	LocationStats
}

// CompareBottlenecks puts the mode first: more heavy observations, then the more severe mean, then
// the lower location. It compares means exactly, as fractions.
func CompareBottlenecks(d csig.Direction, a, b *LocationStats) int {
	if a.Heavy != b.Heavy {
		return cmp.Compare(b.Heavy, a.Heavy)
	}
	mean := compareProducts(a.HeavySum, b.Heavy, b.HeavySum, a.Heavy)
	if d == csig.Max {
		mean = -mean
	}
	return cmp.Or(mean, cmp.Compare(a.Location, b.Location))
}

// compareProducts compares a*b with c*d.
func compareProducts(a, b, c, d uint64) int {
	hi1, lo1 := bits.Mul64(a, b)
	hi2, lo2 := bits.Mul64(c, d)
	return cmp.Or(cmp.Compare(hi1, hi2), cmp.Compare(lo1, lo2))
}

// SetMode sets the mode and runner-up from the cell's locations, which it sorts, and for resolved
// ones also the votes. Heavy sums and counts over hops have no location, and so no mode.
func (c *CellStats) SetMode(list []LocationStats, resolved bool) {
	list = slices.DeleteFunc(list, func(l LocationStats) bool { return l.Heavy == 0 || l.Location == NoLocation })
	slices.SortFunc(list, func(a, b LocationStats) int { return CompareBottlenecks(c.Signal.Direction(), &a, &b) })
	list = list[:min(len(list), MaxVotes)]
	if len(list) > 0 {
		c.Mode, c.ModeCount, c.ModeSum, c.ModeEvidence = list[0].Location, list[0].Heavy, list[0].HeavySum, list[0].Evidence
	}
	if len(list) > 1 {
		c.RunnerUp, c.RunnerUpCount, c.RunnerUpEvidence = list[1].Location, list[1].Heavy, list[1].Evidence
	}
	if resolved && len(list) > 0 {
		c.Votes = make([]Vote, len(list))
		for i := range list {
			c.Votes[i] = Vote{list[i].Location, list[i].Heavy}
		}
	}
}

// Merge adds the counts of another row of the same location. Totals saturate.
func (l *LocationStats) Merge(o *LocationStats) {
	l.Observations = AddSat(l.Observations, o.Observations)
	l.Samples = AddSat(l.Samples, o.Samples)
	l.Unjudged = AddSat(l.Unjudged, o.Unjudged)
	l.Heavy = AddSat(l.Heavy, o.Heavy)
	l.HeavySum = AddSat(l.HeavySum, o.HeavySum)
}
