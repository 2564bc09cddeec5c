package remote

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

// takeShared passes a peer's blocks to the live sink only: their own collector stores them and
// shares them with all peers, so that no block is forwarded in circles.
//
// A peer is trusted to name the producer of its rows, as it is by the store that it writes to.
// Otherwise its blocks are checked like an exporter's.
func (s *Server) takeShared(ctx context.Context, c *call, m *wire.ShareRequest) (*wire.ShareResponse, error) {
	e, rows := c.exporter, 0
	for _, b := range m.GetBlocks() {
		rows += len(b.GetBlock().GetSignal())
	}
	if err := s.spend(e, e.rows, rows, ReasonRowRate); err != nil {
		return nil, err
	}
	p := &push{Server: s, e: e, answer: &wire.PushResponse{}}
	f, _ := s.uniqueRows.Get().(*uniqueRows)
	defer s.uniqueRows.Put(f)
	for _, b := range m.GetBlocks() {
		it := blockItem(b.GetBlock())
		p.add(it, p.checkShared(it, b, f))
		if it.outcome != wire.Outcome_OUTCOME_STORED {
			continue
		}
		for _, b := range it.blocks {
			if err := s.cfg.Live.WriteBlock(ctx, b); err != nil {
				return nil, s.unavailable(ctx, e, err)
			}
		}
	}
	p.takeProvisional(m.GetProvisional(), s.cfg.LiveProvisional)
	p.finish(true)
	return &wire.ShareResponse{Outcomes: p.answer.GetOutcomes()}, nil
}

var (
	errShared       = errors.New("expected a producer, an incarnation and a number")
	errNoBlock      = errors.New("expected a block")
	errSharedLength = fmt.Errorf("expected windows of %s", aggregate.LiveResolution)
	errLiveLength   = fmt.Errorf("expected windows of at most %s", aggregate.LiveResolution)
)

// checkShared decides whether a peer's block is shown, and prepares it.
func (p *push) checkShared(it *item, m *wire.SharedBlock, f *uniqueRows) verdict {
	if p.cfg.Live == nil {
		return verdict{outcome: wire.Outcome_OUTCOME_UNSUPPORTED}
	}
	if m.GetProducer() == 0 || it.at.incarnation == 0 || it.at.seq == 0 {
		return invalid(errShared)
	}
	m.GetBlock().Flows = nil
	b, err := f.block(m.GetBlock())
	if err != nil {
		return invalid(err)
	}
	if b.Resolution != int64(aggregate.LiveResolution) {
		return invalid(errSharedLength)
	}
	if v := p.checkTime(b.WindowStart, b.WindowStart+b.Resolution); v != toStore {
		return v
	}
	b.Source = aggregate.Source{Producer: m.GetProducer(), Incarnation: it.at.incarnation, Epoch: it.epoch}
	b.Seq = partSeq(it.at.seq, m.GetPart())
	it.rows, it.blocks = uint64(b.Len()), []*aggregate.Block{b}
	return toStore
}

// partSeq returns the number of a part of a block. The first part has the block's own number,
// so that a block that its exporter sent as a whole counts once.
func partSeq(seq uint64, part uint32) uint64 {
	if part == 0 {
		return seq
	}
	hash := xxhash.Sum64(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint64(nil, seq), part))
	return seq>>aggregate.PartShift<<aggregate.PartShift | hash>>(64-aggregate.PartShift)
}
