package store

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// Flow is the source and destination of packets in the measured direction. The zero value stands
// for all flows that are not named.
type Flow struct {
	Src, Dst         netip.Addr
	SrcPort, DstPort uint16
	Proto            uint8
}

// FlowOf returns the flow of two IPv6 addresses, in which IPv4 ones are mapped. If everything is zero,
// it is the zero Flow, without addresses; any other flow from or to :: has this address.
func FlowOf(src, dst [16]byte, srcPort, dstPort uint16, proto uint8) Flow {
	if src == [16]byte{} && dst == [16]byte{} && srcPort == 0 && dstPort == 0 && proto == 0 {
		return Flow{}
	}
	return Flow{Src: netip.AddrFrom16(src).Unmap(), Dst: netip.AddrFrom16(dst).Unmap(), SrcPort: srcPort, DstPort: dstPort, Proto: proto}
}

// unnamed is the SQL condition for the rows of the zero Flow.
const unnamed = "(src, dst, src_port, dst_port, proto) = (toIPv6('::'), toIPv6('::'), 0, 0, 0)"

// FlowRow is one flow in one window. Producers write the flows with the most heavy observations
// of a window, and the sum of all others in a row with the zero Flow.
type FlowRow struct {
	aggregate.Source
	Seq        uint64
	Window     int64 // start, Unix ns, a multiple of Resolution
	Resolution int64 // length, ns: 1 s or 1 min
	Signal     csig.Signal
	Kind       decode.Kind

	SrcGroup, DstGroup aggregate.GroupID
	Flow               Flow

	Observations, Bytes uint64
	Measured            uint64 // observations with a value
	Sum, Min, Max       uint64 // in stored units
	Heavy, HeavySum     uint64

	Location      aggregate.LocationID // named by most heavy observations
	LocationHeavy uint64               // heavy observations that name it

	// Sampled is the number of heavy observations from which the row is estimated, 0 if each was counted.
	Sampled uint64
}

var flowTable = recordTable[FlowRow]{
	what: "flows", class: flowsClass,
	into: "flows (producer, incarnation, config_epoch, seq, window_start, resolution_ns, signal, source_kind, src_group, dst_group, " +
		"src, dst, src_port, dst_port, proto, observations, bytes, measured, sum, min, max, heavy, heavy_sum, location, location_heavy, sampled)",
	fill: fillFlows, encode: encodeFlows, decode: decodeFlows,
	part:      func(r *FlowRow) lossExtent { return recordPart(r.Source, r.Window, r.Window+r.Resolution) },
	partition: (*FlowRow).partition,
	probe:     (*FlowRow).probe,
}

// partition is the partition of the row, which the rows of a batch's flows share.
func (r *FlowRow) partition() batchKey {
	g := secondTable
	if r.Resolution >= int64(time.Minute) {
		g = minuteTable
	}
	return batchKey{table: g, partition: partition(g, r.Window)}
}

// wide returns an address as IPv6; :: for none.
func wide(a netip.Addr) netip.Addr { return netip.AddrFrom16(a.As16()) }

// FlowTotal is a flow over a range, or the sum of all unnamed flows of one cell, which has no
// addresses. Values are in the signal's unit, NaN when nothing was measured.
type FlowTotal struct {
	Flow
	SrcGroup, DstGroup  aggregate.GroupID
	Kind                decode.Kind
	Observations, Bytes uint64
	Mean, Min, Max      float64
	Heavy               uint64
	Windows             uint64               // in which it is named
	Location            aggregate.LocationID // named by most heavy observations
	LocationHeavy       uint64
	Sampled             uint64 // heavy observations from which counts are estimated, 0 if each was counted
}

// Flows returns the flows with the most heavy observations, in descending order.
func (s *Store) Flows(ctx context.Context, q FlowQuestion) ([]FlowTotal, error) {
	q.Resolution = cmp.Or(q.Resolution, time.Second)
	if err := (&Question{Signal: q.Signal, From: q.From, To: q.To, Resolution: q.Resolution}).check(false); err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	if q.Limit < 1 || q.Limit > s.maxRows || q.Resolution < time.Second {
		return nil, fmt.Errorf("read flows: %w: %d flows of windows of %s: expected 1 to %d, of 1 s or 1 min", ErrQuestion, q.Limit, q.Resolution, s.maxRows)
	}
	chosen, err := q.where()
	if err != nil {
		return nil, fmt.Errorf("read flows: %w", err)
	}
	query := fmt.Sprintf(`SELECT src_group, dst_group, src, dst, src_port, dst_port, proto, source_kind, %s, mean, min, max, %s, windows, location, %s, %s
FROM %s WHERE %s ORDER BY heavy DESC, src, dst, src_port, dst_port, proto, src_group, dst_group LIMIT %d`,
		saturated("observations, bytes"), saturated("heavy"), saturated("location_heavy"), saturated("sampled"), s.flowView(&q), chosen, q.Limit)
	return queryRows(ctx, s, "read flows", query, func(rows driver.Rows) (r FlowTotal, err error) {
		var src, dst, location, least, most uint64
		var kind uint8
		err = rows.Scan(&src, &dst, &r.Src, &r.Dst, &r.SrcPort, &r.DstPort, &r.Proto, &kind, &r.Observations, &r.Bytes, &r.Mean,
			&least, &most, &r.Heavy, &r.Windows, &location, &r.LocationHeavy, &r.Sampled)
		r.Min, r.Max = q.Signal.Unit().FromStored(least), q.Signal.Unit().FromStored(most)
		if math.IsNaN(r.Mean) { // 0 of 0 values
			r.Min, r.Max = r.Mean, r.Mean
		}
		r.SrcGroup, r.DstGroup, r.Location = aggregate.GroupID(src), aggregate.GroupID(dst), aggregate.LocationID(location)
		r.Flow, r.Kind = FlowOf(r.Src.As16(), r.Dst.As16(), r.SrcPort, r.DstPort, r.Proto), decode.Kind(kind)
		return r, err
	})
}

func (s *Store) flowView(q *FlowQuestion) string {
	return fmt.Sprintf("%s.top_flows(signal = %d, from = '%s', to = '%s', resolution_ns = %d)",
		s.database, q.Signal, stamp(q.From), stamp(q.To), q.Resolution.Nanoseconds())
}
