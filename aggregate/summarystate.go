package aggregate

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

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
		b = append(b, uint8(k.cell.signal), uint8(k.cell.kind))
		for _, id := range [...]uint64{uint64(k.cell.src), uint64(k.cell.dst), uint64(k.loc)} {
			b = binary.LittleEndian.AppendUint64(b, id)
		}
		row := s.table.find(k)
		for _, v := range row.fields() {
			b = binary.AppendUvarint(b, *v)
		}
	}
	return b
}

func compareSummaryKeys(a, b summaryKey) int {
	return cmp.Or(
		cmp.Compare(a.cell.signal, b.cell.signal), cmp.Compare(a.cell.kind, b.cell.kind),
		cmp.Compare(a.cell.src, b.cell.src), cmp.Compare(a.cell.dst, b.cell.dst), cmp.Compare(a.loc, b.loc),
	)
}

func (r *summaryRow) fields() [10]*uint64 {
	return [...]*uint64{
		&r.observations, &r.bytes, &r.measured, &r.sum, &r.min, &r.max, &r.untouched, &r.trimmed, &r.heavy, &r.heavySum,
	}
}

// RestoreState makes the summary hold what the one of the same resolution and limit
// held that AppendState was called on. Anything else is an ErrState, which leaves the
// summary as it was.
func (s *Summary) RestoreState(state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &stateReader{b: state}
	r.check(r.u8() == summaryVersion)
	if resolution, maxKeys := r.uvarint(), r.uvarint(); r.ok() && (int64(resolution) != s.resolution || maxKeys != uint64(s.maxKeys)) {
		return fmt.Errorf("restore summary: of other settings: %w", ErrState)
	}
	table := newSummaryTable()
	for n := r.count(2 + 3*8 + 10); n > 0 && r.ok(); n-- {
		cell := cellKey{signal: csig.Signal(r.u8()), kind: decode.Kind(r.u8())}
		cell.src, cell.dst = GroupID(r.u64()), GroupID(r.u64())
		k := summaryKey{cell, LocationID(r.u64())}
		r.check(cell.signal < csig.NumSignals && table.find(k) == nil)
		var row summaryRow
		for _, v := range row.fields() {
			*v = r.uvarint()
		}
		table.insert(k, &row)
	}
	if err := r.end("summary"); err != nil {
		return err
	}
	s.table = table
	return nil
}
