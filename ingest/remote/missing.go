package remote

import (
	"log/slog"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/wire"
)

// missing collects losses until they are reported, so that queries of the collector's store
// show that those windows are incomplete.
type missing struct {
	parts   map[missingKey]*wire.Gap
	records []*wire.Record // lost records that are sent again
	unknown []unknownLoss
	extent  outbox.Extent // of all losses
}

// unknownLoss is a lost record of the spool of which only the time is known.
type unknownLoss struct {
	reason string
	outbox.Extent
	id uint64
}

// missingKey identifies the missing windows of a stream, by reason.
type missingKey struct {
	streamKey
	epoch      uint64
	resolution int64 // 0: all, since the input of a tap is missing
	reason     string
}

// maxMissing limits the losses that wait to be reported.
const maxMissing = 1024

// lostHere is the prefix of gap reasons that an exporter reports.
const lostHere = "exporter_"

// add records a lost item.
func (m *missing) add(reason string, item proto.Message) {
	switch item := item.(type) {
	case *wire.Block:
		m.addBlock(reason, item)
	case *wire.Record:
		m.addRecord(reason, item)
	}
}

// addEntry records a lost record of the spool by its label, or by its time if the label is lost
// too.
func (m *missing) addEntry(reason string, e *outbox.Entry) {
	list := standIns(e.Label)
	for _, r := range list {
		g := r.GetGap()
		if g == nil || g.GetReason() != lostHere {
			m.addRecord(reason, r)
			continue
		}
		g.Reason = lostHere + reason
		m.merge(missingKey{streamKey{r.GetStream(), r.GetIncarnation()}, r.GetEpoch(), g.GetResolutionNs(), reason}, g)
	}
	if len(list) == 0 && len(m.unknown) < maxMissing {
		m.unknown = append(m.unknown, unknownLoss{reason, e.Extent, e.Last})
	}
}

// addAll records all items of a record of the spool, and returns how many of them are gaps of
// earlier losses.
func (m *missing) addAll(reason string, body []byte) (again uint64) {
	items := itemsOf(body)
	for _, b := range items.GetBlocks() {
		m.addBlock(reason, b)
	}
	for _, r := range items.GetRecords() {
		if !m.addRecord(reason, r) {
			again++
		}
	}
	return again
}

// itemsOf decodes a record of the spool whose checksum is correct.
func itemsOf(body []byte) *wire.PushRequest {
	items := &wire.PushRequest{}
	if err := proto.Unmarshal(body, items); err != nil {
		return nil
	}
	return items
}

// streamsOf returns the streams of the n items of a message, in the order of their outcomes.
func streamsOf(items *wire.PushRequest, n int) []string {
	list := make([]string, 0, n)
	for _, b := range items.GetBlocks() {
		list = append(list, b.GetStream())
	}
	for _, r := range items.GetRecords() {
		list = append(list, r.GetStream())
	}
	return append(list, make([]string, n)...)[:n]
}

func (m *missing) addBlock(reason string, b *wire.Block) {
	k := missingKey{streamKey{b.GetStream(), b.GetIncarnation()}, b.GetEpoch(), b.GetResolutionNs(), reason}
	observations := uint64(0)
	for _, n := range b.GetObservations() {
		observations = aggregate.AddSat(observations, n)
	}
	m.merge(k, &wire.Gap{
		FromNs: b.GetWindowStartNs(), ToNs: b.GetWindowStartNs() + b.GetResolutionNs(), ResolutionNs: b.GetResolutionNs(),
		Rows: uint64(len(b.GetSignal())), Observations: observations, Id: b.GetSeq(), Reason: lostHere + reason,
	})
}

// addRecord keeps gaps and ends. The many numbers of a tap's input are not kept; a gap reports
// that they are missing. A gap of an earlier loss keeps its reason and joins later ones, so that
// gaps do not displace windows from a full spool; it is not new.
func (m *missing) addRecord(reason string, r *wire.Record) (isNew bool) {
	k := missingKey{streamKey{r.GetStream(), r.GetIncarnation()}, r.GetEpoch(), 0, reason}
	if t := r.GetTap(); t != nil {
		m.merge(k, &wire.Gap{FromNs: t.GetFromNs(), ToNs: t.GetToNs(), Rows: 1, Id: t.GetSeq(), Reason: lostHere + reason})
		return true
	}
	if g := r.GetGap(); g != nil {
		if earlier, ours := strings.CutPrefix(g.GetReason(), lostHere); ours {
			k.resolution, k.reason = g.GetResolutionNs(), earlier
			m.merge(k, proto.CloneOf(g))
			return false
		}
		m.extent = m.extent.Join(outbox.Extent{From: g.GetFromNs(), To: g.GetToNs()})
	}
	if len(m.records) < maxMissing {
		m.records = append(m.records, r)
	}
	return true
}

func (m *missing) merge(k missingKey, g *wire.Gap) {
	m.extent = m.extent.Join(outbox.Extent{From: g.GetFromNs(), To: g.GetToNs()})
	have := m.parts[k]
	switch {
	case have == nil && len(m.parts) < maxMissing:
		if m.parts == nil {
			m.parts = map[missingKey]*wire.Gap{}
		}
		m.parts[k] = g
	case have != nil:
		have.FromNs, have.ToNs = min(have.GetFromNs(), g.GetFromNs()), max(have.GetToNs(), g.GetToNs())
		have.Rows += g.GetRows()
		have.Observations = aggregate.AddSat(have.GetObservations(), g.GetObservations())
	}
}

// empty reports whether there is nothing to report; losses of which only the time is known wait
// for a stream.
func (m *missing) empty() bool { return len(m.parts)+len(m.records) == 0 }

// list returns all losses as records; those that are gaps have no description.
func (m *missing) list() []*wire.Record {
	list := slices.Clone(m.records)
	for k, g := range m.parts {
		list = append(list, &wire.Record{Stream: k.name, Incarnation: k.incarnation, Epoch: k.epoch, What: &wire.Record_Gap{Gap: g}})
	}
	return list
}

// addRefused records the blocks of a spool record that a collector refused for good, or that have
// no description.
func (m *missing) addRefused(items *wire.PushRequest, outcomes []wire.Outcome) {
	for i, o := range outcomes {
		reason := reasonOf(o).String()
		switch o {
		case wire.Outcome_OUTCOME_STORED, wire.Outcome_OUTCOME_REPEAT:
			continue
		case wire.Outcome_OUTCOME_UNDESCRIBED:
			reason = lostUndescribed
		}
		if i < len(items.GetBlocks()) {
			m.addBlock(reason, items.GetBlocks()[i])
		}
	}
}

// spoolMissing writes the gaps of losses to the spool, before the lost records are acknowledged.
// The caller holds mu.
func (c *Client) spoolMissing() {
	if c.missing.empty() && len(c.missing.unknown) == 0 {
		return
	}
	c.queueMissing()
	_ = c.spoolPending(nil) // logs its own error; the gap then stays in memory
}

// queueMissing gathers records of losses. Those whose epoch has no description, or is not known,
// count under the current one. The caller holds mu.
func (c *Client) queueMissing() {
	c.attribute()
	lost := c.missing
	if lost.empty() {
		return
	}
	c.missing = missing{unknown: lost.unknown}
	for _, r := range lost.list() {
		if !c.hasRoom(r) {
			c.missing.addRecord(lostDisk, r) // waits
			continue
		}
		if r.GetDescription() == 0 {
			d, err := c.descriptionOf(r.GetEpoch())
			if err != nil {
				epoch, latest, err := c.latestEpoch()
				if err != nil { // nothing was described yet
					c.missing.addRecord(lostDisk, r)
					continue
				}
				r.Epoch, d = epoch, latest
			}
			r.Description = d
		}
		c.stats.Items++
		if err := c.pending.add(fieldRecords, r); err != nil {
			c.cfg.Logger.Error("cannot report missing rows to the collector", slog.String("error", err.Error()))
		}
	}
}

// attribute turns losses of which only the time is known into gaps: one in each stream of the
// adjacent records, or in every stream if there are none. They wait until there is a stream.
func (c *Client) attribute() {
	if len(c.missing.unknown) == 0 {
		return
	}
	keys := c.beside
	for k := range c.streams {
		if len(c.beside) == 0 {
			keys = append(keys, missingKey{streamKey: k})
		}
	}
	if len(keys) == 0 {
		return
	}
	for _, u := range c.missing.unknown {
		now := c.cfg.Now().UnixNano()
		if u.Extent == (outbox.Extent{}) {
			u.Extent = outbox.Extent{From: now, To: now}
		}
		for _, k := range keys {
			k.resolution, k.reason = 0, u.reason
			c.missing.merge(k, &wire.Gap{FromNs: max(u.From, 1), ToNs: min(u.To, now), Id: u.id, Reason: lostHere + u.reason})
		}
	}
	c.missing.unknown = nil
}

// maxBeside is the maximum number of streams of adjacent records in which a loss leaves gaps.
const maxBeside = 64

// besideOf adds the streams of a spool record, according to its label.
func besideOf(keys []missingKey, label []byte) []missingKey {
	for _, r := range standIns(label) {
		k := missingKey{streamKey: streamKey{r.GetStream(), r.GetIncarnation()}, epoch: r.GetEpoch()}
		if len(keys) < maxBeside && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// pass counts a loss at the head of the spool, and spools its gap before reading continues.
func (c *Client) pass(e *outbox.Entry, reason string) {
	c.mu.Lock()
	c.lost[reason] += max(e.Weight, 1)
	c.missing.addEntry(reason, e)
	c.beside = c.besideLoss(e.Last)
	c.spoolMissing()
	c.mu.Unlock()
	c.log.Ack(e)
	c.mu.Lock()
	c.broadcast()
	c.mu.Unlock()
}

// besideLoss returns the streams of the records around a position in the spool.
func (c *Client) besideLoss(number uint64) []missingKey {
	keys := besideOf(nil, c.before)
	s, ok := c.log.Oldest(pushClass)
	if !ok {
		return keys
	}
	for e, err := range c.log.Records(s) {
		if err != nil {
			break
		}
		if more := besideOf(keys, e.Label); e.Last > number && len(more) > 0 {
			return more
		}
	}
	return keys
}
