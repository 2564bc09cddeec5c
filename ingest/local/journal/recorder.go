package journal

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/ingest/local"
)

const (
	// tapPeriod is how much a row of a tap is of.
	tapPeriod = time.Minute
	// maxTapRows bounds the rows that wait while they cannot be written.
	maxTapRows = 10_000
	// maxFindingRows bounds the findings that wait with them, all of which are in the marks
	// of every round: those of 128 rows at most, about 10 MB.
	maxFindingRows = 128 * MaxFindings
	// ringSeq is where the ring is in the number of a row.
	ringSeq = 48
)

// Tap is a tap whose rings are recorded. Any goroutine may call it.
type Tap interface {
	// At is where the tap stands, or one of its sessions unless that is "", and what it is
	// captured from: an interface, an address or the session.
	At(session string) (at window.Tap, from string)
	// Counters are what all taps of the name took in since the process began.
	Counters() capture.TapCounters
	// Session is what came of a session; false where there is none of that name.
	Session(name string) (local.SessionCounters, bool)
}

// Writers take what is recorded. What they return an error for comes again.
type Writers struct {
	// Taps takes rows of taps, and what was found under the numbers of these: MaxFindings
	// for each at most.
	Taps func(context.Context, []store.TapRow, []store.FindingRow) error
	Gaps func(context.Context, []store.Gap) error
}

// ToStore writes what is recorded into a store, where rows that are there already are
// replaced.
func ToStore(db *store.Store) Writers {
	return Writers{Gaps: db.WriteGaps, Taps: func(ctx context.Context, rows []store.TapRow, found []store.FindingRow) error {
		if err := db.WriteTaps(ctx, rows); err != nil || len(found) == 0 {
			return err
		}
		return db.WriteFindings(ctx, found)
	}}
}

// RecorderConfig is what a Recorder needs; all of it is required.
type RecorderConfig struct {
	// Stats are those of the pipeline's rings, at the barrier of a round.
	Stats func() []local.RingStats
	// Tap is the tap of a name, nil for none.
	Tap func(name string) Tap
	// Ending says that no more frames are taken: rows are cut at every barrier then.
	Ending func() bool
	Writers
	Logger *slog.Logger
}

// Recorder makes the rows of what taps took in: one for each ring and minute, and for each
// identity of its blocks. They are made of the pipeline's counts at the barrier of a round,
// are in that round's marks, and are written after it, under numbers that it holds: after a
// kill the next process writes the same rows again, and those that were begun. The goroutine
// of the journal alone uses it.
type Recorder struct {
	cfg RecorderConfig

	cut, before time.Time // when rows were cut last; the barrier before
	state       tapRecords
}

// NewRecorder makes one that has recorded nothing.
func NewRecorder(cfg RecorderConfig) *Recorder { return &Recorder{cfg: cfg} }

// tapRecords is kept with the marks of a round.
type tapRecords struct {
	Rings []*ringRecord
	Rows  []store.TapRow // to be written
	Gaps  []store.Gap    // likewise

	Findings []store.FindingRow // likewise
}

// resume takes over what another process has kept, and cuts the rows that were begun in it as
// of its time: the rings of this one have identities of their own.
func (r *Recorder) resume(kept []byte, at time.Time) error {
	if len(kept) == 0 {
		return nil
	}
	var s tapRecords
	if err := json.Unmarshal(kept, &s); err != nil {
		return fmt.Errorf("read rows of taps: %w", err)
	}
	r.state = s
	for _, g := range s.Rings {
		r.endMissing(g, at, true)
		r.finish(g, at)
	}
	r.state.Rings = nil
	return nil
}

// barrier counts what came since the last one, and returns what is kept with the marks. A
// ring without a mark has ended.
func (r *Recorder) barrier(now time.Time, marks []local.Mark) (json.RawMessage, error) {
	if r.cut.IsZero() {
		r.cut, r.before = now, now
	}
	r.forgetFindings()
	due := r.cfg.Ending() || now.Sub(r.cut) >= tapPeriod
	goesOn := func(name string, ring int) bool {
		return slices.ContainsFunc(marks, func(m local.Mark) bool { return m.Name == name && m.Ring == ring })
	}
	for _, s := range r.cfg.Stats() {
		r.take(&s, r.cfg.Tap(cmp.Or(s.Of, s.Name)), now, due || !goesOn(s.Name, s.Ring))
	}
	if r.before = now; due {
		r.cut = now
	}
	if n := len(r.state.Rows) - maxTapRows; n > 0 {
		r.cfg.Logger.Error("rows of taps are lost: too many wait", slog.Int("rows", n))
		r.forget(n)
	}
	if n := len(r.state.Gaps) - maxTapRows; n > 0 {
		r.cfg.Logger.Error("gaps of taps are lost: too many wait", slog.Int("gaps", n))
		r.state.Gaps = slices.Delete(r.state.Gaps, 0, n)
	}
	kept, err := json.Marshal(&r.state)
	if err != nil {
		return nil, fmt.Errorf("keep rows of taps: %w", err)
	}
	return kept, nil
}

// forget lets go of the first n rows, and of what was found under their numbers.
func (r *Recorder) forget(n int) {
	lost := r.state.Rows[:n]
	r.state.Findings = slices.DeleteFunc(r.state.Findings, func(f store.FindingRow) bool {
		return slices.ContainsFunc(lost, func(row store.TapRow) bool { return row.Source == f.Source && row.Seq == f.Seq })
	})
	r.state.Rows = slices.Delete(r.state.Rows, 0, n)
}

// forgetFindings lets go of the oldest ones beyond the bound. What is cut at a barrier is
// written at its end, however much that is: only what came back from there waits.
func (r *Recorder) forgetFindings() {
	if n := len(r.state.Findings) - maxFindingRows; n > 0 {
		r.cfg.Logger.Error("findings of taps are lost: too many wait", slog.Int("findings", n))
		r.state.Findings = slices.Delete(r.state.Findings, 0, n)
	}
}

// flush writes the rows and gaps that wait; what cannot be written is tried again.
func (r *Recorder) flush(ctx context.Context) {
	if len(r.state.Rows) > 0 {
		if err := r.cfg.Taps(ctx, r.state.Rows, r.state.Findings); err != nil {
			r.cfg.Logger.Warn("rows of taps are not written yet", slog.String("error", err.Error()))
			return
		}
		r.state.Rows, r.state.Findings = nil, nil
	}
	if len(r.state.Gaps) > 0 {
		if err := r.cfg.Gaps(ctx, r.state.Gaps); err != nil {
			r.cfg.Logger.Warn("gaps of taps are not written yet", slog.String("error", err.Error()))
			return
		}
		r.state.Gaps = nil
	}
}

// take counts a ring.
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

// finish cuts a row, unless there is nothing to tell.
func (r *Recorder) finish(g *ringRecord, now time.Time) {
	row := g.Row
	if row.Packets|row.Observations|row.KernelDrops|row.Freezes|row.SuperFrames|row.Lost == 0 && len(g.Findings) == 0 {
		return
	}
	if row.To == 0 {
		row.From, row.To = now.UnixNano(), now.UnixNano()
	}
	row.Seq = uint64(g.Ring)<<ringSeq | g.Next
	g.Next++
	r.state.Rows = append(r.state.Rows, row)
	r.state.Findings = append(r.state.Findings, g.cutFindings(row.Seq)...)
	g.Row = store.TapRow{Source: row.Source}
}
