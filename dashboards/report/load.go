package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/pattern"
	"github.com/csigscope/csigscope/decode/csig"
)

// Load says how the bottleneck of a cell was used within windows: what means cannot tell.
// Only shares can be told, such as available bandwidth of capacity.
type Load struct {
	Window  time.Duration `json:"window_ns"`
	Steady  int           `json:"steady"` // windows
	Bursty  int           `json:"bursty"`
	Unclear int           `json:"unclear"`
	// Of the bursty windows, weighted by observations: the share of those in bursts, and
	// the mean values within and between bursts.
	InBursts *float64 `json:"in_bursts"`
	Within   *float64 `json:"within"`
	Between  *float64 `json:"between"`
}

// load describes the windows of a cell, nil where the signal is no share.
func (b *builder) load(window time.Duration, codes []aggregate.CodeCount) *Load {
	if b.signal.Unit() != csig.Ratio {
		return nil
	}
	windows := map[int64][]pattern.Count{}
	for _, c := range codes {
		if v, ok := b.value(c); ok {
			windows[c.Start] = append(windows[c.Start], pattern.Count{Value: v, Times: c.N})
		}
	}
	l := &Load{Window: window}
	var all, tight, within, between float64
	for _, at := range slices.Sorted(maps.Keys(windows)) { // sums are the same whatever the order of codes was
		counts := windows[at]
		slices.SortFunc(counts, func(x, y pattern.Count) int {
			return cmp.Or(cmp.Compare(x.Value, y.Value), cmp.Compare(x.Times, y.Times))
		})
		w, err := pattern.Describe(counts)
		switch {
		case err != nil || w.Load == pattern.Unclear:
			l.Unclear++
			continue
		case w.Load == pattern.Steady:
			l.Steady++
			continue
		}
		l.Bursty++
		times := 0.0
		for _, c := range counts {
			times += float64(c.Times)
		}
		in, inMean, outMean := w.Duty, w.High, w.Low
		if b.signal.Direction() == csig.Min {
			in, inMean, outMean = 1-w.Duty, w.Low, w.High
		}
		all, tight = all+times, tight+times*in
		within, between = within+times*in*inMean, between+times*(1-in)*outMean
	}
	if l.Bursty > 0 {
		share, low, high := tight/all, within/tight, between/(all-tight)
		l.InBursts, l.Within, l.Between = &share, &low, &high
	}
	return l
}

// value is the middle of what a code stands for, as a share.
func (b *builder) value(c aggregate.CodeCount) (float64, bool) {
	if int(c.Encoding) >= csig.NumLayouts {
		return 0, false
	}
	table := b.domain.Table(c.Encoding.Layout(), b.signal.Type())
	if table == nil || table.Signal() != b.signal {
		return 0, false
	}
	first, last := csig.DistCodes(c.Code)
	most := table.Codes() - 1
	low, high := table.Value(min(first, most)), table.Value(min(last, most))
	return b.signal.Unit().FromStored(low + (high-low)/2), true
}

// String is the load in words.
func (l *Load) String() string {
	n := l.Steady + l.Bursty + l.Unclear
	switch {
	case l.Bursty > 0:
		s := fmt.Sprintf("bursts in %d of %d windows of %s: %s of their observations met %s, the others %s", l.Bursty, n, l.Window,
			percent(*l.InBursts), percent(*l.Within), percent(*l.Between))
		if l.Steady > 0 {
			s += fmt.Sprintf("; steady in %d", l.Steady)
		}
		return s
	case l.Steady > 0:
		return fmt.Sprintf("steady in %d of %d windows of %s", l.Steady, n, l.Window)
	}
	return fmt.Sprintf("neither steady nor in clear bursts, in %d windows of %s", n, l.Window)
}
