package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// pass reads captures once, for callers that process packets themselves instead of aggregating
// them. It reads damaged captures like a replay. It is not safe for concurrent use.
type pass struct {
	// progress, unless nil, is called with the number of bytes read.
	progress func(bytes int64)

	bytes   int64 // in captures that have ended
	damaged Damage
	ends    []error // of captures that are cut, damaged or unreadable
}

// packets is a part of a capture, valid until the next part.
type packets struct {
	path       string
	interfaces []capture.Interface
	frames     []capture.Frame
}

// read passes all packets of a capture, or of the captures in a folder, to f. It returns the error
// of f or ctx, or of a capture that cannot be opened. Errors at the end of captures that were read
// in part are in ends.
func (p *pass) read(ctx context.Context, path string, f func(*packets) error) error {
	files, err := p.files(path)
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := p.file(ctx, file, f); err != nil {
			return err
		}
	}
	return nil
}

// files returns the capture, or the captures in a folder.
func (p *pass) files(path string) ([]string, error) {
	files, damaged, err := capture.Files(path)
	p.ends = append(p.ends, damaged...)
	return files, err
}

// byTap returns captures, and those in folders, by their first tap, then by time. The files of a
// rotated capture follow one another, as if they were one file, whatever the order of paths.
func (p *pass) byTap(paths []string) (list []string, err error) {
	type start struct {
		path, tap string
		time      int64
	}
	var starts []start
	for _, path := range paths {
		files, err := p.files(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			at := start{path: file}
			if !readOnce(file) {
				if at.tap, at.time, err = beginning(file); err != nil {
					return nil, err
				}
			}
			starts = append(starts, at)
		}
	}
	slices.SortStableFunc(starts, func(a, b start) int {
		return cmp.Or(cmp.Compare(a.tap, b.tap), cmp.Compare(a.time, b.time), cmp.Compare(a.path, b.path))
	})
	for _, at := range starts {
		list = append(list, at.path)
	}
	return list, nil
}

// beginning returns the first tap of a capture, and its first time (Unix ns), 0 if it has none.
// Errors behind the beginning are reported when the capture is read.
func beginning(path string) (tap string, ns int64, err error) {
	r, err := capture.Open(path, listOptions())
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	var batch capture.Batch
	_ = r.ReadBatch(&batch)
	named := source{path: path}
	tap = named.tapName(r.Interfaces(), 0)
	for i := range batch.Frames[:batch.N] {
		if f := &batch.Frames[i]; !f.NoTime {
			return tap, f.TimeNS, nil
		}
	}
	return tap, 0, nil
}

// ethernet reports whether a frame is Ethernet.
func (p *packets) ethernet(f *capture.Frame) bool {
	link, known := window.LinkOf(p.interfaces, f.Interface)
	return known && link == decode.Ethernet
}

// unread returns the link type of a frame that cannot be decoded.
func (p *packets) unread(f *capture.Frame) window.UnreadableLink {
	return window.UnreadableLink{File: p.path, Link: p.interfaces[f.Interface].Link}
}

func (p *pass) file(ctx context.Context, path string, f func(*packets) error) error {
	r, err := capture.Open(path, listOptions())
	if err != nil {
		return err
	}
	defer r.Close()
	var batch capture.Batch
	for ctx.Err() == nil {
		if err := r.ReadBatch(&batch); err != nil {
			p.ended(r, err)
			return nil
		}
		if err := f(&packets{path: path, interfaces: r.Interfaces(), frames: batch.Frames[:batch.N]}); err != nil {
			return err
		}
		if p.progress != nil {
			p.progress(p.bytes + max(r.Offset(), 0))
		}
	}
	return ctx.Err()
}

// ended records how a capture ended.
func (p *pass) ended(r *capture.Reader, err error) {
	p.bytes += max(r.Offset(), 0)
	if damage := p.damaged.add(r); damage != nil {
		p.ends = append(p.ends, damage)
	}
	if !errors.Is(err, io.EOF) {
		p.ends = append(p.ends, err)
	}
}

// followers look for stuck ports across the chunks of a file, in order, since one chunk may be too
// short to show them.
type followers struct {
	cfg     *Config
	section uint32                      // of the file
	of      map[uint32]*finding.Watcher // by interface of the section
}

func newFollowers(cfg *Config) followers {
	return followers{cfg: cfg, of: make(map[uint32]*finding.Watcher)}
}

// next adds to each tap's findings those that show only in this chunk together with the earlier ones.
// passages are those of the taps in this chunk: nil for a tap without a search for findings, and
// empty for a file of one chunk.
func (f *followers) next(taps []TapCounts, passages []*finding.Passage) error {
	if len(taps) > 0 && taps[0].Interface.Section != f.section {
		f.section = taps[0].Interface.Section
		clear(f.of) // interfaces of earlier sections have no more packets
	}
	for i, passage := range passages {
		if passage == nil {
			continue
		}
		t := &taps[i]
		index := uint32(t.Seq >> seqInterfaceShift & (1<<(seqChunkShift-seqInterfaceShift) - 1))
		w := f.of[index]
		if w == nil {
			var err error
			if w, err = finding.NewWatcher(*f.cfg.Finding, ""); err != nil {
				return fmt.Errorf("follow tap: %w", err)
			}
			f.of[index] = w
		}
		t.Findings = w.Follow(passage, t.Findings)
	}
	return nil
}

// piece is one chunk of one file, the unit of work.
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
				r.result.add(pieces[i].src, &w.result)
				mu.Unlock()
			}
		})
	}
	err := g.Wait()
	r.result.Findings.merge(joiner.found)
	return err
}

// runPiece replays one chunk. The result is in the worker's result.
func (r *Replay) runPiece(ctx context.Context, w *worker, p piece, j *joiner) error {
	reader, err := capture.OpenChunk(p.src.path, p.chunk, capture.Options{Resume: resume(r.cfg.ChunkBytes)})
	if err != nil {
		if _, boundary := endOfFile(err); boundary != nil {
			return boundary
		}
		return err
	}
	defer reader.Close()
	w.begin(p.src, p.chunk.Index, func(ctx context.Context, taps []TapCounts, passages []*finding.Passage) error {
		return j.add(ctx, p, sectionTaps{taps, passages})
	})
	cut, err := w.run(ctx, reader, r.progress)
	if err == nil {
		err = j.end(ctx, p, w.result.Packets)
	}
	w.result.damage(reader)
	if cut != nil {
		w.result.Cuts = append(w.result.Cuts, cut)
	}
	return err
}
