package replay

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/capture"
)

// A piece is one chunk of one file: the unit of work.
type piece struct {
	src   *source
	chunk capture.Chunk
}

func (r *Replay) runFast(ctx context.Context) error {
	var pieces []piece
	for _, s := range r.sources {
		for _, c := range s.chunks {
			pieces = append(pieces, piece{s, c})
		}
	}
	var next atomic.Int64
	var mu sync.Mutex
	joiner := newJoiner(&r.cfg)
	g, ctx := errgroup.WithContext(ctx)
	for range min(r.cfg.Workers, len(pieces)) {
		g.Go(func() error {
			w := newWorker(&r.cfg)
			for {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return nil
				}
				if err := r.runPiece(ctx, w, pieces[i], joiner); err != nil {
					return err
				}
				mu.Lock()
				r.result.add(&w.result)
				mu.Unlock()
			}
		})
	}
	err := g.Wait()
	r.result.Findings.merge(joiner.found)
	return err
}

// runPiece leaves what the piece came to in the worker's result.
func (r *Replay) runPiece(ctx context.Context, w *worker, p piece, j *joiner) error {
	reader, err := capture.OpenChunk(p.src.path, p.chunk, capture.Options{Resume: resume(r.cfg.ChunkBytes)})
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	defer reader.Close()
	w.begin(p.src, p.chunk.Index)
	taps, cut, err := w.run(ctx, reader, &r.progress)
	if err == nil {
		err = j.end(ctx, p, endedChunk{w.result.Packets, taps, w.passages})
	}
	w.result.damage(reader)
	if cut != nil {
		w.result.Cuts = append(w.result.Cuts, cut)
	}
	return err
}
