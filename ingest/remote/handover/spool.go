// Package handover converts the output of live taps to exporters' requests, and requests to
// rows of a collector's store: blocks, rows of taps, gaps, and the names of numbers.
//
// It knows which stream of an exporter belongs to which ring, and the wire form of each row. It
// must never know how frames are captured, how requests travel, or SQL.
package handover

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
	"github.com/csigscope/csigscope/ingest/wire"
)

// Spool sends blocks to a collector through a client's spool: each ring of a tap is a stream,
// with the incarnations of its blocks. It implements journal.Log. Only the pipeline's goroutine may
// use it, except for RegisterTap and WriteProvisional.
type Spool struct {
	logger *slog.Logger
	client *remote.Client
	names  *Describer
	prefix string   // of the names of taps
	taps   sync.Map // producer to name of the tap

	streams map[streamKey]*remote.Stream
	met     map[runKey]bool // runs with blocks that have not ended
	behind  int             // rows since the last durable commit
}

// maxBehind is the maximum number of rows that wait for marks while the spool cannot be
// written.
const maxBehind = 400_000

// streamKey is one incarnation of a ring; runKey is one under a configuration.
type streamKey struct {
	producer, incarnation uint64
	ring                  int
}

type runKey struct {
	streamKey
	epoch uint64
}

func ringRun(s *aggregate.Source, ring int) runKey {
	return runKey{streamKey{s.Producer, s.Incarnation, ring}, s.Epoch}
}

// NewSpool returns an empty Spool. At the collector, the names of taps begin with the prefix: exporters
// that share a credential need different ones. The caller keeps ownership of the client.
func NewSpool(client *remote.Client, names *Describer, prefix string, logger *slog.Logger) *Spool {
	return &Spool{
		logger: logger, client: client, names: names, prefix: prefix,
		streams: make(map[streamKey]*remote.Stream), met: make(map[runKey]bool),
	}
}

// RegisterTap registers the name of an instance's tap. Call it before the tap's first block. It is
// safe for concurrent use.
func (s *Spool) RegisterTap(instance, tap string) { s.taps.Store(local.Producer(instance, tap), tap) }

// Writers returns writers that send the input, findings and gaps of taps to collectors.
func (s *Spool) Writers() journal.Writers {
	return journal.Writers{Taps: s.writeTaps, Gaps: s.writeGaps}
}

func (s *Spool) stream(k streamKey) (*remote.Stream, error) {
	if stream := s.streams[k]; stream != nil {
		return stream, nil
	}
	stream, err := s.client.StreamOf(s.streamName(k.producer, k.ring), k.incarnation)
	if err == nil {
		s.streams[k] = stream
	}
	return stream, err
}

// streamName returns the name of a ring's stream.
func (s *Spool) streamName(producer uint64, ring int) string {
	name, _ := s.taps.Load(producer)
	return fmt.Sprintf("%s%v/%d", s.prefix, name, ring)
}

// WriteProvisional implements aggregate.ProvisionalSink: rows go to the collector without the
// spool.
func (s *Spool) WriteProvisional(p *aggregate.Provisional) {
	s.client.WriteProvisional(s.streamName(p.Producer, local.RingOf(p.Seq)), p)
}

// WriteBlock implements journal.Log.
func (s *Spool) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	k := ringRun(&b.Source, local.RingOf(b.Seq))
	s.met[k] = true
	s.behind += b.Len()
	stream, err := s.stream(k.streamKey)
	if err != nil {
		return err
	}
	return stream.WriteBlock(ctx, b)
}

// Marks implements journal.Log.
func (s *Spool) Marks() ([][]byte, error) { return s.client.Marks() }

// Commit implements journal.Log. Names go to the spool before the rows that need them. Once
// maxBehind rounds of rows wait for a spool that cannot be written, it returns nil although they are not durable, so that
// the pipeline continues: the client drops and counts the rows that do not fit.
func (s *Spool) Commit(ctx context.Context, marks []byte) error {
	s.names.sendNew()
	if err := s.client.Commit(ctx, marks); err != nil && s.behind < maxBehind {
		return fmt.Errorf("%w: %w", journal.ErrNotDurable, err)
	}
	s.behind = 0
	return nil
}

// Round reports runs that have ended, after a round whose rows are durable.
func (s *Spool) Round(ctx context.Context, marks []local.Mark) {
	going := make(map[runKey]bool, len(marks))
	for i := range marks {
		k := ringRun(&marks[i].Source, marks[i].Ring)
		s.met[k], going[k] = true, true
	}
	s.endRuns(ctx, func(k runKey) bool { return !going[k] })
}

// End reports the end of all runs after the pipeline has ended. The Spool must not be used
// after it.
func (s *Spool) End(ctx context.Context) {
	s.endRuns(ctx, func(runKey) bool { return true })
}

// endRuns reports ended runs, whose blocks are all in the spool, and the names that their
// blocks need.
func (s *Spool) endRuns(ctx context.Context, over func(runKey) bool) {
	described := false
	for k := range s.met {
		if !over(k) {
			continue
		}
		if !described {
			s.names.sendNew()
			described = true
		}
		s.writeRecord(k, func(stream *remote.Stream) error { return stream.End(ctx, k.epoch) })
		delete(s.met, k)
	}
	for k, stream := range s.streams {
		if !s.uses(k) {
			stream.Forget()
			delete(s.streams, k)
		}
	}
}

// uses reports whether an incarnation has a run that has not ended.
func (s *Spool) uses(k streamKey) bool {
	for r := range s.met {
		if r.streamKey == k {
			return true
		}
	}
	return false
}

// writeRecord writes a record of a run. It logs a failure, such as a lost description.
func (s *Spool) writeRecord(k runKey, what func(*remote.Stream) error) {
	stream, err := s.stream(k.streamKey)
	if err == nil {
		err = what(stream)
	}
	if err != nil {
		s.logger.Error("cannot send the rows of a tap to the collector", slog.String("error", err.Error()))
	}
}

// writeTaps sends the input and findings of taps, with the names of their locations.
func (s *Spool) writeTaps(ctx context.Context, rows []store.TapRow, found []store.FindingRow) error {
	if len(found) > 0 {
		s.names.sendNew()
	}
	for i := range rows {
		k, tap := ringRun(&rows[i].Source, local.RingOf(rows[i].Seq)), wireTap(&rows[i])
		tap.Name = s.prefix + tap.Name
		s.writeRecord(k, func(stream *remote.Stream) error {
			return stream.Tap(ctx, k.epoch, tap, wireFindings(found, &rows[i])...)
		})
	}
	return nil
}

// writeGaps sends the gaps of taps. Kernel drops are counted per tap, so they go to its first
// ring.
func (s *Spool) writeGaps(ctx context.Context, list []store.Gap) error {
	s.Missing(ctx, 0, list...)
	return nil
}

// Missing reports the gaps of a ring.
func (s *Spool) Missing(ctx context.Context, ring int, list ...store.Gap) {
	for i := range list {
		g := &list[i]
		s.writeRecord(ringRun(&g.Source, ring), func(stream *remote.Stream) error { return stream.Gap(ctx, g.Epoch, wireGap(g)) })
	}
}

// Resume reports the gaps of a ring that an earlier process used. The collector ends its run
// when the next run of its stream begins.
func (s *Spool) Resume(ctx context.Context, m *local.Mark, gaps []store.Gap) {
	s.taps.Store(m.Source.Producer, m.Name)
	s.Missing(ctx, m.Ring, gaps...)
}

// Compile-time check: the findings of a tap's row fit into a record.
const _ = uint(remote.MaxFindings - journal.MaxFindings)

// wireFindings returns the findings under the number of a tap's row.
func wireFindings(list []store.FindingRow, of *store.TapRow) (found []*wire.Finding) {
	for i := range list {
		f := &list[i]
		if f.Source != of.Source || f.Seq != of.Seq {
			continue
		}
		found = append(found, &wire.Finding{
			Kind: f.Kind, Id: f.ID, Severity: f.Severity, FromNs: f.From, ToNs: f.To, Count: f.Count,
			Device: f.Device, Port: f.Port, Location: uint64(f.Location), Evidence: strings.ToValidUTF8(f.Evidence[:min(len(f.Evidence), remote.MaxEvidence)], ""),
		})
	}
	return found
}

// findingOfWire converts an exporter's finding to a row under the number of its tap's row.
// Packets of live taps have no numbers.
func findingOfWire(f *wire.Finding, source aggregate.Source, seq uint64) store.FindingRow {
	return store.FindingRow{
		Source: source, Seq: seq, Kind: f.GetKind(), ID: f.GetId(), Severity: f.GetSeverity(), From: f.GetFromNs(), To: f.GetToNs(), Count: f.GetCount(),
		Device: f.GetDevice(), Port: f.GetPort(), Location: aggregate.LocationID(f.GetLocation()), Evidence: f.GetEvidence(),
	}
}
