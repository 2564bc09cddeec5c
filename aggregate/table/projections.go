package table

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// TopBottlenecks counts the locations that heavy observations name most, over a sliding range of
// closed windows, for alerts. It is an aggregate.Sink, safe for concurrent use. Its cells are a
// signal and a kind, without groups.
type TopBottlenecks struct {
	steps[aggregate.LocationID, heavyCount]
}

type heavyCount struct{ observations, heavy uint64 }

func (c *heavyCount) merge(o *heavyCount) {
	c.observations = aggregate.AddSat(c.observations, o.observations)
	c.heavy = aggregate.AddSat(c.heavy, o.heavy)
}

// SignalBottlenecks are the totals of a signal's observations of one kind. Tags and reflections
// measure the same paths, and are never added up.
type SignalBottlenecks struct {
	Signal              csig.Signal
	Kind                decode.Kind
	Observations, Heavy uint64
	Locations           []HeavyLocation // most heavy observations first, then lower location
}

// HeavyLocation is a location with the number of heavy observations that name it.
type HeavyLocation struct {
	Location aggregate.LocationID
	Heavy    uint64
}

// topSteps is the number of steps of the sliding range, which moves one step at a time.
const topSteps = 6

// NewTopBottlenecks makes a TopBottlenecks for blocks at the resolution, over about the last length of
// time: between 5/6 of it and all of it. rows bounds the locations of all signals, as in a sliding table.
func NewTopBottlenecks(resolution, length time.Duration, rows int) *TopBottlenecks {
	return &TopBottlenecks{newSteps(Bounds{
		Resolution: resolution, Step: max(length/topSteps, resolution), Steps: topSteps, Rows: rows, Sliding: true,
	}, (*heavyCount).merge, overflowLocation)}
}

// WriteBlock adds the block's rows once, if it is not older than the range. It never fails.
func (t *TopBottlenecks) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if !t.takes(b) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(b.WindowStart)
	if s == nil || t.admit(s, b) != admitted {
		return nil
	}
	var count heavyCount // escapes: once a block
	for i := range b.Len() {
		k := rowKey[aggregate.LocationID]{cell: aggregate.CellKey{Signal: csig.Signal(b.Signal[i]), Kind: decode.Kind(b.Kind[i])}}
		if !k.cell.Signal.HasValue() {
			continue
		}
		if b.Heavy[i] > 0 && k.cell.Signal.Aggregation().Locates() { // others need no row of their own
			k.key = aggregate.LocationID(b.Location[i])
		}
		count = heavyCount{b.Observations[i], b.Heavy[i]}
		s = t.add(s, k, &count)
	}
	t.slide()
	return nil
}

// Top returns the n locations of each signal with the most heavy observations in the range that
// ends at now (Unix ns, by the clock of the windows' times), ordered by signal and kind. It leaves
// out signals without an observation in the range.
func (t *TopBottlenecks) Top(now int64, n int) []SignalBottlenecks {
	sums := newRows[aggregate.LocationID, heavyCount]()
	t.mu.Lock()
	last := now / t.width
	for _, s := range t.list {
		if number := s.start / t.width; number > last || number <= last-topSteps {
			continue
		}
		for k, c := range s.rows.all {
			k.cell.Src, k.cell.Dst = 0, 0 // of overflow rows
			if have := sums.find(k); have != nil {
				have.merge(c)
				continue
			}
			sums.insert(k, c)
		}
	}
	t.mu.Unlock()
	out := make([]SignalBottlenecks, 0, len(sums.cells))
	for _, c := range sums.cells {
		one := SignalBottlenecks{Signal: c.cell.Signal, Kind: c.cell.Kind}
		for at := c.first; at >= 0; at = sums.list[at].next {
			r := &sums.list[at]
			one.Observations = aggregate.AddSat(one.Observations, r.value.observations)
			one.Heavy = aggregate.AddSat(one.Heavy, r.value.heavy)
			if r.key != aggregate.NoLocation && r.value.heavy > 0 {
				one.Locations = append(one.Locations, HeavyLocation{r.key, r.value.heavy})
			}
		}
		slices.SortFunc(one.Locations, func(a, b HeavyLocation) int {
			return cmp.Or(cmp.Compare(b.Heavy, a.Heavy), cmp.Compare(a.Location, b.Location))
		})
		one.Locations = one.Locations[:min(n, len(one.Locations))]
		out = append(out, one)
	}
	slices.SortFunc(out, func(a, b SignalBottlenecks) int {
		return cmp.Or(cmp.Compare(a.Signal, b.Signal), cmp.Compare(a.Kind, b.Kind))
	})
	return out
}

// Distributions counts the codes that cells measured, by step. It is an aggregate.Sink, safe for
// concurrent use.
type Distributions struct{ steps[distCode, uint64] }

type distCode struct {
	code     uint16 // csig.DistIndex
	encoding aggregate.Encoding
}

// CodeCount is the number of measurements of a code in a step.
type CodeCount struct {
	Start    int64 // of the step, Unix ns
	Encoding aggregate.Encoding
	Code     uint16 // csig.DistIndex
	N        uint64
}

// NewDistributions makes Distributions for blocks at the resolution. A row is a code of a cell in a step.
func NewDistributions(resolution time.Duration, steps, rows int) *Distributions {
	return &Distributions{newSteps(Bounds{Resolution: resolution, Steps: steps, Rows: rows},
		func(into, n *uint64) { *into = aggregate.AddSat(*into, *n) },
		func(c distCode) distCode { return c })}
}

// WriteBlock adds the block's distributions. It never fails.
func (d *Distributions) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if !d.takes(b) || len(b.DistCode) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.at(b.WindowStart)
	for i := range b.Len() {
		cell, encoding := b.Cell(i), aggregate.Encoding(b.Encoding[i])
		codes, counts := b.Dist(i)
		for at, code := range codes {
			s = d.add(s, rowKey[distCode]{cell, distCode{code, encoding}}, &counts[at])
		}
	}
	return nil
}

// Each calls f for the codes of the signal, in any order: those of both kinds, which never add up.
// f must not use d.
func (d *Distributions) Each(sig csig.Signal, f func(aggregate.CellID, CodeCount)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.list {
		for k, n := range s.rows.all {
			if k.cell.Signal == sig {
				f(k.cell.ID(), CodeCount{Start: s.start, Encoding: k.key.encoding, Code: k.key.code, N: *n})
			}
		}
	}
}

// Overflow returns the number of observations, of tags and reflections, that are in no cell's
// distribution because there was no room.
func (d *Distributions) Overflow() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.overflow
}

// FlowTotals adds up the flows that blocks name, over all windows. It is an aggregate.Sink, safe
// for concurrent use.
type FlowTotals struct{ steps[flow.Flow, flowTotal] }

// flowTotal is a row, with the numbers of heavy observations that name other locations than the
// row's.
type flowTotal struct {
	row    aggregate.FlowRow
	others map[uint64]uint64
}

func (t *flowTotal) merge(o *flowTotal) {
	t.row.Add(&o.row)
	switch n := o.row.LocationHeavy; {
	case n == 0 || t.row.Flow == (flow.Flow{}): // overflow covers many flows
	case t.row.LocationHeavy == 0:
		t.row.Location, t.row.LocationHeavy = o.row.Location, n
	case t.row.Location == o.row.Location:
		t.row.LocationHeavy = aggregate.AddSat(t.row.LocationHeavy, n)
	default:
		t.addOther(o.row.Location, n)
	}
	for at, n := range o.others {
		if at == t.row.Location {
			t.row.LocationHeavy = aggregate.AddSat(t.row.LocationHeavy, n)
		} else {
			t.addOther(at, n)
		}
	}
}

// addOther counts heavy observations that name another location than the row's. Readers' copies of
// the total share its map, which so must never change.
func (t *flowTotal) addOther(at, n uint64) {
	others := maps.Clone(t.others)
	if others == nil {
		others = make(map[uint64]uint64)
	}
	others[at] = aggregate.AddSat(others[at], n)
	t.others = others
}

// located returns the row with the location that more heavy observations name than any other, added up over
// windows, the lowest of equals.
func (t *flowTotal) located() aggregate.FlowRow {
	row := t.row
	if row.LocationHeavy == 0 {
		row.Location = uint64(aggregate.NoLocation)
	}
	for id, heavy := range t.others {
		if heavy > row.LocationHeavy || heavy == row.LocationHeavy && id < row.Location {
			row.Location, row.LocationHeavy = id, heavy
		}
	}
	return row
}

// NewFlowTotals makes FlowTotals for blocks at the resolution. It holds at most that many flows, each once for
// every signal, kind and cell that it has; it drops later ones.
func NewFlowTotals(resolution time.Duration, flows int) *FlowTotals {
	return &FlowTotals{newSteps(Bounds{Resolution: resolution, Rows: flows}, (*flowTotal).merge, (func(flow.Flow) flow.Flow)(nil))}
}

// WriteBlock adds the block's flows. It never fails.
func (t *FlowTotals) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if !t.takes(b) {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.at(b.WindowStart)
	var total flowTotal // escapes: once a block
	for i := range b.Flows {
		if f := &b.Flows[i]; f.Flow != (flow.Flow{}) { // the rest of a cell
			total.row = *f
			t.add(s, rowKey[flow.Flow]{f.Cell(), f.Flow}, &total)
		}
	}
	return nil
}

// Flows returns the flows of the signal, the most heavy observations first, then by addresses,
// ports and cell. A flow consists of its tags if it has any in its cell, else of its reflections.
// Its location is the one that most of its heavy observations name.
func (t *FlowTotals) Flows(sig csig.Signal) []aggregate.FlowRow {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []aggregate.FlowRow
	for _, s := range t.list {
		for k, f := range s.rows.all {
			if k.cell.Signal != sig {
				continue
			}
			if k.cell.Kind == decode.Reflection {
				k.cell.Kind = decode.Tag
				if s.rows.find(k) != nil {
					continue
				}
			}
			list = append(list, f.located())
		}
	}
	slices.SortFunc(list, func(a, b aggregate.FlowRow) int { return compareFlows(&a, &b) })
	return list
}
