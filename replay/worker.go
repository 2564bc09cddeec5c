package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// maxTaps bounds the capture interfaces of one file: each has its own windows.
const maxTaps = 256

// Sequence numbers of a file's blocks: chunk, then interface, then block.
const (
	seqChunkShift     = 44
	seqInterfaceShift = 32
)

// A worker reads one chunk after another into one shard for each capture interface. It
// is used by one goroutine.
type worker struct {
	cfg   *Config
	feed  *window.Pipeline
	spare map[window.Tap][]*lane // of chunks before

	src   *source
	chunk int
	lanes []*lane // by interface index
	tally
}

// A tally is what a worker counts of its chunk, beside its feeder.
type tally struct {
	counts   aggregate.Counts
	damaged  Damage
	findings Findings
	passages []*finding.Passage // of the taps of the chunk that was flushed, where there are more
}

// A lane is that of a tap.
type lane struct {
	*window.Stream
	tap  window.Tap
	name string // of the tap
	link decode.Link
	seq  uint64 // of its first block
	of   capture.Interface

	watch *finding.Watcher // nil for none
}

func newWorker(cfg *Config) (*worker, error) {
	f, err := window.NewPipeline(cfg.Decode)
	if err != nil {
		return nil, fmt.Errorf("replay: %w", err)
	}
	return &worker{cfg: cfg, feed: f, spare: make(map[window.Tap][]*lane)}, nil
}

// begin makes the worker ready for a chunk, after the one before was flushed.
func (w *worker) begin(src *source, chunk int) {
	w.src, w.chunk, w.tally, w.feed.Tally = src, chunk, tally{}, window.Tally{}
}

// run reads to the end of the reader, and gives what the taps came to. A cut file ends it
// without an error: the cut is returned apart, and what was read before it is aggregated.
func (w *worker) run(ctx context.Context, r *capture.Reader, p *progress) (taps []TapCounts, cut, err error) {
	var batch capture.Batch
	at := r.Offset()
	for ctx.Err() == nil {
		err := r.ReadBatch(&batch)
		if err != nil {
			cut, err = endOfFile(err)
			if err == nil {
				taps, err = w.flush(ctx)
			}
			return taps, cut, err
		}
		if err := w.add(ctx, &batch, r); err != nil {
			return nil, nil, err
		}
		p.packets.Add(uint64(batch.N))
		p.bytes.Add(uint64(r.Offset() - at))
		at = r.Offset()
	}
	return nil, nil, ctx.Err()
}

// endOfFile sorts a reader's last word: the end, a cut, or an error that makes
// what was read before it worthless. A file that cannot be read on is cut there:
// what came before counts.
func endOfFile(err error) (cut, fatal error) {
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if b, ok := errors.AsType[*capture.BoundaryError](err); ok {
		return nil, fmt.Errorf("replay: %w: run again with --chunk-size 0", b)
	}
	return err, nil
}

func (w *worker) add(ctx context.Context, batch *capture.Batch, r *capture.Reader) error {
	for i := range batch.N {
		f := &batch.Frames[i]
		l, err := w.lane(f.Interface, r)
		if err != nil {
			return err
		}
		if l == nil {
			w.feed.Skipped.Add(r.Interfaces()[f.Interface].Link, 1)
			continue
		}
		if err := w.feed.Add(ctx, l.Stream, f); err != nil {
			return w.failed(err)
		}
	}
	w.feed.Packets += uint64(batch.N)
	return nil
}

func (w *worker) failed(err error) error { return fmt.Errorf("replay %q: %w", w.src.path, err) }

// passAll gives what waits in all lanes to the shards.
func (w *worker) passAll(ctx context.Context) error {
	for _, l := range w.lanes {
		if l == nil {
			continue
		}
		if err := l.Pass(ctx); err != nil {
			return w.failed(err)
		}
	}
	return nil
}

// lane is the lane of an interface, nil for one beyond maxTaps whose link type cannot be
// decoded.
func (w *worker) lane(index uint32, r *capture.Reader) (*lane, error) {
	if int(index) < len(w.lanes) && w.lanes[index] != nil {
		return w.lanes[index], nil
	}
	return w.openLane(index, r)
}

func (w *worker) openLane(index uint32, r *capture.Reader) (*lane, error) {
	interfaces := r.Interfaces()
	link, known := window.LinkOf(interfaces, index)
	switch {
	case index >= maxTaps && !known:
		return nil, nil
	case index >= maxTaps:
		return nil, fmt.Errorf("replay %q: capture interface %d: expected at most %d interfaces a file: split the capture by interface", w.src.path, index, maxTaps)
	}
	name := w.src.tapName(interfaces, index)
	l := newLane(w.tap(name), link, nil)
	if known {
		var err error
		if l, err = w.takeLane(l.tap, link, index); err != nil {
			return nil, fmt.Errorf("replay %q: tap %q: %w", w.src.path, name, err)
		}
	}
	l.of = interfaceAt(interfaces, index)
	w.place(l, index, name)
	w.cfg.Logger.Debug("tap found", slog.String("file", w.src.path), slog.String("tap", name), slog.Int("chunk", w.chunk))
	return l, nil
}

// tap says how the packets of a tap count.
func (w *worker) tap(name string) window.Tap {
	tap := w.cfg.Tap(name)
	tap.Weight = max(tap.Weight, 1)
	return tap
}

// place makes the lane that of an interface, whose number is below maxTaps.
func (w *worker) place(l *lane, index uint32, name string) {
	for int(index) >= len(w.lanes) {
		w.lanes = append(w.lanes, nil)
	}
	l.name, l.seq = name, w.seqBase(index)
	w.lanes[index] = l
}

// takeLane prefers a lane of an earlier chunk, whose shard knows addresses and
// locators already, to a new one.
func (w *worker) takeLane(tap window.Tap, link decode.Link, index uint32) (*lane, error) {
	if spare := w.spare[tap]; len(spare) > 0 {
		l := spare[len(spare)-1]
		w.spare[tap] = spare[:len(spare)-1]
		l.link = link
		l.Renew(link)
		if l.watch != nil {
			l.watch.Begin(w.src.path)
			if w.src.inPieces() {
				l.watch.InPieces()
			}
		}
		return l, l.Shard().Reset(w.src.id, w.seqBase(index))
	}
	return w.makeLane(tap, link, index, func(cfg window.Config) (*window.Shard, error) {
		return window.NewShard(cfg, w.cfg.Sink)
	})
}

// makeLane makes a lane with a shard.
func (w *worker) makeLane(tap window.Tap, link decode.Link, index uint32, shard func(window.Config) (*window.Shard, error)) (*lane, error) {
	cfg := w.shardConfig(tap, index)
	watch, err := w.watch(&cfg, tap)
	if err != nil {
		return nil, err
	}
	s, err := shard(cfg)
	if err != nil {
		return nil, err
	}
	l := newLane(tap, link, s)
	l.watch = watch
	return l, nil
}

func newLane(tap window.Tap, link decode.Link, shard *window.Shard) *lane {
	return &lane{Stream: window.NewStream(link, tap.Mirrors, shard), tap: tap, link: link}
}

// seqBase is the sequence number of an interface's first block in the chunk.
func (w *worker) seqBase(index uint32) uint64 {
	return uint64(w.chunk)<<seqChunkShift | uint64(index)<<seqInterfaceShift
}

// shardConfig is the configuration of an interface's shard in the chunk.
func (w *worker) shardConfig(tap window.Tap, index uint32) window.Config {
	return window.Config{
		Domain:        w.cfg.Decode.Domain,
		Resolver:      w.cfg.Resolver,
		Source:        w.src.id,
		SeqBase:       w.seqBase(index),
		Resolutions:   w.cfg.Resolutions,
		FineHeavyOnly: w.cfg.FineHeavyOnly,
		MaxKeys:       w.cfg.MaxKeys,
		Flows:         w.cfg.Flows,
		Tags:          tap.Tags,
		Reflections:   tap.Reflections,
		Weight:        tap.Weight,

		LocateUntouched: w.cfg.LocateUntouched,
	}
}

// flush closes all windows, takes over the shards' counts, and gives those of the taps.
func (w *worker) flush(ctx context.Context) (taps []TapCounts, err error) {
	if err := w.passAll(ctx); err != nil {
		return nil, err
	}
	for _, l := range w.lanes {
		if l == nil {
			continue
		}
		var counts aggregate.Counts
		if l.Shard() != nil {
			if err := l.Shard().Flush(ctx); err != nil {
				return nil, w.failed(err)
			}
			counts = l.Shard().Counts()
			w.counts.Merge(&counts)
			w.spare[l.tap] = append(w.spare[l.tap], l)
		}
		tap := l.tapCounts(w.src, &counts)
		w.findings.note(tap.Findings)
		taps = append(taps, tap)
		if w.src.inPieces() {
			w.passages = append(w.passages, l.passage())
		}
	}
	w.lanes = w.lanes[:0]
	return taps, nil
}

// take adds what a worker counted.
func (r *Result) take(w *worker) { r.add(&w.feed.Tally, &w.tally) }

func (r *Result) add(t *window.Tally, rest *tally) {
	r.Packets += t.Packets
	r.WireBytes += t.WireBytes
	r.SkippedLink.Merge(t.Skipped)
	for i, n := range t.Frames {
		r.Frames[i] += n
	}
	r.Found.Merge(&t.Found)
	r.Damaged.merge(rest.damaged)
	r.Counts.Merge(&rest.counts)
	r.Findings.merge(rest.findings)
}
