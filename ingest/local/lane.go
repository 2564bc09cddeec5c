package local

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// A lane is one tap, or one session of a mirror tap, in a worker: its window.Stream and the identity
// of its rows. Only its worker uses it.
type lane struct {
	SessionTap
	ring    int
	of      string // tap of the session; empty for the tap itself
	session string // name in the tap's source
	link    decode.Link
	pending *pendingBlocks

	provisional aggregate.ProvisionalSink // nil: none

	source aggregate.Source
	wrote  aggregate.Source // identity of the rows before the last snapshot
	stream *window.Stream

	last   int64     // time of the last frame
	seen   uint64    // observations as of the last snapshot
	heard  int64     // RingStats.Observed
	due    int64     // next end or close of a window in live views, by the lane's clock
	before RingStats // of an earlier ring of this name, whose findings continue
}

// open makes the stream of the lane.
func (l *lane) open(plan *Plan) (err error) {
	l.source.Epoch = plan.Epoch
	l.wrote = l.source
	l.stream, err = window.NewStream(l.settings(plan), l.Tap, window.Origin{Name: l.Name, Link: l.link, Source: l.source, SeqBase: seqBase(l.ring)}, l.pending)
	if err != nil {
		return err
	}
	l.stream.Resume(l.before.Findings)
	return nil
}

// settings returns the settings of the lane under a plan.
func (l *lane) settings(plan *Plan) *window.Settings {
	s := plan.Settings
	if l.session != "" {
		s.MaxSeries = max(cmp.Or(s.MaxSeries, window.DefaultMaxSeries)/SessionShare, 1)
		s.Flows.Budget = max(cmp.Or(s.Flows.Budget, window.DefaultFlowBudget)/SessionShare, s.Flows.Top, 2)
	}
	return &s
}

// add processes frames.
func (l *lane) add(ctx context.Context, frames []capture.Frame) error {
	if err := l.stream.Add(ctx, frames); err != nil {
		return err
	}
	if n := len(frames); n > 0 {
		l.last = frames[n-1].TimeNS
	}
	return nil
}

// addCounts adds packets that the source has counted.
func (l *lane) addCounts(ctx context.Context, c *Counts) error {
	if c.Frames.Packets > 0 {
		l.last = c.Frames.Last
	}
	if err := l.stream.AddCounted(ctx, &c.Frames, c.List); err != nil {
		return err
	}
	l.stream.AddSampled(c.Samples)
	return nil
}

// advance closes the windows that are due at a time of the worker's source, and announces those
// that have ended.
func (l *lane) advance(ctx context.Context, at int64) error {
	l.wrote = l.source
	at -= int64(l.Behind)
	if err := l.stream.AdvanceTo(ctx, at); err != nil {
		return err
	}
	if l.provisional != nil {
		l.stream.WriteProvisional(l.provisional)
	}
	l.due = l.stream.NextLive(at)
	return nil
}

// close closes all windows. replaced reports that another ring goes on with the tap.
func (l *lane) close(ctx context.Context, replaced bool) error {
	if l.wrote = l.source; replaced {
		return l.stream.Suspend(ctx)
	}
	return l.stream.Flush(ctx)
}

// change switches to another plan and place.
func (l *lane) change(ctx context.Context, plan *Plan, to SessionTap) error {
	l.Behind, l.Tap = to.Behind, to.Tap
	if err := l.stream.Reconfigure(ctx, l.settings(plan), l.Tap); err != nil {
		return err
	}
	l.source.Epoch = plan.Epoch
	return nil
}

// restart closes all windows and begins again after its clock was set back to now. Observations since the last snapshot
// count as of now, because the shard forgets their time.
func (l *lane) restart(ctx context.Context, now int64) error {
	l.wrote, l.due = l.source, 0
	if err := l.stream.Restart(ctx); err != nil {
		return err
	}
	if n := l.stream.Counts().In; n != l.seen {
		l.seen, l.heard = n, now
	}
	l.heard = min(l.heard, now)
	return nil
}

// mark returns the progress of the lane, at a time of the worker's source.
func (l *lane) mark(at int64, closed bool) Mark {
	return Mark{Name: l.Name, Ring: l.ring, Of: l.of, Session: l.session, Source: l.source, At: at, Behind: l.Behind, Closed: closed}
}

// snapshot returns the counts of the lane for a round. The shard's watermark follows the clock and so
// does not show when something was last observed; a change of the number of observations does.
func (l *lane) snapshot(at time.Time, ended bool) RingStats {
	shard := l.stream.Shard()
	s := RingStats{
		Ended: ended, Cut: at, Name: l.Name, Ring: l.ring, Of: l.of, Session: l.session, Source: l.source, Wrote: l.wrote,
		Tally: *l.stream.Tally(), Decoded: l.stream.Decoded(), Counts: l.stream.Counts(),
		StateBytes: shard.StateBytes(), Findings: l.stream.Findings(),
	}
	if l.last > 0 {
		s.LastFrame = time.Unix(0, l.last)
	}
	switch {
	case s.Counts.In != l.seen:
		l.seen, l.heard = s.Counts.In, shard.Watermark()
	case l.heard == 0:
		l.heard = cmp.Or(l.before.Observed, at.UnixNano())
	}
	s.Observed = l.heard
	return s
}

// seqBase returns the number of a ring's first block: the rings of a tap are parts of one
// producer. Numbers begin at 1, since the protocol of exporters refuses 0.
func seqBase(ring int) uint64 { return uint64(ring)<<aggregate.PartShift | 1 }

// RingOf returns the ring that wrote the block with this number.
func RingOf(seq uint64) int { return int(seq >> aggregate.PartShift) }

// Producer returns the identity of a tap of an instance.
func Producer(instance, tap string) uint64 {
	return xxhash.Sum64String(fmt.Sprintf("live %q %q", instance, tap))
}

// incarnation returns a new incarnation, above all earlier ones. It is for rings without state,
// whose block numbers begin again; rings that begin together share it.
func (p *Pipeline) incarnation() uint64 {
	p.last = max(p.last+1, uint64(max(p.cfg.Now().UnixNano(), 0)))
	return p.last
}

// Mark records how far the rows of one ring go, as of a round.
type Mark struct {
	Name string // of the tap
	Ring int
	// Of and Session are as in RingStats.
	Of, Session string
	Source      aggregate.Source
	// At is the time (Unix ns) up to which the ring has processed frames; 0 before the first frame or the
	// first read without one.
	At int64
	// Behind is how far the windows lag: those that are due by this time before At are closed.
	Behind time.Duration `json:",omitempty"`
	// Closed reports that all of its windows are closed: none was open at At.
	Closed bool
}
