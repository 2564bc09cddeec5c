package main

import (
	"fmt"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest/local"
	"github.com/csigscope/csigscope/ingest/local/journal"
)

// recordTaps prepares the rows of taps with what they found, and gaps of what they did not
// take in.
func (c *capturing) recordTaps(to journal.Writers) {
	c.ending = func() bool { return false }
	c.records = journal.NewRecorder(journal.RecorderConfig{
		Stats: func() []local.RingStats { return c.live.Stats().Rings },
		Tap: func(name string) journal.Tap {
			if t := (*c.open.Load())[name]; t != nil {
				return t
			}
			return nil
		},
		Ending: func() bool { return c.ending() }, Writers: to, Logger: c.logger,
	})
}

// openCheckpoints takes possession of the place of a name: command and instance.
func (c *capturing) openCheckpoints(dir, name string) (err error) {
	c.file, err = checkpoint.Open(checkpoint.Options{Dir: dir, Name: name, Logger: c.logger})
	if err != nil {
		return fmt.Errorf("%w: does another %q run?", err, name)
	}
	return nil
}

// newJournal makes checkpoints of what goes to the store, with further sections.
func (c *capturing) newJournal(to store.BlockStore, more func() []checkpoint.Section) *journal.Journal {
	c.checkpoints = journal.New(to, journal.Config{
		File: c.file, Every: c.config.Checkpoint.Every.d, Opened: c.opened, Network: func() journal.Network { return c.using.Load().naming() },
		Records: c.records, More: more, Logger: c.logger,
	})
	return c.checkpoints
}

// openWindows are the gaps that a state leaves which cannot be gone on from.
func (c *capturing) openWindows(s *local.State) []store.Gap {
	return journal.OpenWindows(s, c.network.config.Windows.Resolutions)
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
