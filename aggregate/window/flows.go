package window

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/decode"
)

// FlowLimits bound the flows that blocks name.
type FlowLimits struct {
	// Top is the number of flows of each signal and kind that a window names, those with the most
	// heavy observations first; 0 for none. At most MaxTopFlows.
	Top int
	// Budget is the number of entries that a window has for flows; a flow takes one for each of its
	// signals and kinds. It is at least Top and at least 2, and at most MaxFlowBudget. Default: 4096, or
	// four times Top if that is more. Past it, the shard forgets the flows with the fewest heavy
	// observations, and a named flow may have had more heavy observations than its row has: the rest of
	// its cell (aggregate.FlowRow) includes those.
	Budget int
}

// Bounds and default of FlowLimits.
const (
	MaxTopFlows   = 10_000
	MaxFlowBudget = flow.MaxBudget

	// DefaultFlowBudget is the least default budget.
	DefaultFlowBudget = 4096
)

// WithDefaults returns the limits with defaults filled in, or an error.
func (l FlowLimits) WithDefaults() (FlowLimits, error) {
	if l.Top < 0 || l.Top > MaxTopFlows {
		return l, fmt.Errorf("top flows %d: expected 0 to %d", l.Top, MaxTopFlows)
	}
	if l.Top > 0 {
		l.Budget = cmp.Or(l.Budget, max(DefaultFlowBudget, 4*l.Top))
		if l.Budget < max(l.Top, 2) || l.Budget > MaxFlowBudget {
			return l, fmt.Errorf("flow budget %d: expected %d, the top flows, to %d", l.Budget, max(l.Top, 2), MaxFlowBudget)
		}
	}
	return l, nil
}

// heavyItems are the heavy pending items, by number, and their flow counts.
type heavyItems struct {
	list    [pendingItems]uint8
	counted [pendingItems]flow.Heavy
}

// countFlows counts pending items, all of them heavy, in the flows of their windows. An item
// without addresses belongs to no flow.
func (s *Shard) countFlows(heavy []uint8) {
	if s.cfg.Flows.Top == 0 || len(heavy) == 0 {
		return
	}
	list, seeds := s.heavy.counted[:len(heavy)], s.seeds
	items, batch, brief := &s.items, s.batch, s.series.brief
	slot, apart := items[heavy[0]].slot, uint32(0)
	touched := uint32(0)
	for _, i := range heavy {
		touched |= brief[items[i].series].cell
	}
	s.touched |= uint64(touched)
	for k, i := range heavy {
		it, h := &items[i], &list[k]
		o, b := &batch[it.obs], &brief[it.series]
		apart |= it.slot ^ slot
		against := int(o.Kind>>1) & 1
		ports := bits.RotateLeft32(uint32(o.SrcPort)<<16|uint32(o.DstPort), 16*against)
		addresses := uint64(0)
		if o.Flags&decode.HasAddrs != 0 {
			addresses = seeds.Addresses(o.Measured())
		}
		h.Hash = seeds.Hash(addresses, ports, o.Proto, b.cell)
		h.Location, h.Value, h.Bytes = uint64(b.loc), it.value, it.bytes
	}
	windows := s.levels[0].all
	if apart == 0 {
		s.countFlowsOf(&windows[slot].flows, heavy, list)
		return
	}
	for k, i := range heavy {
		s.countFlowsOf(&windows[items[i].slot].flows, heavy[k:k+1], list[k:k+1])
	}
}

// countFlowsOf counts heavy items of one window.
func (s *Shard) countFlowsOf(flows *flow.Table, heavy []uint8, list []flow.Heavy) {
	flows.Find(list)
	for k := flows.CountKnown(list); k < len(list); {
		s.remember(flows, &s.items[heavy[k]], &list[k])
		k += 1 + flows.CountKnown(list[k+1:])
	}
}

// remember makes an entry for the flow of an item, if it has one, and counts it.
func (s *Shard) remember(flows *flow.Table, it *pendingItem, h *flow.Heavy) {
	o := &s.batch[it.obs]
	if o.Flags&decode.HasAddrs == 0 {
		return
	}
	f := flowOf(o)
	s.counts.FlowsForgotten += uint64(flows.Insert(h, it.series, &f))
}

// flowRows makes the flow rows of a closed window. All windows share its buffers.
type flowRows struct {
	ranks []uint64 // the flows in order: rankOf<<32 | entry
	cells []uint32 // of the named flows
	rests []uint32 // by cell: position in the block of its rest, plus 1; 0 without named flows
	fits  []sampleFit

	on     bool              // the window's rows are added to rests
	others int               // position in the block of the rest of cells without named flows, -1 for none
	of     aggregate.CellKey // signal and kind of others
}

// If other shards may have seen a part of a window, the top flows of one part need not be those of
// the whole. Then a shard that remembers at most partFlows flows names all of them. Any other shard
// names partTop times the usual number of each signal and kind. So the top flows of all parts together
// are exact in the first case; in the second, a flow's total is a lower bound.
const (
	partFlows = 1024
	partTop   = 2
)

// nameFlows begins the flow rows of a window, before its other rows are made: it names flows, and
// adds an empty rest for each of their cells. Of windows that a shard has seen whole, it names the
// top flows. Equally heavy flows come in the order in which they were remembered.
func (s *Shard) nameFlows(l *level, w *window) {
	b, r := &s.rows.block, &s.flowRows
	if s.cfg.Flows.Top == 0 || l.res < int64(fineBelow) {
		return
	}
	flows, top := &w.flows, s.cfg.Flows.Top
	if w.delta || s.flushing || w.start <= l.first {
		if top *= partTop; flows.Len() <= partFlows {
			top = partFlows
		}
	}
	r.ranks = r.ranks[:0]
	for i := range flows.Len() {
		r.ranks = append(r.ranks, uint64(s.rankOf(flows, i))<<32|uint64(i))
	}
	r.ranks = s.rows.radix.sort(r.ranks, math.MaxUint32)
	begin := 0
	for i, rank := range r.ranks {
		if group := uint32(rank>>32) >> rankBits; i > 0 && group != uint32(r.ranks[i-1]>>32)>>rankBits {
			begin = len(b.Flows)
		}
		if entry := int(uint32(rank)); len(b.Flows)-begin < top {
			b.Flows = append(b.Flows, s.flowRow(flows, entry))
			r.cells = append(r.cells, s.series.cellOf(flows.Ref(entry)))
		}
	}
	r.on, r.others = true, -1
	if n := len(s.series.firsts); n > len(r.rests) {
		r.rests = make([]uint32, 2*n)
	}
	for i, cell := range r.cells {
		if r.rests[cell] == 0 {
			b.Flows = append(b.Flows, restOf(b.Flows[i].Cell()))
			r.rests[cell] = uint32(len(b.Flows))
		}
	}
}

// rankBits is the number of bits of a rank for the count of heavy observations, below signal and
// kind.
const rankBits = 23

// rankOf returns a lower number for a flow with more heavy observations, up to a limit beyond which
// differences do not matter.
func (s *Shard) rankOf(t *flow.Table, entry int) uint32 {
	const most = 1<<rankBits - 1
	sr := &s.series.list[t.Ref(entry)]
	return (uint32(sr.signal)<<1|uint32(sr.kind-decode.Tag))<<rankBits | uint32(most-min(t.Heavy(entry), most))
}

// flowRow returns the row of a flow.
func (s *Shard) flowRow(t *flow.Table, entry int) aggregate.FlowRow {
	e := t.Entry(entry)
	sr, weight := &s.series.list[e.Ref], s.cfg.Weight
	var worst flow.LocationCount
	t.Locations(entry, func(p flow.LocationCount) {
		if p.ID != uint64(aggregate.NoLocation) && (p.Heavy > worst.Heavy || p.Heavy == worst.Heavy && p.ID < worst.ID) {
			worst = p
		}
	})
	heavy, sum := e.Heavy*weight, aggregate.MulSat(e.Sum, weight)
	return aggregate.FlowRow{
		Flow: e.Flow, Signal: uint8(sr.signal), Kind: uint8(sr.kind), SrcGroup: uint64(sr.src), DstGroup: uint64(sr.dst),
		Observations: heavy, Bytes: aggregate.MulSat(e.Bytes, weight), Measured: heavy, Sum: sum, Min: e.Min, Max: e.Max,
		Heavy: heavy, HeavySum: sum, Location: worst.ID, LocationHeavy: worst.Heavy * weight, Sampled: uint64(e.Samples),
	}
}

// add adds a row of the window to the rest of its cell, or to that of all cells without named flows.
// Rows must come by signal and kind.
func (r *flowRows) add(b *aggregate.Block, sr *series, sum *aggregate.Sums) {
	if at := r.rests[sr.cell]; at != 0 {
		b.Flows[at-1].AddSums(sum)
		return
	}
	if r.others < 0 || r.of.Signal != sr.signal || r.of.Kind != sr.kind {
		r.of = aggregate.CellKey{Signal: sr.signal, Kind: sr.kind, Src: aggregate.OverflowGroup, Dst: aggregate.OverflowGroup}
		r.others = r.find(b, r.of)
	}
	b.Flows[r.others].AddSums(sum)
}

// find returns the position of a cell's rest, and adds it if it is missing. The overflow cell may have
// named flows, and is also the cell of others.
func (r *flowRows) find(b *aggregate.Block, k aggregate.CellKey) int {
	for i := len(r.cells); i < len(b.Flows); i++ {
		if b.Flows[i].Cell() == k {
			return i
		}
	}
	b.Flows = append(b.Flows, restOf(k))
	return len(b.Flows) - 1
}

// end removes the named flows from the rests, and drops the rests that are empty then.
func (r *flowRows) end(b *aggregate.Block) {
	if !r.on {
		return
	}
	r.fitSamples(b)
	for i, cell := range r.cells {
		b.Flows[r.rests[cell]-1].Subtract(&b.Flows[i])
	}
	for _, cell := range r.cells {
		r.rests[cell] = 0
	}
	b.Flows = slices.DeleteFunc(b.Flows, func(f aggregate.FlowRow) bool { return f.Observations == 0 })
	r.on, r.cells = false, r.cells[:0]
}

// sampleFit fits the estimates of a cell's sampled flows into the exact counts that its other flows leave.
type sampleFit struct {
	heavy, heavySum, bytes uint64 // room for sampled flows
	min, max               uint64 // values of the cell

	sampled          uint64 // samples of the flows, a lower bound of their observations
	total, sum, size uint64 // estimates of the flows
	taken            uint64 // heavy observations of the flows that the present pass has visited
	evenly           bool   // flows share the heavy sum by their counts alone
}

// fitSamples makes the estimates of sampled flows add up to no more than their cells, so that the rest of
// each cell remains a possible row.
func (r *flowRows) fitSamples(b *aggregate.Block) {
	named := len(r.cells)
	if !slices.ContainsFunc(b.Flows[:named], func(f aggregate.FlowRow) bool { return f.Sampled > 0 }) {
		return
	}
	r.fits = r.fits[:0]
	for i := range b.Flows[named:] {
		rest := &b.Flows[named+i]
		r.fits = append(r.fits, sampleFit{heavy: rest.Heavy, heavySum: rest.HeavySum, bytes: rest.Bytes, min: rest.Min, max: rest.Max})
	}
	each := func(f func(*sampleFit, *aggregate.FlowRow)) {
		for i, cell := range r.cells {
			f(&r.fits[int(r.rests[cell])-1-named], &b.Flows[i])
		}
	}
	each((*sampleFit).see)
	each((*sampleFit).shrink)
	for i := range r.fits {
		r.fits[i].share()
	}
	each((*sampleFit).settle)
}

// see adds a flow to the totals.
func (c *sampleFit) see(f *aggregate.FlowRow) {
	if f.Sampled == 0 {
		c.heavy, c.heavySum, c.bytes = c.heavy-min(c.heavy, f.Heavy), c.heavySum-min(c.heavySum, f.HeavySum), c.bytes-min(c.bytes, f.Bytes)
		return
	}
	c.sampled += f.Sampled
	c.total = aggregate.AddSat(c.total, f.Heavy)
}

// shrink reduces the estimate of a flow if the estimates of its cell exceed the cell, but not below the number
// of its samples. Observations that were counted elsewhere, where a key budget was used up, leave no room:
// then the flow has no row.
func (c *sampleFit) shrink(f *aggregate.FlowRow) {
	if f.Sampled == 0 {
		return
	}
	if c.sampled > c.heavy {
		*f = aggregate.FlowRow{}
		return
	}
	if c.total > c.heavy {
		heavy := f.Sampled + mulDiv(f.Heavy-min(f.Heavy, f.Sampled), c.heavy-c.sampled, c.total-c.sampled)
		f.Bytes, f.Sum, f.LocationHeavy = mulDiv(f.Bytes, heavy, f.Heavy), mulDiv(f.Sum, heavy, f.Heavy), mulDiv(f.LocationHeavy, heavy, f.Heavy)
		f.Observations, f.Measured, f.Heavy, f.HeavySum = heavy, heavy, heavy, f.Sum
	}
	c.taken += f.Heavy
	c.sum, c.size = aggregate.AddSat(c.sum, f.Sum), aggregate.AddSat(c.size, f.Bytes)
}

// share decides how the flows share the heavy sum: by their samples if that leaves the rest possible values.
func (c *sampleFit) share() {
	rest := c.heavy - min(c.heavy, c.taken)
	left := c.heavySum - min(c.heavySum, c.sum)
	c.evenly = c.sum > c.heavySum || left < aggregate.MulSat(rest, c.min) || left > aggregate.MulSat(rest, c.max)
	c.taken = 0
}

// settle gives a flow its share of the cell's sums.
func (c *sampleFit) settle(f *aggregate.FlowRow) {
	if f.Sampled == 0 {
		return
	}
	if c.size > c.bytes {
		f.Bytes = mulDiv(f.Bytes, c.bytes, c.size)
	}
	if !c.evenly {
		return
	}
	before := mulDiv(c.heavySum, c.taken, c.heavy)
	c.taken += f.Heavy
	f.Sum = mulDiv(c.heavySum, c.taken, c.heavy) - before
	f.HeavySum = f.Sum
	f.Min, f.Max = min(f.Min, f.Sum/f.Heavy), max(f.Max, (f.Sum+f.Heavy-1)/f.Heavy)
}

// mulDiv returns a * b / c, rounded down. The result must fit.
func mulDiv(a, b, c uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi >= c {
		return math.MaxUint64
	}
	q, _ := bits.Div64(hi, lo, c)
	return q
}

// restOf returns the empty rest of a cell.
func restOf(k aggregate.CellKey) aggregate.FlowRow {
	return aggregate.FlowRow{Signal: uint8(k.Signal), Kind: uint8(k.Kind), SrcGroup: uint64(k.Src), DstGroup: uint64(k.Dst)}
}

func (r *flowRows) bytes() uint64 {
	return uint64(cap(r.ranks))*8 + uint64(cap(r.cells)+cap(r.rests))*4 + uint64(cap(r.fits))*88
}
