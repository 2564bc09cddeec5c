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

// openJournal makes what windows become durable by. every 0 leaves no marks; else they are
// in dir, under a name: command and instance.
func (c *capturing) openJournal(dir, name string, cfg journal.Config) (err error) {
	if c.config.Checkpoint.Every.d > 0 {
		c.file, err = checkpoint.Open(checkpoint.Options{Dir: dir, Name: name, Logger: c.logger})
		if err != nil {
			return fmt.Errorf("%w: does another %q run?", err, name)
		}
	}
	cfg.File, cfg.Opened, cfg.Records, cfg.Logger = c.file, c.opened, c.records, c.logger
	c.journal = journal.New(cfg)
	return nil
}

// resume gives the marks of an earlier process, of each of which missing is told what is not
// there.
func (c *capturing) resume(missing func(*local.Mark, []store.Gap) error) (marks []local.Mark, after uint64, err error) {
	marks, err = c.journal.Resume(c.network.config.Windows.Resolutions, missing)
	for i := range marks {
		after = max(after, marks[i].Source.Incarnation)
	}
	return marks, after, err
}

// left is what a process that ends at once leaves to the next one.
func (c *capturing) left() string {
	if c.file == nil {
		return "windows that are open are lost"
	}
	return fmt.Sprintf("windows that are open are lost, and the next process records as a gap what came since %s", c.journal.Stats().Last.UTC().Format(time.RFC3339))
}

// closeMarks lets go of their place.
func (c *capturing) closeMarks() error {
	if c.file == nil {
		return nil
	}
	return c.file.Close()
}
