package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
)

type fabricInput struct{}

// maxPlaces bounds the locations that are listed.
const maxPlaces = 100_000

func (a *API) fabric(ctx context.Context, _ *table.State, _ *fabricInput) (*answer, error) {
	n, err := a.names.get(ctx)
	if err != nil {
		return nil, err
	}
	out := model.Fabric{Name: a.Fabric, Groups: []model.Group{}, Locations: []model.Place{}}
	for _, g := range n.groups {
		out.Groups = append(out.Groups, model.Group{Name: g.Name, Level: g.Level, Parent: g.Parent})
	}
	if len(n.locations) > maxPlaces {
		return nil, huma.NewError(422, fmt.Sprintf("there are %d locations, at most %d are listed: see the fabric file", len(n.locations), maxPlaces))
	}
	for id := range n.locations {
		out.Locations = append(out.Locations, n.place(id))
	}
	slices.SortFunc(out.Locations, func(x, y model.Place) int { return cmp.Compare(x.Location, y.Location) })
	return of(nil, &out)
}

type healthInput struct{}

func (a *API) health(context.Context, *table.State, *healthInput) (*answer, error) {
	out := model.Health{Source: "store", Watchers: int(a.watchers.Load()), Signals: []string{}}
	if a.Memory == nil {
		return of(nil, &out)
	}
	s, counts := a.Memory.State(), a.Memory.Counts()
	out.Source, out.Revision, out.Windows, out.WindowSeconds = "memory", token(s), len(s.Windows), s.Resolution.Seconds()
	out.OldBlocks, out.DroppedWindows = counts.OldBlocks, counts.DroppedWindows
	for _, signal := range s.Signals() {
		out.Signals = append(out.Signals, signal.FullName())
	}
	if w := s.Newest(); w != nil {
		age := a.Now().Sub(w.End).Seconds()
		out.First, out.Last, out.AgeSeconds = &s.Windows[0].Start, &w.End, &age
		out.Completeness, out.Producers, out.Expected = w.Completeness(), w.Producers, w.Expected
	}
	return of(nil, &out)
}
