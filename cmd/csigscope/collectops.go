package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
	"github.com/csigscope/csigscope/capture"
	"github.com/csigscope/csigscope/dashboards/metrics"
	"github.com/csigscope/csigscope/decode"
)

const (
	// pulse is how often it is looked whether rounds go on.
	pulse = time.Second
	// patientIntervals is how many checkpoint intervals may pass without one, and
	// patience how long at least, before the process is not alive.
	patientIntervals = 10
	patience         = 30 * time.Second
)

// watch makes the pipeline part of the process's metrics and health.
func (c *collector) watch(o *operations) error {
	if err := errors.Join(c.watchPipeline(o), o.watchStore(c.db)); err != nil {
		return err
	}
	if c.feed != nil {
		if err := o.watchDoor(c.feed.door, c.feed.api); err != nil {
			return err
		}
	}
	if c.server != nil {
		if err := o.export(metrics.NewIngest(func() metrics.Ingest { return ingestMetrics(c.server) })); err != nil {
			return err
		}
	}
	return o.export(
		metrics.NewLive(c.liveMetrics), metrics.NewStore(c.db.store.WriterStatus), metrics.NewLatency(c.db.store.Latency),
		metrics.NewBottlenecks(time.Now, topCount, c.placeName, c.top.Top),
	)
}

// watchPipeline makes the taps and what is behind them part of metrics and health.
func (c *capturing) watchPipeline(o *operations) error {
	c.ops = o
	o.health.Require("taps", c.tapsUp)
	stats := c.live.Stats
	return o.export(
		metrics.NewTaps(c.tapMetrics),
		metrics.NewMirrors(c.mirrorMetrics),
		metrics.NewDecode(func() decode.Counters { return stats().Decoded() }),
		metrics.NewAggregate(func() aggregate.Counts { return stats().Counts() }),
		metrics.NewProducers(time.Now, c.producers),
		metrics.NewFabric(func() fabric.Counts { return c.using.Load().fabric.Counts() }),
	)
}

// beat tells health that rounds go on, until ctx ends.
func (c *capturing) beat(ctx context.Context) error {
	beat := c.ops.health.Watch("checkpoints", max(patience, patientIntervals*c.config.Checkpoint.Every.d))
	defer beat.End()
	ticker := time.NewTicker(pulse)
	defer ticker.Stop()
	for last := uint64(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if n := c.live.Stats().Barriers; n != last {
			beat.Turn()
			last = n
		}
	}
}

// tapsUp is nil while the links of all taps are up.
func (c *capturing) tapsUp(context.Context) error { return c.open.Load().Up() }

// tapMetrics are the taps that are open.
func (c *capturing) tapMetrics() (list []metrics.Tap) {
	frames := make(map[string]time.Time)
	for _, r := range c.live.Stats().Rings {
		if of := cmp.Or(r.Of, r.Name); r.LastFrame.After(frames[of]) {
			frames[of] = r.LastFrame
		}
	}
	for _, t := range *c.open.Load() {
		n := t.Counters()
		m := metrics.Tap{
			Name: t.Name(), Up: t.State() == capture.LinkUp, Frames: n.Frames, Bytes: n.Bytes, Dropped: n.Dropped, Freezes: n.Freezes,
			Stripped: n.Stripped, SuperFrames: n.SuperFrames, HardwareStamps: n.HardwareStamps, Restamped: n.Restamped,
			Malformed: n.Malformed, Downs: n.Downs, Ups: n.Ups, Reopens: n.Reopens, LastFrame: frames[t.Name()],
		}
		// Frames from the future are of a clock that is ahead; one that is behind looks
		// like silence.
		m.ClockOffset = max(time.Until(m.LastFrame), 0)
		list = append(list, m)
	}
	return list
}

// mirrorMetrics are the mirrors that are open. A fixed set of results is what packets came
// to.
func (c *capturing) mirrorMetrics() (list []metrics.Mirror) {
	for _, t := range *c.open.Load() {
		mirror := t.Mirror()
		if mirror == nil {
			continue
		}
		counts := mirror.Counters()
		m := metrics.Mirror{Name: t.Name(), Packets: make(map[string]uint64), Excess: counts.Excess}
		for result, n := range counts.Results {
			m.Packets[decode.Mirror(result).String()] = n
		}
		for _, s := range mirror.Sessions()[1:] {
			m.Sessions = append(m.Sessions, metrics.MirrorSession{
				Name: t.SessionName(s.Name), Frames: s.Frames, Lost: s.Lost, SwitchTimes: s.SwitchTimes, Unusable: s.Unusable,
			})
		}
		list = append(list, m)
	}
	return list
}

func (c *capturing) producers() (list []metrics.Producer) {
	for _, r := range c.live.Stats().Rings {
		list = append(list, metrics.Producer{Name: r.Name, Watermark: r.Watermark, StateBytes: r.StateBytes})
	}
	return list
}

// liveMetrics is what the pipeline counts of itself, and its rounds.
func (c *capturing) liveMetrics() metrics.Live {
	s := c.live.Stats()
	m := metrics.Live{Stalled: s.Stalled, Full: s.Full, Reloads: s.Reloads}
	st := c.journal.Stats()
	m.Checkpoints, m.Failed, m.LastCheckpoint = st.Taken, st.Failed, st.Last
	return m
}
