package table

import (
	"maps"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode/csig"
)

// histories judge windows, cell by cell. A Memory's publishing lock guards them.
type histories struct {
	thresholds aggregate.Thresholds
	length     int64 // of a window, ns
	most       int   // cells
	of         map[aggregate.CellKey]*aggregate.History
	end        int64 // number of the window after the newest one
	untracked  uint64
}

// windowVerdict is a verdict at the end of a window, and whether that window was judged itself.
type windowVerdict struct {
	aggregate.Verdict
	judged bool
}

// verdicts are those of all cells at the end of a window. They never change.
type verdicts map[aggregate.CellKey]windowVerdict

// judgement says how the cells of rows are judged: by the verdicts at the end of their last window.
// Without it, they are judged as one window.
type judgement struct {
	thresholds aggregate.Thresholds
	windows    []verdicts // ascending
	borrowed   bool       // of longer windows, which alone are judged
}

func newHistories(t aggregate.Thresholds, length time.Duration, most int) histories {
	return histories{thresholds: t, length: int64(length), most: most, of: make(map[aggregate.CellKey]*aggregate.History)}
}

// add judges windows that are new or have changed, ascending, and sets the verdicts at their ends.
func (h *histories) add(windows []*Window) {
	for _, w := range windows {
		h.judge(w.Start.UnixNano()/h.length, w.Rows.rows)
	}
	maps.DeleteFunc(h.of, func(_ aggregate.CellKey, one *aggregate.History) bool { return one.End() <= h.end-aggregate.Horizon })
	for _, w := range windows {
		n := w.Start.UnixNano() / h.length
		all := make(verdicts, len(h.of))
		for k, one := range h.of {
			all[k] = windowVerdict{one.Verdict(n+1, h.length), one.Get(n)&^aggregate.Loaded != aggregate.Unjudged}
		}
		w.Rows.judged = &judgement{thresholds: h.thresholds, windows: []verdicts{all}}
	}
}

func (h *histories) judge(n int64, rows *tableRows) {
	if n < h.end-aggregate.Horizon { // the clock was set back
		clear(h.of)
		h.end = 0
	}
	h.end = max(h.end, n+1)
	for _, one := range h.of {
		if one.Get(n) != aggregate.Unjudged { // of provisional rows
			one.Set(n, aggregate.Unjudged)
		}
	}
	for i := range rows.cells {
		c := &rows.cells[i]
		one := h.of[c.cell]
		if one == nil {
			if len(h.of) >= h.most {
				h.untracked++
				continue
			}
			one = &aggregate.History{}
			h.of[c.cell] = one
		}
		var total aggregate.Sums
		for at := c.first; at >= 0; at = rows.list[at].next {
			total.Merge(&rows.list[at].value)
		}
		one.Set(n, h.thresholds.Judge(total.Observations, total.Samples, total.Heavy, total.Unjudged))
	}
}

// judge sets the state of a cell of the rows.
func (r Rows) judge(k aggregate.CellKey, c *aggregate.CellStats) {
	if r.judged == nil {
		c.Judge(aggregate.DefaultThresholds())
		return
	}
	last := len(r.judged.windows) - 1
	c.Verdict = r.judged.windows[last][k].Verdict
	for _, w := range r.judged.windows {
		if v := w[k]; v.judged {
			c.JudgedWindows++
			if v.Sustained {
				c.CongestedWindows++
			}
		}
	}
	if !r.judged.borrowed {
		c.Judge(r.judged.thresholds)
		return
	}
	c.State = r.judged.thresholds.State(c.Verdict, c.Observations, c.Samples, 0, c.Observations) // by the verdict alone
}

// Verdict is the verdict on a cell at the window's end, whether or not the window has rows of it.
func (w *Window) Verdict(k aggregate.CellKey) aggregate.Verdict {
	if w.Rows.judged == nil {
		return aggregate.Verdict{}
	}
	return w.Rows.judged.windows[len(w.Rows.judged.windows)-1][k].Verdict
}

// Locations are those of the window's rows, as in Rows.Locations. They belong to the window.
func (w *Window) Locations(s csig.Signal) []aggregate.LocationStats {
	type key csig.Signal
	list, _ := w.Memo.Get(key(s), func() any { return w.Rows.Locations(s, nil) }).([]aggregate.LocationStats)
	return list
}

// mergedJudgement is the judgement of the rows of several windows.
func mergedJudgement(windows []*Window) *judgement {
	out := &judgement{}
	for _, w := range windows {
		if w.Rows.judged == nil {
			return nil
		}
		out.thresholds, out.borrowed = w.Rows.judged.thresholds, w.Rows.judged.borrowed
		out.windows = append(out.windows, w.Rows.judged.windows...)
	}
	return out
}
