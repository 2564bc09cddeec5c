package query

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// axes are the groups of both matrix axes.
type axes struct {
	groups []Group
	index  map[aggregate.GroupID]int
}

// newAxes takes every group that has data, and the silent ones of the same levels:
// a rack whose tap died must stay visible as a row without data.
func newAxes(rows []fabric.Group, raw []rawSignal, limit int) *axes {
	seen := map[aggregate.GroupID]bool{}
	for _, s := range raw {
		for _, cells := range slices.Concat(s.cells[:1], s.totals[:1]) {
			for _, c := range cells {
				seen[c.Src], seen[c.Dst] = true, true
			}
		}
	}
	byID := make(map[aggregate.GroupID]fabric.Group, len(rows))
	for _, g := range rows {
		byID[g.ID] = g
	}
	levels := levelsShown(rows, byID, seen)
	var chosen []fabric.Group
	for id := range seen {
		g, ok := byID[id]
		if !ok {
			g = unnamedGroup(id)
		}
		chosen = append(chosen, g)
	}
	slices.SortFunc(rows, compareGroups)
	for _, g := range rows {
		if len(chosen) < limit && !seen[g.ID] && levels[g.Level] && g.ID > aggregate.OverflowGroup {
			chosen = append(chosen, g)
		}
	}
	slices.SortFunc(chosen, compareGroups)
	a := &axes{groups: make([]Group, 0, len(chosen)), index: make(map[aggregate.GroupID]int, len(chosen))}
	for i, g := range chosen {
		a.index[g.ID] = i
		a.groups = append(a.groups, Group{ID: ID(g.ID), Name: g.Name, Level: g.Level, Parent: g.Parent, Order: g.Order})
	}
	return a
}

// levelsShown are the levels that data was found at, or without any data those of
// the groups that have no parts.
func levelsShown(rows []fabric.Group, byID map[aggregate.GroupID]fabric.Group, seen map[aggregate.GroupID]bool) map[string]bool {
	levels := map[string]bool{}
	for id := range seen {
		if id > aggregate.OverflowGroup {
			levels[byID[id].Level] = true
		}
	}
	if len(levels) > 0 {
		return levels
	}
	parents := map[string]bool{}
	for _, g := range rows {
		parents[g.Parent] = true
	}
	for _, g := range rows {
		if !parents[g.Name] {
			levels[g.Level] = true
		}
	}
	return levels
}

// compareGroups keeps the reserved groups at the end of the axes.
func compareGroups(a, b fabric.Group) int {
	reserved := func(g fabric.Group) int {
		if g.ID <= aggregate.OverflowGroup {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(reserved(a), reserved(b)), cmp.Compare(a.Order, b.Order),
		cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
}

func unnamedGroup(id aggregate.GroupID) fabric.Group {
	g := fabric.Group{ID: id, Name: fmt.Sprintf("group %016x", uint64(id))}
	switch id {
	case aggregate.UnknownGroup:
		g.Name = "unknown"
	case aggregate.OverflowGroup:
		g.Name = "overflow"
	}
	return g
}

// places are the locations that a bundle names.
type places struct {
	list []Location
	at   map[aggregate.LocationID]int
}

// newPlaces takes the locations that rows name, with their ancestors, and all others as
// long as they are not more than the limit: a map shows the ports that nothing named, and
// the next window may name any.
func newPlaces(rows []fabric.Location, raw []rawSignal, limit int) *places {
	byID := make(map[aggregate.LocationID]fabric.Location, len(rows))
	for _, l := range rows {
		byID[l.ID] = l
	}
	chosen := map[aggregate.LocationID]fabric.Location{}
	var choose func(aggregate.LocationID)
	choose = func(id aggregate.LocationID) {
		if _, done := chosen[id]; done || id == aggregate.NoLocation {
			return
		}
		l, ok := byID[id]
		if !ok {
			l = unnamedLocation(id)
		}
		chosen[id] = l
		choose(l.Set)
		choose(l.DeviceLoc)
		choose(l.StageLoc)
	}
	for _, s := range raw {
		s.visit(choose)
	}
	if len(rows) <= limit {
		for _, l := range rows {
			choose(l.ID)
		}
	}
	sorted := make([]fabric.Location, 0, len(chosen))
	for _, l := range chosen {
		sorted = append(sorted, l)
	}
	slices.SortFunc(sorted, func(a, b fabric.Location) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return index(sorted)
}

func index(sorted []fabric.Location) *places {
	p := &places{list: make([]Location, 0, len(sorted)), at: make(map[aggregate.LocationID]int, len(sorted))}
	for i, l := range sorted {
		p.at[l.ID] = i
	}
	for i, l := range sorted {
		p.list = append(p.list, Location{
			ID: ID(l.ID), Name: l.Name, Kind: l.Kind, Device: l.Device, Stage: l.Stage, Orientation: l.Orientation,
			CapacityBPS: l.Capacity * 1000, Candidates: l.Candidates, CandidateCount: l.CandidateCount, Color: Color(l),
			Set: p.ancestor(l.Set, i), DeviceIndex: p.ancestor(l.DeviceLoc, i), StageIndex: p.ancestor(l.StageLoc, i),
		})
	}
	return p
}

func (p *places) ancestor(id aggregate.LocationID, self int) int {
	if i, ok := p.at[id]; ok {
		return i
	}
	return self
}

// index is -1 for no location.
func (p *places) index(id aggregate.LocationID) int {
	if i, ok := p.at[id]; ok {
		return i
	}
	return -1
}

func unnamedLocation(id aggregate.LocationID) fabric.Location {
	l := fabric.Location{ID: id, Name: fmt.Sprintf("location %016x", uint64(id)), Kind: "unknown"}
	if id == aggregate.OverflowLocation {
		l.Name, l.Kind = "other locations", "overflow"
	}
	return l
}
