package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/csigscope/csigscope/capture"
)

// pacedLead is how far packets may run ahead of their time before the replay
// waits: sleeping for each packet would cost more than the packet.
const pacedLead = 5 * time.Millisecond

// A pacedFile feeds the packets of one file to the worker of the chunk they are
// in, so that a paced replay gives the same rows as a fast one.
type pacedFile struct {
	src    *source
	reader *capture.Reader
	worker *worker
	batch  capture.Batch
}

// runPaced replays all files side by side, merged by time. The merge serves the
// pace alone: every tap keeps its own watermark.
func (r *Replay) runPaced(ctx context.Context) error {
	files := make([]*pacedFile, len(r.sources))
	readers := make([]*capture.Reader, len(r.sources))
	for i, s := range r.sources {
		reader, err := capture.Open(s.path, capture.Options{})
		if err != nil {
			return fmt.Errorf("replay: %w", err)
		}
		defer reader.Close()
		w, err := newWorker(&r.cfg)
		if err != nil {
			return err
		}
		w.begin(s, 0)
		files[i], readers[i] = &pacedFile{src: s, reader: reader, worker: w}, reader
	}
	if err := r.feed(ctx, capture.NewMerger(readers...), files); err != nil {
		return err
	}
	for _, f := range files {
		if err := f.flush(ctx, &r.result); err != nil {
			return err
		}
	}
	return nil
}

func (r *Replay) feed(ctx context.Context, m *capture.Merger, files []*pacedFile) error {
	clock := pace{speed: r.cfg.Pace}
	for {
		frame, i, err := m.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			cut, err := endOfFile(err)
			if err != nil {
				return err
			}
			r.result.Cuts = append(r.result.Cuts, cut)
			continue
		}
		if !frame.NoTime {
			if err := clock.wait(ctx, frame.TimeNS); err != nil {
				return err
			}
		}
		if err := files[i].add(ctx, frame, r); err != nil {
			return err
		}
	}
}

func (f *pacedFile) add(ctx context.Context, frame *capture.Frame, r *Replay) error {
	for f.worker.chunk+1 < len(f.src.chunks) && frame.Offset >= f.src.chunks[f.worker.chunk+1].Start {
		next := f.worker.chunk + 1
		if err := f.flush(ctx, &r.result); err != nil {
			return err
		}
		f.worker.begin(f.src, next)
	}
	f.batch.Frames[0], f.batch.N = *frame, 1
	r.progress.packets.Add(1)
	r.progress.bytes.Add(uint64(len(frame.Data)))
	return f.worker.add(ctx, &f.batch, f.reader)
}

func (f *pacedFile) flush(ctx context.Context, into *Result) error {
	if err := f.worker.flush(ctx); err != nil {
		return err
	}
	into.take(&f.worker.tally)
	return nil
}

// pace maps captured time to the wall clock.
type pace struct {
	speed   float64
	started time.Time
	first   int64
}

// wait sleeps until the time of a packet has come. Packets of a time before the
// first one go at once.
func (p *pace) wait(ctx context.Context, at int64) error {
	if p.started.IsZero() {
		p.started, p.first = time.Now(), at
	}
	due := time.Duration(float64(at-p.first) / p.speed)
	ahead := due - time.Since(p.started)
	if ahead < pacedLead {
		return ctx.Err()
	}
	t := time.NewTimer(ahead)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
