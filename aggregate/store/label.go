package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/ClickHouse/clickhouse-go/v2/lib/driver"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
)

// label describes a record without decoding it: the extent of its rows, for gaps, and a few rows
// whose presence shows that the server has it.
type label struct {
	Parts  []lossExtent `json:"parts"`
	Probes []rowSample  `json:"probes"`
}

// rowSample is the identity of a row. A batch is stored as a whole, so a few rows of it stand for
// all.
type rowSample struct {
	Window      int64  `json:"window"` // Unix ns
	Signal      uint8  `json:"signal"`
	Kind        uint8  `json:"kind"`
	Encoding    uint8  `json:"encoding"`
	SrcGroup    uint64 `json:"src"`
	DstGroup    uint64 `json:"dst"`
	Location    uint64 `json:"location"`
	Epoch       uint64 `json:"epoch"`
	Producer    uint64 `json:"producer"`
	Incarnation uint64 `json:"incarnation"`
	Seq         uint64 `json:"seq"`
}

// label describes the rows [from, to).
func (b *batch) label(from, to int) *label {
	l := &label{Parts: b.parts(from, to)}
	for _, i := range [...]int{from, (from + to - 1) / 2, to - 1} {
		l.Probes = append(l.Probes, b.probe(i))
	}
	return l
}

func (l *label) encode() ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("encode label: %w", err)
	}
	return text, nil
}

// extent is the time of all parts.
func (l *label) extent() (all outbox.Extent) {
	for i := range l.Parts {
		all = all.Join(outbox.Extent{From: l.Parts[i].From, To: l.Parts[i].To})
	}
	return all
}

// probe identifies the row among those of its block, as far as a probe of partials does.
func (r *FlowRow) probe() rowSample {
	return rowSample{
		Window: r.Window, Signal: uint8(r.Signal), Kind: uint8(r.Kind), SrcGroup: uint64(r.SrcGroup), DstGroup: uint64(r.DstGroup),
		Epoch: r.Epoch, Producer: r.Producer, Incarnation: r.Incarnation, Seq: r.Seq,
	}
}

// parseLabel returns an empty label for invalid text.
func parseLabel(text []byte) label {
	var l label
	if json.Unmarshal(text, &l) != nil {
		return label{}
	}
	return l
}

func (b *batch) probe(i int) rowSample {
	w := &b.words
	return rowSample{
		Window: b.windowStart[i].UnixNano(), Signal: b.bytes8[0][i], Kind: b.bytes8[1][i], Encoding: b.bytes8[2][i],
		SrcGroup: w[0][i], DstGroup: w[1][i], Location: w[2][i], Epoch: w[3][i], Producer: w[4][i], Incarnation: w[5][i], Seq: w[6][i],
	}
}

func (b *batch) parts(from, to int) []lossExtent {
	var parts []lossExtent
	var p lossExtent
	for i := from; i < to; i++ {
		at := b.partOf(i)
		if i > from && at.source() == p.source() && at.Resolution == p.Resolution {
			p.merge(&at)
			continue
		}
		if i > from {
			parts = addPart(parts, p)
		}
		p = at
	}
	return addPart(parts, p)
}

func (b *batch) partOf(i int) lossExtent {
	resolution := int64(resolutionTableAt(b.table).Length)
	if b.table == fineTable {
		resolution = int64(b.resolution[i])
	}
	at := b.windowStart[i].UnixNano()
	return lossExtent{
		Epoch: b.words[3][i], Producer: b.words[4][i], Incarnation: b.words[5][i], Resolution: resolution,
		From: at, To: at + resolution, Rows: 1, Observations: b.words[observationsColumn][i],
	}
}

// maxProbes bounds the rows of one query.
const maxProbes = 300

// present returns those of up to maxProbes rows of partials or flows that the server has.
func (s *Store) present(ctx context.Context, class int, probes []rowSample) (map[rowSample]bool, error) {
	found := make(map[rowSample]bool, len(probes))
	if len(probes) == 0 {
		return found, nil
	}
	table, key, columns := "flows", "toStartOfHour", "signal, source_kind, src_group, dst_group, window_start, toUInt64(0), toUInt8(0), config_epoch, producer, incarnation, seq"
	if class < numResolutionTables {
		table, key = resolutionTableAt(class).table(), resolutionTableAt(class).KeyStart
		columns = strings.Replace(columns, "toUInt64(0), toUInt8(0)", "location, encoding", 1)
	}
	var list strings.Builder
	for i := range probes {
		p := &probes[i]
		window := fmt.Sprintf("fromUnixTimestamp64Nano(toInt64(%d), 'UTC')", p.Window)
		if i > 0 {
			list.WriteString(", ")
		}
		fmt.Fprintf(&list, "(%s(%s), %d, %d, %d, %d, %s, %d, %d, %d, %d, %d, %d)", key, window,
			p.Signal, p.Kind, p.SrcGroup, p.DstGroup, window, p.Location, p.Encoding, p.Epoch, p.Producer, p.Incarnation, p.Seq)
	}
	query := fmt.Sprintf("SELECT DISTINCT %s FROM %s.%s WHERE (%s(window_start), %[1]s) IN (%[5]s) LIMIT %[6]d",
		columns, s.database, s.layout.local(table), key, list.String(), maxProbes)
	read := func(rows driver.Rows) error {
		var p rowSample
		var window time.Time
		if err := rows.Scan(&p.Signal, &p.Kind, &p.SrcGroup, &p.DstGroup, &window, &p.Location, &p.Encoding, &p.Epoch, &p.Producer, &p.Incarnation, &p.Seq); err != nil {
			return err
		}
		p.Window = window.UnixNano()
		found[p] = true
		return nil
	}
	// Each shard separately: the connection goes to a server that took its rows.
	for _, sh := range s.shards(s.reader) {
		if err := s.list(ctx, sh.conn, "check rows", query, read); err != nil {
			return nil, err
		}
	}
	return found, nil
}
