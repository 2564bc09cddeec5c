package remote

import (
	"log/slog"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/wire"
)

const (
	// provisionalShare is the rate of an exporter's provisional rows, beside those of its blocks,
	// as a fraction of its row rate. provisionalBurst is the number of seconds at this rate that
	// it may use at once: one exporter takes little of the room for provisional rows in live views.
	provisionalShare = 0.2
	provisionalBurst = 2
)

// takeProvisional passes provisional rows of an exporter or a peer to a sink. They have no
// outcome; dropped rows are counted.
func (p *push) takeProvisional(list []*wire.Provisional, to aggregate.ProvisionalSink) {
	if to == nil || len(list) == 0 {
		return
	}
	f, _ := p.uniqueRows.Get().(*uniqueRows)
	defer p.uniqueRows.Put(f)
	for _, m := range list {
		it := blockItem(m.GetBlock())
		rows := len(m.GetBlock().GetSignal())
		if !p.e.provisional.AllowN(p.now(), rows) {
			p.e.counts.refused(ReasonProvisional, 1)
			continue
		}
		v := p.checkProvisional(it, m, f)
		p.refuseItem(it, v, slog.Bool("provisional", true))
		switch v.outcome {
		case wire.Outcome_OUTCOME_STORED:
			p.e.counts.add(func(c *Counts) {
				c.Provisional++
				c.ProvisionalRows += uint64(it.blocks[0].Len())
			})
			to.WriteProvisional((*aggregate.Provisional)(it.blocks[0]))
		case wire.Outcome_OUTCOME_UNDESCRIBED:
			p.e.counts.refused(ReasonProvisional, 1)
		}
	}
}

// checkProvisional validates rows like a block and prepares them for live views. It takes no
// number: a stream may send any number of provisional rows within its rate.
func (p *push) checkProvisional(it *item, m *wire.Provisional, f *uniqueRows) verdict {
	if m.GetBlock() == nil {
		return invalid(errNoBlock)
	}
	m.Block.Flows = nil
	b, err := f.block(m.Block)
	if err != nil {
		return invalid(err)
	}
	if b.Resolution > int64(aggregate.LiveResolution) {
		return invalid(errLiveLength)
	}
	if p.e.peer && b.Resolution != int64(aggregate.LiveResolution) {
		return invalid(errSharedLength)
	}
	if v := p.checkTime(b.WindowStart, b.WindowStart+b.Resolution); v != toStore {
		return v
	}
	if p.e.peer {
		if m.GetProducer() == 0 || it.at.incarnation == 0 {
			return invalid(errShared)
		}
		it.at.producer = m.GetProducer()
		b.Seq = it.at.seq >> aggregate.PartShift << aggregate.PartShift
	} else if v := p.checkStream(it, m.GetBlock().GetDescription()); v != toStore {
		return v
	}
	b.Source = aggregate.Source{Producer: it.at.producer, Incarnation: it.at.incarnation, Epoch: it.epoch}
	if !p.e.peer {
		b, _, _ = overflowRows(b, p.e.limits.Load().MaxWindowRows)
	}
	it.blocks = []*aggregate.Block{b}
	return toStore
}

// checkStream decides whether an exporter may send rows of a stream.
func (p *push) checkStream(it *item, description uint64) verdict {
	if v := p.checkDescribed(it, description); v != toStore {
		return v
	}
	it.at.seq = 0 // whatever the exporter says
	return p.meet(it, Producer)
}
