package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/retry"
)

// pacedLead is how far packets may run ahead of their time before the replay waits: sleeping for
// each packet would cost more than the packet.
const pacedLead = 5 * time.Millisecond

// A packet more than farAhead after the latest one may have a wrong time, so it is due at once. Its time
// counts when farPackets in a row agree, or when the next one is as far from it: then packets are rare.
// Shards keep such packets in quarantine, by the same numbers (window.Config.MaxAhead).
const (
	farAhead   = time.Minute
	farPackets = 64
	// longestPause is the longest pause to wait for: a longer one is probably a clock that was set.
	longestPause = 24 * time.Hour
)

// pacedRun replays all files merged by time. The merge only sets the pace: every tap keeps its own
// watermark. Like the merge, it keeps only the files whose packets are due.
type pacedRun struct {
	replay *Replay
	merge  *capture.Merger
	files  []*pacedFile // by source; nil before the first packet and after the last
	spare  []*worker    // of files that have ended
}

// pacedFile passes the packets of one file to the worker of their chunk, so that a paced replay
// gives the same rows as a fast one.
type pacedFile struct {
	src    *source
	worker *worker
	frame  [1]capture.Frame
	follow followers
	read   int64 // offset of the reader that counts as progress
}

// paced replays the packets of a new merge.
func (r *Replay) paced(ctx context.Context, merge *capture.Merger) error {
	run := &pacedRun{replay: r, merge: merge, files: make([]*pacedFile, len(r.sources))}
	return run.feed(ctx)
}

func (r *Replay) runPaced(ctx context.Context) error {
	paths := make([]string, len(r.sources))
	for i, s := range r.sources {
		paths[i] = s.path
	}
	merge := capture.MergeFiles(paths, capture.Options{Resume: resume(r.cfg.ChunkBytes)})
	defer merge.Close()
	if err := r.paced(ctx, merge); err != nil {
		return err
	}
	if n := merge.Deferred(); n > 0 {
		r.cfg.Logger.Warn("captures were replayed late: too many overlap to be open at the same time", slog.Int("captures", n))
	}
	return nil
}

func (p *pacedRun) feed(ctx context.Context) error {
	clock := pace{speed: p.replay.cfg.Pace}
	for {
		frame, i, err := p.merge.Next()
		if ended := p.end(ctx); ended != nil {
			return ended
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			cut, err := endOfFile(err)
			if err != nil {
				return err
			}
			p.replay.result.Cuts = append(p.replay.result.Cuts, cut)
			continue
		}
		var wait time.Duration
		if !frame.NoTime {
			wait = clock.ahead(frame.TimeNS)
		}
		if wait >= pacedLead {
			retry.Sleep(ctx, wait)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.add(ctx, i, frame); err != nil {
			return err
		}
	}
}

// end adds the counts of files that have ended.
func (p *pacedRun) end(ctx context.Context) error {
	for i, ok := p.merge.Ended(); ok; i, ok = p.merge.Ended() {
		if r := p.merge.Reader(i); r != nil {
			p.replay.result.damage(r)
		}
		f := p.files[i]
		if f == nil {
			continue
		}
		if err := f.flush(ctx, &p.replay.result); err != nil {
			return err
		}
		p.spare = append(p.spare, f.worker)
		p.files[i] = nil
	}
	return nil
}

func (p *pacedRun) add(ctx context.Context, i int, frame *capture.Frame) error {
	f := p.files[i]
	if f == nil {
		f = &pacedFile{src: p.replay.sources[i], worker: p.worker(), follow: newFollowers(&p.replay.cfg)}
		f.worker.begin(f.src, 0, f.write)
		p.files[i] = f
	}
	for f.worker.chunk+1 < len(f.src.chunks) && frame.Offset >= f.src.chunks[f.worker.chunk+1].Start {
		next := f.worker.chunk + 1
		if err := f.flush(ctx, &p.replay.result); err != nil {
			return err
		}
		f.worker.begin(f.src, next, f.write)
	}
	f.frame[0] = *frame
	p.replay.progress.packets.Add(1)
	r := p.merge.Reader(i)
	p.replay.progress.bytes.Add(uint64(max(r.Offset()-f.read, 0)))
	f.read = max(r.Offset(), f.read)
	if err := f.worker.add(ctx, f.frame[:], r); err != nil {
		return err
	}
	return f.worker.passAll(ctx)
}

// worker returns a worker whose file has ended if possible, since it has its tables already.
func (p *pacedRun) worker() *worker {
	n := len(p.spare)
	if n == 0 {
		return newWorker(&p.replay.cfg)
	}
	w := p.spare[n-1]
	p.spare = p.spare[:n-1]
	return w
}

func (f *pacedFile) flush(ctx context.Context, into *Result) error {
	if err := f.worker.flush(ctx); err != nil {
		return err
	}
	into.add(f.src, &f.worker.result)
	return nil
}

// write writes the counts of a section's taps in a chunk.
func (f *pacedFile) write(ctx context.Context, taps []TapCounts, passages []*finding.Passage) error {
	if err := f.follow.next(taps, passages); err != nil {
		return fmt.Errorf("replay %q: %w", f.src.path, err)
	}
	for i := range taps {
		f.worker.result.Findings.Note(taps[i].Findings)
	}
	return writeTaps(ctx, f.worker.cfg, f.src, taps)
}

// pace maps captured time to the wall clock.
type pace struct {
	speed    float64
	started  time.Time
	first    int64 // captured time at started
	latest   int64 // captured time, without packets in doubt
	previous int64 // captured time of the previous packet, which may be in doubt
	alone    bool  // only the first packet came so far
	doubted  int   // packets in a row that are far ahead of latest
	rare     bool  // the previous packets were that far apart
}

// ahead returns the time until the next packet is due. Packets from before the first one, and
// those in doubt, are due at once.
func (p *pace) ahead(at int64) time.Duration {
	pause, step := time.Duration(at-p.latest), time.Duration(at-p.previous)
	p.previous = at
	switch {
	case p.started.IsZero():
		p.begin(at)
		p.alone = true
		return 0
	case p.alone && pause < -farAhead: // the first time was wrong
		p.begin(at)
	case step > farAhead && step <= longestPause && (p.rare || p.doubted > 0):
		p.rare = true
	case pause > farAhead:
		p.rare = false
		if p.doubted++; p.doubted < farPackets {
			return 0
		}
		if pause > longestPause {
			p.begin(at)
		}
	default:
		p.rare = false
	}
	p.alone, p.doubted, p.latest = false, 0, max(p.latest, at)
	return time.Duration(float64(at-p.first)/p.speed) - time.Since(p.started)
}

// begin makes a captured time due now.
func (p *pace) begin(at int64) { p.started, p.first, p.latest = time.Now(), at, at }
