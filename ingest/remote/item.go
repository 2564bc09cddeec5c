package remote

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/ingest/edge"
	"github.com/csigscope/csigscope/ingest/wire"
)

// item is a block, a batch of observations or a record in a request.
type item struct {
	stream   string
	at       blockID
	epoch    uint64
	outcome  wire.Outcome
	began    bool               // its number is taken
	batch    bool               // of observations
	wrote    bool               // the sink has rows of it
	blocks   []*aggregate.Block // that the sink does not have
	record   *wire.Record       // instead of blocks
	observed uint64             // received observations

	rows, folded, foldedObservations, rejected uint64
	flows, foldedFlows, findings               uint64
	futureFindings, pastFindings               uint64 // findings removed from record

	kept []countedRows // rows counted in keptWindows, to be released unless stored
}

func blockItem(b *wire.Block) *item {
	it := &item{stream: b.GetStream(), epoch: b.GetEpoch(), at: blockID{incarnation: b.GetIncarnation(), seq: b.GetSeq()}}
	for _, n := range b.GetObservations() {
		it.observed = aggregate.AddSat(it.observed, n)
	}
	return it
}

// drop releases the item's columns, unless the sink has a part of them.
func (it *item) drop() {
	if !it.wrote || len(it.blocks) == 0 {
		it.blocks = nil
	}
}

// outcomeReasons maps final outcomes to reasons, except those that are not refusals.
var outcomeReasons = map[wire.Outcome]Reason{
	wire.Outcome_OUTCOME_INVALID:     ReasonInvalid,
	wire.Outcome_OUTCOME_FUTURE:      ReasonFuture,
	wire.Outcome_OUTCOME_PAST:        ReasonPast,
	wire.Outcome_OUTCOME_STALE:       ReasonStale,
	wire.Outcome_OUTCOME_STREAMS:     ReasonStreams,
	wire.Outcome_OUTCOME_FOREIGN:     ReasonForeign,
	wire.Outcome_OUTCOME_UNSUPPORTED: ReasonUnsupported,
	wire.Outcome_OUTCOME_IMPOSSIBLE:  ReasonImpossible,
}

// reasonOf returns the reason for a refused item; unknown outcomes of newer collectors are
// invalid.
func reasonOf(o wire.Outcome) Reason {
	if r, known := outcomeReasons[o]; known {
		return r
	}
	return ReasonInvalid
}

// verdict is the outcome of an item and its cause.
type verdict struct {
	outcome wire.Outcome
	err     error // for the log; may be nil
}

var toStore = verdict{outcome: wire.Outcome_OUTCOME_STORED}

// invalid returns the verdict for an item that no correct exporter sends.
func invalid(err error) verdict {
	if errors.Is(err, aggregate.ErrImpossible) {
		return verdict{wire.Outcome_OUTCOME_IMPOSSIBLE, err}
	}
	return verdict{wire.Outcome_OUTCOME_INVALID, err}
}

// add adds an item to the answer.
func (p *push) add(it *item, v verdict) {
	it.outcome = v.outcome
	p.items = append(p.items, it)
	p.refuseItem(it, v, slog.Uint64("incarnation", it.at.incarnation), slog.Uint64("seq", it.at.seq))
}

// refuseItem counts and logs an item if its outcome is a refusal.
func (p *push) refuseItem(it *item, v verdict, attrs ...slog.Attr) {
	r, refused := outcomeReasons[v.outcome]
	if !refused {
		return
	}
	attrs = append([]slog.Attr{slog.String("stream", edge.Truncated(it.stream))}, attrs...)
	if v.err != nil {
		attrs = append(attrs, slog.String("error", edge.Truncated(v.err.Error())))
	}
	p.refuse(p.e, r, attrs...)
}

// checkBlock decides whether a block is stored, and prepares it.
func (p *push) checkBlock(it *item, m *wire.Block, f *uniqueRows) verdict {
	b, err := f.block(m)
	if err != nil {
		return invalid(err)
	}
	if v := p.checkTime(b.WindowStart, b.WindowStart+b.Resolution); v != toStore {
		p.findAhead(it, v, Producer)
		return v
	}
	if v := p.checkDescribed(it, m.GetDescription()); v != toStore {
		return v
	}
	if v := p.begin(it, Producer); v != toStore {
		return v
	}
	if since := p.e.overtaken(it.at, b.WindowStart, p.now(), p.limits.MaxAhead); !since.IsZero() {
		return verdict{wire.Outcome_OUTCOME_FOREIGN, fmt.Errorf("another process writes this stream since %s: exporters that share a credential need an --instance each", since.UTC().Format(time.RFC3339))}
	}
	b.Source = aggregate.Source{Producer: it.at.producer, Incarnation: it.at.incarnation, Epoch: it.epoch}
	b.Seq = it.at.seq
	l := p.e.limits.Load()
	keepRows, keepFlows := keeps(l.MaxWindowRows, m.GetRowsBefore()), keeps(l.MaxWindowFlows, m.GetFlows().GetRowsBefore())
	if !p.keep(it, b, windowRows{uint64(min(keepRows, b.Len())), uint64(min(keepFlows, len(b.Flows)))}, l) {
		return invalid(errRowsBefore)
	}
	b, folded, observations := overflowRows(b, keepRows)
	it.rows, it.folded, it.foldedObservations = uint64(b.Len()), uint64(folded), observations
	b.Flows, folded = foldFlows(b.Flows, keepFlows)
	it.flows, it.foldedFlows = uint64(len(b.Flows)), uint64(folded)
	it.blocks = []*aggregate.Block{b}
	return toStore
}

// keep counts the rows that a block keeps of its window, and reports whether its stream may
// keep them.
func (p *push) keep(it *item, b *aggregate.Block, rows windowRows, l *Limits) bool {
	k := windowKey{it.at.producer, b.Resolution, b.WindowStart}
	if !p.kept.take(p.e.name, k, it.at.incarnation, rows, windowRows{uint64(l.MaxWindowRows), uint64(l.MaxWindowFlows)}) {
		return false
	}
	it.kept = append(it.kept, countedRows{k, rows})
	return true
}

// keeps returns how many rows a block keeps under a window's limit, given the number in earlier
// blocks.
func keeps(limit int, before uint64) int { return limit - int(min(before, uint64(limit))) }

// checkDescribed requests the description of an item if it is unknown.
func (p *push) checkDescribed(it *item, description uint64) verdict {
	epoch, known := p.e.epochOf(description)
	if !known {
		epoch, known = p.names.epochOf(description)
	}
	if !known {
		p.ask(description)
		return verdict{outcome: wire.Outcome_OUTCOME_UNDESCRIBED}
	}
	if epoch != it.epoch {
		return invalid(errEpoch)
	}
	return toStore
}

// checkTime refuses windows from first to last (Unix ns) that are too far in the future or the
// past.
func (p *push) checkTime(first, last int64) verdict {
	now := p.now()
	if first > now.Add(p.limits.MaxAhead).UnixNano() {
		return verdict{wire.Outcome_OUTCOME_FUTURE, outsideError{time.Unix(0, first).Sub(now)}}
	}
	if last < now.Add(-p.limits.MaxAge).UnixNano() {
		return verdict{wire.Outcome_OUTCOME_PAST, outsideError{time.Unix(0, last).Sub(now)}}
	}
	return toStore
}

// outsideError says how far a window is from now.
type outsideError struct{ by time.Duration }

func (e outsideError) Error() string { return "a window " + e.by.String() + " from now" }

// ask adds a description to those requested from the exporter.
func (p *push) ask(id uint64) {
	if i, there := slices.BinarySearch(p.answer.Describe, id); !there {
		p.answer.Describe = slices.Insert(p.answer.Describe, i, id)
	}
}

// begin takes an item's number, and announces its incarnation if it is new. If the sink has rows of
// a batch, it resumes the batch with them: aggregated again after a reload, it could have other rows.
func (p *push) begin(it *item, producer func(identity, stream string) uint64) verdict {
	if it.at.seq == 0 {
		return invalid(errNumber)
	}
	if v := p.meet(it, producer); v != toStore {
		return v
	}
	it.began = true
	if earlier := p.e.resume(it.at); earlier != nil {
		*it = *earlier
		return toStore
	}
	p.announce(it)
	return toStore
}

// meet registers the incarnation of an item, and takes its number if it has one.
func (p *push) meet(it *item, producer func(identity, stream string) uint64) verdict {
	if v := p.own(it, producer); v != toStore {
		return v
	}
	return verdict{outcome: p.enter(p.e, it.at)}
}

// own determines the producer of an item's stream.
func (p *push) own(it *item, producer func(identity, stream string) uint64) verdict {
	if it.at.incarnation == 0 || edge.CheckName(it.stream) != nil {
		return invalid(errNumber)
	}
	it.at.producer = producer(p.e.name, it.stream)
	return toStore
}

// Producer returns the producer of an exporter's stream, as in aggregate.Source: a hash of the
// exporter's identity and the stream's name, so that a client cannot write rows of another
// identity. It is cryptographic because exporters choose stream names.
func Producer(identity, stream string) uint64 {
	return producerOf("partials", identity, stream)
}

// observedProducer returns the producer of a stream's observations, whose numbers are
// independent of those of blocks.
func observedProducer(identity, stream string) uint64 {
	return producerOf("observations", identity, stream)
}

func producerOf(what, identity, stream string) uint64 {
	var text []byte
	for _, s := range []string{what, identity, stream} {
		text = binary.AppendUvarint(text, uint64(len(s)))
		text = append(text, s...)
	}
	sum := sha256.Sum256(text)
	return binary.LittleEndian.Uint64(sum[:8])
}

// announce schedules the announcement of the item's run, unless it was announced.
func (p *push) announce(it *item) {
	if p.e.unannounced(it.at, it.epoch) {
		p.begun.add(p.run(it))
	}
}

func (p *push) run(it *item) Run {
	return Run{aggregate.Source{Producer: it.at.producer, Incarnation: it.at.incarnation, Epoch: it.epoch}, p.e.name, it.stream}
}

// add adds a run unless it is in the list.
func (a *announcement) add(r Run) {
	if !slices.Contains(a.runs, r) {
		a.runs = append(a.runs, r)
	}
}
