package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
)

// PipedCapture is a capture that is produced while it is replayed, for example by a simulator.
type PipedCapture struct {
	// Name identifies it in messages. It is also the name of its tap unless its interfaces have
	// names.
	Name string
	// ID is its identity: captures with equal IDs have equal content.
	ID uint64
	// Taps are the names of its interfaces, to find mid-fabric taps. If there are some, the capture
	// is written twice.
	Taps []string
	// Write writes the capture to w and blocks until all is written or ctx ends. w blocks while the
	// replay lags, so that little of the capture is in memory, and fails after the replay has
	// ended.
	Write func(ctx context.Context, w io.Writer) error
}

// pipeSource is the only source when a PipedCapture is replayed. Its size is unknown.
func pipeSource(cfg *Config) *source {
	return &source{
		path: cfg.Piped.Name, chunks: []capture.Chunk{{}}, witness: cfg.hasWays() && cfg.isWitness(cfg.Piped.Taps),
		id: aggregate.Source{Producer: cfg.Piped.ID, Incarnation: settingsID(cfg, -1, ""), Epoch: cfg.Epoch},
	}
}

// errReplayEnded is the write error of a capture that is no longer read.
var errReplayEnded = errors.New("the replay has ended")

// runPipe replays the capture while it is written.
func (r *Replay) runPipe(ctx context.Context) error {
	pipe := newPipe()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := r.cfg.Piped.Write(ctx, pipe)
		if errors.Is(err, errReplayEnded) {
			err = nil // the reader returns the reason
		}
		if err != nil {
			err = fmt.Errorf("replay %q: %w", r.cfg.Piped.Name, err)
		}
		pipe.closeWrite(err)
		return err
	})
	g.Go(func() error {
		defer pipe.closeRead(errReplayEnded)
		reader, err := capture.NewReader(pipe, r.cfg.Piped.Name, capture.Options{})
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if r.cfg.Pace > 0 {
			return r.paced(ctx, capture.NewMerger(reader))
		}
		return r.readPipe(ctx, reader)
	})
	return g.Wait()
}

func (r *Replay) readPipe(ctx context.Context, reader *capture.Reader) error {
	w := newWorker(&r.cfg)
	w.begin(r.sources[0], 0, func(ctx context.Context, taps []TapCounts, _ []*finding.Passage) error {
		return writeTaps(ctx, &r.cfg, w.src, taps)
	})
	cut, err := w.run(ctx, reader, r.progress)
	if err != nil {
		return err
	}
	r.result.add(w.src, &w.result)
	if cut != nil {
		r.result.Cuts = append(r.result.Cuts, cut)
	}
	return nil
}
