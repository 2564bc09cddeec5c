package report

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// Limits of a document. The JSON has the same limits.
const (
	maxGroups    = 64
	maxWorst     = 20
	maxLocations = 30
	maxFindings  = 200
	maxPackets   = 16
	maxColumns   = 500
	maxPorts     = 8 // on a hop
)

// Signals builds the report's part on each signal. domain interprets the codes.
func Signals(ctx context.Context, data Data, names Names, domain *csig.Domain) ([]Signal, error) {
	all, err := data.Signals(ctx)
	if err != nil {
		return nil, fmt.Errorf("build report: %w", err)
	}
	list := []Signal{}
	labels := csig.SignalNames(all)
	for i, s := range all {
		b := &builder{signal: s, data: data, names: names, domain: domain}
		one := Signal{signal: s, Name: labels[i], Unit: s.Unit().String(), Direction: "min"}
		if s.Direction() == csig.Max {
			one.Direction = "max"
		}
		if err := b.fill(ctx, &one); err != nil {
			return nil, fmt.Errorf("build report of %s: %w", labels[i], err)
		}
		if one.Cells > 0 {
			list = append(list, one)
		}
	}
	return list, nil
}

// builder builds the part on one signal.
type builder struct {
	signal csig.Signal
	data   Data
	names  Names
	domain *csig.Domain
}

func (b *builder) fill(ctx context.Context, one *Signal) error {
	cells, err := b.data.Cells(ctx, b.signal)
	if err != nil || len(cells) == 0 {
		return err
	}
	slices.SortFunc(cells, func(x, y aggregate.CellStats) int {
		return cmp.Or(cmp.Compare(x.Src, y.Src), cmp.Compare(x.Dst, y.Dst))
	})
	locations, err := b.data.Locations(ctx, b.signal)
	if err != nil {
		return err
	}
	slices.SortFunc(locations, func(x, y aggregate.LocationStats) int {
		return aggregate.CompareBottlenecks(b.signal.Direction(), &x, &y)
	})
	flows, err := b.data.Flows(ctx, b.signal)
	if err != nil {
		return err
	}
	scale := domainOf(b.signal, cells, b.fastest(locations))
	shown := b.cells(cells, &scale)
	one.Locations = b.locations(locations)
	rank(shown, one.Locations)
	one.Cells = len(cells)
	for k := range shown {
		if cells[k].WasCongested() {
			one.Congested++
		}
		if shown[k].State == aggregate.NotJudged.String() {
			one.NotJudged++
		}
	}
	one.Matrix = b.matrix(cells, shown)
	one.Matrix.setScale(scale, b.signal.Unit())
	one.Flows = b.flows(flows, cells)
	if one.Heat, err = b.heat(ctx, locations); err != nil {
		return err
	}
	suffering := mostHeavy(cells)
	if one.Rhythms, err = b.rhythms(ctx, cells, suffering, flows); err != nil {
		return err
	}
	return b.closer(ctx, one, cells, shown, suffering[:min(len(suffering), maxWorst)])
}

// fastest returns the capacity of the fastest named port in bit/s, or 0 if none is known.
func (b *builder) fastest(list []aggregate.LocationStats) float64 {
	most := uint64(0)
	for i := range list {
		most = max(most, b.location(list[i].Location).Capacity)
	}
	return csig.BitPerSecond.FromStored(most)
}

// rank numbers the cells' modes by their position in the list of locations.
func rank(cells []Cell, list []Location) {
	ranks := make(map[string]int, len(list))
	for i := range list {
		ranks[list[i].Name] = i + 1
	}
	for i := range cells {
		cells[i].rank = ranks[cells[i].Mode]
	}
}

// mostHeavy returns the indexes of cells with heavy observations, most first.
func mostHeavy(cells []aggregate.CellStats) []int {
	var list []int
	for i := range cells {
		if cells[i].Heavy > 0 {
			list = append(list, i)
		}
	}
	slices.SortStableFunc(list, func(x, y int) int { return cmp.Compare(cells[y].Heavy, cells[x].Heavy) })
	return list
}

// ids returns the IDs of the cells with the given indexes.
func ids(cells []aggregate.CellStats, which []int) []aggregate.CellID {
	list := make([]aggregate.CellID, len(which))
	for i, k := range which {
		list[i] = cells[k].ID()
	}
	return list
}

// closer fills in the details of all cells together and of the worst cells.
func (b *builder) closer(ctx context.Context, one *Signal, cells []aggregate.CellStats, shown []Cell, worst []int) error {
	all, of, err := b.data.Distributions(ctx, b.signal, ids(cells, worst))
	if err != nil {
		return err
	}
	axes := b.axes(all)
	one.Distributions = distributions(axes, all)
	one.Worst = make([]WorstCell, len(worst))
	for i, k := range worst {
		one.Worst[i] = WorstCell{
			Cell: shown[k], Path: b.path(&cells[k], shown[k].Candidates), Distributions: distributions(axes, of[i]),
			Load: b.load(b.data.Span().Window, of[i], b.capacity(&cells[k])),
		}
	}
	return nil
}

// capacity returns the capacity of a cell's mode in kbit/s, or 0 if it is not known.
func (b *builder) capacity(c *aggregate.CellStats) uint64 {
	at, _ := b.names.Location(c.Mode)
	return at.Capacity
}

// path returns the hops of a cell's packets and marks the hops that contain a candidate for the
// mode.
func (b *builder) path(c *aggregate.CellStats, candidates []string) []Hop {
	list := []Hop{}
	for _, h := range b.names.Hops(c.Src, c.Dst) {
		list = append(list, Hop{
			Name: h.Name, Ports: h.Ports[:min(len(h.Ports), maxPorts)], Count: h.Count,
			Bottleneck: slices.ContainsFunc(candidates, func(p string) bool { return slices.Contains(h.Ports, p) }),
		})
	}
	return list
}

func (b *builder) text(stored float64) string {
	if math.IsNaN(stored) {
		return ""
	}
	return csig.FormatQuantity(b.signal.Unit(), stored)
}

// location returns a location with its name, number of ports and color.
func (b *builder) location(id aggregate.LocationID) fabric.Location {
	return location(b.names, id)
}

func location(names Names, id aggregate.LocationID) fabric.Location {
	l, ok := names.Location(id)
	if !ok {
		l = fabric.Location{ID: id, Name: id.Placeholder()}
	}
	return l
}

func (b *builder) cells(list []aggregate.CellStats, scale *domain) []Cell {
	out := make([]Cell, len(list))
	for i := range list {
		out[i] = b.cell(&list[i], scale)
	}
	return out
}

func (b *builder) cell(c *aggregate.CellStats, scale *domain) Cell {
	mean := c.Mean()
	out := Cell{
		Src: b.names.GroupName(c.Src), Dst: b.names.GroupName(c.Dst), Kind: c.Kind.String(), State: c.State.String(),
		Observations: c.Observations, MeanText: b.text(mean), Heavy: c.Heavy, HeavyShare: query.ZeroNaN(c.HeavyShare()), TrimmedShare: query.ZeroNaN(c.TrimmedShare()),
		state: c.StateText(),
	}
	if !math.IsNaN(mean) {
		v := mean * b.signal.Unit().PerStored()
		out.Mean = &v
		out.severity = scale.severity(v)
	}
	if c.ModeCount > 0 {
		at := b.location(c.Mode)
		out.Mode, out.ModeShare, out.ModePorts, out.color = at.Name, c.ModeShare(), max(at.CandidateCount, 1), query.Color(at)
		out.Evidence = slices.Collect(c.ModeEvidence.Words)
		for _, one := range c.Candidates(func(id aggregate.LocationID) ([]string, int) {
			at := b.location(id)
			return at.Candidates, at.CandidateCount
		}) {
			out.Candidates, out.Probabilities = append(out.Candidates, one.Port), append(out.Probabilities, one.Probability)
		}
	}
	if c.RunnerUpCount > 0 {
		out.RunnerUp = b.location(c.RunnerUp).Name
	}
	return out
}

// matrix returns the matrix of the groups with most heavy observations.
func (b *builder) matrix(list []aggregate.CellStats, shown []Cell) (m Matrix) {
	heavy := map[aggregate.GroupID]uint64{}
	for i := range list {
		heavy[list[i].Src] += list[i].Heavy
		heavy[list[i].Dst] += list[i].Heavy
	}
	groups := make([]aggregate.GroupID, 0, len(heavy))
	for g := range heavy {
		groups = append(groups, g)
	}
	slices.SortFunc(groups, func(x, y aggregate.GroupID) int {
		return cmp.Or(cmp.Compare(heavy[y], heavy[x]), fabric.CompareNames(b.names.GroupName(x), b.names.GroupName(y)), cmp.Compare(x, y))
	})
	m.LeftOut = max(len(groups)-maxGroups, 0)
	groups = groups[:len(groups)-m.LeftOut]
	index := make(map[aggregate.GroupID]int, len(groups))
	slices.SortFunc(groups, func(x, y aggregate.GroupID) int {
		return fabric.CompareNames(b.names.GroupName(x), b.names.GroupName(y))
	})
	for i, g := range groups {
		index[g] = i
		m.Groups = append(m.Groups, b.names.GroupName(g))
		m.Cells = append(m.Cells, make([]*Cell, len(groups)))
	}
	for i := range list {
		src, ok := index[list[i].Src]
		dst, too := index[list[i].Dst]
		if ok && too {
			m.Cells[src][dst] = &shown[i]
		}
	}
	return m
}

func (b *builder) locations(list []aggregate.LocationStats) []Location {
	out := []Location{}
	for i := range list[:min(len(list), maxLocations)] {
		l := &list[i]
		if l.Heavy == 0 {
			break // the list is sorted by heavy observations
		}
		at := b.location(l.Location)
		out = append(out, Location{
			Name: at.Name, Kind: at.Kind, Ports: at.CandidateCount, Observations: l.Observations, Heavy: l.Heavy, Cells: l.Cells,
			HeavyMean: b.text(float64(l.HeavySum) / float64(l.Heavy)), Color: query.Color(at),
		})
	}
	return out
}

// Findings returns the report's form of the findings, with packets to open.
func Findings(list []finding.Finding) []Finding {
	out := []Finding{}
	for i := range list[:min(len(list), maxFindings)] {
		f := &list[i]
		one := Finding{
			Severity: string(f.Kind.Severity()), Kind: f.Kind.String(), Subject: f.Subject, Device: f.Device, Port: f.Port, Candidates: f.Candidates,
			Count: f.Count, Of: f.Of, Unit: f.Kind.Unit(), Evidence: f.Evidence, Otherwise: f.Kind.Otherwise(), Packets: byFile(f.Packets[:min(len(f.Packets), maxPackets)]),
		}
		if f.To != 0 {
			one.From, one.To = stamp(f.From), stamp(f.To)
		}
		out = append(out, one)
	}
	return out
}

// byFile groups packets by file; the packets of a file must be adjacent.
func byFile(list []finding.Packet) []Packets {
	out := []Packets{}
	for _, p := range list {
		if n := len(out); n == 0 || out[n-1].File != p.File {
			out = append(out, Packets{File: p.File})
		}
		last := &out[len(out)-1]
		last.Numbers = append(last.Numbers, p.Number)
	}
	return out
}

func stamp(ns int64) string { return time.Unix(0, ns).UTC().Format(time.RFC3339Nano) }

// heat returns the worst locations' shares of each column's heavy observations. A column is one
// step, or several steps if there are too many for the document.
func (b *builder) heat(ctx context.Context, worst []aggregate.LocationStats) (Heat, error) {
	span := b.data.Span()
	h := Heat{Step: span.Step, Starts: []time.Time{}, Locations: []string{}, Share: [][]float64{}, Heavy: []uint64{}}
	row := map[aggregate.LocationID]int{}
	for i := range worst[:min(len(worst), maxLocations)] {
		if worst[i].Heavy == 0 {
			break
		}
		at := b.location(worst[i].Location)
		row[worst[i].Location] = len(h.Locations)
		h.Locations, h.colors = append(h.Locations, at.Name), append(h.colors, query.Color(at))
	}
	if len(row) == 0 || span.Step <= 0 {
		return h, nil
	}
	for span.Last/int64(h.Step)-span.First/int64(h.Step) >= maxColumns {
		h.Step += span.Step
	}
	steps, err := b.data.LocationSteps(ctx, b.signal, h.Step)
	if err != nil {
		return h, err
	}
	first := span.First / int64(h.Step)
	columns := int(span.Last/int64(h.Step)-first) + 1
	h.Heavy = make([]uint64, columns)
	counts := make([][]uint64, len(h.Locations))
	for i := range counts {
		counts[i] = make([]uint64, columns)
	}
	for _, l := range steps {
		k := l.Start/int64(h.Step) - first
		if k < 0 || k >= int64(columns) {
			continue // outside the captures' span
		}
		h.Heavy[k] += l.Heavy
		if i, ok := row[l.Location]; ok {
			counts[i][k] += l.Heavy
		}
	}
	for i := range counts {
		h.Share = append(h.Share, make([]float64, columns))
		for k, n := range counts[i] {
			h.Share[i][k] = query.ZeroNaN(float64(n) / float64(h.Heavy[k]))
		}
	}
	for k := range columns {
		h.Starts = append(h.Starts, time.Unix(0, (first+int64(k))*int64(h.Step)).UTC())
	}
	return h, nil
}
