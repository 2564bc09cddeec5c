package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

type pathInput struct {
	SignalInput
	TimesInput
	Src     string `query:"src" required:"true" maxLength:"200" doc:"source group" example:"rack1"`
	Dst     string `query:"dst" required:"true" maxLength:"200" doc:"destination group" example:"rack2"`
	Windows int    `query:"windows" default:"10" minimum:"1" maximum:"3600" doc:"how many of the last windows in memory are added up" example:"10"`
	WaitInput
}

func (in *pathInput) ends() *FilterInput {
	return &FilterInput{GroupInput: GroupInput{Src: []string{in.Src}, Dst: []string{in.Dst}}}
}

func (a *API) path(ctx context.Context, s *table.State, in *pathInput) (*answer, error) {
	if s == nil {
		return a.pastPath(ctx, in)
	}
	v, k, err := a.asked(ctx, s, &in.SignalInput, in.Windows)
	if err != nil {
		return nil, err
	}
	f, err := in.ends().filter(v.names, k.signal)
	if err != nil {
		return nil, err
	}
	return a.pathOf(s, about(s, k), v.names, k.signal, v.models(v.chosen(&f)), in)
}

// pastPath answers from the store.
func (a *API) pastPath(ctx context.Context, in *pathInput) (*answer, error) {
	q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
	if err != nil {
		return nil, err
	}
	n, err := a.history(ctx)
	if err != nil {
		return nil, err
	}
	cells, err := a.pastCells(ctx, q, in.ends())
	if err != nil {
		return nil, err
	}
	missing, err := a.Reader.Missing(ctx, q.From, q.To)
	if err != nil {
		return nil, err
	}
	about := pastAbout(q)
	about.Completeness = gaps(missing).covered(q.From, q.To)
	return a.pathOf(nil, about, n, q.Signal, cells, in)
}

// pathOf is the answer that the one cell of a path gives.
func (a *API) pathOf(s *table.State, about model.About, n *names, signal csig.Signal, cells []model.Cell, in *pathInput) (*answer, error) {
	switch {
	case len(cells) == 0 && s == nil:
		return nil, huma.NewError(404, fmt.Sprintf("nothing was observed from %q to %q in that time: take a longer range", in.Src, in.Dst))
	case len(cells) == 0:
		return nil, huma.NewError(404, fmt.Sprintf("nothing was observed from %q to %q in the last %d windows: raise windows, or ask for history (from, to)", in.Src, in.Dst, in.Windows))
	case len(cells) > 1:
		return nil, wrong("src", in.Src, "stands for several groups, with %d cells: name one each, or ask for cells", len(cells))
	}
	p := model.Path{About: about, Cell: cells[0]}
	if signal.Aggregation() == csig.AggregateMin {
		p.Room = p.Cell.Mean
	}
	if p.Cell.Mode != nil {
		p.Limit = n.placeNamed(p.Cell.Mode.Location)
	}
	p.AgeSeconds = a.Now().Sub(p.To).Seconds()
	return of(s, &p)
}

// placeNamed is the location of that name.
func (n *names) placeNamed(name string) *model.Place {
	place := model.Place{Location: name, Kind: fabric.KindUnknown}
	if ids := n.placeIDs[name]; len(ids) > 0 {
		place = n.place(slices.Min(ids))
	}
	return &place
}
