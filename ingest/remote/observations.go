package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/decode"
	"github.com/csigscope/csigscope/decode/csig"
	"github.com/csigscope/csigscope/ingest/wire"
)

var (
	errEpoch  = errors.New("the block's epoch is not that of its description")
	errNumber = errors.New("expected a printable name of a stream, an incarnation and a number")
	errSpan   = fmt.Errorf("observations further apart than %s", maxSpan)
	errBlocks = errors.New("observations make too many windows")
	errKeys   = errors.New("earlier observations of the second made as many rows as a stream may")
)

const (
	// maxSpan is the maximum time span of a batch of observations.
	maxSpan = 5 * time.Minute
	// blocksBits is the number of low bits of a row's number that count the blocks of a batch.
	blocksBits = 16
	maxSeq     = 1<<(64-blocksBits) - 1
	// maxBatchSeries limits the memory of an observer; the rest of a batch goes to overflow rows.
	maxBatchSeries = 1 << 15

	flagTrimmed, flagAck = 1, 2
)

// observer aggregates each batch of observations on its own, under one configuration. Coarse
// windows are sums over the rows of several batches. The holder of the server's turn to observe
// uses it.
type observer struct {
	cfg   window.Config
	shard *window.Shard // nil before the first batch
	got   []*aggregate.Block
	obs   []decode.Observation
}

// newObserver returns nil without a configuration.
func newObserver(cfg *window.Config) (*observer, error) {
	if cfg == nil {
		return nil, nil
	}
	o := &observer{cfg: *cfg}
	o.cfg.MaxSeries = min(cmp.Or(cfg.MaxSeries, maxBatchSeries), maxBatchSeries)
	o.cfg.MaxAhead = 2 * maxSpan // the times within a batch were checked
	o.cfg.Horizon = 2 * maxSpan
	return o, o.cfg.Check()
}

// observe waits until a request with observations may aggregate them: one at a time, since their
// rows take much more memory than the request. The caller calls done when it has dropped them.
func (s *Server) observe(ctx context.Context, m *wire.PushRequest) (done func(), err error) {
	if len(m.GetObservations()) == 0 {
		return func() {}, nil
	}
	select {
	case s.observing <- struct{}{}:
		return sync.OnceFunc(func() { <-s.observing }), nil
	case <-ctx.Done():
		return nil, connect.NewError(connect.CodeUnavailable, errBusy)
	}
}

// collect keeps blocks.
type collect struct{ to *[]*aggregate.Block }

// WriteBlock implements aggregate.Sink.
func (c collect) WriteBlock(_ context.Context, b *aggregate.Block) error {
	if len(*c.to) < 1<<blocksBits {
		*c.to = append(*c.to, b.Clone())
	}
	return nil
}

// blocks returns the blocks of a batch.
func (o *observer) blocks(obs []decode.Observation, source aggregate.Source, seq uint64) ([]*aggregate.Block, aggregate.Counts, error) {
	ctx := context.Background()
	o.got = nil
	if o.shard == nil {
		var err error
		if o.shard, err = window.NewShard(o.cfg, collect{&o.got}); err != nil {
			return nil, aggregate.Counts{}, err
		}
	}
	if err := o.shard.Reset(source, seq<<blocksBits); err != nil {
		return nil, aggregate.Counts{}, err
	}
	if err := errors.Join(o.shard.Add(ctx, obs), o.shard.Flush(ctx)); err != nil {
		return nil, aggregate.Counts{}, err
	}
	got := o.got
	if o.got = nil; len(got) >= 1<<blocksBits {
		return nil, aggregate.Counts{}, errBlocks
	}
	return got, o.shard.Counts(), nil
}

// checkBatch decides whether observations are stored, and aggregates them.
func (p *push) checkBatch(it *item, m *wire.Observations) verdict {
	o := p.observer.Load()
	if o == nil {
		return verdict{outcome: wire.Outcome_OUTCOME_UNSUPPORTED}
	}
	obs, err := observationsOf(m, o.obs[:0])
	if err != nil {
		return invalid(err)
	}
	o.obs = obs
	first, last := obs[0].TimeNS, obs[0].TimeNS
	for i := range obs {
		first, last = min(first, obs[i].TimeNS), max(last, obs[i].TimeNS)
	}
	if last-first > int64(maxSpan) {
		return invalid(errSpan)
	}
	for _, from := range []int64{first, last} {
		if v := p.checkTime(from, last); v != toStore {
			p.findAhead(it, v, observedProducer)
			return v
		}
	}
	if it.at.seq > maxSeq {
		return invalid(fmt.Errorf("number %d: expected at most %d", it.at.seq, uint64(maxSeq)))
	}
	it.epoch = o.cfg.Source.Epoch
	if v := p.begin(it, observedProducer); v != toStore || it.wrote {
		return v
	}
	source := aggregate.Source{Producer: it.at.producer, Incarnation: it.at.incarnation, Epoch: it.epoch}
	blocks, counts, err := o.blocks(obs, source, it.at.seq)
	if err != nil {
		return invalid(err)
	}
	if !p.keepBatch(it, blocks) {
		return invalid(errKeys)
	}
	it.rejected += counts.Late
	it.foldedObservations += counts.Overflow
	for _, n := range counts.Rejected {
		it.rejected += n
	}
	return toStore
}

// keepBatch folds the rows and flows beyond the limits of a window in each block of a batch. That
// depends on the batch alone. It then reports whether the stream may keep the rest in addition to its
// earlier batches. Only windows of 1 s are counted across batches: finer ones have the same keys, and
// the rows of a minute are those of its seconds.
func (p *push) keepBatch(it *item, blocks []*aggregate.Block) bool {
	l := p.e.limits.Load()
	for _, b := range blocks {
		kept := windowRows{uint64(min(l.MaxWindowRows, b.Len())), uint64(min(l.MaxWindowFlows, len(b.Flows)))}
		b, folded, observations := overflowRows(b, l.MaxWindowRows)
		flows, foldedFlows := foldFlows(b.Flows, l.MaxWindowFlows)
		b.Flows = flows
		if b.Resolution == int64(time.Second) {
			it.foldedObservations += observations
			if !p.keep(it, b, kept, l) {
				return false
			}
		}
		it.folded += uint64(folded)
		it.rows += uint64(b.Len())
		it.flows += uint64(len(flows))
		it.foldedFlows += uint64(foldedFlows)
		it.blocks = append(it.blocks, b)
	}
	return true
}

// observationsOf appends the observations of a message.
func observationsOf(m *wire.Observations, to []decode.Observation) ([]decode.Observation, error) {
	n := len(m.GetKind())
	if n == 0 {
		return nil, errors.New("no observations: kind is empty")
	}
	if err := equalLengths(column{"kind", n}, column{"time_ns", len(m.GetTimeNs())}, column{"source_port", len(m.GetSourcePort())},
		column{"destination_port", len(m.GetDestinationPort())}, column{"protocol", len(m.GetProtocol())}, column{"encoding", len(m.GetEncoding())},
		column{"type", len(m.GetType())}, column{"value", len(m.GetValue())}, column{"locator", len(m.GetLocator())}, column{"flags", len(m.GetFlags())},
		column{"frame_bytes", len(m.GetFrameBytes())}, column{"acknowledgement", len(m.GetAcknowledgement())}); err != nil {
		return nil, err
	}
	if len(m.GetSource()) != 16*n || len(m.GetDestination()) != 16*n {
		return nil, fmt.Errorf("source and destination have %d and %d bytes: expected %d, 16 for each observation", len(m.GetSource()), len(m.GetDestination()), 16*n)
	}
	at := int64(0)
	for i := range n {
		if at += m.GetTimeNs()[i]; at <= 0 || at > 1<<62 {
			return nil, fmt.Errorf("row %d: time %d ns: out of range", i, at)
		}
		o, err := observationOf(m, i)
		if err != nil {
			return nil, fmt.Errorf("row %d: %w", i, err)
		}
		o.TimeNS = at
		to = append(to, o)
	}
	return to, nil
}

func observationOf(m *wire.Observations, i int) (o decode.Observation, err error) {
	kind, encoding, flags := decode.Kind(m.GetKind()[i]), int(m.GetEncoding()[i]), m.GetFlags()[i]
	if kind != decode.Tag && kind != decode.Reflection || encoding >= csig.NumLayouts || flags&^(flagTrimmed|flagAck) != 0 {
		return o, fmt.Errorf("kind %d, encoding %d, flags %#x: one of them does not exist", kind, encoding, flags)
	}
	layout := csig.LayoutAt(encoding)
	values, types := uint32(1)<<20, uint8(16)
	if layout.Format == csig.Compact {
		values, types = 32, 8
	}
	s, lm, typ := m.GetValue()[i], m.GetLocator()[i], m.GetType()[i]
	if s >= values || typ >= types || lm >= 1<<layout.LMBits() {
		return o, fmt.Errorf("type %d, value %d, locator %d: out of the layout's range", typ, s, lm)
	}
	if m.GetSourcePort()[i] > 1<<16-1 || m.GetDestinationPort()[i] > 1<<16-1 {
		return o, fmt.Errorf("ports %d, %d: out of range", m.GetSourcePort()[i], m.GetDestinationPort()[i])
	}
	if n := m.GetFrameBytes()[i]; n > aggregate.MaxFrameBytes {
		return o, fmt.Errorf("%w: a frame of %d bytes: expected at most %d", aggregate.ErrImpossible, n, aggregate.MaxFrameBytes)
	}
	o = decode.Observation{
		Bytes: m.GetFrameBytes()[i], SrcPort: uint16(m.GetSourcePort()[i]), DstPort: uint16(m.GetDestinationPort()[i]),
		Proto: m.GetProtocol()[i], Kind: kind, Flags: decode.HasAddrs | decode.HasPorts,
		Tag: csig.Tag{Layout: layout, T: typ, S: s, LM: uint16(lm), D: flags&flagTrimmed != 0},
	}
	copy(o.Src[:], m.GetSource()[16*i:])
	copy(o.Dst[:], m.GetDestination()[16*i:])
	if flags&flagAck != 0 {
		o.Flags |= decode.HasAck
		o.Ack = m.GetAcknowledgement()[i]
	}
	return o, nil
}
