package api

import (
	"context"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode/csig"
)

type locationsInput struct {
	SignalInput
	RangeInput
	WaitInput
	Top int `query:"top" default:"20" minimum:"1" maximum:"10000" doc:"how many" example:"5"`
}

func (a *API) locations(ctx context.Context, s *table.State, in *locationsInput) (*answer, error) {
	if s == nil {
		return a.pastLocations(ctx, in)
	}
	k, err := in.key(in.Windows, s.Signals())
	if err != nil {
		return nil, err
	}
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	out := model.Locations{About: about(s, k), Values: []model.Location{}}
	if windows := s.Last(k.windows); len(windows) > 0 {
		list := table.Merge(windows).Locations(k.signal, n.at(k.level))
		list = slices.DeleteFunc(list, func(l aggregate.LocationStats) bool { return l.Location == aggregate.NoLocation })
		out.Total = len(list)
		for _, l := range list[:min(in.Top, len(list))] {
			out.Values = append(out.Values, n.location(&l, k.signal))
		}
	}
	return of(s, &out)
}

func (n *names) location(l *aggregate.LocationStats, s csig.Signal) model.Location {
	out := n.named(l.Location)
	out.Observations, out.Heavy, out.Cells = l.Observations, l.Heavy, uint64(l.Cells)
	if l.Heavy > 0 {
		out.HeavyMean = measure(s, sixDigits(float64(l.HeavySum)/float64(l.Heavy)*s.Unit().PerStored()))
	}
	return out
}

// named is a location without its counts.
func (n *names) named(id aggregate.LocationID) model.Location {
	p := n.place(id)
	return model.Location{Location: p.Location, Kind: p.Kind, Device: p.Device, Stage: p.Stage, CapacityBPS: p.CapacityBPS}
}

// pastLocations answers from the store.
func (a *API) pastLocations(ctx context.Context, in *locationsInput) (*answer, error) {
	q, err := a.question(ctx, &in.SignalInput, &in.TimesInput)
	if err != nil {
		return nil, err
	}
	rows, err := a.Reader.TopLocations(ctx, q, maxPlaces)
	if err != nil {
		return nil, err
	}
	n, err := a.history(ctx)
	if err != nil {
		return nil, err
	}
	rows = slices.DeleteFunc(rows, func(r query.LocationTotal) bool { return r.Location == aggregate.NoLocation })
	out := model.Locations{About: pastAbout(q), Total: len(rows), Values: []model.Location{}}
	for _, r := range rows[:min(in.Top, len(rows))] {
		l := n.named(r.Location)
		l.Observations, l.Heavy, l.Cells, l.HeavyMean = r.Observations, r.Heavy, r.Cells, measure(q.Signal, sixDigits(r.HeavyMean))
		out.Values = append(out.Values, l)
	}
	return of(nil, &out)
}
