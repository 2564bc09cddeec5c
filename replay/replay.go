// Package replay runs capture files through the pipeline: it reads, decodes, aggregates, and passes
// on closed windows.
//
// It knows files, chunks and pace. It must never know ClickHouse: closed windows go to an
// aggregate.Sink.
//
// A file is one producer, identified by its content, or by its tap if it has no packets. It is split
// into chunks whose boundaries depend on the file alone. Each chunk is read by one worker with its
// own decoder and its own shards, so that workers share nothing per packet, and a replay has the
// same rows on any number of cores.
package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
)

// DefaultChunkBytes is the largest size of the chunks that an uncompressed capture is split into. At
// the end of a chunk all windows close, so small chunks mean more rows.
const DefaultChunkBytes = 256 << 20

// Config configures a replay. Files are regular files, identified by their content, or folders of
// files.
type Config struct {
	Files []string
	Piped *PipedCapture // instead of Files
	Sink  aggregate.Sink
	window.Settings
	// Tap returns the configuration of a tap by the name of its capture interface or, if that has
	// none, by the file's base name without extension. It is called from several goroutines.
	Tap func(name string) window.Tap
	// TapSettings is a text that changes whenever Tap's results change. It is part of the rows'
	// identity.
	TapSettings string
	// Taps, unless nil, is called with the counts of each capture interface of a chunk after the
	// chunk's blocks. It is called from several goroutines and may keep the list.
	Taps func(context.Context, []TapCounts) error

	// Dedup is the time within which equal frames at the same tap count once; 0: off (see
	// capture.Dedup). With it, files are never split.
	Dedup time.Duration

	ChunkBytes int64   // 0: DefaultChunkBytes; negative: never split a file
	Workers    int     // at least 1
	Pace       float64 // 0: as fast as possible; 1: as captured; 10: ten times as fast

	Logger *slog.Logger
}

// Replay is one run over a set of files.
type Replay struct {
	cfg      Config
	sources  []*source
	progress *progress
	result   Result
}

// progress is written by workers once per batch and may be read by any goroutine.
type progress struct {
	bytes, packets atomic.Uint64
	total          int64
}

// New checks the configuration and reads enough of every file to identify it. It reports missing
// and empty files and files that are no captures, before anything is stored.
func New(cfg Config) (*Replay, error) {
	switch {
	case len(cfg.Files) == 0 && cfg.Piped == nil:
		return nil, errors.New("replay: no capture file given")
	case len(cfg.Files) > 0 && cfg.Piped != nil:
		return nil, errors.New("replay: expected capture files or a stream, not both")
	}
	if cfg.Pace < 0 {
		return nil, fmt.Errorf("replay: pace %v: expected 0 (as fast as possible) or more", cfg.Pace)
	}
	if cfg.Dedup < 0 {
		return nil, fmt.Errorf("replay: dedup %s: expected 0 (none) or more", cfg.Dedup)
	}
	if cfg.Dedup > 0 {
		cfg.ChunkBytes = -1
	}
	cfg.ChunkBytes = cmp.Or(cfg.ChunkBytes, DefaultChunkBytes)
	cfg.Workers = max(cfg.Workers, 1)
	r := &Replay{cfg: cfg, progress: new(progress)}
	if cfg.Finding != nil {
		r.result.Findings = Findings{}
	}
	if cfg.Piped != nil {
		r.sources = []*source{pipeSource(&r.cfg)}
		r.identifyWitnesses()
		return r, nil
	}
	seen := make(map[uint64]string)
	files, damaged, err := expand(cfg.Files)
	if err != nil {
		return nil, err
	}
	r.result.Cuts = damaged
	for _, path := range files {
		s, err := openSource(path, &r.cfg)
		if err != nil {
			return nil, err
		}
		if first, twice := seen[s.id.Producer]; twice && !s.idle {
			return nil, fmt.Errorf("replay %q: has the same content as %q: give each capture once", path, first)
		}
		seen[s.id.Producer] = path
		r.sources = append(r.sources, s)
		r.progress.total += s.size
	}
	r.identifyWitnesses()
	return r, nil
}

// expand replaces folders by the captures in them, as capture.Files does.
func expand(paths []string) (files []string, damaged []error, err error) {
	for _, path := range paths {
		found, bad, err := capture.Files(path)
		if err != nil {
			return nil, nil, err
		}
		files, damaged = append(files, found...), append(damaged, bad...)
	}
	return files, damaged, nil
}

// Sources returns the identities of the files, in the given order.
func (r *Replay) Sources() []Source {
	list := make([]Source, len(r.sources))
	for i, s := range r.sources {
		list[i] = Source{Source: s.id, File: s.path}
	}
	return list
}

// Source is the identity under which a file's rows are stored.
type Source struct {
	aggregate.Source
	File string
}

// Progress returns how far a running replay has come. It is safe for concurrent use.
func (r *Replay) Progress() (bytes, total int64, packets uint64) {
	return int64(r.progress.bytes.Load()), r.progress.total, r.progress.packets.Load()
}

// Run replays the files. It returns when the sink has all windows, or when ctx ends. A cut file is no
// error: its intact packets count, and Result names the cut. After damage in a file, reading resumes
// at the next run of valid records (capture.Options.Resume), the same at any pace. It fails if all
// packets of all files have unknown link types (window.ErrLinkType). Call it once.
func (r *Replay) Run(ctx context.Context) error {
	begun := time.Now()
	err := r.runPasses(ctx)
	r.result.Elapsed = time.Since(begun)
	if err == nil {
		err = r.refused()
	}
	return err
}

// sightingUser is a resolver that learns paths from mid-fabric captures.
type sightingUser interface{ UseSightings() (seen bool) }

// runPasses replays all captures. First it reads those with mid-fabric taps for the paths of their
// flows only, so that all rows use all paths, whatever the number of workers.
func (r *Replay) runPasses(ctx context.Context) error {
	if witnesses := r.witnesses(); len(witnesses) > 0 {
		first := &Replay{cfg: r.cfg, sources: witnesses, progress: r.progress}
		first.cfg.Sink, first.cfg.Taps, first.cfg.Finding, first.cfg.Pace = nowhere{}, nil, nil, 0
		if err := first.runPass(ctx); err != nil {
			return err
		}
		r.cfg.Resolver.(sightingUser).UseSightings()
		tap := r.cfg.Tap
		r.cfg.Tap = func(name string) window.Tap {
			of := tap(name)
			of.ObservationPoint = 0
			return of
		}
	}
	return r.runPass(ctx)
}

func (r *Replay) runPass(ctx context.Context) error {
	switch {
	case r.cfg.Piped != nil:
		return r.runPipe(ctx)
	case r.cfg.Pace > 0:
		return r.runPaced(ctx)
	}
	return r.runFast(ctx)
}

// nowhere is a sink that discards blocks.
type nowhere struct{}

// WriteBlock implements aggregate.Sink.
func (nowhere) WriteBlock(context.Context, *aggregate.Block) error { return nil }

func (r *Replay) witnesses() []*source {
	if _, ok := r.cfg.Resolver.(sightingUser); !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.sources), func(s *source) bool { return !s.witness })
}

// identifyWitnesses makes the captures' identities depend on the captures that show flow paths.
func (r *Replay) identifyWitnesses() {
	var producers []uint64
	for _, s := range r.witnesses() {
		r.progress.total += s.size // these are read twice
		producers = append(producers, s.id.Producer)
	}
	if len(producers) == 0 {
		return
	}
	slices.Sort(producers)
	h := xxhash.New()
	for _, s := range r.sources {
		h.Reset()
		fmt.Fprint(h, s.id.Incarnation, producers)
		s.id.Incarnation = h.Sum64()
	}
}

// refused returns an error if no packet of any file could be read. If some files have readable
// packets, the others are left out and listed in the result's cuts.
func (r *Replay) refused() error {
	err := r.result.refused().Refused()
	if err == nil {
		return nil
	}
	if r.result.SkippedLink.Total() == r.result.Packets {
		return fmt.Errorf("replay: %w", err)
	}
	r.result.Cuts = append(r.result.Cuts, err)
	return nil
}

// Result returns the counts of the run. It is complete after Run has returned.
func (r *Replay) Result() *Result { return &r.result }
