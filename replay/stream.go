package replay

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/capture"
)

// Stream is a capture that is made while it is replayed, such as by a simulator.
type Stream struct {
	// Name stands for it in messages, and for its tap unless its interfaces have names.
	Name string
	// ID is its identity: streams with the same one have the same content.
	ID uint64
	// Write writes it to w and blocks until all is written or ctx ends. w blocks while
	// the replay is behind, so that little of the capture is in memory at a time, and
	// fails when the replay has ended.
	Write func(ctx context.Context, w io.Writer) error
}

// streamSource is the only source of a replay of a stream. Its size is not known.
func streamSource(cfg *Config) *source {
	return &source{
		path: cfg.Stream.Name, chunks: []capture.Chunk{{}},
		id: aggregate.Source{Producer: cfg.Stream.ID, Incarnation: settingsID(cfg, -1), Epoch: cfg.Epoch},
	}
}

// errReplayEnded is what the writer of a stream gets that nobody reads on.
var errReplayEnded = errors.New("the replay has ended")

// runStream replays the stream while it is written.
func (r *Replay) runStream(ctx context.Context) error {
	pipe := newPipe()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		err := r.cfg.Stream.Write(ctx, pipe)
		if errors.Is(err, errReplayEnded) {
			err = nil // the reader says why
		}
		if err != nil {
			err = fmt.Errorf("replay %q: %w", r.cfg.Stream.Name, err)
		}
		pipe.closeWrite(err)
		return err
	})
	g.Go(func() error {
		defer pipe.closeRead(errReplayEnded)
		reader, err := capture.NewReader(pipe, r.cfg.Stream.Name, capture.Options{})
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		if r.cfg.Pace > 0 {
			return r.paced(ctx, r.sources, capture.NewMerger(reader))
		}
		return r.readStream(ctx, reader)
	})
	return g.Wait()
}

func (r *Replay) readStream(ctx context.Context, reader *capture.Reader) error {
	w := newWorker(&r.cfg)
	w.begin(r.sources[0], 0)
	taps, cut, err := w.run(ctx, reader, r.progress)
	if err == nil {
		err = writeTaps(ctx, &r.cfg, w.src, taps)
	}
	if err != nil {
		return err
	}
	r.result.add(&w.result)
	if cut != nil {
		r.result.Cuts = append(r.result.Cuts, cut)
	}
	return nil
}
