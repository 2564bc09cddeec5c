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
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/local"
)

// ErrNotDurable is wrapped by errors of a Log that cannot be written for the moment: rows
// that it has taken wait in memory, and the round's marks with them.
var ErrNotDurable = errors.New("rows are not durable yet")

// Log is where rows become durable.
type Log interface {
	aggregate.Sink
	// Commit returns nil when all blocks that were written before are durable, and marks
	// with them, in the place of those before: a crash leaves both or neither. After an
	// ErrNotDurable it is called again at the next round; any other error ends the pipeline.
	Commit(ctx context.Context, marks []byte) error
	// Marks are those that earlier processes have committed last, of whatever name.
	Marks() ([][]byte, error)
}

// Config is what a Journal needs.
type Config struct {
	Log Log
	// Begin is told of each round before its rows are durable: the sources of its blocks
	// and those that more may come of. End is told after it. Either may be nil.
	Begin func(wrote map[aggregate.Source]bool, marks []local.Mark)
	End   func(context.Context, []local.Mark)

	// Name tells the marks of this command and instance from others in the same log.
	Name string
	// Opened is when the taps were opened: what came before was captured by nobody.
	Opened  time.Time
	Records *Recorder
	Logger  *slog.Logger
}

// Stats is a snapshot of a Journal.
type Stats struct {
	Taken  uint64 // rounds that are durable
	Failed uint64 // rounds that could not be written
	Last   time.Time
}

// Journal makes rounds of a pipeline durable: rows, and the marks that stand for them. It
// implements local.Journal. One goroutine uses it, but for Stats.
type Journal struct {
	cfg   Config
	wrote map[aggregate.Source]bool // since the last round

	mu    sync.Mutex
	stats Stats
}

// New makes a journal.
func New(cfg Config) *Journal {
	return &Journal{cfg: cfg, wrote: make(map[aggregate.Source]bool)}
}

// WriteBlock implements local.Journal.
func (j *Journal) WriteBlock(ctx context.Context, b *aggregate.Block) error {
	j.wrote[b.Source] = true
	return j.cfg.Log.WriteBlock(ctx, b)
}

// round is what a log keeps of a round.
type round struct {
	Name   string
	Opened int64 // Unix ns
	At     int64
	Marks  []local.Mark
	Taps   json.RawMessage // see Recorder
}

// Commit implements local.Journal.
func (j *Journal) Commit(ctx context.Context, marks []local.Mark) error {
	if j.cfg.Begin != nil {
		j.cfg.Begin(j.wrote, marks)
	}
	clear(j.wrote)
	now := time.Now()
	taps, err := j.cfg.Records.barrier(now, marks)
	if err != nil {
		return err
	}
	text, err := json.Marshal(round{j.cfg.Name, j.cfg.Opened.UnixNano(), now.UnixNano(), marks, taps})
	if err != nil {
		return fmt.Errorf("encode marks: %w", err)
	}
	err = j.cfg.Log.Commit(ctx, text)
	j.count(now, err)
	switch {
	case errors.Is(err, ErrNotDurable):
		return nil
	case err != nil:
		return err
	}
	j.cfg.Records.flush(ctx)
	if j.cfg.End != nil {
		j.cfg.End(ctx, marks)
	}
	return nil
}

func (j *Journal) count(now time.Time, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.stats.Failed++
		return
	}
	j.stats.Taken++
	j.stats.Last = now
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
func (j *Journal) Resume(windows *window.Settings, missing func(*local.Mark, []store.Gap) error) ([]local.Mark, error) {
	last, err := j.last()
	if last == nil || err != nil {
		return nil, err
	}
	if err := j.cfg.Records.resume(last.Taps, time.Unix(0, last.At)); err != nil {
		j.cfg.Logger.Error("rows of taps may be missing", slog.String("error", err.Error()))
	}
	for i := range last.Marks {
		m := &last.Marks[i]
		since := time.Unix(0, last.Opened) // nothing has been taken yet
		if m.At > 0 {
			since = time.Unix(0, m.At)
		}
		gaps := append(OpenWindows(m, windows), store.Gap{Source: m.Source, From: since, To: j.cfg.Opened, Reason: store.GapRestart})
		if gap := &gaps[len(gaps)-1]; gap.To.Before(gap.From) {
			gap.To = gap.From // of a clock that was ahead
		}
		if err := missing(m, gaps); err != nil {
			return nil, err
		}
	}
	return last.Marks, nil
}

// last is the round of the process before, nil for none.
func (j *Journal) last() (last *round, err error) {
	list, err := j.cfg.Log.Marks()
	if err != nil {
		return nil, err
	}
	for _, text := range list {
		r := new(round)
		if err := json.Unmarshal(text, r); err != nil {
			j.cfg.Logger.Error("marks cannot be read: gaps of the process before begin at its last stored windows", slog.String("error", err.Error()))
			continue
		}
		if r.Name == j.cfg.Name && (last == nil || r.At > last.At) {
			last = r
		}
	}
	return last, nil
}

// OpenWindows are the gaps of the windows that were open at a mark, of each resolution of the
// settings. Windows of 1 min are made of the stored ones of 1 s, where there are any.
func OpenWindows(m *local.Mark, windows *window.Settings) (list []store.Gap) {
	if m.At == 0 || m.Closed {
		return nil
	}
	at := time.Unix(0, m.At)
	for _, r := range windows.Resolutions {
		if r == time.Minute && len(windows.Resolutions) > 1 {
			continue
		}
		list = append(list, store.Gap{
			Source: m.Source, From: at.Add(-windows.LatenessOf(r)).Truncate(r), To: at, Reason: store.GapOpen, Resolution: r,
		})
	}
	return list
}
