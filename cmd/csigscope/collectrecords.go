package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/live"
	"github.com/csigscope/csigscope/aggregate/store"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

const (
	// tapPeriod is how much a row of a tap is of.
	tapPeriod = time.Minute
	// maxTapRows bounds the rows that wait while they cannot be written.
	maxTapRows = 10_000
	// recordsSection is the section of a checkpoint with the rows of taps.
	recordsSection = "taprows"
	// linkName is how frames of live taps start.
	linkName = "Ethernet"
	// ringSeq is where the ring is in the number of a row.
	ringSeq = 48
)

// tapRecorder makes the rows of what taps took in: one for each ring and period, and for
// each identity of its blocks. They are made of what the pipeline counted at the barrier
// of a checkpoint, are in that checkpoint, and are written after it, under numbers that it
// holds: a process that goes on from it writes the same rows again, and counts nothing
// twice. The goroutine of the journal alone uses it.
type tapRecorder struct {
	stats  func() []live.RingStats
	taps   func() liveTaps
	ending func() bool // rows are cut at every barrier from now on
	write  tapsWriter
	gaps   func(context.Context, []store.Gap) error
	logger *slog.Logger

	cut, before time.Time // when rows were cut last; the barrier before
	state       tapRecords
}

// tapsWriter writes rows of taps, and what was found under the numbers of these. What it
// does not write comes again.
type tapsWriter func(context.Context, []store.TapRow, []store.FindingRow) error

// tapRecords is what a checkpoint holds.
type tapRecords struct {
	Rings []*ringRecord
	Rows  []store.TapRow // to be written
	Gaps  []store.Gap    // likewise

	Findings []store.FindingRow // likewise
}

// ringRecord is what is counted of a ring since its last row.
type ringRecord struct {
	Name string
	Ring int
	Next uint64 // number of the next row
	Row  store.TapRow
	// Findings are made since, without numbers yet.
	Findings []store.FindingRow
	// Tags and Reflections are in windows that are open.
	Tags, Reflections uint64
	// Counts are those at the last barrier, with which the ring goes on in another
	// process. The others begin at 0 there.
	Counts aggregate.Counts
	Drops  missing // by the kernel
	Mirror missing // on the way of a mirror session

	begun bool // in this process
	seen  live.RingStats
	taken capture.TapCounters
	lost  uint64
}

// restore goes on from a section.
func (r *tapRecorder) restore(section []byte) error {
	if len(section) == 0 {
		return nil
	}
	var s tapRecords
	if err := json.Unmarshal(section, &s); err != nil {
		return fmt.Errorf("read rows of taps: %w", err)
	}
	r.state = s
	return nil
}

// barrier counts what came since the last one, and returns the section. A ring without a
// state has ended.
func (r *tapRecorder) barrier(now time.Time, states []live.State) ([]byte, error) {
	if r.cut.IsZero() {
		r.cut, r.before = now, now
	}
	due := r.ending() || now.Sub(r.cut) >= tapPeriod
	taps := r.taps()
	goesOn := func(name string, ring int) bool {
		return slices.ContainsFunc(states, func(s live.State) bool { return s.Name == name && s.Ring == ring })
	}
	for _, s := range r.stats() {
		r.take(&s, taps[cmp.Or(s.Of, s.Name)], now, due || !goesOn(s.Name, s.Ring))
	}
	if r.before = now; due {
		r.cut = now
	}
	r.state.Rings = slices.DeleteFunc(r.state.Rings, func(g *ringRecord) bool {
		lost := !g.begun && !goesOn(g.Name, g.Ring)
		if lost {
			r.endMissing(g, now, true)
			r.finish(g, now)
		}
		return lost
	})
	if n := len(r.state.Rows) - maxTapRows; n > 0 {
		r.logger.Error("rows of taps are lost: too many wait", slog.Int("rows", n))
		r.forget(n)
	}
	if n := len(r.state.Gaps) - maxTapRows; n > 0 {
		r.logger.Error("gaps of taps are lost: too many wait", slog.Int("gaps", n))
		r.state.Gaps = slices.Delete(r.state.Gaps, 0, n)
	}
	section, err := json.Marshal(&r.state)
	if err != nil {
		return nil, fmt.Errorf("keep rows of taps: %w", err)
	}
	return section, nil
}

// forget lets go of the first n rows, and of what was found under their numbers.
func (r *tapRecorder) forget(n int) {
	lost := r.state.Rows[:n]
	r.state.Findings = slices.DeleteFunc(r.state.Findings, func(f store.FindingRow) bool {
		return slices.ContainsFunc(lost, func(row store.TapRow) bool { return row.Source == f.Source && row.Seq == f.Seq })
	})
	r.state.Rows = slices.Delete(r.state.Rows, 0, n)
}

// flush writes the rows and gaps that wait; what cannot be written is tried again.
func (r *tapRecorder) flush(ctx context.Context) {
	if len(r.state.Rows) > 0 {
		if err := r.write(ctx, r.state.Rows, r.state.Findings); err != nil {
			r.logger.Warn("rows of taps are not written yet", slog.String("error", err.Error()))
			return
		}
		r.state.Rows, r.state.Findings = nil, nil
	}
	if len(r.state.Gaps) > 0 {
		if err := r.gaps(ctx, r.state.Gaps); err != nil {
			r.logger.Warn("gaps of taps are not written yet", slog.String("error", err.Error()))
			return
		}
		r.state.Gaps = nil
	}
}

// take counts a ring.
func (r *tapRecorder) take(s *live.RingStats, t *liveTap, now time.Time, due bool) {
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
			if !g.begun { // its state was lost
				g.Counts = aggregate.Counts{}
			}
		}
	}
	g.begun = true
	g.frames(s, t, r.before, now)
	g.observations(s, t)
	g.find(s, r.before)
	r.endMissing(g, now, due || s.Wrote != s.Source)
	if due || s.Wrote != s.Source {
		r.finish(g, now)
		g.Row.Source = s.Source
	}
	g.seen, g.Counts = *s, s.Counts
}

// finish cuts a row, unless there is nothing to tell.
func (r *tapRecorder) finish(g *ringRecord, now time.Time) {
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

// since is what a counter counted; one that begins anew counts from 0.
func since(now, before uint64) uint64 {
	if now < before {
		return now
	}
	return now - before
}

// frames adds what the ring took in. What the kernel counts is of the tap: its first ring
// has it.
func (g *ringRecord) frames(s *live.RingStats, t *liveTap, before, now time.Time) {
	row := &g.Row
	row.Name, row.Link, row.TickNS = g.Name, linkName, 1
	row.Frames = addCounts(row.Frames, len(s.Frames), func(i int) (string, uint64) {
		return decode.Reason(i).String(), since(s.Frames[i], g.seen.Frames[i])
	})
	if n := since(s.Packets, g.seen.Packets); n > 0 {
		row.Packets += n
		row.Bytes += since(s.WireBytes, g.seen.WireBytes)
		last := s.LastFrame.UnixNano()
		if row.From == 0 {
			row.From = min(before.UnixNano(), last)
			if at := g.seen.LastFrame; !at.IsZero() {
				row.From = min(at.UnixNano(), last)
			}
		}
		row.To = max(row.To, last)
		// Frames from the future are of a clock that is ahead.
		row.SkewNS = max(row.SkewNS, last-now.UnixNano(), 0)
	}
	if t == nil {
		return
	}
	if s.Session != "" {
		g.session(s, t, before, now)
		return
	}
	taken := t.counters()
	row.Place, row.Interface, row.Timestamps = t.feed.Place, t.from, "software"
	if 2*taken.HardwareStamps > taken.Frames {
		row.Timestamps = "hardware"
	}
	if g.Ring == 0 {
		drops := since(taken.Dropped, g.taken.Dropped)
		g.Drops.add(drops*max(t.feed.Weight, 1), before.Add(-statisticsAge), now)
		row.KernelDrops += drops
		row.Freezes += since(taken.Freezes, g.taken.Freezes)
		row.SuperFrames += since(taken.SuperFrames, g.taken.SuperFrames)
		g.taken = taken
	}
}

// session adds what is known of a mirror's session alone.
func (g *ringRecord) session(s *live.RingStats, t *liveTap, before, now time.Time) {
	row := &g.Row
	row.Place, row.Interface, row.Timestamps = t.at(s.Session).Place, s.Session, "software"
	c, ok := t.mirror.Session(s.Session)
	if !ok {
		return
	}
	if 2*c.SwitchTimes > c.Frames {
		row.Timestamps = "switch"
	}
	lost := since(c.Lost, g.lost)
	g.Mirror.add(lost*max(t.at(s.Session).Weight, 1), before, now)
	row.Lost += lost
	g.lost = c.Lost
}

// observations adds those of windows that have closed. Which of them are tags is known
// for all windows together: those that came first are told first.
func (g *ringRecord) observations(s *live.RingStats, t *liveTap) {
	weight := uint64(1)
	if t != nil {
		weight = max(t.at(s.Session).Weight, 1)
	}
	found, before := kindsOf(s), kindsOf(&g.seen)
	g.Tags += since(found[0], before[0]) * weight
	g.Reflections += since(found[1], before[1]) * weight

	row, c, was := &g.Row, &s.Counts, &g.Counts
	closed := since(c.Stored, was.Stored) + since(c.Overflow, was.Overflow) + since(c.Late, was.Late)
	row.Stored += since(c.Stored, was.Stored)
	row.Overflow += since(c.Overflow, was.Overflow)
	row.Late += since(c.Late, was.Late)
	row.Untouched += since(c.Untouched, was.Untouched)
	row.Trimmed += since(c.Trimmed, was.Trimmed)
	row.Rejected = addCounts(row.Rejected, len(c.Rejected), func(i int) (string, uint64) {
		n := since(c.Rejected[i], was.Rejected[i])
		closed += n
		return aggregate.Rejection(i).String(), n
	})
	reflections := min(g.Reflections, closed-min(g.Tags, closed))
	tags := closed - reflections
	g.Tags -= min(g.Tags, tags)
	g.Reflections -= reflections
	row.Tags += tags
	row.Reflections += reflections
	row.Observations += closed
}

// kindsOf are the tags and the reflections that a ring found.
func kindsOf(s *live.RingStats) (n [2]uint64) {
	for kind := range s.Found {
		for _, types := range s.Found[kind] {
			for _, count := range types {
				n[kind] += count
			}
		}
	}
	return n
}

// addCounts adds n counts that are not 0 to those by name.
func addCounts(to map[string]uint64, n int, at func(i int) (string, uint64)) map[string]uint64 {
	if to == nil {
		to = make(map[string]uint64)
	}
	for i := range n {
		if name, count := at(i); count > 0 {
			to[name] += count
		}
	}
	return to
}
