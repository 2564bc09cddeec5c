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
	g, ctx := errgroup.WithContext(ctx)
	for range min(r.cfg.Workers, len(pieces)) {
		g.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return nil
				}
				w, cut, err := r.runPiece(ctx, pieces[i])
				if err != nil {
					return err
				}
				mu.Lock()
				r.result.take(w)
				if cut != nil {
					r.result.Cuts = append(r.result.Cuts, cut)
				}
				mu.Unlock()
			}
		})
	}
	return g.Wait()
}

func (r *Replay) runPiece(ctx context.Context, p piece) (w *worker, cut, err error) {
	w, err = newWorker(&r.cfg, p.src, p.chunk.Index)
	if err != nil {
		return nil, nil, err
	}
	reader, err := capture.OpenChunk(p.src.path, p.chunk, capture.Options{})
	if err != nil {
		return nil, nil, fmt.Errorf("replay: %w", err)
	}
	defer reader.Close()
	cut, err = w.run(ctx, reader, &r.progress)
	return w, cut, err
}
