package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate/pattern"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

// Load describes how the bottleneck of a cell was used within windows, which a mean cannot show.
type Load struct {
	Window  time.Duration `json:"window_ns"`
	Steady  int           `json:"steady"` // number of windows
	Bursty  int           `json:"bursty"`
	Unclear int           `json:"unclear"`
	// Over the bursty windows, weighted by observations: the share of observations in bursts, and
	// the mean values within and between bursts, in the signal's unit.
	InBursts *float64 `json:"in_bursts"`
	Within   *float64 `json:"within"`
	Between  *float64 `json:"between"`

	within, between string
}

// measured holds the values of some observations of a window: as a share of a whole, and in stored
// units.
type measured struct {
	pattern.Count
	value, whole float64
}

// load describes the windows of a cell. It returns nil if no values can be expressed as shares.
// capacity is the capacity of the cell's bottleneck in kbit/s, 0 if unknown.
func (b *builder) load(window time.Duration, codes []table.CodeCount, capacity uint64) *Load {
	windows := map[int64][]measured{}
	for _, c := range codes {
		if one, ok := b.measured(c, capacity); ok {
			windows[c.Start] = append(windows[c.Start], one)
		}
	}
	if len(windows) == 0 {
		return nil
	}
	l := &Load{Window: window}
	var in, out mean
	for _, at := range slices.Sorted(maps.Keys(windows)) { // fixed order, so that floating-point sums are reproducible
		list := windows[at]
		slices.SortFunc(list, func(x, y measured) int {
			return cmp.Or(cmp.Compare(x.Value, y.Value), cmp.Compare(x.Times, y.Times))
		})
		counts := make([]pattern.Count, len(list))
		for i := range list {
			counts[i] = list[i].Count
		}
		w, err := pattern.Describe(counts)
		switch {
		case err != nil || w.Load == pattern.Unclear:
			l.Unclear++
			continue
		case w.Load == pattern.Steady && b.signal.Unit() != csig.Ratio && spread(list) > wideSpread:
			l.Unclear++ // shares of values far beyond the threshold hardly differ
			continue
		case w.Load == pattern.Steady:
			l.Steady++
			continue
		}
		l.Bursty++
		for i := range list {
			if (list[i].Value >= w.Upper) == (b.signal.Direction() == csig.Max) {
				in.add(&list[i])
			} else {
				out.add(&list[i])
			}
		}
	}
	if l.Bursty > 0 {
		unit := b.signal.Unit().PerStored()
		share, within, between := in.times/(in.times+out.times), in.sum/in.times, out.sum/out.times
		l.within, l.between = b.text(within), b.text(between)
		within, between = within*unit, between*unit
		l.InBursts, l.Within, l.Between = &share, &within, &between
	}
	return l
}

// wideSpread is the maximum spread of a steady load.
const wideSpread = 0.2

// spread returns the standard deviation of values as a share of the whole.
func spread(list []measured) float64 {
	var times, sum, squares, whole float64
	for _, v := range list {
		n := float64(v.Times)
		times, sum, squares, whole = times+n, sum+n*v.value, squares+n*v.value*v.value, whole+n*v.whole
	}
	return math.Sqrt(max(squares*times-sum*sum, 0)) / whole
}

// mean sums up values.
type mean struct{ times, sum float64 }

func (m *mean) add(v *measured) {
	m.times += float64(v.Times)
	m.sum += float64(v.Times) * v.value
}

// measured returns the middle of a code's range. A value that is not a ratio, such as a delay, is
// compared with the threshold for heavy values: its share of the sum of both is one half at the
// threshold and always below 1.
func (b *builder) measured(c table.CodeCount, capacity uint64) (one measured, ok bool) {
	if int(c.Encoding) >= csig.NumLayouts {
		return measured{}, false
	}
	table := b.domain.Table(c.Encoding.Layout(), b.signal.Type())
	if table == nil || table.Signal() != b.signal {
		return measured{}, false
	}
	first, last := csig.DistCodes(c.Code)
	most := table.Codes() - 1
	low, high := table.Value(min(first, most)), table.Value(min(last, most))
	stored := low + (high-low)/2
	one = measured{Count: pattern.Count{Value: b.signal.Unit().FromStored(stored), Times: c.N}, value: float64(stored)}
	if b.signal.Unit() == csig.Ratio {
		return one, true
	}
	threshold := heavyFrom(table, capacity)
	one.whole = one.value + threshold
	one.Value = one.value / one.whole
	return one, threshold > 0
}

// heavyFrom returns the bound of heavy values in stored units, or 0 if it is unknown.
func heavyFrom(table *csig.Table, capacity uint64) float64 {
	lo, hi, ok := table.HeavyCodes(capacity)
	if !ok {
		return 0
	}
	if table.Signal().Direction() == csig.Min {
		_, high, _ := table.Range(hi)
		return float64(high)
	}
	low, _, _ := table.Range(lo)
	return float64(low)
}

// String returns the load in words.
func (l *Load) String() string {
	n, window := l.Steady+l.Bursty+l.Unclear, csig.FormatQuantity(csig.Nanosecond, float64(l.Window))
	switch {
	case l.Bursty > 0:
		s := fmt.Sprintf("load in bursts in %d of %d windows of %s (there %s of the observations had a value near %s, the rest near %s)", l.Bursty, n, window,
			percent(*l.InBursts), l.within, l.between)
		if l.Steady > 0 {
			s += fmt.Sprintf("; steady load in %d", l.Steady)
		}
		return s
	case l.Steady > 0:
		return fmt.Sprintf("steady load in %d of %d windows of %s", l.Steady, n, window)
	}
	return fmt.Sprintf("load neither steady nor in clear bursts, in %d windows of %s", n, window)
}
