package query

import (
	"math"
	"net/netip"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/table"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// FlowsOfWindows answers a question about flows from windows in memory, as the store answers it
// from the same windows. Cells may be left out; see table.State.Old. complete is false if a
// window dropped flows for lack of room.
func FlowsOfWindows(windows []*table.Window, q FlowQuestion, without map[aggregate.CellKey]bool) (list []FlowTotal, complete bool) {
	rows, complete := table.Flows(windows, q.Signal, without)
	for i := range rows {
		if f := flowTotal(&rows[i]); len(list) < q.Limit && takesFlow(&q, &f) {
			list = append(list, f)
		}
	}
	return list, complete
}

func flowTotal(r *table.WindowFlow) FlowTotal {
	unit := csig.Signal(r.Signal).Unit()
	f := FlowTotal{
		SrcGroup: aggregate.GroupID(r.SrcGroup), DstGroup: aggregate.GroupID(r.DstGroup), Kind: decode.Kind(r.Kind),
		Observations: r.Observations, Bytes: r.Bytes, Mean: math.NaN(), Min: math.NaN(), Max: math.NaN(),
		Heavy: r.Heavy, Windows: r.Windows, Location: aggregate.LocationID(r.Location), LocationHeavy: r.LocationHeavy, Sampled: r.Sampled,
		Flow: store.FlowOf(r.Src, r.Dst, r.SrcPort, r.DstPort, r.Proto),
	}
	if r.Measured > 0 {
		f.Mean, f.Min, f.Max = unit.FromStoredMean(aggregate.Ratio(r.Sum, r.Measured)), unit.FromStored(r.Min), unit.FromStored(r.Max)
	}
	return f
}

// takesFlow reports whether a flow of the question's signal matches the question.
func takesFlow(q *FlowQuestion, f *FlowTotal) bool {
	return (q.Kind == 0 || f.Kind == q.Kind) && f.Heavy >= q.MinHeavy && isAmong(q.SrcGroups, f.SrcGroup) && isAmong(q.DstGroups, f.DstGroup) &&
		inside(q.Src, f.Src) && inside(q.Dst, f.Dst) && (len(q.Locations) == 0 || f.LocationHeavy > 0 && isAmong(q.Locations, f.Location))
}

// isAmong reports whether a list contains an id; an empty one contains all.
func isAmong[T comparable](list []T, id T) bool { return len(list) == 0 || slices.Contains(list, id) }

// inside reports whether a prefix contains an address, as FlowQuestion says. The zero Prefix contains
// all; other prefixes do not contain an invalid address.
func inside(p netip.Prefix, a netip.Addr) bool {
	if !p.IsValid() {
		return true
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p.Contains(a)
}

// CountFlows counts the flows that name each location, without the sums of unnamed flows.
func CountFlows(list []FlowTotal) map[aggregate.LocationID]uint64 {
	at := make(map[aggregate.LocationID]uint64)
	for i := range list {
		if f := &list[i]; f.Src.IsValid() && f.LocationHeavy > 0 {
			at[f.Location]++
		}
	}
	return at
}
