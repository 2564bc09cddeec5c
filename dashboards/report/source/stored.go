package source

import (
	"context"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/decode/csig"
)

// maxStoredFlows is the maximum number of flows in a query; some of them may have another kind than
// their cell.
const maxStoredFlows = 1000

// Stored queries a store that holds only the report's captures, in windows of 1 s, of 1 min, and of
// a fine resolution. It is a report.Data and safe for concurrent use. The caller closes the store.
type Stored struct {
	store *store.Store
	fine  time.Duration
	span  report.Span
	report.Sampler
}

// newStored returns the store's data over a span. The span's steps must be multiples of the fine
// resolution. Samples of shorter steps are not in the store, so the caller passes them.
func newStored(s *store.Store, fine time.Duration, span report.Span, samples report.Sampler) *Stored {
	return &Stored{store: s, fine: fine, span: span, Sampler: samples}
}

// query covers the whole range in windows of 1 min.
func (s *Stored) query(signal csig.Signal) store.Question {
	from, to := s.minutes()
	return store.Question{Signal: signal, From: from, To: to, Resolution: time.Minute}
}

// minutes returns the span, extended to whole minutes.
func (s *Stored) minutes() (from, to time.Time) {
	from = time.Unix(0, s.span.First).UTC().Truncate(time.Minute)
	return from, s.end().Add(time.Minute - 1).Truncate(time.Minute)
}

// end is the end of the span. Its last step may be longer than the time that is left.
func (s *Stored) end() time.Time {
	return time.Unix(0, min(s.span.Last+int64(s.span.Step), aggregate.EndOfTime)).UTC()
}

// fineQuery asks for the span alone: with all of its minutes, it could have more steps than the store answers.
func (s *Stored) fineQuery(signal csig.Signal) store.Question {
	return store.Question{Signal: signal, From: time.Unix(0, s.span.First), To: s.end(), Resolution: s.fine, Step: s.span.Step}
}

// Signals implements report.Totals.
func (s *Stored) Signals(ctx context.Context) ([]csig.Signal, error) {
	from, to := s.minutes()
	all, err := s.store.Signals(ctx, store.Question{From: from, To: to, Resolution: time.Minute})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(signal csig.Signal) bool { return !signal.HasValue() }), nil
}

// Cells implements report.Totals. States are those at the end of the last 1 s window.
func (s *Stored) Cells(ctx context.Context, signal csig.Signal) ([]aggregate.CellStats, error) {
	e, err := s.store.Extent(ctx)
	if err != nil {
		return nil, err
	}
	return s.store.Cells(ctx, store.Question{
		Signal: signal, From: e.First.Truncate(time.Second), To: e.Last.Add(time.Second - 1).Truncate(time.Second), Resolution: time.Second,
	})
}

// maxLocations is the maximum number of locations in a query, those with most heavy observations.
const maxLocations = 10_000

// Locations implements report.Totals.
func (s *Stored) Locations(ctx context.Context, signal csig.Signal) ([]aggregate.LocationStats, error) {
	return s.store.TopLocations(ctx, s.query(signal), maxLocations)
}

// CellLocations implements report.Totals.
func (s *Stored) CellLocations(ctx context.Context, signal csig.Signal) ([]aggregate.CellLocation, error) {
	return s.store.CellLocations(ctx, s.query(signal))
}

// LocationWindows implements report.Steps.
func (s *Stored) LocationWindows(ctx context.Context, signal csig.Signal) ([]aggregate.LocationWindow, error) {
	q := s.query(signal)
	q.Resolution, q.Step = time.Second, s.span.Window
	return s.store.LocationWindows(ctx, q)
}

// Span implements report.Steps.
func (s *Stored) Span() report.Span { return s.span }

// LocationSteps implements report.Steps.
func (s *Stored) LocationSteps(ctx context.Context, signal csig.Signal, step time.Duration) ([]aggregate.LocationWindow, error) {
	q := s.fineQuery(signal)
	q.Step = step
	return s.store.LocationWindows(ctx, q)
}

// CellSteps implements report.Steps.
func (s *Stored) CellSteps(ctx context.Context, signal csig.Signal, cells []aggregate.CellID) ([][]report.CellStep, error) {
	lists := make([][]report.CellStep, len(cells))
	if len(cells) == 0 {
		return lists, nil
	}
	q, index := s.fineQuery(signal), indexOfPairs(cells)
	q.Among = pairs(cells)
	rows, err := s.store.CellWindows(ctx, q)
	for k := range rows {
		r := &rows[k]
		i := index[store.Cell{Src: r.Src, Dst: r.Dst}]
		lists[i] = append(lists[i], report.CellStep{Start: r.Start, Observations: r.Observations, Heavy: r.Heavy})
	}
	return lists, err
}

func pairs(cells []aggregate.CellID) []store.Cell {
	list := make([]store.Cell, len(cells))
	for i, c := range cells {
		list[i] = store.Cell{Src: c.Src, Dst: c.Dst}
	}
	return list
}

func indexOfPairs(cells []aggregate.CellID) map[store.Cell]int {
	index := make(map[store.Cell]int, len(cells))
	for i, c := range pairs(cells) {
		index[c] = i
	}
	return index
}

// Distributions implements report.Details.
func (s *Stored) Distributions(ctx context.Context, signal csig.Signal, cells []aggregate.CellID) (all []table.CodeCount, of [][]table.CodeCount, err error) {
	rows, err := s.store.Codes(ctx, s.query(signal))
	if err != nil {
		return nil, nil, err
	}
	for i := range rows {
		all = append(all, codeCount(&rows[i]))
	}
	of = make([][]table.CodeCount, len(cells))
	if len(cells) == 0 {
		return all, of, nil
	}
	q, index := s.query(signal), indexOfPairs(cells)
	q.Among, q.Resolution, q.Step = pairs(cells), time.Second, s.span.Window
	windows, err := s.store.CodeWindows(ctx, q)
	for k := range windows {
		count := codeCount(&windows[k])
		count.Start = windows[k].Window.UnixNano()
		i := index[windows[k].Cell]
		of[i] = append(of[i], count)
	}
	return all, of, err
}

func codeCount(r *store.CodeRow) table.CodeCount {
	return table.CodeCount{Encoding: r.Encoding, Code: r.Code, N: r.Observations}
}

// Flows implements report.Details.
func (s *Stored) Flows(ctx context.Context, signal csig.Signal) ([]report.FlowStats, error) {
	from, to := s.minutes()
	rows, err := s.store.Flows(ctx, store.FlowQuestion{Signal: signal, From: from, To: to, Resolution: time.Minute, MinHeavy: 1, Limit: maxStoredFlows})
	if err != nil {
		return nil, err
	}
	var list []report.FlowStats
	for i := range rows {
		r := &rows[i]
		if !r.Src.IsValid() {
			continue // the sum of all other flows
		}
		list = append(list, report.FlowStats{
			Flow: flow.Flow{Src: r.Src.As16(), Dst: r.Dst.As16(), SrcPort: r.SrcPort, DstPort: r.DstPort, Proto: r.Proto},
			Cell: aggregate.CellID{Src: r.SrcGroup, Dst: r.DstGroup, Kind: r.Kind}, Heavy: r.Heavy, Bytes: r.Bytes, Mean: r.Mean,
			Location: r.Location, LocationHeavy: r.LocationHeavy,
		})
	}
	return list, nil
}
