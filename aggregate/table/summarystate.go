package table

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
)

// summaryVersion is the version of a summary's state.
const summaryVersion = 1

// AppendState appends the summary's rows, for RestoreState. There is no checksum.
func (s *Summary) AppendState(b []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := make([]summaryKey, 0, len(s.table.rows))
	for k := range s.table.all {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, compareSummaryKeys)
	b = append(b, summaryVersion)
	b = binary.AppendUvarint(b, uint64(s.resolution))
	b = binary.AppendUvarint(b, uint64(s.maxKeys))
	b = binary.AppendUvarint(b, uint64(len(keys)))
	for _, k := range keys {
		b = append(b, uint8(k.cell.Signal), uint8(k.cell.Kind))
		for _, id := range [...]uint64{uint64(k.cell.Src), uint64(k.cell.Dst), uint64(k.loc)} {
			b = binary.LittleEndian.AppendUint64(b, id)
		}
		row := s.table.find(k)
		for _, v := range row.Fields() {
			b = binary.AppendUvarint(b, *v)
		}
	}
	return b
}

func compareSummaryKeys(a, b summaryKey) int {
	return cmp.Or(
		cmp.Compare(a.cell.Signal, b.cell.Signal), cmp.Compare(a.cell.Kind, b.cell.Kind),
		cmp.Compare(a.cell.Src, b.cell.Src), cmp.Compare(a.cell.Dst, b.cell.Dst), cmp.Compare(a.loc, b.loc),
	)
}

// RestoreState makes the summary hold what the one of the same resolution and limit
// held that AppendState was called on. Anything else is an ErrState, which leaves the
// summary as it was.
func (s *Summary) RestoreState(state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := aggregate.NewStateReader(state)
	r.Check(r.U8() == summaryVersion)
	if resolution, maxKeys := r.Uvarint(), r.Uvarint(); r.Ok() && (int64(resolution) != s.resolution || maxKeys != uint64(s.maxKeys)) {
		return fmt.Errorf("restore summary: of other settings: %w", aggregate.ErrState)
	}
	table := newSummaryTable()
	for n := r.Count(2 + 3*8 + 10); n > 0 && r.Ok(); n-- {
		cell := aggregate.CellKey{Signal: csig.Signal(r.U8()), Kind: decode.Kind(r.U8())}
		cell.Src, cell.Dst = aggregate.GroupID(r.U64()), aggregate.GroupID(r.U64())
		k := summaryKey{cell, aggregate.LocationID(r.U64())}
		r.Check(cell.Signal < csig.NumSignals && table.find(k) == nil)
		var row aggregate.Sums
		for _, v := range row.Fields() {
			*v = r.Uvarint()
		}
		table.insert(k, &row)
	}
	if err := r.End("summary"); err != nil {
		return err
	}
	s.table = table
	return nil
}
