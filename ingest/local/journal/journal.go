// Package journal keeps what live taps come to in a store: windows that have closed, and
// beside them checkpoints to go on from, rows of what each tap took in and found, gaps of
// what it missed, and names of what the numbers in rows stand for.
//
// It knows what has to be told when, so that all of it adds up over kills and reloads. It
// must never know how frames are captured, what a configuration looks like, or SQL.
package journal

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest/local"
)

// Sections of a checkpoint.
const (
	tapsSection   = "taps"      // states
	openedSection = "opened"    // when taps were opened, Unix ns
	metSection    = "locations" // that the fabric has met
)

// Config is what a Journal needs; More alone may be nil.
type Config struct {
	// File is the place of checkpoints, which stays its owner's.
	File *checkpoint.File
	// Every is the time between checkpoints.
	Every time.Duration
	// Opened is when the taps were opened: what came before was captured by nobody.
	Opened time.Time
	// Network is what rows are made under at the moment.
	Network func() Network
	Records *Recorder
	// More are further sections of each checkpoint, none of which the journal reads.
	More   func() []checkpoint.Section
	Logger *slog.Logger
}

// Journal keeps the states of taps, their rows and the locations that were met in
// checkpoints, beside the blocks that are held. It implements local.Journal.
type Journal struct {
	*store.Journal
	cfg    Config
	states []byte
	met    []byte
}

// New makes a journal of what goes to the store.
func New(to store.BlockStore, cfg Config) *Journal {
	return &Journal{
		Journal: store.NewJournal(to, store.JournalOptions{File: cfg.File, Every: cfg.Every, Logger: cfg.Logger}),
		cfg:     cfg,
	}
}

// Commit implements local.Journal.
func (j *Journal) Commit(ctx context.Context, states []local.State) error {
	j.states = local.AppendStates(j.states[:0], states)
	var err error
	if j.met, err = j.cfg.Network().Fabric.AppendMet(j.met[:0]); err != nil {
		return err
	}
	rows, err := j.cfg.Records.barrier(time.Now(), states)
	if err != nil {
		return err
	}
	sections := []checkpoint.Section{
		{Name: tapsSection, Data: j.states},
		{Name: openedSection, Data: strconv.AppendInt(nil, j.cfg.Opened.UnixNano(), 10)},
		{Name: metSection, Data: j.met},
		{Name: recordsSection, Data: rows},
	}
	if j.cfg.More != nil {
		sections = append(sections, j.cfg.More()...)
	}
	before := j.Stats().Taken
	err = j.Journal.Commit(ctx, sections...)
	if err == nil && j.Stats().Taken > before {
		j.cfg.Records.flush(ctx)
	}
	return err
}

// Resume gives the states of the checkpoint that an earlier process left, none without one,
// after the blocks in it have gone where blocks go. missing is told of each state what
// nobody captured since, until the taps were opened; its error ends Resume.
func (j *Journal) Resume(ctx context.Context, missing func(*local.State, store.Gap) error) ([]local.State, error) {
	saved, err := j.Journal.Resume(ctx)
	if err != nil || saved == nil {
		return nil, err
	}
	logger := j.cfg.Logger
	states, err := States(saved)
	if err != nil {
		logger.Error("checkpoint cannot be gone on from", slog.String("error", err.Error()))
	}
	if err := j.cfg.Records.restore(saved.Section(recordsSection)); err != nil {
		logger.Warn("rows of taps may be missing", slog.String("error", err.Error()))
	}
	if err := j.cfg.Network().Fabric.RestoreMet(saved.Section(metSection)); err != nil {
		logger.Warn("some locations may have no name", slog.String("error", err.Error()))
	}
	for i := range states {
		s := &states[i]
		since := saved.Time
		if ns, err := strconv.ParseInt(string(saved.Section(openedSection)), 10, 64); err == nil {
			since = time.Unix(0, ns) // nothing has been taken yet
		}
		if s.At > 0 {
			since = time.Unix(0, s.At)
		}
		if err := missing(s, store.Gap{Source: s.Source, From: since, To: j.cfg.Opened, Reason: store.GapRestart}); err != nil {
			return nil, err
		}
	}
	return states, nil
}

// States are those of taps in a checkpoint that a Journal made.
func States(saved *checkpoint.Saved) ([]local.State, error) {
	return local.ParseStates(saved.Section(tapsSection))
}

// OpenWindows are the gaps that a state leaves which cannot be gone on from: the windows
// that were open in it, of each resolution.
func OpenWindows(s *local.State, resolutions []time.Duration) (list []store.Gap) {
	if s.At == 0 {
		return nil // none was
	}
	at := time.Unix(0, s.At)
	for _, r := range resolutions {
		lateness := max(2*r, 50*time.Millisecond)
		list = append(list, store.Gap{
			Source: s.Source, From: at.Add(-lateness).Truncate(r), To: at, Reason: store.GapChanged, Resolution: r,
		})
	}
	return list
}

// Passing is a journal without checkpoints: what is open when its process is killed is
// lost. It implements local.Journal.
type Passing struct {
	aggregate.Sink
	Records *Recorder
}

// Commit implements local.Journal.
func (p Passing) Commit(ctx context.Context, states []local.State) error {
	_, err := p.Records.barrier(time.Now(), states)
	p.Records.flush(ctx)
	return err
}

// Watched shows closed windows to another sink before they go on to the journal.
type Watched struct {
	local.Journal
	By aggregate.Sink
}

// WriteBlock implements aggregate.Sink.
func (j Watched) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	if err := j.By.WriteBlock(ctx, b); err != nil {
		return err
	}
	return j.Journal.WriteBlock(ctx, b)
}
