// Package replay runs capture files through the pipeline: read, decode, aggregate,
// hand over closed windows.
//
// It knows files, chunks and pace. It must never know ClickHouse: closed windows
// go to an aggregate.Sink.
//
// A file is one producer, named by its content, and is cut into chunks whose
// boundaries depend on the file alone. Each chunk is read by one worker with its
// own decoder and its own shards, so that workers share nothing per packet, and
// the rows of a replay are the same on any number of cores.
package replay

import (
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

// DefaultChunkBytes is the size of the pieces that a classic pcap file is cut into.
const DefaultChunkBytes = 64 << 20

// Config is what a replay needs. Files are regular files, whose content is their
// identity, or folders of such.
type Config struct {
	Files  []string
	Stream *Stream // instead of Files
	Sink   aggregate.Sink
	window.Settings
	// Tap maps the name of a capture interface, or the file's base name without
	// extension when the interface has none, to its place. It is called from
	// several goroutines.
	Tap func(name string) window.Tap
	// TapSettings is a text that differs whenever Tap answers differently: part of
	// what rows are identified by.
	TapSettings string
	// Taps, unless nil, is given what each capture interface of a chunk came to, after
	// the chunk's blocks. It is called from several goroutines and may keep the list.
	Taps func(context.Context, []TapCounts) error

	// Dedup is the time within which the same frame at the same tap counts once, 0 for none
	// (capture.Dedup). Files are then never cut.
	Dedup time.Duration

	ChunkBytes int64   // 0: DefaultChunkBytes; negative: never cut a file
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

// progress is written by workers once a batch and read by anyone.
type progress struct {
	bytes, packets atomic.Uint64
	total          int64
}

// New checks the configuration and reads enough of every file to identify it: a
// missing, empty or foreign file is reported here, before anything is stored.
func New(cfg Config) (*Replay, error) {
	switch {
	case len(cfg.Files) == 0 && cfg.Stream == nil:
		return nil, errors.New("replay: no capture file given")
	case len(cfg.Files) > 0 && cfg.Stream != nil:
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
	if cfg.ChunkBytes == 0 {
		cfg.ChunkBytes = DefaultChunkBytes
	}
	cfg.Workers = max(cfg.Workers, 1)
	r := &Replay{cfg: cfg, progress: new(progress)}
	if cfg.Finding != nil {
		r.result.Findings = Findings{}
	}
	if cfg.Stream != nil {
		r.sources = []*source{streamSource(&r.cfg)}
		return r, nil
	}
	seen := make(map[uint64]string)
	files, err := expand(cfg.Files)
	if err != nil {
		return nil, err
	}
	for _, path := range files {
		s, err := openSource(path, &r.cfg)
		if err != nil {
			return nil, err
		}
		if first, twice := seen[s.id.Producer]; twice {
			return nil, fmt.Errorf("replay %q: has the same content as %q: give each capture once", path, first)
		}
		seen[s.id.Producer] = path
		r.sources = append(r.sources, s)
		r.progress.total += s.size
	}
	r.identifyWitnesses()
	return r, nil
}

// expand replaces folders by the captures in them.
func expand(paths []string) ([]string, error) {
	var files []string
	for _, path := range paths {
		found, err := capture.Files(path)
		if err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		files = append(files, found...)
	}
	return files, nil
}

// Sources are the identities of the files, in the order given.
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

// Progress is how far a running replay has come. It is safe to call at any time.
func (r *Replay) Progress() (bytes, total int64, packets uint64) {
	return int64(r.progress.bytes.Load()), r.progress.total, r.progress.packets.Load()
}

// Run replays the files and blocks until all windows are handed over or ctx ends.
// A cut file is no error: its intact packets count and Result names the cut. A classic
// pcap that is damaged in the middle is read on from where its records prove themselves,
// at any pace the same (capture.Options.Resume); a pcapng file is read up to the damage.
func (r *Replay) Run(ctx context.Context) error {
	begun := time.Now()
	var err error
	switch {
	case r.cfg.Stream != nil:
		err = r.runStream(ctx)
	default:
		err = r.runFiles(ctx)
	}
	r.result.Elapsed = time.Since(begun)
	if err == nil {
		err = r.refused()
	}
	return err
}

// revealer is a resolver of which captures in the middle of the fabric know more.
type revealer interface{ Reveal() (seen bool) }

// runFiles replays all captures. Before that it reads those with taps in the middle of the fabric
// for the paths of their flows alone, so that all rows depend on all of them, whatever the number
// of workers.
func (r *Replay) runFiles(ctx context.Context) error {
	if witnesses := r.witnesses(); len(witnesses) > 0 {
		first := &Replay{cfg: r.cfg, progress: r.progress}
		first.cfg.Sink, first.cfg.Taps, first.cfg.Finding = nowhere{}, nil, nil
		if err := first.runFast(ctx, witnesses); err != nil {
			return err
		}
		r.cfg.Resolver.(revealer).Reveal()
		tap := r.cfg.Tap
		r.cfg.Tap = func(name string) window.Tap {
			of := tap(name)
			of.Stand = 0
			return of
		}
	}
	if r.cfg.Pace > 0 {
		return r.runPaced(ctx, r.sources)
	}
	return r.runFast(ctx, r.sources)
}

// nowhere is a sink that forgets blocks.
type nowhere struct{}

// WriteBlock implements aggregate.Sink.
func (nowhere) WriteBlock(context.Context, *aggregate.Block) error { return nil }

func (r *Replay) witnesses() []*source {
	if _, ok := r.cfg.Resolver.(revealer); !ok {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(r.sources), func(s *source) bool { return !s.witness })
}

// identifyWitnesses makes the identity of captures depend on those that show the paths of flows.
func (r *Replay) identifyWitnesses() {
	var producers []uint64
	for _, s := range r.witnesses() {
		r.progress.total += s.size // is read twice
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

// refused is an error where no packet of any file could be read. Files among others whose
// packets could not be read are left out, as the cuts say.
func (r *Replay) refused() error {
	err := r.result.refused.Refused()
	if err == nil {
		return nil
	}
	if r.result.SkippedLink.Total() == r.result.Packets {
		return fmt.Errorf("replay: %w", err)
	}
	r.result.Cuts = append(r.result.Cuts, err)
	return nil
}

// Result is what the run counted. It is complete when Run has returned.
func (r *Replay) Result() *Result { return &r.result }
