package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/local"
)

const (
	// tapPeriod is the period that one row of a tap covers.
	tapPeriod = time.Minute
	// maxTapRows is the maximum number of rows that wait while the store cannot be written.
	maxTapRows = 10_000
	// maxFindingRows is the maximum number of findings that wait with them: the findings of 128
	// rows, about 10 MB. The marks of every round contain all of them.
	maxFindingRows = 128 * MaxFindings
)

// Tap is a tap whose rings are recorded. Its methods must be safe for concurrent use.
type Tap interface {
	// At returns the place of the tap, or of one of its sessions unless session is "", and
	// where it captures from: an interface, an address or the session.
	At(session string) (at window.Tap, from string)
	// Counters returns the totals of all taps of this name since the process started.
	Counters() capture.TapCounters
	// Session returns the totals of a session; false if there is none of that name.
	Session(name string) (local.SessionCounters, bool)
}

// Writers store the records. Records that fail are passed again in the next round.
type Writers struct {
	// Taps stores rows of taps and the findings under their numbers, at most MaxFindings per
	// row.
	Taps func(context.Context, []store.TapRow, []store.FindingRow) error
	Gaps func(context.Context, []store.Gap) error
}

// ToStore writes records into a store, which replaces rows that it already has.
func ToStore(db *store.Store) Writers {
	return Writers{Gaps: db.WriteGaps, Taps: func(ctx context.Context, rows []store.TapRow, found []store.FindingRow) error {
		if err := db.WriteTaps(ctx, rows); err != nil || len(found) == 0 {
			return err
		}
		return db.WriteFindings(ctx, found)
	}}
}

// RecorderConfig configures a Recorder. All fields are required.
type RecorderConfig struct {
	// Stats returns the counts of the pipeline's rings at the barrier of a round.
	Stats func() []local.RingStats
	// Tap returns the tap of a name, nil if there is none.
	Tap func(name string) Tap
	// Ending reports that capturing has ended; rows are then cut at every barrier.
	Ending func() bool
	Writers
	Logger *slog.Logger
}

// Recorder records the input of taps: one row for each ring and minute, and for each identity
// of its blocks. It computes rows from the pipeline's counts at the barrier of a round, stores
// them in the marks of that round, and writes them after it under fixed numbers: after a kill,
// the next process writes the same rows again, including unfinished ones. Only the journal's
// goroutine may use it.
type Recorder struct {
	cfg RecorderConfig

	cutAt, before time.Time // when all rows were last cut; time of the previous barrier
	state         tapRecords
}

// NewRecorder returns an empty Recorder.
func NewRecorder(cfg RecorderConfig) *Recorder { return &Recorder{cfg: cfg} }

// tapRecords is saved with the marks of a round.
type tapRecords struct {
	Rings []*ringRecord
	Rows  []store.TapRow // waiting to be written
	Gaps  []store.Gap    // waiting to be written

	Findings []store.FindingRow // waiting to be written
}

// resume restores the records of an earlier process and ends its unfinished rows at the time of
// its last round; the rings of this process have identities of their own.
func (r *Recorder) resume(kept []byte, at time.Time) error {
	if len(kept) == 0 {
		return nil
	}
	var s tapRecords
	if err := json.Unmarshal(kept, &s); err != nil {
		return fmt.Errorf("read saved packet counts of taps: %w", err)
	}
	r.state = s
	for _, g := range s.Rings {
		r.endMissing(g, at, true)
		r.finish(g, at)
	}
	for i := range r.state.Gaps {
		if g := &r.state.Gaps[i]; g.To.Before(g.From) { // an earlier release saved it when the clock was set back
			g.From = g.To
		}
	}
	for i := range r.state.Findings { // the same
		f := &r.state.Findings[i]
		f.From = min(f.From, f.To)
	}
	r.state.Rings = nil
	return nil
}

// barrier counts the input since the previous barrier and returns the records to save with the
// marks. A ring without a mark has ended.
func (r *Recorder) barrier(now time.Time, marks []local.Mark) (json.RawMessage, error) {
	if r.cutAt.IsZero() {
		r.cutAt, r.before = now, now
	}
	r.forgetFindings()
	due := r.cfg.Ending() || now.Sub(r.cutAt) >= tapPeriod
	goesOn := func(name string, ring int) bool {
		return slices.ContainsFunc(marks, func(m local.Mark) bool { return m.Name == name && m.Ring == ring })
	}
	for _, s := range r.cfg.Stats() {
		r.take(&s, r.cfg.Tap(cmp.Or(s.Of, s.Name)), now, due || !goesOn(s.Name, s.Ring))
	}
	if r.before = now; due {
		r.cutAt = now
	}
	if n := len(r.state.Rows) - maxTapRows; n > 0 {
		r.cfg.Logger.Error("packet counts of taps lost: too many wait to be written", slog.Int("rows", n))
		r.forget(n)
	}
	if n := len(r.state.Gaps) - maxTapRows; n > 0 {
		r.cfg.Logger.Error("gaps of taps lost: too many wait to be written", slog.Int("gaps", n))
		r.state.Gaps = slices.Delete(r.state.Gaps, 0, n)
	}
	kept, err := json.Marshal(&r.state)
	if err != nil {
		return nil, fmt.Errorf("save packet counts of taps: %w", err)
	}
	return kept, nil
}

// forget drops the first n rows and the findings under their numbers.
func (r *Recorder) forget(n int) {
	lost := r.state.Rows[:n]
	r.state.Findings = slices.DeleteFunc(r.state.Findings, func(f store.FindingRow) bool {
		return slices.ContainsFunc(lost, func(row store.TapRow) bool { return row.Source == f.Source && row.Seq == f.Seq })
	})
	r.state.Rows = slices.Delete(r.state.Rows, 0, n)
}

// forgetFindings drops the oldest findings beyond the limit. Only findings that failed to be
// written count: those cut at a barrier are written at its end, however many there are.
func (r *Recorder) forgetFindings() {
	if n := len(r.state.Findings) - maxFindingRows; n > 0 {
		r.cfg.Logger.Error("findings of taps lost: too many wait to be written", slog.Int("findings", n))
		r.state.Findings = slices.Delete(r.state.Findings, 0, n)
	}
}

// flush writes the waiting rows and gaps; those that fail are retried in the next round.
func (r *Recorder) flush(ctx context.Context) {
	if len(r.state.Rows) > 0 {
		if err := r.cfg.Taps(ctx, r.state.Rows, r.state.Findings); err != nil {
			r.cfg.Logger.Warn("cannot write packet counts of taps, trying again", slog.String("error", err.Error()))
			return
		}
		r.state.Rows, r.state.Findings = nil, nil
	}
	if len(r.state.Gaps) > 0 {
		if err := r.cfg.Gaps(ctx, r.state.Gaps); err != nil {
			r.cfg.Logger.Warn("cannot write gaps of taps, trying again", slog.String("error", err.Error()))
			return
		}
		r.state.Gaps = nil
	}
}

// take adds the counts of a ring.
func (r *Recorder) take(s *local.RingStats, t Tap, now time.Time, due bool) {
	i := slices.IndexFunc(r.state.Rings, func(g *ringRecord) bool { return g.Name == s.Name && g.Ring == s.Ring })
	if i < 0 {
		i = len(r.state.Rings)
		r.state.Rings = append(r.state.Rings, &ringRecord{Name: s.Name, Ring: s.Ring, Next: 1, Row: store.TapRow{Source: s.Wrote}})
	}
	g := r.state.Rings[i]
	if was := g.Row.Source; was != s.Wrote {
		r.endMissing(g, now, true)
		r.finish(g, now)
		g.Row = store.TapRow{Source: s.Wrote}
		if was.Incarnation != s.Wrote.Incarnation {
			g.Tags, g.Reflections = 0, 0
		}
	}
	g.frames(s, t, r.before, now)
	g.observations(s, t)
	g.find(s, r.before, now)
	r.endMissing(g, now, due || s.Wrote != s.Source)
	if due || s.Wrote != s.Source {
		r.finish(g, now)
		g.Row.Source = s.Source
	}
	g.seen = *s
}

// finish cuts a row, unless it is empty.
func (r *Recorder) finish(g *ringRecord, now time.Time) {
	row := g.Row
	if row.Packets|row.Observations|row.KernelDrops|row.Freezes|row.SuperFrames|row.Lost == 0 && len(g.Findings) == 0 {
		return
	}
	if row.To == 0 {
		row.From, row.To = now.UnixNano(), now.UnixNano()
	}
	row.From = min(row.From, now.UnixNano()) // later if the clock was set back: collectors refuse rows from the future
	row.Seq = uint64(g.Ring)<<aggregate.PartShift | g.Next
	g.Next++
	r.state.Rows = append(r.state.Rows, row)
	r.state.Findings = append(r.state.Findings, g.cutFindings(row.Seq, now)...)
	g.Row = store.TapRow{Source: row.Source}
}
