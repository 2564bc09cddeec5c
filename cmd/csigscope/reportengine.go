package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/dashboards/report"
	"github.com/csigscope/csigscope/dashboards/report/source"
)

// When a report goes through the embedded engine.
const (
	engineAuto   = "auto"
	engineAlways = "always"
	engineNever  = "never"
)

// throughEngine stores the captures with the embedded engine, in a folder of the report's
// own, and asks there about the span. leave ends the engine and removes a temporary folder.
func (r *reportRun) throughEngine(span report.Span, samples report.Sampler) (numbers *reportNumbers, leave func() error, err error) {
	dir, remove, err := r.scratch()
	if err != nil {
		return nil, nil, err
	}
	db, err := openScratch(r.cmd, dir)
	if err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	leave = func() error { return errors.Join(db.Close(), remove()) }
	if numbers, err = r.stored(db, span, samples); err != nil {
		return nil, nil, errors.Join(err, leave())
	}
	return numbers, leave, nil
}

// openScratch makes a store of the folder, whatever else the configuration says of stores.
func openScratch(cmd *cobra.Command, dir string) (*openedStore, error) {
	db := &openedStore{
		target: store.Target{Kind: store.KindEmbedded, Dir: dir, Database: store.DefaultDatabase},
		logger: newLogger(cmd, cmd.ErrOrStderr()),
	}
	err := db.startEngine(cmd.Context(), makeMissing)
	if err == nil {
		o := store.Options{Database: db.target.Database, Logger: db.logger}
		db.askEngine(&o)
		db.store, err = store.Open(cmd.Context(), o)
	}
	if err == nil {
		err = db.store.Migrate(cmd.Context())
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// scratch is the folder that --engine-dir names, which has to be empty, or a temporary one.
func (r *reportRun) scratch() (dir string, remove func() error, err error) {
	if dir := r.flags.engineDir; dir != "" {
		list, err := os.ReadDir(dir)
		if err == nil && len(list) > 0 {
			return "", nil, usageError{fmt.Errorf("--engine-dir %s: expected an empty folder: a report counts all that is stored there", dir)}
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", nil, fmt.Errorf("--engine-dir: %w", err)
		}
		return dir, func() error { return nil }, nil
	}
	dir, err = os.MkdirTemp("", "csigscope-report-")
	if err != nil {
		return "", nil, fmt.Errorf("make folder for the embedded engine: %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// stored replays the captures into the store.
func (r *reportRun) stored(db *openedStore, span report.Span, samples report.Sampler) (*reportNumbers, error) {
	ctx := r.cmd.Context()
	c, err := r.config()
	if err != nil {
		return nil, err
	}
	resolutions := reportResolutions
	if resolutions.Fine = min(span.Step, resolutions.Window); resolutions.Fine > 0 {
		c.Resolutions = resolutions.List()
	}
	run, err := newReplayRun(r.cmd, c, r.network)
	if err != nil {
		return nil, err
	}
	if err := run.into(r.cmd, db); err != nil {
		return nil, err
	}
	from, to := store.Everything()
	rows, err := db.store.Taps(ctx, from, to)
	if err != nil {
		return nil, err
	}
	numbers := &reportNumbers{data: source.NewStored(db.store, resolutions.Fine, span, samples), result: run.replay.Result()}
	for i := range rows {
		t := &rows[i].TapRow
		numbers.taps = append(numbers.taps, reportTap(t, r.network.tap(t.Name, r.flags.taps).Weight))
	}
	return numbers, nil
}
