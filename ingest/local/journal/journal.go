// Package journal writes the results of live taps to a log: closed windows, rows of each tap's
// input and findings, gaps in that input, names for the numbers in rows, and marks of each
// ring's progress.
//
// It knows the order in which records must become durable, so that totals are exact over kills
// and reloads. It must never know how frames are captured, the format of configurations, or
// SQL.
package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/ingest/local"
)

// ErrNotDurable is wrapped by errors of a Log that cannot be written at the moment: its rows
// and the marks of the round wait in memory.
var ErrNotDurable = errors.New("rows are not durable yet")

// Log makes rows durable.
type Log interface {
	aggregate.Sink
	// Commit returns nil once all earlier blocks and the marks, which replace the previous
	// marks, are durable. The marks are never durable before the blocks; a crash may leave blocks
	// without their marks. After an ErrNotDurable it is called again in the next round; any other
	// error ends the pipeline.
	Commit(ctx context.Context, marks []byte) error
	// Marks returns the marks that earlier processes committed last, of any name.
	Marks() ([][]byte, error)
}

// Config configures a Journal.
type Config struct {
	Log Log
	// Begin is called in each round before its rows are durable, with the sources of its blocks,
	// the marks of the rings that may write more, and marks with the names of those that wrote and
	// ended. End is called after the round. Either may be nil.
	Begin func(wrote map[aggregate.Source]bool, marks []local.Mark)
	End   func(context.Context, []local.Mark)

	// Name distinguishes the marks of this command and instance from others in the same log.
	Name string
	// Opened is the time at which the taps were opened: earlier frames were not captured.
	Opened  time.Time
	Records *Recorder
	Logger  *slog.Logger
}

// Stats is a snapshot of a Journal.
type Stats struct {
	Taken  uint64 // durable rounds
	Failed uint64 // rounds that could not be written
	Last   time.Time
}

// Journal makes rounds of a pipeline durable: rows, and the marks that describe them. It
// implements local.Journal. Only one goroutine may use it, except for Stats.
type Journal struct {
	cfg   Config
	wrote map[aggregate.Source]bool // sources written since the last round

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

// round is the record of a round in the log.
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
		j.cfg.Begin(j.wrote, slices.Concat(marks, j.ended(marks)))
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

// ended returns marks with the names of the rings that wrote in this round and have no mark: a session may end before it
// has been in one.
func (j *Journal) ended(marks []local.Mark) (list []local.Mark) {
	for _, s := range j.cfg.Records.cfg.Stats() {
		marked := func(m local.Mark) bool { return m.Source.Producer == s.Wrote.Producer }
		if j.wrote[s.Wrote] && !slices.ContainsFunc(marks, marked) {
			list = append(list, local.Mark{Name: s.Name, Ring: s.Ring, Source: s.Wrote})
		}
	}
	return list
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

// Stats returns a snapshot. It is safe for concurrent use.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.stats
}

// Resume returns the marks of the last round of an earlier process, nil if there is none, and
// ends its unfinished rows of taps at that round. It calls missing for each mark with the gaps: the time from
// the mark until the taps were opened, and the windows open at the mark. An error of missing
// ends Resume.
func (j *Journal) Resume(windows *window.Settings, missing func(*local.Mark, []store.Gap) error) ([]local.Mark, error) {
	last, err := j.last()
	if last == nil || err != nil {
		return nil, err
	}
	if err := j.cfg.Records.resume(last.Taps, time.Unix(0, last.At)); err != nil {
		j.cfg.Logger.Error("packet counts that taps of the earlier process had saved are lost", slog.String("error", err.Error()))
	}
	for i := range last.Marks {
		m := &last.Marks[i]
		since := time.Unix(0, max(last.Opened, int64(m.Source.Incarnation))) // of a ring without frames, which may have begun at a reload
		if m.At > 0 {
			since = time.Unix(0, m.At)
		}
		gaps := append(OpenWindows(m, windows), store.Gap{Source: m.Source, From: since, To: j.cfg.Opened, Reason: store.GapRestart})
		if gap := &gaps[len(gaps)-1]; gap.To.Before(gap.From) {
			gap.To = gap.From // the earlier clock was ahead
		}
		if err := missing(m, gaps); err != nil {
			return nil, err
		}
	}
	return last.Marks, nil
}

// last returns the last round of an earlier process, nil if there is none.
func (j *Journal) last() (last *round, err error) {
	list, err := j.cfg.Log.Marks()
	if err != nil {
		return nil, err
	}
	for _, text := range list {
		r := new(round)
		if err := json.Unmarshal(text, r); err != nil {
			j.cfg.Logger.Error("cannot read where taps of the earlier process stopped: their gaps begin at the last stored windows", slog.String("error", err.Error()))
			continue
		}
		if r.Name == j.cfg.Name && (last == nil || r.At > last.At) {
			last = r
		}
	}
	return last, nil
}

// OpenWindows returns the gaps for the windows that were open at a mark, for each resolution in
// the settings. With windows of 1 s there is none for 1 min: the store completes the minute from
// them.
func OpenWindows(m *local.Mark, windows *window.Settings) (list []store.Gap) {
	if m.At == 0 || m.Closed {
		return nil
	}
	at := time.Unix(0, m.At)
	closed := at.Add(-m.Behind)
	for _, r := range windows.Resolutions {
		if r == time.Minute && slices.Contains(windows.Resolutions, time.Second) {
			continue
		}
		list = append(list, store.Gap{
			Source: m.Source, From: closed.Add(-windows.LatenessOf(r)).Truncate(r), To: at, Reason: store.GapOpen, Resolution: r,
		})
	}
	return list
}
