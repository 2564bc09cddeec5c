package live

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/feed"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// A worker takes the frames of one ring. Its goroutine alone uses it, but for the
// channels and what is the coordinator's.
type worker struct {
	key
	p      *Pipeline
	tap    Tap
	source aggregate.Source
	wrote  aggregate.Source // that of the rows before the last cut
	feed   *feed.Feeder
	lane   *feed.Lane
	hold   hold
	state  []byte // handed over last
	spare  []byte // handed over before it: memory for the next one

	last    int64           // time of the last frame
	quiet   int64           // what the source is quiet until, 0 while it has frames
	eof     bool            // no frame will come
	ending  bool            // has taken the last one
	from    int64           // frames before it are another worker's
	decoded decode.Counters // by decoders before the one at hand
	before  RingStats       // of the same ring, before it was this worker's

	orders  chan order // at most one, until it is answered
	answers chan *cut  // at most one
	coordinated
}

// coordinated is what the coordinator knows of a worker.
type coordinated struct {
	place   feed.Tap // in the plan
	next    order    // to be asked at the next barrier
	asked   bool     // an answer is due
	late    bool     // and a barrier went on without it
	saved   State    // of the last cut
	leaving bool     // has been told to end
	ended   bool     // no frame will come
	gone    bool     // answers no more
}

// An order asks a worker for a cut between two batches.
type order struct {
	plan *Plan // what is to be done from then on; nil as before
	tap  Tap   // with a plan
	end  bool  // take what was captured by now, close all windows, and end
}

// A cut is what a worker hands over.
type cut struct {
	state  []byte
	blocks []*aggregate.Block
	source aggregate.Source
	place  feed.Tap
	stats  RingStats
	last   bool
	at     int64 // as State.At
}

// event tells the coordinator of a worker.
type event struct {
	w     *worker
	full  bool  // holds as many rows as it may
	ended bool  // no frame will come
	gone  bool  // answers no more
	err   error // why
}

// newWorker makes a worker whose shard begins anew, or goes on from a state.
func (p *Pipeline) newWorker(plan *Plan, t *Tap, source aggregate.Source, state []byte) (*worker, error) {
	w := &worker{key: t.key(), p: p, tap: *t, source: source, orders: make(chan order, 1), answers: make(chan *cut, 1)}
	w.place = t.Tap
	w.source.Epoch = plan.Epoch
	w.wrote = w.source
	setDefault(&w.tap.Link, decode.Ethernet)
	var err error
	if w.feed, err = feed.New(plan.Decode); err != nil {
		return nil, err
	}
	var shard *aggregate.Shard
	if state == nil {
		shard, err = aggregate.NewShard(plan.shard(t, source), &w.hold)
	} else {
		shard, err = aggregate.RestoreShard(plan.shard(t, source), &w.hold, state)
	}
	if err != nil {
		return nil, err
	}
	w.lane = feed.NewLane(w.tap.Link, shard)
	return w, nil
}

// run takes frames until it is ordered to end.
func (w *worker) run(ctx context.Context) {
	err := w.loop(ctx)
	if closed := w.tap.Source.Close(); closed != nil {
		w.p.cfg.Logger.Warn("tap was not closed", slog.String("tap", w.name), slog.String("error", closed.Error()))
	}
	if err != nil {
		w.tell(ctx, event{w: w, gone: true, err: w.failed(err)})
	}
}

func (w *worker) failed(err error) error {
	return fmt.Errorf("live: tap %q, ring %d: %w", w.name, w.ring, err)
}

func (w *worker) tell(ctx context.Context, e event) {
	select {
	case w.p.events <- e:
	case <-ctx.Done():
	}
}

func (w *worker) loop(ctx context.Context) error {
	batch := new(capture.Batch)
	for ctx.Err() == nil {
		select {
		case o := <-w.orders:
			if o.end {
				return w.end(ctx, batch)
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
		case w.hold.rows >= w.p.cfg.MaxHeldRows:
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

// take reads one batch and feeds it. A source that fails has no more frames; what it gave
// before counts.
func (w *worker) take(ctx context.Context, batch *capture.Batch) error {
	batch.N = 0
	if err := w.tap.Source.ReadBatch(batch); err != nil {
		w.eof = true
		e := event{w: w, ended: true}
		if !errors.Is(err, io.EOF) {
			e.err = w.failed(err)
		}
		w.tell(ctx, e)
		return nil
	}
	if batch.N == 0 {
		w.quiet = w.tap.Source.QuietUntil()
		return nil
	}
	w.quiet = 0
	frames := batch.Frames[:batch.N]
	for len(frames) > 0 && frames[0].TimeNS < w.from {
		frames = frames[1:]
	}
	for i := range frames {
		if err := w.feed.Add(ctx, w.lane, &frames[i]); err != nil {
			return err
		}
	}
	w.feed.Packets += uint64(len(frames))
	w.last = batch.Frames[batch.N-1].TimeNS
	return nil
}

// wait waits for an order, once no frame will come. ended is that it was the last one.
func (w *worker) wait(ctx context.Context, batch *capture.Batch) (ended bool, err error) {
	select {
	case <-ctx.Done():
		return true, nil
	case o := <-w.orders:
		if o.end {
			return true, w.end(ctx, batch)
		}
		return false, w.answer(ctx, &o)
	}
}

// full asks for a barrier, to get rid of what is held.
func (w *worker) full(ctx context.Context, batch *capture.Batch) (ended bool, err error) {
	w.tell(ctx, event{w: w, full: true})
	return w.wait(ctx, batch)
}

// answer hands over a cut and goes on.
func (w *worker) answer(ctx context.Context, o *order) error {
	if err := w.lane.Pass(ctx); err != nil {
		return err
	}
	if err := w.lane.Shard().AdvanceTo(ctx, w.at()); err != nil {
		return err
	}
	w.wrote = w.source
	if o.plan != nil {
		if err := w.change(ctx, o); err != nil {
			return err
		}
	}
	return w.handOver(false)
}

// at is the time that the tap has come to: by the clock where it is idle or has ended,
// else its frames tell, with or without CSIG.
func (w *worker) at() int64 {
	now := w.p.cfg.Now().UnixNano()
	switch {
	case w.eof:
		return now
	case w.quiet > 0:
		return w.quiet
	}
	return min(w.last, now)
}

// change closes all windows, and goes on under another plan.
func (w *worker) change(ctx context.Context, o *order) error {
	if err := w.lane.Shard().Flush(ctx); err != nil {
		return err
	}
	o.tap.Source = w.tap.Source
	if o.tap.Link == 0 {
		o.tap.Link = w.tap.Link
	}
	next, err := w.lane.Shard().Succeed(o.plan.shard(&o.tap, w.source))
	if err != nil {
		return err
	}
	f, err := feed.New(o.plan.Decode)
	if err != nil {
		return err
	}
	w.decoded = w.counters()
	f.Tally = w.feed.Tally
	w.tap, w.feed, w.source.Epoch = o.tap, f, o.plan.Epoch
	w.lane = feed.NewLane(w.tap.Link, next)
	return nil
}

// counters are those of all decoders so far.
func (w *worker) counters() decode.Counters {
	c := w.feed.Decoded()
	c.Add(&w.decoded)
	return c
}

// handOver answers.
func (w *worker) handOver(last bool) error {
	state, err := w.lane.Shard().AppendState(w.spare[:0])
	if err != nil {
		return err
	}
	// The coordinator has let go of the state before the last one by now.
	w.spare, w.state = w.state, state
	w.answers <- &cut{
		state: state, blocks: w.hold.take(), source: w.source, place: w.tap.Tap, stats: w.stats(), last: last, at: w.at(),
	}
	return nil
}

// end takes what was captured before the order came, closes all windows and hands over
// the last cut.
func (w *worker) end(ctx context.Context, batch *capture.Batch) error {
	stop := w.p.cfg.Now().UnixNano()
	for !w.eof && w.last < stop && w.quiet < stop && ctx.Err() == nil {
		if err := w.take(ctx, batch); err != nil {
			return err
		}
	}
	w.last, w.quiet, w.ending = max(w.last, stop), 0, true
	w.wrote = w.source
	if err := w.lane.Pass(ctx); err != nil {
		return err
	}
	if err := w.lane.Shard().Flush(ctx); err != nil {
		return err
	}
	return w.handOver(true)
}
