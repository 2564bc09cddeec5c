package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/aggregate/store/outbox"
	"github.com/csigscope/csigscope/aggregate/table"
)

// checkpointFlags say how a paced replay survives being killed.
type checkpointFlags struct {
	every     time.Duration
	fromStart bool
}

func (f *checkpointFlags) add(flags *pflag.FlagSet) {
	flags.DurationVar(&f.every, "checkpoint", store.DefaultCheckpointEvery, "how often a replay with --pace saves where it is, so that the same command goes on there after it was killed; 0 is never")
	flags.BoolVar(&f.fromStart, "from-start", false, "begin anew where an earlier replay with --pace was interrupted")
}

func (f *checkpointFlags) check() error {
	if f.every != 0 && f.every < 100*time.Millisecond {
		return usageError{fmt.Errorf("--checkpoint %s: expected 0 for never, or at least 100ms", f.every)}
	}
	return nil
}

// Sections of a checkpoint of a replay.
const (
	replaySection  = "replay"
	summarySection = "summary"
	metSection     = "locations"
)

// replayCheckpoints keeps the state of a replay, its summary and the locations that it
// met. It implements replay.Checkpoints.
type replayCheckpoints struct {
	run     *replayRun
	file    *checkpoint.File
	journal *store.Journal
}

// openCheckpoints prepares checkpoints of a paced replay into the store, and resumes the
// replay where there is one. It is nil where there are to be none, or where none can be
// taken, which the log says.
func (r *replayRun) openCheckpoints(cmd *cobra.Command, db *openedStore) (*replayCheckpoints, error) {
	if r.checkpoints == nil || r.checkpoints.every == 0 || r.pace == 0 {
		return nil, nil
	}
	dir, err := db.checkpointFolder()
	if err != nil {
		return nil, err
	}
	file, err := checkpoint.Open(checkpoint.Options{
		Dir: dir, Name: fmt.Sprintf("replay %016x", r.replay.Identity()), Logger: db.logger,
	})
	if errors.Is(err, outbox.ErrOwned) {
		db.logger.Warn("no checkpoints: another process replays the same captures", slog.String("error", err.Error()))
		return nil, nil
	}
	if err != nil {
		db.logger.Error("no checkpoints: this replay begins at the start again if it is killed", slog.String("error", err.Error()))
		return nil, nil
	}
	c := &replayCheckpoints{run: r, file: file}
	c.journal = store.NewJournal(db.store, store.JournalOptions{File: file, Every: r.checkpoints.every, Logger: db.logger})
	if err := c.resume(cmd, db); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	r.replay.CheckpointTo(c)
	return c, nil
}

func (c *replayCheckpoints) resume(cmd *cobra.Command, db *openedStore) error {
	if c.run.checkpoints.fromStart {
		return c.file.Remove()
	}
	saved, err := c.journal.Resume(cmd.Context())
	if err != nil || saved == nil {
		return err
	}
	packets, err := c.restore(saved)
	if err != nil {
		db.logger.Warn("checkpoint cannot be used: starting over", slog.String("error", err.Error()))
		return nil
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "resuming at packet %d, checkpoint of %s (--from-start begins anew)\n",
		packets+1, saved.Time.Format(time.RFC3339))
	return nil
}

// restore changes nothing that counts when it fails.
func (c *replayCheckpoints) restore(saved *checkpoint.Saved) (packets uint64, err error) {
	r := c.run
	summary := saved.Section(summarySection)
	if err := r.newSummary().RestoreState(summary); err != nil {
		return 0, err
	}
	if err := r.network.fabric.RestoreMet(saved.Section(metSection)); err != nil {
		return 0, err
	}
	if packets, err = r.replay.Resume(saved.Section(replaySection)); err != nil {
		return 0, err
	}
	return packets, r.summary.RestoreState(summary)
}

// Due implements replay.Checkpoints.
func (c *replayCheckpoints) Due() time.Duration { return c.journal.Due() }

// Save implements replay.Checkpoints.
func (c *replayCheckpoints) Save(ctx context.Context, state []byte) error {
	met, err := c.run.network.fabric.AppendMet(nil)
	if err != nil {
		return err
	}
	return c.journal.Commit(ctx,
		checkpoint.Section{Name: replaySection, Data: state},
		checkpoint.Section{Name: summarySection, Data: c.run.summary.AppendState(nil)},
		checkpoint.Section{Name: metSection, Data: met})
}

// end hands what is held to the store, after the last window.
func (c *replayCheckpoints) end(ctx context.Context) error {
	st := c.journal.Stats()
	c.run.logger.Debug("checkpoints", slog.Uint64("taken", st.Taken), slog.Uint64("failed", st.Failed),
		slog.Uint64("bytes", st.Bytes), slog.Duration("took", st.Took))
	return c.journal.Release(ctx)
}

// newSummary is an empty summary of the replay.
func (r *replayRun) newSummary() *table.Table {
	return table.New(table.Bounds{Resolution: r.resolution, Rows: r.network.config.Windows.MaxKeys.int()})
}

// checkpointFolder is within the outbox's, or where that would be.
func (db *openedStore) checkpointFolder() (string, error) {
	box := db.outbox
	if box.dir == "none" {
		box.dir = ""
	}
	dir, err := box.folder(db.target)
	return filepath.Join(dir, "checkpoints"), err
}
