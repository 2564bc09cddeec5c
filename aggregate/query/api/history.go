package api

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/decode/csig"
)

// question is a question to the store about one signal.
func (a *API) question(ctx context.Context, in *SignalInput, when *TimesInput) (q query.Question, err error) {
	if q.From, q.To, _, err = when.history(); err != nil {
		return q, err
	}
	q.Step = q.To.Sub(q.From)
	extent, err := a.stored(ctx)
	if err != nil {
		return q, err
	}
	k, err := in.key(1, extent.Signals)
	q.Signal, q.Level = k.signal, k.level
	return q, err
}

// stored is what the store holds.
func (a *API) stored(ctx context.Context) (query.Extent, error) {
	if a.Reader == nil {
		return query.Extent{}, huma.NewError(404, "there is no history here: leave out from and to for what is in memory")
	}
	return a.Reader.Extent(ctx)
}

// history are the names of what is stored.
func (a *API) history(ctx context.Context) (*names, error) {
	if a.Names == a.Reader {
		return a.names.get(ctx)
	}
	return a.past.noOlderThan(ctx, namesAgain)
}

// pastCells are the cells of a range that the filter takes, by source and destination.
func (a *API) pastCells(ctx context.Context, q query.Question, in *FilterInput) ([]model.Cell, error) {
	n, err := a.history(ctx)
	if err != nil {
		return nil, err
	}
	f, err := in.filter(n, q.Signal)
	if err != nil {
		return nil, err
	}
	f.narrow(&q)
	rows, err := a.Reader.Cells(ctx, q)
	if err != nil {
		return nil, err
	}
	list := []model.Cell{}
	for i := range rows {
		if pastTakes(&f, &rows[i]) {
			list = append(list, n.pastCell(q.Signal, &rows[i]))
		}
	}
	slices.SortFunc(list, func(x, y model.Cell) int { return cmp.Or(cmp.Compare(x.Src, y.Src), cmp.Compare(x.Dst, y.Dst)) })
	return list, nil
}

// narrow asks the store for one cell alone, or one row of cells, where the filter takes no
// others.
func (f *filter) narrow(q *query.Question) {
	if len(f.src) == 1 {
		q.Src = &f.src[0]
	}
	if len(f.dst) == 1 {
		q.Dst = &f.dst[0]
	}
}

// oneCell tells whether the filter names one source and one destination.
func (f *filter) oneCell() bool { return len(f.src) == 1 && len(f.dst) == 1 }

func pastAbout(q query.Question) model.About {
	return model.About{
		Source: "store", Signal: csig.SignalNames([]csig.Signal{q.Signal})[0], Unit: q.Signal.Unit().String(),
		Level: q.Level.String(), From: q.From, To: q.To,
	}
}

func pastTakes(f *filter, r *query.CellRow) bool {
	c := aggregate.CellStats{
		Src: r.Src, Dst: r.Dst, Observations: r.Observations, Heavy: r.Heavy, Mode: r.Mode, ModeCount: r.ModeCount,
		State: aggregate.StateOf(r.Observations, r.Trimmed, r.Heavy),
	}
	rest := *f
	rest.minRoom, rest.maxRoom = optional[float64]{}, optional[float64]{}
	// NaN, of a cell without a value, is in no bound.
	return rest.takes(&c) && (!f.minRoom.set || r.Mean >= f.minRoom.value) && (!f.maxRoom.set || r.Mean <= f.maxRoom.value)
}

func (n *names) pastCell(s csig.Signal, r *query.CellRow) model.Cell {
	c := model.Cell{
		Src: n.groupName(r.Src), Dst: n.groupName(r.Dst), Kind: r.Kind.String(),
		State: aggregate.StateOf(r.Observations, r.Trimmed, r.Heavy).String(), Observations: r.Observations,
		Mean: measure(s, r.Mean), Min: measure(s, r.Min), Max: measure(s, r.Max),
		Untouched: r.Untouched, Trimmed: r.Trimmed, Heavy: r.Heavy, HeavyRatio: share(r.Heavy, r.Observations),
	}
	if r.ModeCount > 0 {
		c.Mode = &model.Bottleneck{Location: n.locationName(r.Mode), Heavy: r.ModeCount, ShareRatio: share(r.ModeCount, r.Heavy)}
	}
	if r.RunnerUpCount > 0 {
		c.RunnerUp = &model.Bottleneck{Location: n.locationName(r.RunnerUp), Heavy: r.RunnerUpCount, ShareRatio: share(r.RunnerUpCount, r.Heavy)}
	}
	return c
}

// gaps are the known gaps of a range.
type gaps []query.Span

// covered is the share of a range that no gap is known of.
func (g gaps) covered(from, to time.Time) float64 {
	missing := time.Duration(0)
	for _, s := range g {
		if s.From.Before(from) {
			s.From = from
		}
		if s.To.After(to) {
			s.To = to
		}
		missing += max(s.To.Sub(s.From), 0)
	}
	return 1 - float64(missing)/float64(to.Sub(from))
}
