package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// A worker processes the frames of one ring. Only its goroutine uses it, except for the
// channels and the coordinator's fields.
type worker struct {
	ringID
	p           *Pipeline
	plan        *Plan
	tap         Ring
	sessions    Sessions // the source, if it has sessions
	counter     Counter  // the source, if it counts packets itself
	lanes       []*lane  // the tap itself, then its sessions
	byIndex     []*lane  // by Frame.Interface; nil for sessions without a lane yet
	incarnation uint64   // of its lanes
	pending     pendingBlocks

	last   int64 // reception time of the last frame
	limit  int64 // Unix ns: later times are implausible
	quiet  int64 // Source.LowWatermark; 0 while frames arrive
	eof    bool  // no more frames will arrive
	ending bool  // has read its last frame
	from   int64 // time of frames, Unix ns: another worker counted the frames before it
	// stop is the time of frames (Unix ns) after which another worker counts them, and stopBy the system time by which the
	// earlier ones were received; 0 before the cut.
	stop, stopBy int64

	commands chan command   // at most one, until it is answered
	answers  chan *snapshot // at most one
	// cut is set when other rings replace this one: before the end command is sent, because a busy ring may take that
	// command too late; for a ring that hangs since an earlier reload, after it.
	cut atomic.Pointer[cut]
	coordinated
}

// coordinated is the coordinator's state of a worker.
type coordinated struct {
	planned window.Tap  // the tap's, in the latest plan
	next    command     // for the next barrier
	asked   bool        // an answer is pending
	late    bool        // a barrier continued without that answer
	saved   []Mark      // marks of the last snapshot
	stats   []RingStats // counters of the last snapshot
	through int64       // with the final snapshot: it has all frames up to then
	leaving bool        // was told to end
	ended   bool        // no more frames will arrive
	gone    bool        // will not answer again
}

// A command requests a snapshot between two batches.
type command struct {
	plan *Plan // the plan from then on; nil: unchanged
	tap  Ring  // with a plan
	end  bool  // take the frames captured so far, close all windows, and end

	within time.Duration // with end: maximum wait for a later frame
}

// A snapshot is a worker's answer to a command.
type snapshot struct {
	marks  []Mark
	stats  []RingStats
	blocks []*aggregate.Block
	last   bool

	through int64 // with last: it has all frames up to this time of theirs
}

// event notifies the coordinator about a worker.
type event struct {
	w     *worker
	full  bool  // holds the maximum number of rows
	ended bool  // no more frames will arrive
	gone  bool  // will not answer again
	err   error // cause
}

// newWorker makes a worker whose lanes have the given incarnation.
func (p *Pipeline) newWorker(t *Ring, incarnation uint64) (*worker, error) {
	w := &worker{ringID: t.id(), p: p, plan: p.plan, tap: *t, incarnation: incarnation, commands: make(chan command, 1), answers: make(chan *snapshot, 1)}
	w.planned = t.Tap
	w.tap.Link = cmp.Or(w.tap.Link, decode.Ethernet)
	if t.Sessions != nil {
		w.sessions = t.Source.(Sessions) // checked before
	}
	w.counter, _ = t.Source.(Counter)
	l, err := w.newLane("")
	if err != nil {
		return nil, err
	}
	w.put(0, l)
	return w, nil
}

// beginCounts adds the counts of a source since it was opened, or since the cut.
func (w *worker) beginCounts(ctx context.Context) error {
	if w.counter == nil {
		return nil
	}
	counts, err := w.counter.Count(&w.plan.Settings, w.tap.Tap)
	if err != nil {
		return err
	}
	return w.lanes[0].addCounts(ctx, &counts)
}

// run processes frames until a command ends it.
func (w *worker) run(ctx context.Context) {
	err := w.loop(ctx)
	if closed := w.tap.Source.Close(); closed != nil {
		w.p.cfg.Logger.Warn("cannot close tap", slog.String("tap", w.name), slog.String("error", closed.Error()))
	}
	if err != nil {
		w.send(ctx, event{w: w, gone: true, err: w.failed(err)})
	}
}

func (w *worker) failed(err error) error {
	return fmt.Errorf("taps: tap %q, ring %d: %w", w.name, w.ring, err)
}

func (w *worker) send(ctx context.Context, e event) {
	select {
	case w.p.events <- e:
	case <-ctx.Done():
	}
}

func (w *worker) loop(ctx context.Context) error {
	batch := new(capture.Batch)
	for ctx.Err() == nil {
		select {
		case o := <-w.commands:
			if o.end {
				return w.end(ctx, batch, o.within)
			}
			if err := w.answer(ctx, &o); err != nil {
				return err
			}
		default:
		}
		switch {
		case w.eof:
			if ended, err := w.wait(ctx, batch); ended || err != nil {
				return err
			}
			continue
		case w.pending.rows >= w.p.cfg.MaxHeldRows:
			if ended, err := w.full(ctx, batch); ended || err != nil {
				return err
			}
			continue
		}
		if err := w.take(ctx, batch); err != nil {
			return err
		}
	}
	return nil
}

// take reads one batch and processes it. After an error the source has no more frames; its
// earlier frames count.
func (w *worker) take(ctx context.Context, batch *capture.Batch) error {
	batch.N = 0
	if err := w.tap.Source.ReadBatch(batch); err != nil {
		w.eof = true
		e := event{w: w, ended: true}
		if !errors.Is(err, io.EOF) {
			e.err = w.failed(err)
		}
		w.send(ctx, e)
		return nil
	}
	if err := w.joinCut(ctx); err != nil {
		return err
	}
	frames, now := batch.Frames[:batch.N], w.p.cfg.Now().UnixNano()
	if n := w.earlier(frames, now); n > 0 {
		w.quiet = 0
		if err := w.takeFrames(ctx, frames[:n]); err != nil || n == len(frames) {
			return err
		}
		frames = frames[n:]
	}
	if err := w.follow(ctx, now); err != nil {
		return err
	}
	if w.counter != nil {
		return w.takeCounts(ctx, frames)
	}
	if !w.received() && len(frames) == 0 {
		w.quiet = w.tap.Source.LowWatermark()
		return w.advance(ctx)
	}
	w.quiet = 0
	return w.takeFrames(ctx, frames)
}

// earlier returns the number of leading frames that were captured before the clock was set back: their times were
// plausible under the previous limit, and no longer are. They are counted before the lanes follow the clock.
func (w *worker) earlier(frames []capture.Frame, now int64) (n int) {
	for limit := now + int64(aggregate.MaxAhead); n < len(frames) && frames[n].TimeNS > limit && frames[n].TimeNS <= w.limit; {
		n++
	}
	return n
}

// takeCounts adds the frames that a counting source delivered, and then its counts.
func (w *worker) takeCounts(ctx context.Context, frames []capture.Frame) error {
	if len(frames) > 0 {
		if err := w.lanes[0].add(ctx, w.own(frames)); err != nil {
			return err
		}
	}
	if w.stop == 0 {
		counts, err := w.counter.ReadCounts()
		if err != nil {
			return err
		}
		if err := w.addReading(ctx, &counts); err != nil {
			return err
		}
	}
	w.quiet = w.tap.Source.LowWatermark()
	w.last = w.quiet
	return w.advance(ctx)
}

// addReading adds the counts of a reading. If the clock was set back since the previous reading, it adds the counts
// from before first, and restarts the lane, so that the later ones are not late.
func (w *worker) addReading(ctx context.Context, c *Counts) error {
	l := w.lanes[0]
	if slices.ContainsFunc(c.List, func(o window.Counted) bool { return o.TimeNS > w.limit }) {
		before := Counts{
			List:    slices.DeleteFunc(slices.Clone(c.List), func(o window.Counted) bool { return o.TimeNS <= w.limit }),
			Samples: slices.DeleteFunc(slices.Clone(c.Samples), func(o window.Sampled) bool { return o.TimeNS <= w.limit }),
		}
		if err := l.addCounts(ctx, &before); err != nil {
			return err
		}
		if err := l.restart(ctx, w.now()); err != nil {
			return err
		}
		c.List = slices.DeleteFunc(c.List, func(o window.Counted) bool { return o.TimeNS > w.limit })
		c.Samples = slices.DeleteFunc(c.Samples, func(o window.Sampled) bool { return o.TimeNS > w.limit })
	}
	return l.addCounts(ctx, c)
}

// takeFrames adds frames to their lanes.
func (w *worker) takeFrames(ctx context.Context, frames []capture.Frame) error {
	if w.sessions != nil {
		if err := w.split(ctx, w.own(frames)); err != nil {
			return err
		}
		return w.advance(ctx)
	}
	w.last = frames[len(frames)-1].TimeNS
	if err := w.lanes[0].add(ctx, w.own(frames)); err != nil {
		return err
	}
	return w.advance(ctx)
}

// follow sets the latest plausible time of coming frames from now (Unix ns), and restarts lanes whose clock was set
// back.
func (w *worker) follow(ctx context.Context, now int64) error {
	limit, ahead := now+int64(aggregate.MaxAhead), w.tap.Source.Ahead()
	setBack := limit < w.limit
	w.limit = limit
	for _, l := range w.lanes {
		if setBack {
			if err := l.stream.Pass(ctx); err != nil {
				return err
			}
		}
		l.stream.RejectAfter(limit)
		back := l.stream.Shard().Watermark() - now - ahead
		if back <= 2*int64(aggregate.MaxAhead) {
			continue
		}
		w.p.cfg.Logger.Warn("the clock of a tap was set back: its windows begin again", slog.String("tap", l.Name), slog.Int("ring", w.ring), slog.Duration("by", time.Duration(back)))
		if err := l.restart(ctx, now+ahead); err != nil {
			return err
		}
	}
	return nil
}

// advance advances lanes with windows that have ended or closed by their clocks, and requests a
// round if one has closed.
func (w *worker) advance(ctx context.Context) error {
	at := w.at()
	for _, l := range w.lanes {
		if at-int64(l.Behind) < l.due {
			continue
		}
		if err := l.advance(ctx, at); err != nil {
			return err
		}
	}
	if w.pending.live {
		w.pending.live = false
		select {
		case w.p.closed <- struct{}{}:
		default: // already requested
		}
	}
	return nil
}

// maxOverlap is the longest time during which a ring and its replacement may both have frames.
const maxOverlap = 10 * time.Second

// own drops leading frames that the replaced ring counted (before w.from), and frames that the replacing ring will
// count (after w.stop). Frames more than maxOverlap before w.from stay: their clock was set back. Sessions keep all
// frames: their times come from other clocks, and one ring reads their address.
func (w *worker) own(frames []capture.Frame) []capture.Frame {
	if w.sessions != nil {
		return frames
	}
	for len(frames) > 0 && frames[0].TimeNS < w.from && w.from-frames[0].TimeNS <= int64(maxOverlap) {
		frames = frames[1:]
	}
	if len(frames) > 0 {
		w.from = 0
	}
	if w.stop == 0 {
		return frames
	}
	return slices.DeleteFunc(frames, func(f capture.Frame) bool { return f.TimeNS > w.stop })
}

// joinCut agrees on the cut with the tap's other replaced rings, once there is one, and adds the last counts of a
// counting source.
func (w *worker) joinCut(ctx context.Context) (err error) {
	c := w.cut.Load()
	if c == nil || w.stop > 0 {
		return nil
	}
	var last Counts
	if last, err = c.join(ctx, w); err != nil {
		return err
	}
	if w.stop, w.stopBy = c.at, c.by; w.counter == nil {
		return nil
	}
	return w.lanes[0].addCounts(ctx, &last)
}

// wait waits for a command once no more frames will arrive. ended reports that it was the last
// one.
func (w *worker) wait(ctx context.Context, batch *capture.Batch) (ended bool, err error) {
	select {
	case <-ctx.Done():
		return true, nil
	case o := <-w.commands:
		if o.end {
			return true, w.end(ctx, batch, o.within)
		}
		return false, w.answer(ctx, &o)
	}
}

// full requests a barrier, to release the held rows.
func (w *worker) full(ctx context.Context, batch *capture.Batch) (ended bool, err error) {
	w.send(ctx, event{w: w, full: true})
	return w.wait(ctx, batch)
}

// answer sends a snapshot and continues.
func (w *worker) answer(ctx context.Context, o *command) error {
	at := w.at()
	for _, l := range w.lanes {
		if err := l.advance(ctx, at); err != nil {
			return err
		}
	}
	if o.plan != nil {
		if err := w.change(ctx, o); err != nil {
			return err
		}
	}
	w.sendSnapshot(&snapshot{}, at)
	return nil
}

// at returns how far the tap has come, by the source's clock: the present if it is idle or has
// ended, else the time of its last frame, with or without CSIG.
func (w *worker) at() int64 {
	now := w.now()
	switch {
	case w.eof:
		return now
	case w.quiet > 0:
		return w.quiet + w.tap.Source.Ahead()
	}
	return min(w.last, now)
}

// now returns the current time by the source's clock.
func (w *worker) now() int64 { return w.p.cfg.Now().UnixNano() + w.tap.Source.Ahead() }

// change switches to another plan.
func (w *worker) change(ctx context.Context, o *command) error {
	o.tap.Source = w.tap.Source
	o.tap.Link = cmp.Or(o.tap.Link, w.tap.Link)
	if w.counter != nil {
		counts, err := w.counter.Count(&o.plan.Settings, o.tap.Tap)
		if err == nil {
			err = w.lanes[0].addCounts(ctx, &counts)
		}
		if err != nil {
			return err
		}
	}
	w.plan, w.tap = o.plan, o.tap
	for _, l := range w.lanes {
		if err := l.change(ctx, o.plan, w.tapOf(l.session)); err != nil {
			return err
		}
	}
	return nil
}

// sendSnapshot completes the snapshot and sends it. The lanes have advanced to the time.
func (w *worker) sendSnapshot(c *snapshot, at int64) {
	c.blocks = w.pending.take()
	for _, l := range w.lanes {
		c.marks, c.stats = append(c.marks, l.mark(at, w.ending)), append(c.stats, l.snapshot(w.p.cfg.Now(), w.eof || w.ending))
	}
	w.answers <- c
}

// end takes the frames captured before the command, or up to the cut, closes all windows and sends
// the final snapshot.
func (w *worker) end(ctx context.Context, batch *capture.Batch, within time.Duration) error {
	ordered := w.p.cfg.Now()
	stop := ordered.UnixNano()
	if err := w.joinCut(ctx); err != nil {
		return err
	}
	for !w.eof && !w.delivered(stop) && ctx.Err() == nil {
		if w.p.cfg.Now().Sub(ordered) > within {
			w.p.cfg.Logger.Warn("a tap ended before it had read all captured frames",
				slog.String("tap", w.name), slog.Int("ring", w.ring), slog.Duration("behind", time.Duration(stop-w.last)))
			break
		}
		if err := w.take(ctx, batch); err != nil {
			return err
		}
	}
	c := &snapshot{last: true, through: min(w.last, w.now())}
	if w.stop > 0 && (w.delivered(stop) || c.through > w.stop) {
		c.through = w.stop
	}
	w.last, w.quiet, w.ending = max(w.last, stop+w.tap.Source.Ahead()), 0, true
	for _, l := range w.lanes {
		if err := l.close(ctx, w.stop > 0); err != nil {
			return err
		}
	}
	w.sendSnapshot(c, w.at())
	return nil
}

// delivered reports whether the source has delivered all frames up to the cut; without one, those received
// before a time (Unix ns, system clock).
func (w *worker) delivered(received int64) bool {
	at, by := received+w.tap.Source.Ahead(), received
	if w.stop > 0 {
		at, by = w.stop, w.stopBy
	}
	return w.last > at || w.quiet >= by
}

// pendingBlocks is the sink of a worker's shards: it keeps closed blocks until the next barrier.
type pendingBlocks struct {
	blocks []*aggregate.Block
	rows   int
	live   bool // it has a block of aggregate.LiveResolution for which no round is requested yet
}

// WriteBlock implements aggregate.Sink. It never fails.
func (h *pendingBlocks) WriteBlock(_ context.Context, b *aggregate.Block) error {
	h.blocks = append(h.blocks, b.Clone())
	h.rows += b.Len() + len(b.Flows)
	h.live = h.live || b.Resolution == int64(aggregate.LiveResolution)
	return nil
}

// take returns the held blocks and empties it.
func (h *pendingBlocks) take() []*aggregate.Block {
	blocks := h.blocks
	h.blocks, h.rows, h.live = nil, 0, false
	return blocks
}
