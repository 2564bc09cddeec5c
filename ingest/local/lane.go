package local

import (
	"cmp"
	"context"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/finding"
	"github.com/csigscope/csigscope/aggregate/window"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/decode"
)

// A lane is the way of one tap's frames into rows, with a decoder and a shard of its own.
// The worker that it is in uses it alone.
type lane struct {
	SessionTap
	ring    int
	of      string // the tap whose session it is; empty for the tap itself
	session string // of the tap's source
	link    decode.Link
	plan    *Plan
	hold    *hold

	source aggregate.Source
	wrote  aggregate.Source // that of the rows before the last cut
	feed   *window.Pipeline
	way    *window.Stream
	watch  *finding.Watcher // nil for none

	last    int64           // time of the last frame
	decoded decode.Counters // by decoders before the one at hand
	before  RingStats       // of the same name, before it was this lane's
}

// open makes what frames of the lane go through.
func (l *lane) open(plan *Plan) error {
	l.plan, l.source.Epoch = plan, plan.Epoch
	l.wrote = l.source
	var err error
	if l.feed, err = window.NewPipeline(plan.Decode); err != nil {
		return err
	}
	cfg, err := l.shard()
	if err != nil {
		return err
	}
	shard, err := window.NewShard(cfg, l.hold)
	if err != nil {
		return err
	}
	l.way = window.NewStream(l.link, l.Mirrors, shard)
	return nil
}

// shard is the configuration of the lane's next shard, with a watch that goes on from what
// was found before.
func (l *lane) shard() (window.Config, error) {
	cfg := l.plan.shard(l.Tap, l.ring, l.source)
	found, runs := l.findings(), l.runs()
	if l.watch = nil; l.plan.Finding != nil {
		var err error
		if l.watch, err = finding.NewWatcher(*l.plan.Finding, ""); err != nil {
			return cfg, err
		}
		l.watch.Resume(found)
		l.watch.ResumeRuns(runs)
		cfg.Watch, cfg.WatchSent = l.watch, l.Place == "sender"
	}
	if l.session != "" {
		cfg.MaxKeys = max(cfg.MaxKeys/sessionShare, 1)
		cfg.Flows.Budget = max(cmp.Or(cfg.Flows.Budget, window.DefaultFlowBudget)/sessionShare, cfg.Flows.Top, 2)
	}
	return cfg, nil
}

// findings are those of the lane, and of those of its name before it.
func (l *lane) findings() []finding.Finding {
	if l.watch == nil {
		return l.before.Findings
	}
	return l.watch.Findings()
}

// runs are those that the lane's findings may come of.
func (l *lane) runs() []finding.Run {
	if l.watch == nil {
		return nil
	}
	return l.watch.Runs()
}

// add takes frames in.
func (l *lane) add(ctx context.Context, frames []capture.Frame) error {
	for i := range frames {
		if err := l.feed.Add(ctx, l.way, &frames[i]); err != nil {
			return err
		}
	}
	if n := len(frames); n > 0 {
		l.feed.Packets += uint64(n)
		l.last = frames[n-1].TimeNS
	}
	return nil
}

// advance closes the windows that end before a time of the worker's source.
func (l *lane) advance(ctx context.Context, at int64) error {
	if err := l.way.Pass(ctx); err != nil {
		return err
	}
	l.wrote = l.source
	return l.way.Shard().AdvanceTo(ctx, at-int64(l.Behind))
}

// close closes all windows.
func (l *lane) close(ctx context.Context) error {
	if err := l.way.Pass(ctx); err != nil {
		return err
	}
	l.wrote = l.source
	return l.way.Shard().Flush(ctx)
}

// change goes on under another plan and at another place. Where rows mean something else
// from then on, all windows close.
func (l *lane) change(ctx context.Context, plan *Plan, to SessionTap) error {
	same := l.plan.same(plan) && l.Tap == to.Tap
	l.plan, l.Behind, l.Tap = plan, to.Behind, to.Tap
	if same {
		return nil
	}
	if err := l.way.Shard().Flush(ctx); err != nil {
		return err
	}
	cfg, err := l.shard()
	if err != nil {
		return err
	}
	next, err := l.way.Shard().Succeed(cfg)
	if err != nil {
		return err
	}
	f, err := window.NewPipeline(plan.Decode)
	if err != nil {
		return err
	}
	l.decoded = l.counters()
	f.Tally = l.feed.Tally
	l.feed, l.source.Epoch = f, plan.Epoch
	l.way = window.NewStream(l.link, l.Mirrors, next)
	return nil
}

// mark is how far the lane has come, at a time of the worker's source.
func (l *lane) mark(at int64, closed bool) Mark {
	return Mark{Name: l.Name, Ring: l.ring, Of: l.of, Session: l.session, Source: l.source, At: at, Closed: closed}
}

// counters are those of all decoders so far.
func (l *lane) counters() decode.Counters {
	c := l.feed.Decoded()
	c.Add(&l.decoded)
	return c
}

// stats is a snapshot.
func (l *lane) stats() RingStats {
	shard := l.way.Shard()
	s := RingStats{
		Name: l.Name, Ring: l.ring, Of: l.of, Session: l.session, Source: l.source, Wrote: l.wrote,
		Tally: l.before.Tally, Decoded: l.before.Decoded, Counts: l.before.Counts,
		Watermark: shard.Watermark(), StateBytes: shard.StateBytes(), LastFrame: l.before.LastFrame, Findings: l.findings(),
	}
	s.Merge(&l.feed.Tally)
	decoded, counts := l.counters(), shard.Counts()
	s.Decoded.Add(&decoded)
	s.Counts.Merge(&counts)
	if l.last > 0 {
		s.LastFrame = time.Unix(0, l.last)
	}
	return s
}
