// Package handover makes what live taps leave behind into what exporters hand over, and
// that into rows of a collector's store: blocks, rows of taps, gaps, and the names of
// numbers.
//
// It knows which stream of an exporter stands for which ring, and what a row is on the way.
// It must never know how frames are captured, how requests travel, or SQL.
package handover

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
	"github.com/csigscope/csigscope/ingest/remote"
)

const (
	// streamsSection is the section of a checkpoint with the numbers of streams.
	streamsSection = "streams"
	// heldRows bounds what is held while neither spool nor checkpoint can be written.
	heldRows = 400_000
)

// Spool hands blocks to a collector by way of a client's spool: each ring of a tap is a
// stream, with the incarnations of its blocks. As a local.Journal it hands them to the
// journal of checkpoints first, which hands them to spooled. The goroutine of the pipeline
// alone uses it, but for Know.
type Spool struct {
	logger *slog.Logger
	client *remote.Client
	names  *Describer
	taps   sync.Map // producer to name of the tap

	to   local.Journal
	held func() int // rows that wait for a checkpoint

	streams map[streamKey]*remote.Stream
	met     map[runKey]bool // that blocks may come from, or came from
	going   map[runKey]bool // of the last states
}

// streamKey is one life of a ring; runKey is that under one configuration.
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

// NewSpool makes one that has handed over nothing. The client stays its owner's. Pass or
// Resume says what goes before the spool.
func NewSpool(client *remote.Client, names *Describer, logger *slog.Logger) *Spool {
	return &Spool{
		logger: logger, client: client, names: names,
		streams: make(map[streamKey]*remote.Stream), met: make(map[runKey]bool), going: make(map[runKey]bool),
	}
}

// Pass hands blocks on without checkpoints.
func (s *Spool) Pass(records *journal.Recorder) {
	s.to, s.held = journal.Passing{Sink: spooled{s}, Records: records}, func() int { return 0 }
}

// Know remembers the name of an instance's tap, before blocks of its come. It is safe to
// call at any time.
func (s *Spool) Know(instance, tap string) { s.taps.Store(local.Producer(instance, tap), tap) }

// Writers tell collectors what taps took in and found, and what they missed.
func (s *Spool) Writers() journal.Writers {
	return journal.Writers{Taps: s.writeTaps, Gaps: s.writeGaps}
}

func (s *Spool) stream(k streamKey) (*remote.Stream, error) {
	if stream := s.streams[k]; stream != nil {
		return stream, nil
	}
	name, _ := s.taps.Load(k.producer)
	stream, err := s.client.Lasting(fmt.Sprintf("%v/%d", name, k.ring), k.incarnation)
	if err == nil {
		s.streams[k] = stream
	}
	return stream, err
}

// WriteBlock implements local.Journal.
func (s *Spool) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	s.met[ringRun(&b.Source, local.RingOf(b.Seq))] = true
	return s.to.WriteBlock(ctx, b)
}

// Commit implements local.Journal. A spool that cannot be written makes no checkpoint,
// until too much is held: then the client counts what it loses.
func (s *Spool) Commit(ctx context.Context, states []local.State) error {
	clear(s.going)
	for i := range states {
		k := ringRun(&states[i].Source, states[i].Ring)
		s.met[k], s.going[k] = true, true
	}
	if err := s.client.Sync(ctx); err != nil && s.held() < heldRows {
		return nil
	}
	if err := s.to.Commit(ctx, states); err != nil {
		return err
	}
	if s.held() == 0 {
		s.endRuns(ctx, func(k runKey) bool { return !s.going[k] })
	}
	return nil
}

// End tells that no more blocks come, when the pipeline has ended: nothing uses the Spool
// after it.
func (s *Spool) End(ctx context.Context) {
	s.endRuns(ctx, func(runKey) bool { return true })
}

// endRuns tells of runs that are over, all of whose blocks were handed over, with the
// names that these may have.
func (s *Spool) endRuns(ctx context.Context, over func(runKey) bool) {
	described := false
	for k := range s.met {
		if !over(k) {
			continue
		}
		if !described {
			s.names.tell()
			described = true
		}
		s.tell(k, func(stream *remote.Stream) error { return stream.End(ctx, k.epoch) })
		delete(s.met, k)
	}
	for k, stream := range s.streams {
		if !s.uses(k) {
			stream.Forget()
			delete(s.streams, k)
		}
	}
}

// uses tells whether a life has a run that is not over.
func (s *Spool) uses(k streamKey) bool {
	for r := range s.met {
		if r.streamKey == k {
			return true
		}
	}
	return false
}

// tell says something of a run. What cannot be said, since nobody knows any more what it
// means, is in the log.
func (s *Spool) tell(k runKey, what func(*remote.Stream) error) {
	stream, err := s.stream(k.streamKey)
	if err == nil {
		err = what(stream)
	}
	if err != nil {
		s.logger.Error("the collector is not told of a tap", slog.String("error", err.Error()))
	}
}

// writeTaps tells what taps took in and found, with the names of where that is.
func (s *Spool) writeTaps(ctx context.Context, rows []store.TapRow, found []store.FindingRow) error {
	if len(found) > 0 {
		s.names.tell()
	}
	for i := range rows {
		k := ringRun(&rows[i].Source, local.RingOf(rows[i].Seq))
		s.tell(k, func(stream *remote.Stream) error {
			return stream.Tap(ctx, k.epoch, wireTap(&rows[i]), wireFindings(found, &rows[i])...)
		})
	}
	return nil
}

// writeGaps tells what taps did not take in. What the kernel drops is counted of a whole
// tap: its first ring has it.
func (s *Spool) writeGaps(ctx context.Context, list []store.Gap) error {
	s.Missing(ctx, 0, list...)
	return nil
}

// Missing tells what is missing of a ring.
func (s *Spool) Missing(ctx context.Context, ring int, list ...store.Gap) {
	for i := range list {
		g := &list[i]
		s.tell(ringRun(&g.Source, ring), func(stream *remote.Stream) error { return stream.Gap(ctx, g.Epoch, wireGap(g)) })
	}
}

// spooled is where the journal of checkpoints hands blocks to. It implements
// store.BlockStore.
type spooled struct{ *Spool }

// WriteBlock implements aggregate.Sink.
func (s spooled) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	stream, err := s.stream(ringRun(&b.Source, local.RingOf(b.Seq)).streamKey)
	if err != nil {
		return err
	}
	return stream.WriteBlock(ctx, b)
}

// Sync implements store.BlockStore: Spool.Commit has done it.
func (spooled) Sync(context.Context) error { return nil }

// Blocks is where a journal of checkpoints hands blocks to.
func (s *Spool) Blocks() store.BlockStore { return spooled{s} }

// Sections are what checkpoints hold of streams.
func (s *Spool) Sections() []checkpoint.Section {
	return []checkpoint.Section{{Name: streamsSection, Data: s.client.AppendStreams(nil)}}
}

// Resume goes on from the checkpoint in a file that an earlier process left, by way of the
// journal that makes the next ones: it spools what was closed in it, and tells what was
// missed from then until the taps were opened. epoch is that of the configuration in force.
func (s *Spool) Resume(ctx context.Context, file *checkpoint.File, j *journal.Journal, epoch uint64) ([]local.State, error) {
	if err := s.resumeStreams(file); err != nil {
		return nil, err
	}
	s.to, s.held = j, func() int { return j.Stats().Held }
	return j.Resume(ctx, func(state *local.State, g store.Gap) error {
		k := ringRun(&state.Source, state.Ring)
		s.met[k] = true
		if state.Source.Epoch == epoch {
			s.tell(k, func(stream *remote.Stream) error { return stream.Begin(ctx, k.epoch) })
		}
		s.Missing(ctx, state.Ring, g)
		return nil
	})
}

// resumeStreams gives the blocks of the checkpoint the numbers that they had, if they were
// spooled. A checkpoint without is none.
func (s *Spool) resumeStreams(file *checkpoint.File) error {
	saved, err := file.Load()
	if err != nil || saved == nil {
		return nil // whoever resumes finds out
	}
	states, err := journal.States(saved)
	if err == nil {
		err = s.client.ResumeStreams(saved.Section(streamsSection))
	}
	if err != nil {
		s.logger.Error("checkpoint cannot be gone on from", slog.String("error", err.Error()))
		return file.Remove()
	}
	for i := range states {
		s.taps.Store(states[i].Source.Producer, states[i].Name)
	}
	return nil
}
