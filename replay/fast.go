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
			w, err := newWorker(&r.cfg)
			if err != nil {
				return err
			}
			for {
				i := int(next.Add(1)) - 1
				if i >= len(pieces) {
					return nil
				}
				cuts, err := r.runPiece(ctx, w, pieces[i], joiner)
				if err != nil {
					return err
				}
				mu.Lock()
				r.result.take(w)
				r.result.Cuts = append(r.result.Cuts, cuts...)
				mu.Unlock()
			}
		})
	}
	err := g.Wait()
	r.result.Findings.merge(joiner.found)
	return err
}

// runPiece returns what was cut off the piece or left out of it.
func (r *Replay) runPiece(ctx context.Context, w *worker, p piece, j *joiner) (cuts []error, err error) {
	reader, err := capture.OpenChunk(p.src.path, p.chunk, capture.Options{Resume: resume(r.cfg.ChunkBytes)})
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	defer reader.Close()
	w.begin(p.src, p.chunk.Index)
	taps, cut, err := w.run(ctx, reader, &r.progress)
	if err == nil {
		err = j.end(ctx, p, endedChunk{w.feed.Packets, taps, w.passages})
	}
	if damage := w.damaged.add(reader); damage != nil {
		cuts = append(cuts, damage)
	}
	if cut != nil {
		cuts = append(cuts, cut)
	}
	return cuts, err
}
