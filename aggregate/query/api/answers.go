package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/recent"
)

// maxSide bounds the rows of a matrix.
const maxSide = 512

type matrixInput struct {
	SignalInput
	Windows int `query:"windows" default:"1" minimum:"1" maximum:"3600" doc:"how many of the last windows are added up"`
	WaitInput
	GroupInput
}

func (a *API) matrix(ctx context.Context, s *recent.State, in *matrixInput) (*answer, error) {
	v, k, err := a.asked(ctx, s, &in.SignalInput, in.Windows)
	if err != nil {
		return nil, err
	}
	f, err := (&FilterInput{GroupInput: in.GroupInput}).filter(v.names, k.signal)
	if err != nil {
		return nil, err
	}
	chosen := v.chosen(&f)
	m := model.Matrix{About: about(s, k), Groups: []string{}}
	place := v.axes(chosen)
	if len(place) > maxSide {
		return nil, wrong("src", nil, "the matrix has %d groups, at most %d: name src and dst, or ask for cells", len(place), maxSide)
	}
	m.Groups = slices.Grow(m.Groups, len(place))[:len(place)]
	for id, i := range place {
		m.Groups[i] = v.names.groupName(id)
	}
	for range place {
		m.Mean, m.Heavy = append(m.Mean, make([]*float64, len(place))), append(m.Heavy, make([]*float64, len(place)))
		m.Mode = append(m.Mode, make([]*string, len(place)))
		m.State = append(m.State, slices.Repeat([]model.CellState{model.CellState(aggregate.NoData.String())}, len(place)))
	}
	for _, i := range chosen {
		c := &v.cells[i]
		row, column := place[c.Src], place[c.Dst]
		m.State[row][column] = model.CellState(c.State.String())
		heavy := orZero(c.HeavyShare())
		m.Heavy[row][column] = &heavy
		if mean := c.Mean() * k.signal.Unit().PerStored(); c.Measured > 0 {
			m.Mean[row][column] = &mean
		}
		if c.ModeCount > 0 {
			name := v.names.locationName(c.Mode)
			m.Mode[row][column] = &name
		}
	}
	return of(s, &m)
}

// axes numbers the groups of cells in the catalog's order.
func (v *view) axes(chosen []int) map[aggregate.GroupID]int {
	seen := make(map[aggregate.GroupID]bool)
	for _, i := range chosen {
		seen[v.cells[i].Src], seen[v.cells[i].Dst] = true, true
	}
	place := make(map[aggregate.GroupID]int, len(seen))
	add := func(id aggregate.GroupID) {
		if _, ok := place[id]; !ok && seen[id] {
			place[id] = len(place)
		}
	}
	for _, g := range v.names.groups {
		add(g.ID)
	}
	for _, i := range chosen {
		add(v.cells[i].Src)
		add(v.cells[i].Dst)
	}
	return place
}

// asked is the view that a question is about.
func (a *API) asked(ctx context.Context, s *recent.State, in *SignalInput, windows int) (*view, viewKey, error) {
	k, err := in.key(windows, s.Signals())
	if err != nil {
		return nil, k, err
	}
	a.used.note(k, a.Now())
	v, err := a.view(ctx, s, k)
	return v, k, err
}

type pathInput struct {
	SignalInput
	Src     string `query:"src" required:"true" maxLength:"200" doc:"source group"`
	Dst     string `query:"dst" required:"true" maxLength:"200" doc:"destination group"`
	Windows int    `query:"windows" default:"10" minimum:"1" maximum:"3600" doc:"how many of the last windows are added up"`
	WaitInput
}

func (a *API) path(ctx context.Context, s *recent.State, in *pathInput) (*answer, error) {
	v, k, err := a.asked(ctx, s, &in.SignalInput, in.Windows)
	if err != nil {
		return nil, err
	}
	ends := FilterInput{GroupInput: GroupInput{Src: []string{in.Src}, Dst: []string{in.Dst}}}
	f, err := ends.filter(v.names, k.signal)
	if err != nil {
		return nil, err
	}
	chosen := v.chosen(&f)
	switch {
	case len(chosen) == 0:
		return nil, huma.NewError(404, fmt.Sprintf("nothing was observed from %q to %q in the last %d windows: raise windows, or ask for history of cells (from, to)", in.Src, in.Dst, in.Windows))
	case len(chosen) > 1:
		return nil, wrong("src", in.Src, "stands for several groups, with %d cells: name one each, or ask for cells", len(chosen))
	}
	p := model.Path{About: about(s, k)}
	c := &v.cells[chosen[0]]
	p.Cell = v.names.cell(c)
	if p.Cell.Mean != nil && k.signal.Aggregation().String() == "min" {
		p.Room = p.Cell.Mean
	}
	if c.ModeCount > 0 {
		place := v.names.place(c.Mode)
		p.Limit = &place
	}
	p.AgeSeconds = a.Now().Sub(p.To).Seconds()
	return of(s, &p)
}

func (n *names) place(id aggregate.LocationID) model.Place {
	l, ok := n.locations[id]
	if !ok {
		return model.Place{Location: n.locationName(id), Kind: fabric.KindUnknown}
	}
	return model.Place{
		Location: l.Name, Kind: l.Kind, Device: l.Device, Stage: l.Stage, Orientation: l.Orientation,
		CapacityBPS: l.Capacity * 1000, Candidates: l.Candidates, CandidateCount: l.CandidateCount,
	}
}

type locationsInput struct {
	SignalInput
	RangeInput
	WaitInput
	Top int `query:"top" default:"20" minimum:"1" maximum:"10000" doc:"how many"`
}

func (a *API) locations(ctx context.Context, s *recent.State, in *locationsInput) (*answer, error) {
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
		list := recent.Merge(windows).Locations(k.signal, n.at(k.level))
		list = slices.DeleteFunc(list, func(l aggregate.LocationStats) bool { return l.Location == aggregate.NoLocation })
		out.Total = len(list)
		for _, l := range list[:min(in.Top, len(list))] {
			out.Values = append(out.Values, n.location(&l, k))
		}
	}
	return of(s, &out)
}

func (n *names) location(l *aggregate.LocationStats, k viewKey) model.Location {
	p := n.place(l.Location)
	out := model.Location{
		Location: p.Location, Kind: p.Kind, Device: p.Device, Stage: p.Stage, CapacityBPS: p.CapacityBPS,
		Observations: l.Observations, Heavy: l.Heavy, Cells: uint64(l.Cells),
	}
	if l.Heavy > 0 {
		out.HeavyMean = measure(k.signal, float64(l.HeavySum)/float64(l.Heavy)*k.signal.Unit().PerStored())
	}
	return out
}

// pastLocations answers from the store, without the cells and means of locations.
func (a *API) pastLocations(ctx context.Context, in *locationsInput) (*answer, error) {
	q, err := a.question(ctx, &in.SignalInput, &in.RangeInput)
	if err != nil {
		return nil, err
	}
	rows, err := a.Reader.LocationWindows(ctx, q)
	if err != nil {
		return nil, err
	}
	n, err := a.history(ctx)
	if err != nil {
		return nil, err
	}
	sums := make(map[aggregate.LocationID]*aggregate.LocationStats)
	for _, r := range rows {
		if r.Location == aggregate.NoLocation {
			continue
		}
		l := sums[r.Location]
		if l == nil {
			l = &aggregate.LocationStats{Location: r.Location}
			sums[r.Location] = l
		}
		l.Observations += r.Observations
		l.Heavy += r.Heavy
	}
	list := make([]*aggregate.LocationStats, 0, len(sums))
	for _, l := range sums {
		list = append(list, l)
	}
	slices.SortFunc(list, func(x, y *aggregate.LocationStats) int {
		return cmp.Or(cmp.Compare(y.Heavy, x.Heavy), cmp.Compare(x.Location, y.Location))
	})
	out := model.Locations{About: pastAbout(q), Total: len(list), Values: []model.Location{}}
	for _, l := range list[:min(in.Top, len(list))] {
		value := n.location(l, viewKey{signal: q.Signal})
		value.HeavyMean = nil
		out.Values = append(out.Values, value)
	}
	return of(nil, &out)
}

type timelineInput struct {
	SignalInput
	Windows int `query:"windows" default:"60" minimum:"1" maximum:"3600" doc:"how many of the last windows"`
	WaitInput
	GroupInput
	Top int `query:"top" default:"3" minimum:"0" maximum:"100" doc:"locations of each window, of all cells"`
}

func (a *API) timeline(ctx context.Context, s *recent.State, in *timelineInput) (*answer, error) {
	k, err := in.key(in.Windows, s.Signals())
	if err != nil {
		return nil, err
	}
	out := model.Timeline{About: about(s, k), Values: []model.Moment{}}
	for _, w := range s.Last(in.Windows) {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		v, err := a.windowView(ctx, w, k.signal, k.level)
		if err != nil {
			return nil, err
		}
		f, err := (&FilterInput{GroupInput: in.GroupInput}).filter(v.names, k.signal)
		if err != nil {
			return nil, err
		}
		m := model.Moment{Start: w.Start, Completeness: w.Completeness(), Locations: []model.Location{}}
		for _, i := range v.chosen(&f) {
			c := &v.cells[i]
			m.Cells++
			m.Observations += c.Observations
			m.Heavy += c.Heavy
			if c.State == aggregate.Congested {
				m.Congested++
			}
		}
		list := w.Summary().Locations(k.signal, v.names.at(k.level))
		for _, l := range list {
			if len(m.Locations) < in.Top && l.Heavy > 0 && l.Location != aggregate.NoLocation {
				m.Locations = append(m.Locations, v.names.location(&l, k))
			}
		}
		out.Values = append(out.Values, m)
	}
	return of(s, &out)
}

type fabricInput struct{}

// maxPlaces bounds the locations that are listed.
const maxPlaces = 100_000

func (a *API) fabric(ctx context.Context, _ *recent.State, _ *fabricInput) (*answer, error) {
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

func (a *API) health(context.Context, *recent.State, *healthInput) (*answer, error) {
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
