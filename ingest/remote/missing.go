package remote

import (
	"log/slog"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/ingest/wire"
)

// missing is what was lost, until it is told: so that whoever asks the collector's store
// for those windows learns that they are not whole.
type missing struct {
	parts   map[missingKey]*wire.Gap
	records []*wire.Record // that were lost themselves, and are told again
}

// missingKey is a stream's windows that are missing for one reason.
type missingKey struct {
	streamKey
	epoch      uint64
	resolution int64 // 0: all, since what a tap took in is missing
	reason     string
}

// maxMissing bounds what waits to be told.
const maxMissing = 1024

// lostHere begins the reasons of gaps that an exporter tells of.
const lostHere = "exporter_"

// add notes an item that is lost. Of observations nobody knows whose windows they are.
func (m *missing) add(reason string, item proto.Message) {
	switch item := item.(type) {
	case *wire.Block:
		m.addBlock(reason, item)
	case *wire.Record:
		m.addRecord(reason, item)
	}
}

// addAll notes what is in a record of the spool.
func (m *missing) addAll(reason string, body []byte) {
	items := itemsOf(body)
	for _, b := range items.GetBlocks() {
		m.addBlock(reason, b)
	}
	for _, r := range items.GetRecords() {
		m.addRecord(reason, r)
	}
}

// itemsOf reads a record of the spool, whose checksum was right.
func itemsOf(body []byte) *wire.PushRequest {
	items := &wire.PushRequest{}
	if err := proto.Unmarshal(body, items); err != nil {
		return nil
	}
	return items
}

func (m *missing) addBlock(reason string, b *wire.Block) {
	k := missingKey{streamKey{b.GetStream(), b.GetIncarnation()}, b.GetEpoch(), b.GetResolutionNs(), reason}
	observations := uint64(0)
	for _, n := range b.GetObservations() {
		observations = addSat(observations, n)
	}
	m.merge(k, &wire.Gap{
		FromNs: b.GetWindowStartNs(), ToNs: b.GetWindowStartNs() + b.GetResolutionNs(), ResolutionNs: b.GetResolutionNs(),
		Rows: uint64(len(b.GetSignal())), Observations: observations, Id: b.GetSeq(), Reason: lostHere + reason,
	})
}

// addRecord keeps gaps and ends. What a tap took in is many numbers: that they are missing
// is told.
func (m *missing) addRecord(reason string, r *wire.Record) {
	if t := r.GetTap(); t != nil {
		k := missingKey{streamKey{r.GetStream(), r.GetIncarnation()}, r.GetEpoch(), 0, reason}
		m.merge(k, &wire.Gap{FromNs: t.GetFromNs(), ToNs: t.GetToNs(), Rows: 1, Id: t.GetSeq(), Reason: lostHere + reason})
		return
	}
	if len(m.records) < maxMissing {
		m.records = append(m.records, r)
	}
}

func (m *missing) merge(k missingKey, g *wire.Gap) {
	have := m.parts[k]
	switch {
	case have == nil && len(m.parts) < maxMissing:
		m.parts[k] = g
	case have != nil:
		have.FromNs, have.ToNs = min(have.GetFromNs(), g.GetFromNs()), max(have.GetToNs(), g.GetToNs())
		have.Rows += g.GetRows()
		have.Observations = addSat(have.GetObservations(), g.GetObservations())
	}
}

// missRefused notes which blocks of a record of the spool a collector refused for good.
func (c *Client) missRefused(body []byte, outcomes []wire.Outcome) {
	var items *wire.PushRequest
	for i, o := range outcomes {
		switch o {
		case wire.Outcome_OUTCOME_STORED, wire.Outcome_OUTCOME_REPEAT, wire.Outcome_OUTCOME_UNDESCRIBED:
			continue
		}
		if items == nil {
			items = itemsOf(body)
		}
		if i < len(items.GetBlocks()) {
			c.mu.Lock()
			c.missing.addBlock(reasonOf(o).String(), items.GetBlocks()[i])
			c.mu.Unlock()
		}
	}
}

// tellMissing gathers records of what was lost. What the collector cannot know the meaning
// of is not told. The caller holds mu.
func (c *Client) tellMissing() {
	if len(c.missing.parts)+len(c.missing.records) == 0 {
		return
	}
	records := c.missing.records
	for k, g := range c.missing.parts {
		d, err := c.descriptionOf(k.epoch)
		if err != nil {
			continue
		}
		records = append(records, &wire.Record{
			Stream: k.name, Incarnation: k.incarnation, Epoch: k.epoch, Description: d, What: &wire.Record_Gap{Gap: g},
		})
	}
	c.missing.records = nil
	clear(c.missing.parts)
	for _, r := range records {
		if err := c.gather(fieldRecords, r); err != nil {
			c.cfg.Logger.Error("what is missing cannot be told", slog.String("error", err.Error()))
		}
	}
}
