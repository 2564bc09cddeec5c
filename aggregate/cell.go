package aggregate

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"

	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// MinObservations is how many observations, trimmed ones apart, a cell needs before its
// state says anything.
const MinObservations = 10

// State is what a cell's observations say about it.
type State uint8

// The states. A cell without observations is not clear: nobody looked.
const (
	NoData State = iota
	TooFew
	Clear
	Congested
)

var stateNames = [...]string{"no_data", "too_few", "clear", "congested"}

// String is the state as it is printed: no_data, too_few, clear or congested.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state_%d", uint8(s))
}

// CellID is a cell as one kind of observation knows it.
type CellID struct {
	Src, Dst GroupID
	Kind     decode.Kind
}

// CellStats are the totals of a cell and its mode of the bottleneck: among heavy
// observations, the location with the most of them (IEEE 802.1 slides, January 2026,
// the heatmap of the bottleneck's mode). Values are the signal's stored integers until they
// are rendered.
type CellStats struct {
	Src, Dst GroupID
	Signal   csig.Signal
	Kind     decode.Kind // the one that the totals are of

	// Totals beyond 64 bits stay at the largest integer. Where the store's exact sum of values
	// is larger, Sum and Measured are divided by the same number instead: Mean stays right.
	Observations, Bytes uint64
	Measured            uint64 // observations with a value
	Sum, Min, Max       uint64 // of values; Min and Max are 0 when there is none
	Untouched, Trimmed  uint64
	Heavy, HeavySum     uint64

	// Mode and RunnerUp are NoLocation, with counts of 0, when there is none.
	Mode               LocationID
	ModeCount, ModeSum uint64
	RunnerUp           LocationID
	RunnerUpCount      uint64

	State State
}

// ID is the cell, and the kind that the totals are of.
func (c *CellStats) ID() CellID { return CellID{c.Src, c.Dst, c.Kind} }

// Mean is the mean value, in stored integers; NaN when nothing has a value.
func (c *CellStats) Mean() float64 { return ratio(c.Sum, c.Measured) }

// MeanValue is the mean in the signal's unit; NaN when nothing has a value.
func (c *CellStats) MeanValue() float64 { return c.value(c.Sum) / float64(c.Measured) }

// MinValue is the smallest value in the signal's unit; NaN when nothing has a value.
func (c *CellStats) MinValue() float64 { return c.value(c.Min) }

// MaxValue is the largest value in the signal's unit; NaN when nothing has a value.
func (c *CellStats) MaxValue() float64 { return c.value(c.Max) }

func (c *CellStats) value(stored uint64) float64 {
	if c.Measured == 0 {
		return math.NaN()
	}
	return c.Signal.Unit().FromStored(stored)
}

// ModeMean is the mean of the heavy values at the mode; NaN without a mode.
func (c *CellStats) ModeMean() float64 { return ratio(c.ModeSum, c.ModeCount) }

// ModeShare is the mode's share of the heavy observations; NaN without any.
func (c *CellStats) ModeShare() float64 { return ratio(c.ModeCount, c.Heavy) }

// HeavyShare is the share of heavy observations among all; NaN without any.
func (c *CellStats) HeavyShare() float64 { return ratio(c.Heavy, c.Observations) }

// TrimmedShare is the share of trimmed observations among all; NaN without any.
// They are not in the mode, although nothing is more congested than what they met.
func (c *CellStats) TrimmedShare() float64 { return ratio(c.Trimmed, c.Observations) }

func ratio(a, b uint64) float64 {
	if b == 0 {
		return math.NaN()
	}
	return float64(a) / float64(b)
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

// LocationStats are the heavy observations at a location. What no hop touched has NoLocation.
type LocationStats struct {
	Location        LocationID
	Observations    uint64 // heavy or not
	Heavy, HeavySum uint64
	Cells           int // with a heavy observation at the location; not known of single windows
}

// HeavyMean is the mean of the heavy values, in stored integers; NaN without any.
func (l *LocationStats) HeavyMean() float64 { return ratio(l.HeavySum, l.Heavy) }

// LocationWindow is a location in one window.
type LocationWindow struct {
	Start int64 // of the window, Unix ns
	LocationStats
}

// CompareBottlenecks puts the mode first: more heavy observations, then the more
// severe mean, then the lower location. Means are compared exactly, as fractions.
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

// SetMode makes the mode and the runner-up those of Bottlenecks.
func (c *CellStats) SetMode(first, second LocationStats) {
	if first.Heavy > 0 {
		c.Mode, c.ModeCount, c.ModeSum = first.Location, first.Heavy, first.HeavySum
	}
	if second.Heavy > 0 {
		c.RunnerUp, c.RunnerUpCount = second.Location, second.Heavy
	}
}

// SetState makes the state follow from the counts.
func (c *CellStats) SetState() { c.State = StateOf(c.Observations, c.Trimmed, c.Heavy) }

// StateOf is the state of a cell with so many observations, trimmed and heavy ones among
// them.
func StateOf(observations, trimmed, heavy uint64) State {
	switch {
	case observations == 0:
		return NoData
	case observations-min(trimmed, observations) < MinObservations:
		return TooFew
	case heavy > 0:
		return Congested
	}
	return Clear
}

// Merge adds what another row counted of the same location. Totals saturate.
func (l *LocationStats) Merge(o *LocationStats) {
	l.Observations = AddSat(l.Observations, o.Observations)
	l.Heavy = AddSat(l.Heavy, o.Heavy)
	l.HeavySum = AddSat(l.HeavySum, o.HeavySum)
}

// Bottlenecks are the mode and the runner-up. Their Heavy is 0 when there is none.
// Heavy sums and counts over hops have no location, and hence no mode.
func Bottlenecks(d csig.Direction, list []LocationStats) (first, second LocationStats) {
	for i := range list {
		l := &list[i]
		switch {
		case l.Heavy == 0 || l.Location == NoLocation:
		case first.Heavy == 0 || CompareBottlenecks(d, l, &first) < 0:
			first, second = *l, first
		case second.Heavy == 0 || CompareBottlenecks(d, l, &second) < 0:
			second = *l
		}
	}
	return first, second
}
