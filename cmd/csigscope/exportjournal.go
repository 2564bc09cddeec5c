package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest"
)

const (
	// streamsSection is the section of a checkpoint with the numbers of streams.
	streamsSection = "streams"
	// heldRows bounds what is held while neither spool nor checkpoint can be written.
	heldRows = 400_000
)

// spooling hands blocks to a collector by way of a spool: each ring of a tap is a stream,
// with the incarnations of its blocks. As a live.Journal it hands them to the journal of
// checkpoints first, which hands them to spooled.
type spooling struct {
	logger *slog.Logger
	client *ingest.Client
	names  *describer
	taps   sync.Map // producer to name of the tap

	to   live.Journal
	held func() int // rows that wait for a checkpoint

	// Of the goroutine of the pipeline.
	streams map[streamKey]*ingest.Stream
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

func newSpooling(logger *slog.Logger) *spooling {
	return &spooling{
		logger: logger, held: func() int { return 0 },
		streams: make(map[streamKey]*ingest.Stream), met: make(map[runKey]bool), going: make(map[runKey]bool),
	}
}

// know remembers the names of taps, before blocks of theirs come.
func (s *spooling) know(c *collectConfig) error {
	instance, err := c.instance()
	for i := range c.Taps {
		s.taps.Store(live.Producer(instance, c.Taps[i].name()), c.Taps[i].name())
	}
	return err
}

func (s *spooling) stream(k streamKey) (*ingest.Stream, error) {
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

// WriteBlock implements live.Journal.
func (s *spooling) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	s.met[ringRun(&b.Source, live.RingOf(b.Seq))] = true
	return s.to.WriteBlock(ctx, b)
}

// Commit implements live.Journal. A spool that cannot be written makes no checkpoint,
// until too much is held: then the client counts what it loses.
func (s *spooling) Commit(ctx context.Context, states []live.State) error {
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

// end tells that no more blocks come, when the pipeline has ended.
func (s *spooling) end(ctx context.Context) {
	s.endRuns(ctx, func(runKey) bool { return true })
}

// endRuns tells of runs that are over, all of whose blocks were handed over, with the
// names that these may have.
func (s *spooling) endRuns(ctx context.Context, over func(runKey) bool) {
	described := false
	for k := range s.met {
		if !over(k) {
			continue
		}
		if !described {
			s.names.tell()
			described = true
		}
		s.tell(k, func(stream *ingest.Stream) error { return stream.End(ctx, k.epoch) })
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
func (s *spooling) uses(k streamKey) bool {
	for r := range s.met {
		if r.streamKey == k {
			return true
		}
	}
	return false
}

// tell says something of a run. What cannot be said, since nobody knows any more what it
// means, is in the log.
func (s *spooling) tell(k runKey, what func(*ingest.Stream) error) {
	stream, err := s.stream(k.streamKey)
	if err == nil {
		err = what(stream)
	}
	if err != nil {
		s.logger.Error("the collector is not told of a tap", slog.String("error", err.Error()))
	}
}

// writeTaps tells what taps took in and found, with the names of where that is.
func (s *spooling) writeTaps(ctx context.Context, rows []store.TapRow, found []store.FindingRow) error {
	if len(found) > 0 {
		s.names.tell()
	}
	for i := range rows {
		k := ringRun(&rows[i].Source, live.RingOf(rows[i].Seq))
		s.tell(k, func(stream *ingest.Stream) error {
			return stream.Tap(ctx, k.epoch, wireTap(&rows[i]), wireFindings(found, &rows[i])...)
		})
	}
	return nil
}

// writeGaps tells what taps did not take in. What the kernel drops is counted of a whole
// tap: its first ring has it.
func (s *spooling) writeGaps(ctx context.Context, list []store.Gap) error {
	s.missing(ctx, 0, list...)
	return nil
}

// missing tells what is missing of a ring.
func (s *spooling) missing(ctx context.Context, ring int, list ...store.Gap) {
	for i := range list {
		g := &list[i]
		s.tell(ringRun(&g.Source, ring), func(stream *ingest.Stream) error { return stream.Gap(ctx, g.Epoch, wireGap(g)) })
	}
}

// spooled is where the journal of checkpoints hands blocks to. It implements
// store.BlockStore.
type spooled struct{ *spooling }

// WriteBlock implements aggregate.Sink.
func (s spooled) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	stream, err := s.stream(ringRun(&b.Source, live.RingOf(b.Seq)).streamKey)
	if err != nil {
		return err
	}
	return stream.WriteBlock(ctx, b)
}

// Sync implements store.BlockStore: spooling.Commit has done it.
func (spooled) Sync(context.Context) error { return nil }

// openJournal finds the checkpoint that an earlier process left, spools what was closed in
// it, and tells what was missed from then until the taps were open.
func (e *exporting) openJournal(instance, spool string) ([]live.State, error) {
	s := e.spool
	if e.config.Checkpoint.Every.d == 0 {
		s.to = passing{spooled{s}, e.records}
		return nil, nil
	}
	if err := e.openCheckpoints(filepath.Join(spool, "checkpoints"), "export "+instance); err != nil {
		return nil, err
	}
	if err := e.resumeStreams(); err != nil {
		return nil, err
	}
	j := e.newJournal(spooled{s})
	j.more = func() []checkpoint.Section {
		return []checkpoint.Section{{Name: streamsSection, Data: e.client.AppendStreams(nil)}}
	}
	s.to, s.held = j, func() int { return j.Stats().Held }
	ctx := e.cmd.Context()
	states, err := e.resume(j, func(state *live.State, g store.Gap) error {
		k := ringRun(&state.Source, state.Ring)
		s.met[k] = true
		if state.Source.Epoch == e.network.epoch {
			s.tell(k, func(stream *ingest.Stream) error { return stream.Begin(ctx, k.epoch) })
		}
		s.missing(ctx, state.Ring, g)
		return nil
	})
	return states, err
}

// resumeStreams gives the blocks of the checkpoint the numbers that they had, if they were
// spooled. A checkpoint without is none.
func (e *exporting) resumeStreams() error {
	saved, err := e.file.Load()
	if err != nil || saved == nil {
		return nil // whoever resumes finds out
	}
	states, err := live.ParseStates(saved.Section(tapsSection))
	if err == nil {
		err = e.client.ResumeStreams(saved.Section(streamsSection))
	}
	if err != nil {
		e.logger.Error("checkpoint cannot be gone on from", slog.String("error", err.Error()))
		return e.file.Remove()
	}
	for i := range states {
		e.spool.taps.Store(states[i].Source.Producer, states[i].Name)
	}
	return nil
}
