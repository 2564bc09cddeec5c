package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// maxTaps is the maximum number of capture interfaces in a section of a pcapng file, since each has
// its own windows.
const maxTaps = 256

// Sequence numbers of a file's blocks: 16 bits each of the chunk and of the interface, which
// are numbered through all sections, then 32 of the block. capture allows no more of either.
const (
	seqChunkShift     = 48
	seqInterfaceShift = 32
)

// worker reads chunks one after another, with one stream per capture interface. It is used by one
// goroutine.
type worker struct {
	cfg   *Config
	spare map[window.Tap][]*lane // from earlier chunks

	src     *source
	chunk   int
	section uint32  // of the file, at hand
	first   uint32  // index of its first interface
	lanes   []*lane // by interface index, from first on
	result  Result  // of the chunk, from its end on
	hand    writeResults
}

// writeResults writes the counts of a section's taps in a chunk, with their passages if the file has
// several chunks.
type writeResults func(context.Context, []TapCounts, []*finding.Passage) error

// A lane is the window.Stream of one capture interface, with its tap and its deduplication.
type lane struct {
	*window.Stream
	name     string // of the tap
	of       capture.Interface
	dedup    *capture.Dedup // nil without Dedup
	repeated uint64         // frames left out
	excess   uint64         // the stream's count of excess reflections before this chunk
}

// Add adds frames to the stream, except those that the tap captured shortly before.
func (l *lane) Add(ctx context.Context, frames []capture.Frame) error {
	if l.dedup == nil {
		return l.Stream.Add(ctx, frames)
	}
	for i := range frames {
		if l.dedup.Seen(&frames[i]) {
			l.repeated++
		} else if err := l.Stream.Add(ctx, frames[i:i+1]); err != nil {
			return err
		}
	}
	return nil
}

func newWorker(cfg *Config) *worker {
	return &worker{cfg: cfg, spare: make(map[window.Tap][]*lane)}
}

// begin makes the worker ready for a chunk, after the one before was flushed.
func (w *worker) begin(src *source, chunk int, hand writeResults) {
	w.src, w.chunk, w.section, w.first, w.result, w.hand = src, chunk, 0, 0, Result{}, hand
}

// run reads to the end of the reader. The end of a cut file is no error: it is returned as cut, and
// the packets before it count.
func (w *worker) run(ctx context.Context, r *capture.Reader, p *progress) (cut, err error) {
	var batch capture.Batch
	at := r.Offset()
	for ctx.Err() == nil {
		err := r.ReadBatch(&batch)
		if err != nil {
			cut, err = endOfFile(err)
			if err == nil {
				err = w.flush(ctx)
			}
			return cut, err
		}
		if err := w.add(ctx, batch.Frames[:batch.N], r); err != nil {
			return nil, err
		}
		p.packets.Add(uint64(batch.N))
		p.bytes.Add(uint64(r.Offset() - at))
		at = r.Offset()
	}
	return nil, ctx.Err()
}

// endOfFile classifies a reader's final error: the end, a cut, or an error that invalidates
// everything read before it. A file that becomes unreadable is cut there: everything before counts.
func endOfFile(err error) (cut, fatal error) {
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	if b, ok := errors.AsType[*capture.BoundaryError](err); ok {
		return nil, fmt.Errorf("%w: compress the file with gzip and run again, or replay it with --chunk-size 0: it is then read in one piece", b)
	}
	return err, nil
}

func (w *worker) add(ctx context.Context, frames []capture.Frame, r *capture.Reader) error {
	for len(frames) > 0 {
		index, n := frames[0].Interface, 1
		for n < len(frames) && frames[n].Interface == index {
			n++
		}
		l, err := w.lane(ctx, index, r)
		if err != nil {
			return err
		}
		if l == nil {
			w.result.skip(window.UnreadableLink{File: w.src.path, Link: r.Interfaces()[index].Link}, uint64(n))
		} else if err := l.Add(ctx, frames[:n]); err != nil {
			return w.failed(err)
		}
		frames = frames[n:]
	}
	return nil
}

func (w *worker) failed(err error) error { return fmt.Errorf("replay %q: %w", w.src.path, err) }

// passAll passes pending observations of all lanes to the shards.
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

// lane returns the lane of an interface, or nil for one beyond maxTaps whose link type cannot be
// decoded.
func (w *worker) lane(ctx context.Context, index uint32, r *capture.Reader) (*lane, error) {
	if at := int(index - w.first); at < len(w.lanes) && w.lanes[at] != nil {
		return w.lanes[at], nil
	}
	return w.openLane(ctx, index, r)
}

func (w *worker) openLane(ctx context.Context, index uint32, r *capture.Reader) (*lane, error) {
	interfaces := r.Interfaces()
	if err := w.enterSection(ctx, index, interfaces); err != nil {
		return nil, err
	}
	link, known := window.LinkOf(interfaces, index)
	switch at := index - w.first; {
	case at >= maxTaps && !known:
		return nil, nil
	case at >= maxTaps:
		return nil, fmt.Errorf("replay %q: capture interface %d: expected at most %d interfaces a section: split the capture by interface", w.src.path, at, maxTaps)
	}
	name := w.src.tapName(interfaces, index)
	l, err := w.takeLane(w.tap(name), name, w.origin(link, index))
	if err != nil {
		return nil, fmt.Errorf("replay %q: tap %q: %w", w.src.path, name, err)
	}
	w.place(l, index, name, interfaces[index])
	w.cfg.Logger.Debug("tap found", slog.String("file", w.src.path), slog.String("tap", name), slog.Int("chunk", w.chunk))
	return l, nil
}

// enterSection closes the lanes of earlier sections when a later one begins, since their interfaces
// have no more packets. Thus a file with any number of sections needs lanes for one section only.
func (w *worker) enterSection(ctx context.Context, index uint32, interfaces []capture.Interface) error {
	if interfaces[index].Section == w.section {
		return nil
	}
	if err := w.flush(ctx); err != nil {
		return err
	}
	w.section, w.first = interfaces[index].Section, index
	for w.first > 0 && interfaces[w.first-1].Section == w.section {
		w.first--
	}
	return nil
}

// tap returns the configuration of a tap.
func (w *worker) tap(name string) window.Tap {
	tap := w.cfg.Tap(name)
	tap.Weight = max(tap.Weight, 1)
	return tap
}

// origin returns the origin of an interface's frames in the chunk.
func (w *worker) origin(link decode.Link, index uint32) window.Origin {
	return window.Origin{
		Link: link, Source: w.src.id, SeqBase: uint64(w.chunk)<<seqChunkShift | uint64(index)<<seqInterfaceShift,
		File: w.src.path, InPieces: w.src.inPieces(),
	}
}

// place assigns the lane to an interface, one of the first maxTaps of its section.
func (w *worker) place(l *lane, index uint32, name string, of capture.Interface) {
	at := int(index - w.first)
	for at >= len(w.lanes) {
		w.lanes = append(w.lanes, nil)
	}
	l.name, l.of, l.dedup, l.repeated = name, of, nil, 0
	if w.cfg.Dedup > 0 {
		l.dedup = capture.NewDedup(w.cfg.Dedup)
	}
	w.lanes[at] = l
}

// takeLane returns a lane for an interface: a free one of an earlier chunk, whose shard knows
// addresses and locators already, preferably of the same interface, or else a new one.
func (w *worker) takeLane(tap window.Tap, name string, from window.Origin) (*lane, error) {
	if spare := w.spare[tap]; from.Link.Known() && len(spare) > 0 {
		i := max(slices.IndexFunc(spare, func(l *lane) bool { return l.name == name }), 0)
		l := spare[i]
		w.spare[tap] = slices.Delete(spare, i, i+1)
		l.excess = l.Decoded().ExcessReflections
		return l, l.Reset(from)
	}
	s, err := window.NewStream(&w.cfg.Settings, tap, from, w.cfg.Sink)
	return &lane{Stream: s}, err
}

// flush closes all windows, adds up the counts of the streams, and writes those of the taps.
func (w *worker) flush(ctx context.Context) error {
	var taps []TapCounts
	var passages []*finding.Passage
	for _, l := range w.lanes {
		if l == nil {
			continue
		}
		if err := l.Flush(ctx); err != nil {
			return w.failed(err)
		}
		tap := l.tapCounts()
		w.result.take(w.src.path, &tap, l.Shard() != nil)
		w.result.Excess += l.Decoded().ExcessReflections - l.excess
		taps = append(taps, tap)
		if w.src.inPieces() {
			passages = append(passages, l.Passage())
		}
		if l.Shard() != nil {
			w.spare[l.Tap()] = append(w.spare[l.Tap()], l)
		}
	}
	w.lanes = w.lanes[:0]
	return w.hand(ctx, taps, passages)
}

// TapCounts holds the counts of one capture interface in one chunk of a file. The chunks of an
// interface add up.
type TapCounts struct {
	aggregate.Source
	Seq       uint64 // of the chunk and interface; the same in every replay of the file
	Name      string // of the tap
	Tap       window.Tap
	Interface capture.Interface
	Tally     window.Tally
	Counts    aggregate.Counts
	Repeated  uint64            // frames captured twice and left out
	Findings  []finding.Finding // with packet numbers in the file
}

// tapCounts returns the lane's counts.
func (l *lane) tapCounts() TapCounts {
	from := l.Origin()
	return TapCounts{
		Source: from.Source, Seq: from.SeqBase, Name: l.name, Tap: l.Tap(), Interface: l.of,
		Tally: *l.Tally(), Counts: l.Counts(), Repeated: l.repeated, Findings: l.Findings(),
	}
}

// writeTaps passes the counts of a section's taps in a chunk to Config.Taps.
func writeTaps(ctx context.Context, cfg *Config, src *source, list []TapCounts) error {
	if cfg.Taps == nil || len(list) == 0 {
		return nil
	}
	if err := cfg.Taps(ctx, list); err != nil {
		return fmt.Errorf("replay %q: %w", src.path, err)
	}
	return nil
}
