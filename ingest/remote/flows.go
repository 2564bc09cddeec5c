package remote

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/flow"
	"github.com/csigscope/csigscope/ingest/wire"
)

// flowsToWire converts flow rows to a message.
func flowsToWire(rows []aggregate.FlowRow) *wire.Flows {
	m, sampled := &wire.Flows{}, false
	for i := range rows {
		f := &rows[i]
		m.Source, m.Destination = append(m.Source, f.Src[:]...), append(m.Destination, f.Dst[:]...)
		m.SourcePort, m.DestinationPort = append(m.SourcePort, uint32(f.SrcPort)), append(m.DestinationPort, uint32(f.DstPort))
		m.Protocol, m.Signal, m.Kind = append(m.Protocol, f.Proto), append(m.Signal, f.Signal), append(m.Kind, f.Kind)
		m.SrcGroup, m.DstGroup = append(m.SrcGroup, f.SrcGroup), append(m.DstGroup, f.DstGroup)
		m.Observations, m.Bytes, m.Measured = append(m.Observations, f.Observations), append(m.Bytes, f.Bytes), append(m.Measured, f.Measured)
		m.Sum, m.Min, m.Max = append(m.Sum, f.Sum), append(m.Min, f.Min), append(m.Max, f.Max)
		m.Heavy, m.HeavySum = append(m.Heavy, f.Heavy), append(m.HeavySum, f.HeavySum)
		m.Location, m.LocationHeavy = append(m.Location, f.Location), append(m.LocationHeavy, f.LocationHeavy)
		sampled = sampled || f.Sampled > 0
	}
	if sampled {
		for i := range rows {
			m.Sampled = append(m.Sampled, rows[i].Sampled)
		}
	}
	return m
}

// takeFlows fills in the flows of a block. Nil means no flows.
func takeFlows(b *aggregate.Block, m *wire.Flows) error {
	n := len(m.GetKind())
	if n == 0 {
		return nil
	}
	if b.Resolution < int64(time.Second) {
		return fmt.Errorf("flows of a window of %d ns: expected 1 s or longer", b.Resolution)
	}
	if err := equalLengths(column{"kind", n}, column{"signal", len(m.GetSignal())}, column{"protocol", len(m.GetProtocol())},
		column{"source_port", len(m.GetSourcePort())}, column{"destination_port", len(m.GetDestinationPort())},
		column{"src_group", len(m.GetSrcGroup())}, column{"dst_group", len(m.GetDstGroup())}, column{"observations", len(m.GetObservations())},
		column{"bytes", len(m.GetBytes())}, column{"measured", len(m.GetMeasured())}, column{"sum", len(m.GetSum())}, column{"min", len(m.GetMin())},
		column{"max", len(m.GetMax())}, column{"heavy", len(m.GetHeavy())}, column{"heavy_sum", len(m.GetHeavySum())},
		column{"location", len(m.GetLocation())}, column{"location_heavy", len(m.GetLocationHeavy())}); err != nil {
		return fmt.Errorf("flows: %w", err)
	}
	if length := len(m.GetSampled()); length != 0 && length != n {
		return fmt.Errorf("sampled of flows has %d rows: expected %d or none", length, n)
	}
	if len(m.GetSource()) != 16*n || len(m.GetDestination()) != 16*n {
		return fmt.Errorf("addresses of flows take %d and %d bytes: expected %d", len(m.GetSource()), len(m.GetDestination()), 16*n)
	}
	for i := range n {
		if s, d := m.GetSourcePort()[i], m.GetDestinationPort()[i]; max(s, d) > math.MaxUint16 {
			return fmt.Errorf("flow %d: ports %d, %d: out of range", i, s, d)
		}
		b.Flows = append(b.Flows, flowOf(m, i))
	}
	return nil
}

// checkFlows checks that the flows of a valid block are distinct, and that they add up to its
// rows if the block contains all rows of those flows.
func checkFlows(b *aggregate.Block, blocks uint32) error {
	if !flowsApart(b.Flows) {
		return errFlowTwice
	}
	if len(b.Flows) > 0 && blocks == 1 && !flowsFit(b) {
		return errFlowTotals
	}
	return nil
}

var (
	errFlowTwice  = errors.New("a flow is in two rows")
	errFlowTotals = errors.New("flows do not add up to the rows of their window")
)

func flowOf(m *wire.Flows, i int) aggregate.FlowRow {
	sampled := uint64(0)
	if len(m.GetSampled()) > 0 {
		sampled = m.GetSampled()[i]
	}
	return aggregate.FlowRow{
		Flow: flow.Flow{
			Src: [16]byte(m.GetSource()[16*i:]), Dst: [16]byte(m.GetDestination()[16*i:]),
			SrcPort: uint16(m.GetSourcePort()[i]), DstPort: uint16(m.GetDestinationPort()[i]), Proto: m.GetProtocol()[i],
		},
		Signal: m.GetSignal()[i], Kind: m.GetKind()[i], SrcGroup: m.GetSrcGroup()[i], DstGroup: m.GetDstGroup()[i],
		Observations: m.GetObservations()[i], Bytes: m.GetBytes()[i], Measured: m.GetMeasured()[i],
		Sum: m.GetSum()[i], Min: m.GetMin()[i], Max: m.GetMax()[i], Heavy: m.GetHeavy()[i], HeavySum: m.GetHeavySum()[i],
		Location: m.GetLocation()[i], LocationHeavy: m.GetLocationHeavy()[i], Sampled: sampled,
	}
}

// flowPair is the key within which flow rows add up.
type flowPair struct{ signal, kind uint8 }

func pairOf(f *aggregate.FlowRow) flowPair { return flowPair{f.Signal, f.Kind} }

// flowsApart reports whether each flow has one row, since it belongs to one cell; with too many
// cells it may have one more in the overflow. Rests are distinguished by cell.
func flowsApart(rows []aggregate.FlowRow) bool {
	type key struct {
		flow.Flow
		flowPair
		src, dst uint64
	}
	seen := make(map[key]struct{}, len(rows))
	for i := range rows {
		f := &rows[i]
		k := key{f.Flow, pairOf(f), f.SrcGroup, f.DstGroup}
		if f.Flow != (flow.Flow{}) && f.SrcGroup != uint64(aggregate.OverflowGroup) {
			k.src, k.dst = 0, 0
		}
		seen[k] = struct{}{}
	}
	return len(seen) == len(rows)
}

// flowSums are the totals of the rows of a signal and kind.
type flowSums struct{ observations, bytes, measured, sum, heavy, heavySum uint64 }

func (s flowSums) plus(o flowSums) flowSums {
	return flowSums{
		aggregate.AddSat(s.observations, o.observations), aggregate.AddSat(s.bytes, o.bytes), aggregate.AddSat(s.measured, o.measured),
		aggregate.AddSat(s.sum, o.sum), aggregate.AddSat(s.heavy, o.heavy), aggregate.AddSat(s.heavySum, o.heavySum),
	}
}

// flowsFit reports whether the totals of a block's flows equal those of its rows.
func flowsFit(b *aggregate.Block) bool {
	rows, flows := map[flowPair]flowSums{}, map[flowPair]flowSums{}
	for i := range b.Len() {
		p, s := flowPair{b.Signal[i], b.Kind[i]}, b.Sums(i)
		rows[p] = rows[p].plus(flowSums{s.Observations, s.Bytes, s.Measured, s.Sum, s.Heavy, s.HeavySum})
	}
	for i := range b.Flows {
		f := &b.Flows[i]
		flows[pairOf(f)] = flows[pairOf(f)].plus(flowSums{f.Observations, f.Bytes, f.Measured, f.Sum, f.Heavy, f.HeavySum})
	}
	for p, want := range rows {
		if flows[p] != want {
			return false
		}
	}
	return len(flows) == len(rows)
}

// foldFlows keeps at most keep rows, the same number of each signal and kind, worst flows
// first. It adds the others to the rest of all cells, so totals stay exact. The result depends
// only on rows and keep. If there are not too many rows, it returns them unchanged. folded is
// the number of folded rows.
func foldFlows(rows []aggregate.FlowRow, keep int) (out []aggregate.FlowRow, folded int) {
	if len(rows) <= keep {
		return rows, 0
	}
	rests := map[flowPair]*aggregate.FlowRow{}
	var order []flowPair
	for i := range rows {
		p := pairOf(&rows[i])
		if rests[p] == nil {
			rests[p] = restOf(p)
			order = append(order, p)
		}
	}
	kept, share := map[flowPair]int{}, max(keep, 0)/len(order)
	for i := range rows {
		f, p := &rows[i], pairOf(&rows[i])
		all := f.Flow == (flow.Flow{}) && f.SrcGroup == uint64(aggregate.OverflowGroup) && f.DstGroup == uint64(aggregate.OverflowGroup)
		if !all && kept[p] < share {
			kept[p]++
			out = append(out, *f)
			continue
		}
		if !all {
			folded++
		}
		rests[p].Add(f)
	}
	for _, p := range order {
		if rests[p].Observations > 0 {
			out = append(out, *rests[p])
		}
	}
	return out, folded
}

// restOf returns an empty rest of all cells.
func restOf(p flowPair) *aggregate.FlowRow {
	all := uint64(aggregate.OverflowGroup)
	return &aggregate.FlowRow{Signal: p.signal, Kind: p.kind, SrcGroup: all, DstGroup: all}
}
