package remote

import (
	"log/slog"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/ingest/wire"
)

// missing is what was lost, until it is told: so that whoever asks the collector's store
// for those windows learns that they are not whole.
type missing struct {
	parts   map[missingKey]*wire.Gap
	records []*wire.Record // that were lost themselves, and are told again
	unknown []unknownLoss
	extent  outbox.Extent // of all that was added
}

// unknownLoss is a record of the spool of which nothing but its time is left.
type unknownLoss struct {
	reason string
	outbox.Extent
	id uint64
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

// add notes an item that is lost.
func (m *missing) add(reason string, item proto.Message) {
	switch item := item.(type) {
	case *wire.Block:
		m.addBlock(reason, item)
	case *wire.Record:
		m.addRecord(reason, item)
	}
}

// addEntry notes a record of the spool by its label, or by its time where that is lost too.
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
	if g := r.GetGap(); g != nil {
		m.extent = m.extent.Join(outbox.Extent{From: g.GetFromNs(), To: g.GetToNs()})
	}
	if len(m.records) < maxMissing {
		m.records = append(m.records, r)
	}
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
		have.Observations = addSat(have.GetObservations(), g.GetObservations())
	}
}

// list has all that is missing as records, without descriptions where they are gaps.
func (m *missing) list() []*wire.Record {
	list := slices.Clone(m.records)
	for k, g := range m.parts {
		list = append(list, &wire.Record{Stream: k.name, Incarnation: k.incarnation, Epoch: k.epoch, What: &wire.Record_Gap{Gap: g}})
	}
	return list
}

// missRefused notes which blocks of a record of the spool a collector refused for good.
func (c *Client) missRefused(body []byte, outcomes []wire.Outcome) {
	var items *wire.PushRequest
	for i, o := range outcomes {
		switch o {
		case wire.Outcome_OUTCOME_STORED, wire.Outcome_OUTCOME_REPEAT, wire.Outcome_OUTCOME_UNDESCRIBED:
			continue
		case wire.Outcome_OUTCOME_FUTURE:
			continue // the collector would refuse the gap as well, and has a finding
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
	c.attribute()
	told := c.missing
	if len(told.parts)+len(told.records) == 0 {
		return
	}
	c.missing = missing{unknown: told.unknown}
	for _, r := range told.list() {
		if r.GetDescription() == 0 {
			d, err := c.descriptionOf(r.GetEpoch())
			if r.GetEpoch() == 0 {
				r.Epoch, d, err = c.latestEpoch()
			}
			if err != nil {
				continue
			}
			r.Description = d
		}
		if err := c.gather(fieldRecords, r); err != nil {
			c.cfg.Logger.Error("what is missing cannot be told", slog.String("error", err.Error()))
		}
	}
}

// latestEpoch is the current configuration.
func (c *Client) latestEpoch() (epoch, description uint64, err error) {
	for _, name := range slices.Backward(c.descriptionFiles()) {
		if d := readDescription(name); d != nil {
			return d.GetEpoch(), d.GetId(), nil
		}
	}
	return 0, 0, errUndescribed
}

// attribute makes gaps of losses of which only the time is known: one in each stream that
// the records beside them were of or, without any, in each that there is. Until there is one
// they wait.
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

// maxBeside bounds the streams in which a loss of which only the time is known leaves gaps.
const maxBeside = 64

// besideOf are the streams of a record of the spool, by its label.
func besideOf(keys []missingKey, label []byte) []missingKey {
	for _, r := range standIns(label) {
		k := missingKey{streamKey: streamKey{r.GetStream(), r.GetIncarnation()}, epoch: r.GetEpoch()}
		if len(keys) < maxBeside && !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// pass counts what is lost at the head of the spool, and spools its gap before it goes on.
func (c *Client) pass(e *outbox.Entry, reason string) {
	c.mu.Lock()
	c.lost[reason] += max(e.Weight, 1)
	c.missing.addEntry(reason, e)
	c.beside = c.besideLoss(e.Last)
	c.tellMissing()
	_ = c.spoolPending(nil) // tells itself; the gap stays in memory then
	c.mu.Unlock()
	c.log.Ack(e)
	c.mu.Lock()
	c.broadcast()
	c.mu.Unlock()
}

// besideLoss are the streams of the records around a place in the spool.
func (c *Client) besideLoss(number uint64) []missingKey {
	keys := besideOf(nil, c.before)
	s, ok := c.log.Oldest(pushClass)
	if !ok {
		return keys
	}
	r, err := c.log.Read(s)
	if err != nil {
		return keys
	}
	defer r.Close()
	for {
		e, err := r.Next()
		if err != nil {
			return keys
		}
		if more := besideOf(keys, e.Label); e.Last > number && len(more) > 0 {
			return more
		}
	}
}

// seqState is what is known of a number.
type seqState uint8

const (
	seqNew    seqState = iota
	seqBusy            // taken, and not durable yet
	seqRepeat          // durable
	seqStale           // older than what is remembered
)

// seqs remembers which of a life's last numbers were taken. The zero value has seen none.
type seqs struct {
	top        uint64
	busy, done [maxInFlightBlocks / 64]uint64 // by number modulo maxInFlightBlocks
}

// begin takes a new number; end must follow.
func (s *seqs) begin(n uint64) seqState {
	word, bit := place(n)
	switch {
	case n > s.top:
		s.advance(n)
	case s.top-n >= maxInFlightBlocks:
		return seqStale
	case s.done[word]&bit != 0:
		return seqRepeat
	case s.busy[word]&bit != 0:
		return seqBusy
	}
	s.busy[word] |= bit
	return seqNew
}

// end tells whether the number is durable now; otherwise it may be taken again.
func (s *seqs) end(n uint64, durable bool) {
	if n > s.top || s.top-n >= maxInFlightBlocks {
		return
	}
	word, bit := place(n)
	s.busy[word] &^= bit
	if durable {
		s.done[word] |= bit
	}
}

// advance forgets what the numbers up to n take the place of.
func (s *seqs) advance(n uint64) {
	if n-s.top >= maxInFlightBlocks {
		*s = seqs{}
	} else {
		for i := s.top + 1; i <= n; i++ {
			word, bit := place(i)
			s.busy[word] &^= bit
			s.done[word] &^= bit
		}
	}
	s.top = n
}

func place(n uint64) (word int, bit uint64) {
	n %= maxInFlightBlocks
	return int(n / 64), 1 << (n % 64)
}
