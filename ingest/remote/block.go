package remote

import (
	"fmt"
	"math"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/wire"
)

// toWire converts the rows [from, to) to a message. It shares the block's memory, except for
// the distribution.
func toWire(b *aggregate.Block, from, to int) *wire.Block {
	m := &wire.Block{
		Epoch: b.Epoch, ResolutionNs: b.Resolution, WindowStartNs: b.WindowStart,
		Signal: b.Signal[from:to], Kind: b.Kind[from:to], Encoding: b.Encoding[from:to],
		SrcGroup: b.SrcGroup[from:to], DstGroup: b.DstGroup[from:to], Location: b.Location[from:to],
		Observations: b.Observations[from:to], Samples: b.Samples[from:to], Unjudged: b.Unjudged[from:to], Bytes: b.Bytes[from:to],
		Sum: b.Sum[from:to], Min: b.Min[from:to], Max: b.Max[from:to],
		Untouched: b.Untouched[from:to], Trimmed: b.Trimmed[from:to], Heavy: b.Heavy[from:to], HeavySum: b.HeavySum[from:to], Evidence: b.Evidence[from:to],
		DistSize: make([]uint32, 0, to-from), More: b.More || to < b.Len(),
	}
	start := distStart(b, from)
	at := start
	for _, end := range b.DistEnd[from:to] {
		m.DistSize = append(m.DistSize, end-at)
		at = end
	}
	m.DistCode = make([]uint32, 0, at-start)
	for _, c := range b.DistCode[start:at] {
		m.DistCode = append(m.DistCode, uint32(c))
	}
	m.DistCount = b.DistCount[start:at]
	return m
}

// distStart returns the index at which the distribution of row i begins.
func distStart(b *aggregate.Block, i int) uint32 {
	if i == 0 {
		return 0
	}
	return b.DistEnd[i-1]
}

// fromWire converts a message to a block without source and number. The block shares the
// message's memory. It returns an error if no aggregator could have produced the message.
func fromWire(m *wire.Block) (*aggregate.Block, error) {
	b := &aggregate.Block{
		Resolution: m.GetResolutionNs(), WindowStart: m.GetWindowStartNs(),
		Signal: m.GetSignal(), Kind: m.GetKind(), Encoding: m.GetEncoding(),
		SrcGroup: m.GetSrcGroup(), DstGroup: m.GetDstGroup(), Location: m.GetLocation(),
		Observations: m.GetObservations(), Samples: m.GetSamples(), Unjudged: m.GetUnjudged(), Bytes: m.GetBytes(), Sum: m.GetSum(), Min: m.GetMin(), Max: m.GetMax(),
		Untouched: m.GetUntouched(), Trimmed: m.GetTrimmed(), Heavy: m.GetHeavy(), HeavySum: m.GetHeavySum(), Evidence: m.GetEvidence(),
		DistCount: m.GetDistCount(), More: m.GetMore(),
	}
	if err := checkWindow(b); err != nil {
		return nil, err
	}
	if err := checkColumns(b, m); err != nil {
		return nil, err
	}
	takeCounts(b)
	if err := takeDist(b, m); err != nil {
		return nil, err
	}
	if err := takeFlows(b, m.GetFlows()); err != nil {
		return nil, err
	}
	if err := b.Check(); err != nil {
		return nil, err
	}
	return b, checkFlows(b, m.GetFlows().GetBlocks())
}

func checkWindow(b *aggregate.Block) error {
	if b.Resolution < int64(window.MinResolution) || b.Resolution > int64(time.Second) && b.Resolution != int64(time.Minute) {
		return fmt.Errorf("resolution %d ns: expected %s to 1s, or 1m", b.Resolution, window.MinResolution)
	}
	if b.WindowStart < 0 || b.WindowStart > math.MaxInt64/2 || b.WindowStart%b.Resolution != 0 {
		return fmt.Errorf("window at %d ns: expected a multiple of %d", b.WindowStart, b.Resolution)
	}
	return nil
}

// column is a field of a message with a value for each row.
type column struct {
	name   string // in ingest.proto
	values int
}

// equalLengths checks that columns have as many values as the first one.
func equalLengths(first column, others ...column) error {
	for _, c := range others {
		if c.values != first.values {
			return fmt.Errorf("%s has %d values: expected %d, as many as %s has", c.name, c.values, first.values, first.name)
		}
	}
	return nil
}

func checkColumns(b *aggregate.Block, m *wire.Block) error {
	n := b.Len()
	if n == 0 {
		return fmt.Errorf("no rows")
	}
	if err := equalLengths(column{"signal", n}, column{"kind", len(b.Kind)}, column{"encoding", len(b.Encoding)},
		column{"src_group", len(b.SrcGroup)}, column{"dst_group", len(b.DstGroup)}, column{"location", len(b.Location)},
		column{"observations", len(b.Observations)}, column{"bytes", len(b.Bytes)}, column{"sum", len(b.Sum)}, column{"min", len(b.Min)},
		column{"max", len(b.Max)}, column{"untouched", len(b.Untouched)}, column{"trimmed", len(b.Trimmed)}, column{"heavy", len(b.Heavy)},
		column{"heavy_sum", len(b.HeavySum)}, column{"dist_size", len(m.GetDistSize())}); err != nil {
		return err
	}
	for name, length := range map[string]int{"samples": len(b.Samples), "unjudged": len(b.Unjudged), "evidence": len(b.Evidence)} {
		if length != 0 && length != n {
			return fmt.Errorf("%s have %d rows: expected %d", name, length, n)
		}
	}
	if len(m.GetDistCode()) != len(b.DistCount) {
		return fmt.Errorf("distribution of %d buckets has %d counts", len(m.GetDistCode()), len(b.DistCount))
	}
	return nil
}

// takeCounts fills in columns that older exporters do not send: observations then count as
// unweighted, as judged, and as located by their locators.
func takeCounts(b *aggregate.Block) {
	if len(b.Unjudged) == 0 {
		b.Unjudged = make([]uint64, b.Len())
	}
	if len(b.Evidence) == 0 {
		b.Evidence = make([]uint8, b.Len())
	}
	if len(b.Samples) > 0 {
		return
	}
	b.Samples = make([]uint64, b.Len())
	for i, n := range b.Observations {
		b.Samples[i] = n - min(b.Trimmed[i], n)
	}
}

// takeDist fills in the ends of the distributions and their buckets.
func takeDist(b *aggregate.Block, m *wire.Block) error {
	codes := m.GetDistCode()
	b.DistCode = make([]uint16, 0, len(codes))
	b.DistEnd = make([]uint32, 0, b.Len())
	at := 0
	for i, size := range m.GetDistSize() {
		if int(size) > len(codes)-at {
			return fmt.Errorf("row %d: distribution of %d buckets: only %d are left", i, size, len(codes)-at)
		}
		last := -1
		for _, c := range codes[at : at+int(size)] {
			if c >= csig.DistIndexes || int(c) <= last {
				return fmt.Errorf("row %d: bucket %d: expected ascending ones below %d", i, c, csig.DistIndexes)
			}
			last = int(c)
			b.DistCode = append(b.DistCode, uint16(c))
		}
		at += int(size)
		b.DistEnd = append(b.DistEnd, uint32(at))
	}
	if at != len(codes) {
		return fmt.Errorf("%d buckets belong to no row", len(codes)-at)
	}
	return nil
}
