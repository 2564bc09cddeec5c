package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/query"
	"github.com/csigscope/csigscope/decode/csig"
)

// How much a document shows. The JSON is the same document.
const (
	maxGroups    = 64
	maxWorst     = 20
	maxLocations = 30
	maxFindings  = 200
	maxPackets   = 16
	maxColumns   = 500
)

// Names tells what identities are called.
type Names interface {
	GroupName(aggregate.GroupID) string
	Location(aggregate.LocationID) (fabric.Location, bool)
}

// Signals are what captures say of each signal: a summary of all of it, and a timeline.
func Signals(total *aggregate.Summary, t *aggregate.Timeline, names Names) []Signal {
	list := []Signal{}
	starts, steps := t.Steps()
	all := total.Signals()
	labels := csig.SignalNames(all)
	for i, s := range all {
		cells := total.Cells(s, nil)
		if len(cells) == 0 {
			continue
		}
		b := &builder{signal: s, names: names}
		one := Signal{Name: labels[i], Unit: s.Unit().String(), Direction: "min", Cells: len(cells)}
		if s.Direction() == csig.Max {
			one.Direction = "max"
		}
		shown := b.cells(cells)
		for k := range shown {
			if shown[k].State == aggregate.Congested.String() {
				one.Congested++
			}
		}
		one.Matrix = b.matrix(cells, shown)
		one.Worst = worst(shown)
		locations := total.Locations(s, nil)
		one.Locations = b.locations(locations)
		one.Heat = b.heat(t.Step(), starts, steps, locations)
		one.Rhythms = b.rhythms(cells, t.Step(), starts, steps)
		list = append(list, one)
	}
	return list
}

// builder is for one signal.
type builder struct {
	signal csig.Signal
	names  Names
}

func (b *builder) text(stored float64) string {
	if math.IsNaN(stored) {
		return ""
	}
	return csig.FormatQuantity(b.signal.Unit(), stored)
}

// place is a location's name, number of ports and colour.
func (b *builder) place(id aggregate.LocationID) fabric.Location {
	l, ok := b.names.Location(id)
	if !ok {
		l = fabric.Location{ID: id, Name: fmt.Sprintf("location %016x", uint64(id))}
	}
	return l
}

func (b *builder) cells(list []aggregate.CellStats) []Cell {
	out := make([]Cell, len(list))
	low, high := math.Inf(1), math.Inf(-1)
	for i := range list {
		if m := list[i].Mean(); !math.IsNaN(m) {
			low, high = min(low, m), max(high, m)
		}
	}
	for i := range list {
		out[i] = b.cell(&list[i], low, high)
	}
	return out
}

func (b *builder) cell(c *aggregate.CellStats, low, high float64) Cell {
	mean := c.Mean()
	out := Cell{
		Src: b.names.GroupName(c.Src), Dst: b.names.GroupName(c.Dst), Kind: c.Kind.String(), State: c.State.String(),
		Observations: c.Observations, MeanText: b.text(mean), Heavy: c.Heavy, HeavyShare: zero(c.HeavyShare()), TrimmedShare: zero(c.TrimmedShare()),
	}
	if !math.IsNaN(mean) {
		v := mean * b.signal.Unit().PerStored()
		out.Mean = &v
		if high > low {
			out.level = (high - mean) / (high - low)
		}
		if b.signal.Direction() == csig.Max {
			out.level = 1 - out.level
		}
	}
	if c.ModeCount > 0 {
		at := b.place(c.Mode)
		out.Mode, out.ModeShare, out.Candidates, out.color = at.Name, c.ModeShare(), at.Candidates, query.Color(at)
	}
	if c.RunnerUpCount > 0 {
		out.RunnerUp = b.place(c.RunnerUp).Name
	}
	return out
}

// matrix shows the groups with most heavy observations.
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
		return cmp.Or(cmp.Compare(heavy[y], heavy[x]), cmp.Compare(x, y))
	})
	m.LeftOut = max(len(groups)-maxGroups, 0)
	groups = groups[:len(groups)-m.LeftOut]
	index := make(map[aggregate.GroupID]int, len(groups))
	slices.SortFunc(groups, func(x, y aggregate.GroupID) int {
		return natural(b.names.GroupName(x), b.names.GroupName(y))
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

// worst are the cells with most heavy observations.
func worst(cells []Cell) []Cell {
	list := slices.DeleteFunc(slices.Clone(cells), func(c Cell) bool { return c.Heavy == 0 })
	sort.SliceStable(list, func(i, j int) bool { return list[i].Heavy > list[j].Heavy })
	return append([]Cell{}, list[:min(len(list), maxWorst)]...)
}

func (b *builder) locations(list []aggregate.LocationStats) []Location {
	out := []Location{}
	for i := range list[:min(len(list), maxLocations)] {
		l := &list[i]
		if l.Heavy == 0 {
			break // they come by heavy observations
		}
		at := b.place(l.Location)
		out = append(out, Location{
			Name: at.Name, Kind: at.Kind, Ports: at.CandidateCount, Observations: l.Observations, Heavy: l.Heavy, Cells: l.Cells,
			HeavyMean: b.text(float64(l.HeavySum) / float64(l.Heavy)), Color: query.Color(at),
		})
	}
	return out
}

// heat is the share of the worst locations in each column's heavy observations. Columns
// are one step, or several where there are many.
func (b *builder) heat(step time.Duration, starts []int64, steps map[int64]*aggregate.Summary, worst []aggregate.LocationStats) Heat {
	h := Heat{Step: step, Starts: []time.Time{}, Locations: []string{}, Share: [][]float64{}, Heavy: []uint64{}}
	row := map[aggregate.LocationID]int{}
	for i := range worst[:min(len(worst), maxLocations)] {
		if worst[i].Heavy == 0 {
			break
		}
		at := b.place(worst[i].Location)
		row[worst[i].Location] = len(h.Locations)
		h.Locations, h.colors = append(h.Locations, at.Name), append(h.colors, query.Color(at))
	}
	if len(row) == 0 || len(starts) == 0 {
		return h
	}
	first, last := starts[0], starts[len(starts)-1]
	for (last-first)/int64(h.Step) >= maxColumns {
		h.Step += step
	}
	columns := int((last-first)/int64(h.Step)) + 1
	h.Heavy = make([]uint64, columns)
	counts := make([][]uint64, len(h.Locations))
	for i := range counts {
		counts[i] = make([]uint64, columns)
	}
	for _, at := range starts {
		k := (at - first) / int64(h.Step)
		for _, l := range steps[at].Locations(b.signal, nil) {
			h.Heavy[k] += l.Heavy
			if i, ok := row[l.Location]; ok {
				counts[i][k] += l.Heavy
			}
		}
	}
	for i := range counts {
		h.Share = append(h.Share, make([]float64, columns))
		for k, n := range counts[i] {
			h.Share[i][k] = zero(float64(n) / float64(h.Heavy[k]))
		}
	}
	for k := range columns {
		h.Starts = append(h.Starts, time.Unix(0, first+int64(k)*int64(h.Step)).UTC())
	}
	return h
}

// zero is v, or 0 for what is no number.
func zero(v float64) float64 {
	if math.IsNaN(v) {
		return 0
	}
	return v
}

// Findings are those of captures, with packets to open.
func Findings(list []finding.Finding) []Finding {
	out := []Finding{}
	for i := range list[:min(len(list), maxFindings)] {
		f := &list[i]
		one := Finding{
			Severity: string(f.Kind.Severity()), Kind: f.Kind.String(), Subject: f.Subject, Device: f.Device, Port: f.Port,
			Count: f.Count, Of: f.Of, Evidence: f.Evidence, Otherwise: f.Kind.Otherwise(), Packets: byFile(f.Packets[:min(len(f.Packets), maxPackets)]),
		}
		if f.From != 0 {
			one.From, one.To = stamp(f.From), stamp(f.To)
		}
		out = append(out, one)
	}
	return out
}

// byFile groups packets, whose files come one after the other.
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
