package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
)

const (
	// tapsSection is the section of a checkpoint with the states of taps.
	tapsSection = "taps"
	// openedSection is when they were opened, Unix ns.
	openedSection = "opened"
)

// journal keeps the states of taps, their rows and the locations that were met in
// checkpoints, beside the blocks that are held.
type journal struct {
	*store.Journal
	network *atomic.Pointer[network]
	records *tapRecorder
	opened  time.Time                   // the taps
	more    func() []checkpoint.Section // nil for none
	states  []byte
	met     []byte
}

// Commit implements live.Journal.
func (j *journal) Commit(ctx context.Context, states []live.State) error {
	j.states = live.AppendStates(j.states[:0], states)
	var err error
	if j.met, err = j.network.Load().fabric.AppendMet(j.met[:0]); err != nil {
		return err
	}
	rows, err := j.records.barrier(time.Now(), states)
	if err != nil {
		return err
	}
	sections := []checkpoint.Section{
		{Name: tapsSection, Data: j.states},
		{Name: openedSection, Data: strconv.AppendInt(nil, j.opened.UnixNano(), 10)},
		{Name: metSection, Data: j.met},
		{Name: recordsSection, Data: rows},
	}
	if j.more != nil {
		sections = append(sections, j.more()...)
	}
	before := j.Stats().Taken
	err = j.Journal.Commit(ctx, sections...)
	if err == nil && j.Stats().Taken > before {
		j.records.flush(ctx)
	}
	return err
}

// passing is a journal without checkpoints.
type passing struct {
	aggregate.Sink
	records *tapRecorder
}

// Commit implements live.Journal.
func (p passing) Commit(ctx context.Context, states []live.State) error {
	_, err := p.records.barrier(time.Now(), states)
	p.records.flush(ctx)
	return err
}

// recordTaps prepares the rows of taps with what they found, and gaps of what they did not
// take in.
func (c *capturing) recordTaps(write tapsWriter, gaps func(context.Context, []store.Gap) error) {
	c.ending = func() bool { return false }
	c.records = &tapRecorder{
		stats: func() []live.RingStats { return c.live.Stats().Rings }, taps: func() liveTaps { return *c.open.Load() },
		ending: func() bool { return c.ending() }, write: write, gaps: gaps, logger: c.logger,
	}
}

// openCheckpoints takes possession of the place of a name: command and instance.
func (c *capturing) openCheckpoints(dir, name string) (err error) {
	c.file, err = checkpoint.Open(checkpoint.Options{Dir: dir, Name: name, Logger: c.logger})
	if err != nil {
		return fmt.Errorf("%w: does another %q run?", err, name)
	}
	return nil
}

// newJournal makes checkpoints of what goes to the store.
func (c *capturing) newJournal(to store.BlockStore) *journal {
	c.checkpoints = store.NewJournal(to, store.JournalOptions{File: c.file, Every: c.config.Checkpoint.Every.d, Logger: c.logger})
	return &journal{Journal: c.checkpoints, network: &c.using, records: c.records, opened: c.opened}
}

// left is what a process that ends at once leaves to the next one.
func (c *capturing) left() string {
	if c.checkpoints == nil {
		return "windows that are open are lost, and there is no checkpoint to go on from"
	}
	return fmt.Sprintf("the next one goes on from the checkpoint of %s, and records as a gap what came since", c.checkpoints.Stats().Last.UTC().Format(time.RFC3339))
}

// closeCheckpoints lets go of the place.
func (c *capturing) closeCheckpoints() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}

// resume gives the states of the checkpoint that an earlier process left, after the blocks
// in it have gone where blocks go. What nobody captured since, until the journal's taps were
// opened, is missing.
func (c *capturing) resume(j *journal, missing func(s *live.State, g store.Gap) error) ([]live.State, error) {
	saved, err := j.Resume(c.cmd.Context())
	if err != nil || saved == nil {
		return nil, err
	}
	states, err := live.ParseStates(saved.Section(tapsSection))
	if err != nil {
		c.logger.Error("checkpoint cannot be gone on from", slog.String("error", err.Error()))
	}
	if err := c.records.restore(saved.Section(recordsSection)); err != nil {
		c.logger.Warn("rows of taps may be missing", slog.String("error", err.Error()))
	}
	if err := c.network.fabric.RestoreMet(saved.Section(metSection)); err != nil {
		c.logger.Warn("some locations may have no name", slog.String("error", err.Error()))
	}
	for i := range states {
		s := &states[i]
		since := saved.Time
		if ns, err := strconv.ParseInt(string(saved.Section(openedSection)), 10, 64); err == nil {
			since = time.Unix(0, ns) // nothing has been taken yet
		}
		if s.At > 0 {
			since = time.Unix(0, s.At)
		}
		if err := missing(s, store.Gap{Source: s.Source, From: since, To: j.opened, Reason: store.GapRestart}); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// openWindows are the gaps that a state leaves which cannot be gone on from: the windows
// that were open in it, of each length.
func (c *capturing) openWindows(s *live.State) (list []store.Gap) {
	if s.At == 0 {
		return nil // none was
	}
	for _, r := range c.network.config.Windows.Resolutions {
		lateness := max(2*r, 50*time.Millisecond)
		at := time.Unix(0, s.At)
		list = append(list, store.Gap{
			Source: s.Source, From: at.Add(-lateness).Truncate(r), To: at, Reason: store.GapChanged, Resolution: r,
		})
	}
	return list
}
