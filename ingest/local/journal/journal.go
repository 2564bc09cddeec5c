// Package journal keeps what live taps come to in a log: windows that have closed, and
// beside them rows of what each tap took in and found, gaps of what it missed, names of
// what the numbers in rows stand for, and marks of how far all that goes.
//
// It knows what has to be durable before what, so that all of it adds up over kills and
// reloads. It must never know how frames are captured, what a configuration looks like, or
// SQL.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/store/checkpoint"
	"github.com/csigscope/csigscope/ingest/local"
)

// marksSection is the section of a checkpoint that holds the marks of a round.
const marksSection = "marks"

// ErrNotDurable is wrapped by errors of a Log that cannot be written for the moment: rows
// that it has taken wait in memory, and the round's marks with them.
var ErrNotDurable = errors.New("rows are not durable yet")

// Log is where rows become durable.
type Log interface {
	aggregate.Sink
	// Sync returns nil when all blocks that were written before are durable. After an
	// ErrNotDurable it is called again at the next round; any other error ends the
	// pipeline.
	Sync(context.Context) error
}

// Config is what a Journal needs.
type Config struct {
	Log Log
	// Seen are shown closed windows before they are durable.
	Seen []aggregate.Sink
	// Begin is told of each round before its rows are durable: the sources of its blocks
	// and those that more may come of. End is told after it. Either may be nil.
	Begin func(wrote map[aggregate.Source]bool, marks []local.Mark)
	End   func(context.Context, []local.Mark)

	// File is the place of marks, which stays its owner's; nil for none: nobody knows then
	// what a killed process missed.
	File *checkpoint.File
	// Opened is when the taps were opened: what came before was captured by nobody.
	Opened  time.Time
	Records *Recorder
	Logger  *slog.Logger
}

// Stats is a snapshot of a Journal.
type Stats struct {
	Taken  uint64 // rounds whose marks are durable
	Failed uint64 // rounds whose marks could not be written
	Last   time.Time
}

// Journal makes rounds of a pipeline durable: first rows, then the marks that stand for
// them. A process that is killed between the two is said to have missed a round that it has
// rows of; no row is ever missed without a gap. It implements local.Journal. One goroutine
// uses it, but for Stats.
type Journal struct {
	cfg   Config
	wrote map[aggregate.Source]bool // since the last round
	told  time.Time

	mu    sync.Mutex
	stats Stats
}

// New makes a journal.
func New(cfg Config) *Journal {
	return &Journal{cfg: cfg, wrote: make(map[aggregate.Source]bool)}
}

// WriteBlock implements local.Journal.
func (j *Journal) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	for _, s := range j.cfg.Seen {
		if err := s.WriteBlock(ctx, b); err != nil {
			return err
		}
	}
	j.wrote[b.Source] = true
	return j.cfg.Log.WriteBlock(ctx, b)
}

// savedMarks is a round in a checkpoint.
type savedMarks struct {
	Opened int64 // Unix ns
	Marks  []local.Mark
}

// Commit implements local.Journal.
func (j *Journal) Commit(ctx context.Context, marks []local.Mark) error {
	if j.cfg.Begin != nil {
		j.cfg.Begin(j.wrote, marks)
	}
	clear(j.wrote)
	switch err := j.cfg.Log.Sync(ctx); {
	case errors.Is(err, ErrNotDurable):
		return nil
	case err != nil:
		return err
	}
	rows, err := j.cfg.Records.barrier(time.Now(), marks)
	if err != nil {
		return err
	}
	if err := j.save(marks, rows); err != nil {
		return err
	}
	j.cfg.Records.flush(ctx)
	if j.cfg.End != nil {
		j.cfg.End(ctx, marks)
	}
	return nil
}

// tellEvery is how often a disk that takes no marks is told of.
const tellEvery = 10 * time.Second

// save makes marks durable. Where it cannot, those before stay, and a later gap begins too
// early, which is no loss.
func (j *Journal) save(marks []local.Mark, rows []byte) error {
	if j.cfg.File == nil {
		return nil
	}
	now := time.Now()
	text, err := json.Marshal(savedMarks{j.cfg.Opened.UnixNano(), marks})
	if err != nil {
		return fmt.Errorf("encode marks: %w", err)
	}
	err = j.cfg.File.Save([]checkpoint.Section{{Name: marksSection, Data: text}, {Name: recordsSection, Data: rows}})
	j.mu.Lock()
	defer j.mu.Unlock()
	if err == nil {
		j.stats.Taken++
		j.stats.Last = now
		return nil
	}
	j.stats.Failed++
	if now.Sub(j.told) >= tellEvery {
		j.told = now
		j.cfg.Logger.Error("marks cannot be written: after a kill, the gap begins at those before",
			slog.String("error", err.Error()), slog.Uint64("failures", j.stats.Failed))
	}
	return nil
}

// Stats is a snapshot. It is safe to call at any time.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stats
}

// Resume gives the marks of the round that an earlier process left, none without one.
// Rows of taps that were open are cut. missing is told of each mark what nobody captured
// since, until the taps were opened, and which windows were open in between; its error ends
// Resume.
func (j *Journal) Resume(resolutions []time.Duration, missing func(*local.Mark, []store.Gap) error) ([]local.Mark, error) {
	if j.cfg.File == nil {
		return nil, nil
	}
	saved, err := j.cfg.File.Load()
	if errors.Is(err, checkpoint.ErrDamaged) || errors.Is(err, checkpoint.ErrNewer) {
		j.cfg.Logger.Error("marks cannot be read: gaps of the process before begin at its last stored windows", slog.String("error", err.Error()))
		return nil, nil
	}
	if err != nil || saved == nil {
		return nil, err
	}
	var last savedMarks
	if err := json.Unmarshal(saved.Section(marksSection), &last); err != nil {
		j.cfg.Logger.Error("marks cannot be read: gaps of the process before begin at its last stored windows", slog.String("error", err.Error()))
		return nil, nil
	}
	if err := j.cfg.Records.resume(saved.Section(recordsSection), saved.Time); err != nil {
		j.cfg.Logger.Error("rows of taps may be missing", slog.String("error", err.Error()))
	}
	for i := range last.Marks {
		m := &last.Marks[i]
		since := time.Unix(0, last.Opened) // nothing has been taken yet
		if m.At > 0 {
			since = time.Unix(0, m.At)
		}
		gaps := append(OpenWindows(m, resolutions), store.Gap{Source: m.Source, From: since, To: j.cfg.Opened, Reason: store.GapRestart})
		if gap := &gaps[len(gaps)-1]; gap.To.Before(gap.From) {
			gap.To = gap.From // of a clock that was ahead
		}
		if err := missing(m, gaps); err != nil {
			return nil, err
		}
	}
	return last.Marks, nil
}

// OpenWindows are the gaps of the windows that were open at a mark, of each resolution.
// Windows of 1 min are made of the stored ones of 1 s, where there are any.
func OpenWindows(m *local.Mark, resolutions []time.Duration) (list []store.Gap) {
	if m.At == 0 || m.Closed {
		return nil
	}
	at := time.Unix(0, m.At)
	for _, r := range resolutions {
		if r == time.Minute && len(resolutions) > 1 {
			continue
		}
		lateness := max(2*r, 50*time.Millisecond)
		list = append(list, store.Gap{
			Source: m.Source, From: at.Add(-lateness).Truncate(r), To: at, Reason: store.GapOpen, Resolution: r,
		})
	}
	return list
}
